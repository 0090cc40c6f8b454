//! Free space: allocation, and the time when freed space may be allocated again.
//!
//! All in memory, no I/O: `spa` reads space maps and [loads](Allocator::load_metaslab) them, takes the
//! [changes](Allocator::drain_changes) of each txg and writes them down. An [`Allocator`] has
//! top-level vdevs, they have metaslabs, and each of those is for one [`Class`] of blocks.
//!
//! ```text
//! allocator        the pool: copies, classes, requests from above
//!  └ rotor         the next vdev of a class, by free space
//!    └ group       a vdev: the metaslab in use
//!      └ metaslab  free, allocated and deferred ranges; the changes of each txg
//!        └ free_space, range_set   the search for a range
//! allocated    the ranges that blocks may have
//! removed_vdev  removed vdevs: frees of blocks with addresses there
//! checkpoint  freed blocks that the pool's checkpoint keeps
//! ```
//!
//! Invariants (`tests/it`): no byte is allocated twice; none is lost; freed space is not
//! allocated before its txg and two more are on disk.
#![forbid(unsafe_code)]

mod allocated;
mod allocator;
mod checkpoint;
mod class;
mod error;
mod free_space;
mod group;
mod lend;
mod metaslab;
mod pin;
mod range_set;
mod removed_vdev;
mod resize;
mod rotor;
mod usage;

pub use allocator::{AllocRequest, Allocator, MapReader};
pub use class::Class;
pub use error::Error;
pub use group::{AsizeFn, MetaslabGroupSpec};
pub use pin::Pin;
pub use range_set::RangeSet;
pub use removed_vdev::RemapFn;
pub use usage::{MetaslabChange, SpaceUsage};
