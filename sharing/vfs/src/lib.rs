//! The contract of file protocols, and the file systems that keep it.
//!
//! [`FileSystem`] is the contract between file protocols and file systems. Every call has a [`Context`]
//! with the caller's credentials, and the file system checks permissions.
//!
//! [`PoolFileSystem`] is a file system of an imported pool, to read and write, with its snapshots in
//! `.zfs/snapshot` and the volumes below it in `.zfs/volume`. A [`DatasetTree`] shows a dataset and those
//! below it at their names, as OpenZFS would mount them, of a pool that is only read.
//!
//! Nothing here knows of a protocol, a socket or the kernel.
#![forbid(unsafe_code)]

mod attributes;
mod context;
mod contract;
mod control_dir;
mod entry_batch;
mod error;
mod filesystem;
mod names;
mod prefetch;
mod readahead;
mod reader;
mod tree;
mod tree_contract;
mod tree_dataset;
mod tree_dir;
mod vnode;

pub use context::{AccessChecks, Context, DoorId, Waiter};
pub use contract::{AllocateMode, CreateMode, FileOffset, FileSystem, Limits, Opened};
pub use engine::files::{DatasetSpace, Reason};
pub use error::{Error, Result};
pub use filesystem::{Invalidation, OpenDir, OpenFile, PoolFileSystem, UnlinkedHold};
pub use reader::FileReader;
pub use tree::DatasetTree;
pub use tree_dir::{DirEntry, TreeDir};
