//! Free space: allocation, and the time when freed space may be allocated again.
//!
//! All in memory, no I/O: `spa` reads space maps and [loads](Allocator::load_metaslab) them, takes the
//! [changes](Allocator::drain_changes) of each txg and writes them down. An [`Allocator`] has
//! top-level vdevs, they have metaslabs, and each of those is for one [`Class`] of blocks.
//!
//! ```text
//! allocator   the pool: copies, classes, what is asked from above
//!  └ rotor    whose turn it is among the vdevs of a class, by what is free
//!    └ top    a vdev: which metaslab is in use
//!      └ slab a metaslab: free, allocated, waiting; what each txg changed
//!        └ free, ranges   where a piece fits
//! allocated   which ranges blocks may have
//! removed     vdevs that were removed: freeing what has its address there
//! removing    the vdev that is being removed: freeing what is copied, and what is not copied yet
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
mod removing_vdev;
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
