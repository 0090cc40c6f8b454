//! A dataset as a block device.
#![forbid(unsafe_code)]
