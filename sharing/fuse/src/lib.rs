//! A pool as a mounted file system, without the kernel's ZFS.
//!
//! [`mount`] lays a tree ([`vfs::DatasetTree`]) over a folder, read-only; the kernel's questions come in
//! through /dev/fuse and are answered by several threads (`server.rs`). As nothing changes while a
//! pool is mounted, the kernel keeps whatever it was told. It needs no root: fusermount3 does what
//! only root may.
//!
//! [`mount_live`] lays a file system of a held pool ([`vfs::FileSystem`]) over a folder, to be read and
//! written (`live/`).
#![forbid(unsafe_code)]

mod convert;
mod handles;
mod ioctl;
mod live;
mod mount;
mod mounted;
mod server;

pub use fusedev::forwards_sync;
pub use live::{Beside, TakenBack};
pub use mount::{Error, LiveOptions, Options, check, mount, mount_live};
pub use mounted::{MountTable, Mounted, take_away_dead};

/// What the kernel calls the root.
const ROOT: u64 = 1;
