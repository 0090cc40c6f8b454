//! Files and directories on a dataset.
#![forbid(unsafe_code)]
