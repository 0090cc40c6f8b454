//! The pool: from devices to something that can be read.
//!
//! [`scan`] reads the labels of devices and sorts them into pools; a [`Candidate`] is a pool so
//! found, and opening one gives a [`Pool`]: its vdevs, its cache, its own object set (the MOS).
#![forbid(unsafe_code)]

pub mod auxiliary;
mod candidate;
pub mod capacity;
mod clones;
mod commit;
mod create;
mod dedup;
mod dedup_logs;
pub mod design;
mod directory;
mod error;
mod features;
mod labels;
mod open;
mod owned;
mod pool;
mod removed;
mod same_leaf;
mod scan;
mod space;

pub use candidate::{Candidate, LeafSummary, scan};
pub use clones::{Cloned, Clones};
pub use commit::{Commit, config_of};
pub use create::{FIRST, Made, NewPool, RootKey, create};
pub use dedup::{Dedup, SizeOf};
pub use dedup_logs::DedupLogs;
pub use directory::Directory;
pub use error::Error;
pub use features::{FeatureState, Verdict};
pub use labels::{LabelCopy, Labelled, Slot, read as read_labels};
pub use metaslab::Pin;
pub use open::{Between, Choice, Options};
pub use owned::{
    Accounts, Allowed, Look, NewSide, Owned, Redundant, Refusal, SIGNS_MISSED, Set, Settings, Stay,
    World,
};
pub use pool::Pool;
pub use same_leaf::Duplicate;
pub use scan::{Damage, Mended, Watch};
pub use space::{Space, TopSpace, space_map_entries};
