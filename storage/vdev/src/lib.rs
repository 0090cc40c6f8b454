//! Drives and arrays as one address space.
//!
//! A [`VdevTree`] is a pool's vdevs. It reads what an address says, with the redundancy of the
//! top-level vdev there: the caller brings a judge (the block's checksum), and the vdev goes on
//! trying (the other side of a mirror, parity, suspicion of each set of columns in turn) until
//! the judge is content or nothing is left to try. It writes where an address says, with parity,
//! and goes on while redundancy lasts; each leaf remembers the txgs in which it missed something.
#![forbid(unsafe_code)]

mod config;
mod distributed_spare;
mod error;
mod evacuate;
mod flush;
mod indirect;
mod leaf;
mod mirror;
mod node;
mod outage;
mod queue;
mod raidz;
mod read_run;
mod rebuild;
mod reflow;
mod reflow_gate;
mod repair;
mod tree;
mod txg_ranges;
mod verify;
mod write;

pub use config::{BuildContext, LeafDevice, min_asize};
pub use distributed_spare::DistributedSpare;
pub use error::{DeviceError, Error, LeafError};
pub use evacuate::{EvacuationPause, RangeCopy};
pub use indirect::{Indirect, IndirectMapping, MappingSegment};
pub use leaf::{Leaf, OutOfService};
pub use node::{NodeKind, VdevNode};
pub use queue::{
    ClassStats, DEFAULT_BACKGROUND_SHARE, IoClass, QueueClass, QueueStats, TotalStats, with_class,
};
pub use read_run::RunBlock;
pub use rebuild::{RebuildObstacle, RebuiltChunk};
pub use reflow::{ReflowChunk, ReflowLeaves, ReflowPause, overwrite_limit, scratch_size};
pub use repair::RepairFilter;
pub use tree::{BlockValidator, LayoutHold, ReadRequest, VdevTree};
pub use txg_ranges::TxgRanges;
pub use write::BlockWrite;
