//! A pool as a mounted file system, without the kernel's ZFS.
//!
//! [`mount_tree`] mounts a tree ([`vfs::DatasetTree`]) read-only. Several threads answer the kernel's requests, which
//! come by /dev/fuse (`tree_server`). Nothing changes while the pool is mounted, so the kernel keeps what it was told.
//! It takes no root: fusermount3 does what only root may.
//!
//! [`mount_filesystem`] mounts a file system of an imported pool ([`vfs::PoolFileSystem`]) to be read and written
//! (`filesystem`).
#![forbid(unsafe_code)]

mod convert;
mod filesystem;
mod handle_table;
mod ioctl;
mod mount;
mod mount_handle;
mod tree_server;

pub use filesystem::{RollbackHandle, RollbackOutcome};
pub use fusedev::forwards_sync;
pub use mount::{
    Error, MountOptions, TreeMountOptions, check_mountpoint, mount_filesystem, mount_tree,
};
pub use mount_handle::{MountHandle, MountTable, unmount_dead};

/// What the kernel calls the root.
const ROOT_NODEID: u64 = 1;
