//! The pool: import, sync, space, scans.
//!
//! [`scan_devices`] reads the labels of devices and sorts them into pools; a [`Candidate`] is a pool so
//! found, and opening one gives a [`Pool`]: its vdevs, its cache, its own object set (the MOS).
#![forbid(unsafe_code)]

mod active;
pub mod auxiliary;
mod candidate;
pub mod capacity;
mod clones;
mod commit;
mod create;
mod dedup;
mod dedup_logs;
mod directory;
mod duplicates;
mod error;
mod features;
mod labels;
mod open;
mod pool;
mod removed;
mod scan;
mod space;
pub mod vdev_layout;

pub use active::{
    ActivePool, ActivityCommand, ActivityKind, ActivityStep, AttachMode, CheckpointError,
    CheckpointStatus, CondenseLimits, DeviceChangeError, EnabledFeatures, Environment, ExpandError,
    ExpansionStatus, FEATURES_VERSION, LeafProgress, NewChild, NewTop, OfflineResult, OpenDataset,
    OwnerAccounting, RebuildStatus, Reconstruction, RedundantMetadata, ReflowEnd, RemovalEnd,
    RemovalError, RemovalStatus, SIGNS_MISSED, SpaceTurn, SplitDevice, SplitError, StorageSettings,
    SyncedMos, out_of_service_leaves,
};
pub use candidate::{Candidate, LeafSummary, scan_devices};
pub use clones::{CloneTables, ClonedBlock};
pub use commit::{TxgCommitter, leaf_label_config};
pub use create::{CreatedPool, INITIAL_TXG, NewPool, RootKey, create_pool};
pub use dedup::{DedupTables, DsizeOf};
pub use dedup_logs::DedupLogs;
pub use directory::PoolDirectory;
pub use duplicates::Duplicate;
pub use error::Error;
pub use features::{FeatureCheck, FeatureState};
pub use labels::{LabelCopy, LabeledDevice, UberblockSlot, read as read_labels};
pub use metaslab::Pin;
pub use open::{ImportPoint, PoolOpenOptions, SourceWrapper};
pub use pool::Pool;
pub use scan::{
    BackgroundGate, DamagedBlock, ScanError, ScanProgress, ScanResult, move_logged_errors,
};
pub use space::{PoolSpace, VdevSpace, space_map_entries};
