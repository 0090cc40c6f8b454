//! A pool as a mounted file system, without the kernel's ZFS.
//!
//! [`mount_tree`] lays a tree ([`vfs::DatasetTree`]) over a folder, read-only; the kernel's questions come in
//! through /dev/fuse and are answered by several threads (`server.rs`). As nothing changes while a
//! pool is mounted, the kernel keeps whatever it was told. It needs no root: fusermount3 does what
//! only root may.
//!
//! [`mount_filesystem`] lays a file system of a held pool ([`vfs::PoolFileSystem`]) over a folder, to be read and
//! written (`live/`).
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
