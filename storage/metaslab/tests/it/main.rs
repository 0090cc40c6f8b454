//! What the allocator promises.

mod basics;
