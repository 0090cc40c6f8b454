//! What the crate promises, tried on pools that real OpenZFS made.

mod compare;
mod extents;
mod fixtures;
mod open;
