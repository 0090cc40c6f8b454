//! Name to value tables kept in an object.
#![forbid(unsafe_code)]
