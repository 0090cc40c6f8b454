//! Drives and arrays as one address space.
#![forbid(unsafe_code)]
