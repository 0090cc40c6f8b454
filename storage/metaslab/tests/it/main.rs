//! The guarantees of the allocator.

mod basics;
mod model;
mod vdevs;
