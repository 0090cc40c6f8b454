//! Pools whose power is cut at every write: what was synced must be there, and nothing half-done.
//!
//! A [`Workload`] is a row of operations: one of all the short ones there are, or a long one from
//! a seed. [`Run`] lets it run on a pool over [`sim::DiskArray`] drives, and remembers after each sync
//! what the pool must hold as of that txg, as a [`Model`] which shares no code with the pool says.
//! A [`PowerCut`] is that run, a moment of it, and one of the ways in which the drives could be found
//! after the power failed then; the pool must be one of those that it may be, `check` must find
//! nothing, and it must be possible to take it over and go on.
//!
//! A cut is written as `SHAPE:WORKLOAD:AT:WAY`, such as `raidz1:e1207:31:5`. Failures print that;
//! `POOLHOUSE_STORM` makes the test `replay` do it again and tell more.
//!
//! A [`ForeignPool`] is a pool that somebody else made, taken over and cut.
#![forbid(unsafe_code)]

mod content;
mod file_state;
mod foreign_pool;
mod model;
mod op;
mod pool;
mod power_cut;
mod run;
mod tree;
mod workload;

pub use foreign_pool::ForeignPool;
pub use model::Model;
pub use op::Op;
pub use pool::{BasePool, PoolLayout};
pub use power_cut::{Failure, PowerCut};
pub use run::Run;
pub use workload::Workload;
