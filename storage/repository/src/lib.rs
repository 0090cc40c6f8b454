//! Snapshots as raw blocks in an object store: packs, index, manifests, head.
//!
//! A [`Repository`] holds snapshots of pools. Each block is stored once, exactly as it lies on the
//! pool's drives (compressed, encrypted, with its checksum in the pointer above it), so block pointers
//! need no change: the index maps a pointer's first address and birth to a place in a pack.
//!
//! ```text
//! repository                 what the store holds: written once
//! heads/GENERATION           the snapshots and index objects of a generation; the newest counts
//! snapshots/GENERATION-ID    a manifest: a snapshot's root block pointer, properties, wrapped keys
//! index/GENERATION-ID        sorted block records: where in which pack a block lies
//! packs/GENERATION-ID        blocks back to back, and a footer with their records
//! ```
//!
//! No object is ever overwritten. A writer reads the head of generation N, stores packs, index and
//! manifests named N-ID, and then creates `heads/N+1`. The store creates an object only if it does
//! not exist, so one of two writers is refused. A head refers only to objects of the head before it
//! and to those named after that head's generation. So an object named after an older generation is
//! garbage if the newest head does not refer to it. [`Repository::prune`] may delete it at any
//! time.
//!
//! The format is described for other programs in `docs/bucket-format.md`.
//!
//! This crate has no clock, randomness or I/O of its own: [`ObjectStore`] is implemented above.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

mod backup;
mod blocks;
mod bytes;
mod check;
mod error;
mod head;
mod index;
mod key;
mod live;
mod manifest;
mod mark;
pub mod memory;
mod new_blocks;
mod pack;
mod pack_cache;
mod protect;
mod prune;
mod repack;
mod repository;
mod sealed;
mod store;

pub use backup::{Backup, BackupCounts, BackupSource, ReadResult};
pub use check::{CheckOptions, CheckReport, Damage};
pub use error::Error;
pub use head::{Generation, Head, IndexSummary, ObjectId, SnapshotSummary};
pub use index::{BlockLocation, IndexObject};
pub use key::{BlockKey, StoredBlock};
pub use manifest::{Manifest, ManifestKey, ManifestProperty};
pub use pack::{PackFooter, PackKind};
pub use protect::ProtectReport;
pub use prune::{PruneOptions, PruneReport};
pub use repository::Repository;
pub use store::{ObjectInfo, ObjectStore, StoreError};

/// The result of an operation on a repository.
pub type Result<T> = std::result::Result<T, Error>;
