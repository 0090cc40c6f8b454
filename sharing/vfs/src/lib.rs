//! The contract of file protocols, and the file systems that keep it.
//!
//! [`FileSystem`] is the contract between file protocols and file systems. Every call has a [`Context`]
//! with the caller's credentials, and the file system checks permissions. [`SharedFileSystem`] adds what servers
//! need beside it: handles, locks, leases, and the changes of others.
//!
//! [`PoolFileSystem`] is a file system of an imported pool, to read and write, with its snapshots in
//! `.zfs/snapshot` and the volumes below it in `.zfs/volume`. A [`DatasetTree`] shows a dataset and those
//! below it at their names, as OpenZFS would mount them, of a pool that is only read.
//!
//! This crate depends on no protocol, socket or kernel interface.
#![forbid(unsafe_code)]

mod attributes;
mod changes;
mod client;
mod clock;
mod context;
mod contract;
mod control_dir;
mod entry_batch;
mod error;
mod filesystem;
mod handle;
mod leases;
mod locks;
mod names;
mod prefetch;
mod readahead;
mod reader;
mod shared_contract;
mod shares;
mod stability;
mod tree;
mod tree_contract;
mod tree_dataset;
mod tree_dir;
mod vnode;

pub use changes::{Change, ChangeBatch, ChangeBus, ChangeKind, Subscription, SubscriptionCloser};
pub use client::ClientId;
pub use clock::change_version;
pub use context::{AccessChecks, Context, DoorId, Waiter};
pub use contract::{AllocateMode, CreateMode, FileOffset, FileSystem, Limits, Opened};
pub use engine::files::{DatasetSpace, Reason};
pub use engine::pool::MemoryParts;
pub use error::{Error, Result};
pub use filesystem::{
    Invalidation, OpenDir, OpenFile, PoolFileSystem, RequestsPending, SnapshotAdmin, UnlinkedHold,
    UnlinkedKeeper,
};
pub use handle::{FileHandle, HandleError, HandleKey, HandleKind};
pub use leases::{
    LeaseAction, LeaseCallback, LeaseEvent, LeaseHolder, LeaseId, LeaseRights, LeaseTable,
    Operation, RecallPending,
};
pub use locks::{
    ByteLock, LockError, LockKind, LockOwner, LockState, LockTable, WaitCallback, WaitEnd, WaitId,
};
pub use reader::FileReader;
pub use shared_contract::{DynFileSystem, SharedFileSystem};
pub use shares::{Access, OpenId, OpenTable, ShareConflict, ShareMode};
pub use stability::{BootVerifier, Stability, Written};
pub use tree::DatasetTree;
pub use tree_dir::{DirEntry, TreeDir};
