//! The poolhouse command.
#![forbid(unsafe_code)]

fn main() {}
