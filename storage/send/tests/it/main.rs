//! Tests of sending and receiving, on a pool and streams that real OpenZFS made.

mod golden_streams;
mod reading;
