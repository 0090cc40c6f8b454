//! What the crate promises, tried on a pool and streams that real OpenZFS made.

mod golden_streams;
mod reading;
