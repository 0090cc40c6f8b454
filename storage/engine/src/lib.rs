//! The door: one plain API, plain data, sentences for errors.
#![forbid(unsafe_code)]
