//! Changes in `.zfs/snapshot`: mkdir takes a snapshot, rmdir destroys it, and rename renames it.
//!
//! OpenZFS has the same, and leaves it off unless the administrator sets zfs_admin_snapshot. Here the owner of the pool
//! sets a [`SnapshotAdmin`], which checks the permissions of callers.

use std::sync::Arc;

use posix::{Attributes, Credentials, FileType, Ino, NewInode, RenameMode, RenameRequest};

use super::{HEAD, PoolFileSystem};
use crate::vnode::Vnode;
use crate::{Context, Error, Reason, Result};

/// Changes snapshots for the callers of a file system.
pub trait SnapshotAdmin: Send + Sync {
    /// Takes a snapshot, named by its full name.
    ///
    /// # Errors
    ///
    /// The caller may not do so, or the snapshot exists.
    fn create(&self, caller: &Credentials, snapshot: &str) -> Result<()>;

    /// Destroys a snapshot.
    ///
    /// # Errors
    ///
    /// The caller may not do so, or the snapshot has clones or holds.
    fn destroy(&self, caller: &Credentials, snapshot: &str) -> Result<()>;

    /// Renames a snapshot; `to` is the part after the @.
    ///
    /// # Errors
    ///
    /// The caller may not do so, or the name is taken.
    fn rename(&self, caller: &Credentials, snapshot: &str, to: &str) -> Result<()>;
}

/// The permissions of `.zfs/snapshot` while its content can be changed: the admin checks callers.
pub(super) const OPEN_PERMISSIONS: u32 = 0o777;

impl PoolFileSystem {
    /// Lets callers change the snapshots by `.zfs/snapshot`; none: they cannot.
    pub fn set_snapshot_admin(&self, admin: Option<Arc<dyn SnapshotAdmin>>) {
        *self.0.snapshot_admin.write() = admin;
    }

    pub(super) fn snapshot_admin(&self) -> Option<Arc<dyn SnapshotAdmin>> {
        self.0.snapshot_admin.read().clone()
    }

    /// The admin, if `dir` is `.zfs/snapshot` and its content can be changed.
    fn admin_of(&self, dir: Ino) -> Result<Option<Arc<dyn SnapshotAdmin>>> {
        let is_snapshot_dir = matches!(Self::vnode(dir)?, Vnode::SnapshotDir(HEAD));
        Ok(if is_snapshot_dir { self.snapshot_admin() } else { None })
    }

    /// The full name of the snapshot of a directory entry.
    fn snapshot_name(&self, name: &[u8]) -> Result<String> {
        let name = std::str::from_utf8(name);
        let name = name.map_err(|_| Error::Refused { reason: Reason::Invalid })?;
        Ok(format!("{}@{name}", self.dataset()))
    }

    /// Takes a snapshot for mkdir; nothing if `dir` is another directory.
    pub(super) fn create_snapshot_dir(
        &self,
        context: &Context<'_>,
        (dir, name): (Ino, &[u8]),
        new: &NewInode<'_>,
    ) -> Result<Option<Attributes>> {
        let Some(admin) = self.admin_of(dir)? else { return Ok(None) };
        if new.kind != FileType::Directory {
            return Err(Error::Refused { reason: Reason::NotPermitted });
        }
        admin.create(context.credentials, &self.snapshot_name(name)?)?;
        self.lookup_unchecked(dir, name).map(Some)
    }

    /// Removes an empty directory, or destroys a snapshot.
    pub(super) fn remove_directory(
        &self,
        context: &Context<'_>,
        (dir, name): (Ino, &[u8]),
    ) -> Result<()> {
        if self.remove_snapshot_dir(context, (dir, name))? {
            return Ok(());
        }
        self.check_delete(context, (dir, name))?;
        let rmdir =
            || self.retry_change(context, || self.rmdir_unchecked(context.credentials, dir, name));
        self.remove_entry(context, (dir, name), || self.unlink_tracked((dir, name), false, rmdir))
    }

    /// Destroys a snapshot for rmdir. Returns whether `dir` is the directory of snapshots.
    fn remove_snapshot_dir(
        &self,
        context: &Context<'_>,
        (dir, name): (Ino, &[u8]),
    ) -> Result<bool> {
        let Some(admin) = self.admin_of(dir)? else { return Ok(false) };
        admin.destroy(context.credentials, &self.snapshot_name(name)?)?;
        Ok(true)
    }

    /// Renames a snapshot. Returns whether both directories are the one of snapshots.
    pub(super) fn rename_snapshot_dir(
        &self,
        context: &Context<'_>,
        rename: &RenameRequest<'_, Ino>,
    ) -> Result<bool> {
        let RenameRequest { from_dir, from_name, to_dir, to_name, mode } = *rename;
        let Some(admin) = self.admin_of(from_dir)? else { return Ok(false) };
        if from_dir != to_dir {
            return Err(Error::Refused { reason: Reason::CrossDevice });
        }
        if matches!(mode, RenameMode::Exchange | RenameMode::Whiteout) {
            return Err(Error::Refused { reason: Reason::Invalid });
        }
        let to = std::str::from_utf8(to_name);
        let to = to.map_err(|_| Error::Refused { reason: Reason::Invalid })?;
        admin.rename(context.credentials, &self.snapshot_name(from_name)?, to)?;
        Ok(true)
    }
}
