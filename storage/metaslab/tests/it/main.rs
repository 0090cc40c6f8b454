//! What the allocator promises.

mod basics;
mod model;
mod vdevs;
