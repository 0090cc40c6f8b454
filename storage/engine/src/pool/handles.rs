//! The groups of methods of a [`Pool`], each by its subject: `pool.snapshots().create(..)`.
//!
//! A handle borrows the pool, costs nothing, and has at most twenty methods. They are written in
//! the files of their subjects.

use super::Pool;

/// File systems and volumes as datasets of the tree: made, renamed, promoted, destroyed, listed.
#[derive(Clone, Copy, Debug)]
pub struct Datasets<'a> {
    pub(super) pool: &'a Pool,
}

/// Snapshots, clones of them, bookmarks and holds.
#[derive(Clone, Copy, Debug)]
pub struct Snapshots<'a> {
    pub(super) pool: &'a Pool,
}

/// Volumes and their snapshots as block devices.
#[derive(Clone, Copy, Debug)]
pub struct Volumes<'a> {
    pub(super) pool: &'a Pool,
}

/// Keys of encrypted datasets.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    pub(super) pool: &'a Pool,
}

/// Properties of datasets, vdevs and the pool, and the pool's feature flags.
#[derive(Clone, Copy, Debug)]
pub struct Properties<'a> {
    pub(super) pool: &'a Pool,
}

/// Permissions that `zfs allow` grants.
#[derive(Clone, Copy, Debug)]
pub struct Permissions<'a> {
    pub(super) pool: &'a Pool,
}

/// The loops that need a thread of their own each, until they are stopped.
#[derive(Clone, Copy, Debug)]
pub struct Background<'a> {
    pub(super) pool: &'a Pool,
}

/// Scrubs, resilvers and the errors that they found.
#[derive(Clone, Copy, Debug)]
pub struct Scans<'a> {
    pub(super) pool: &'a Pool,
}

/// Trim, initialize, removals, raidz expansions and the checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Activities<'a> {
    pub(super) pool: &'a Pool,
}

/// Changes of the vdev tree: drives added, attached, replaced, removed.
#[derive(Clone, Copy, Debug)]
pub struct Vdevs<'a> {
    pub(super) pool: &'a Pool,
}

/// The state of the drives that the pool has: missing, offline, slow, failed, and what they did.
#[derive(Clone, Copy, Debug)]
pub struct Drives<'a> {
    pub(super) pool: &'a Pool,
}

/// Send streams, out and in, and what a backup reads.
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    pub(super) pool: &'a Pool,
}

/// The pool's history.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    pub(super) pool: &'a Pool,
}

impl Pool {
    /// File systems and volumes as datasets.
    pub fn datasets(&self) -> Datasets<'_> {
        Datasets { pool: self }
    }

    /// Snapshots, clones, bookmarks and holds.
    pub fn snapshots(&self) -> Snapshots<'_> {
        Snapshots { pool: self }
    }

    /// Volumes.
    pub fn volumes(&self) -> Volumes<'_> {
        Volumes { pool: self }
    }

    /// Keys of encrypted datasets.
    pub fn keys(&self) -> Keys<'_> {
        Keys { pool: self }
    }

    /// Properties and feature flags.
    pub fn properties(&self) -> Properties<'_> {
        Properties { pool: self }
    }

    /// Permissions that `zfs allow` grants.
    pub fn permissions(&self) -> Permissions<'_> {
        Permissions { pool: self }
    }

    /// Loops for threads of their own.
    pub fn background(&self) -> Background<'_> {
        Background { pool: self }
    }

    /// Scrubs and resilvers.
    pub fn scans(&self) -> Scans<'_> {
        Scans { pool: self }
    }

    /// Trim, initialize, removals, expansions and the checkpoint.
    pub fn activities(&self) -> Activities<'_> {
        Activities { pool: self }
    }

    /// Changes of the vdev tree.
    pub fn vdevs(&self) -> Vdevs<'_> {
        Vdevs { pool: self }
    }

    /// The state of the drives.
    pub fn drives(&self) -> Drives<'_> {
        Drives { pool: self }
    }

    /// Send streams.
    pub fn streams(&self) -> Streams<'_> {
        Streams { pool: self }
    }

    /// The pool's history.
    pub fn history(&self) -> History<'_> {
        History { pool: self }
    }
}
