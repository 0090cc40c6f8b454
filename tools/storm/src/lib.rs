//! Power cuts of pools at every write: synced data survives, and every state is consistent.
//!
//! A [`Workload`] is a list of operations: one of all the short ones, or a long one from
//! a seed. [`Run`] runs it on a pool over [`sim::DiskArray`] drives, and records after each sync
//! the expected state as of that txg, from a [`Model`] that shares no code with the pool.
//! A [`PowerCut`] is that run, a moment of it, and one possible content of the drives
//! after a power failure then. The pool must have one of the possible states, `check` must find
//! nothing, and the pool must be importable and usable.
//!
//! A cut is written as `SHAPE:WORKLOAD:AT:WAY`, such as `raidz1:e1207:31:5`. Failures print that;
//! `POOLHOUSE_STORM` makes the test `replay` repeat it with more output.
//!
//! A [`ForeignPool`] is a pool of another system, imported and cut.
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
