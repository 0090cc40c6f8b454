//! Long work one can watch, slow, stop and resume.
#![forbid(unsafe_code)]
