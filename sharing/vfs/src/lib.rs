//! What a file protocol needs of a pool: one tree of all its datasets.
//!
//! A [`DatasetTree`] shows a dataset and those below it at their names, as OpenZFS would mount them, with
//! `.zfs/snapshot` (and `.zfs/volume`) in the root of each. What is in it has a number
//! (`number.rs`) and [`Attributes`]; a directory has a [`TreeDir`] that goes on where it stopped;
//! a file or volume has a [`FileReader`] that reads ahead. A tree is never written.
//!
//! [`FileSystem`] is one file system of a held pool, to be read and written, with `.zfs/snapshot`.
//!
//! Nothing here knows of a protocol, a socket or the kernel.
#![forbid(unsafe_code)]

mod attributes;
mod changes;
mod clock;
mod control_dir;
mod door;
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
mod shares;
mod stability;
mod tree;
mod tree_dataset;
mod tree_dir;
mod vnode;

pub use attributes::Attributes;
pub use changes::{Change, ChangeBatch, ChangeBus, ChangeKind, Subscription, SubscriptionCloser};
pub use door::{ClientId, DoorId};
pub use engine::files::{DatasetSpace, FileType, Reason, Time};
pub use engine::pool::{RenameMode, SetAttributes, WriteOffset, XattrMode};
pub use error::{Error, Result};
pub use filesystem::{
    Credentials, FileSystem, Invalidation, NewInode, OpenDir, OpenFile, UnlinkedHold,
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
pub use shares::{Access, OpenId, OpenTable, ShareConflict, ShareMode};
pub use stability::{BootVerifier, Stability, Written};
pub use tree::DatasetTree;
pub use tree_dir::{DirEntry, TreeDir};
