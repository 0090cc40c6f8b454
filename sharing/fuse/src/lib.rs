//! A pool as a mounted file system, without the kernel's ZFS.
//!
//! [`mount_tree`] mounts a tree of datasets ([`vfs::DatasetTree`]), read-only. Nothing changes while it is mounted,
//! so the kernel caches everything that it has read. It needs no root: fusermount3 does the
//! privileged steps.
//!
//! [`mount_filesystem`] mounts a file system of an imported pool ([`vfs::PoolFileSystem`]), to read and write.
//! The kernel checks permissions; `vfs` does the rest.
//!
//! [`mount_volumes`] mounts a directory of volumes as files: the backing files of loop devices.
#![forbid(unsafe_code)]

mod convert;
mod filesystem;
mod handle_table;
mod ioctl;
mod mount;
mod mount_handle;
mod tree_server;
mod volume_files;
mod volume_server;

pub use filesystem::{RollbackHandle, RollbackOutcome};
pub use fusedev::forwards_sync;
pub use fusedev::{DetachOutcome, FileProject, LoopDevice, LoopOptions};
pub use mount::{
    Error, MountOptions, TreeMountOptions, check_mountpoint, mount_filesystem, mount_tree,
    mount_volumes,
};
pub use mount_handle::{MountHandle, MountTable, unmount_dead};
pub use volume_files::{VolumeFileId, VolumeFiles};

/// The inode number that the kernel uses for the root.
const ROOT_NODEID: u64 = 1;
