//! The intent log: what was promised before the txg closed.
#![forbid(unsafe_code)]
