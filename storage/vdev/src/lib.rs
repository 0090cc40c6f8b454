//! Drives and arrays as one address space.
//!
//! A [`Tree`] is a pool's vdevs. It reads what an address says, with the redundancy of the
//! top-level vdev there: the caller brings a judge (the block's checksum), and the vdev goes on
//! trying (the other side of a mirror, parity, suspicion of each set of columns in turn) until
//! the judge is content or nothing is left to try. It writes where an address says, with parity,
//! and goes on while redundancy lasts; each leaf remembers the txgs in which it missed something.
#![forbid(unsafe_code)]

mod config;
mod error;
mod examine;
mod flush;
mod indirect;
mod leaf;
mod mend;
mod mirror;
mod node;
mod raidz;
mod ranges;
mod run;
mod tree;
mod write;

pub use config::{FoundLeaf, Surroundings, needed_space};
pub use error::{Error, LeafFault, Trouble};
pub use indirect::{Indirect, Mapping, Segment};
pub use leaf::Leaf;
pub use mend::Wanting;
pub use node::{Kind, Node};
pub use ranges::TxgRanges;
pub use run::Part;
pub use tree::{Judge, Request, Tree};
pub use write::Outgoing;
