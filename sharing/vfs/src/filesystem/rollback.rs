//! Replaces the content of a file system in use: by a rollback, or by a forced receive.
//!
//! The names and inodes that differ are computed before a rollback, so that a mount invalidates
//! only these in the kernel. Open files continue with the new content, if it has them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::files::{ChangedObject, FileSystemReader, ObjectKind};
use engine::pool::OpenFileSystem;
use posix::Ino;

use super::{HEAD, PoolFileSystem};
use crate::vnode::Vnode;
use crate::{DoorId, Error, Result};

/// Running requests did not end, so the content of the file system was not replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("requests of clients are still running")]
pub struct RequestsPending;

/// Something that is another than it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invalidation {
    /// A file of any type, or one that no longer exists.
    Inode(Ino),
    /// The object of a name, if it exists.
    Entry {
        /// The directory's number.
        dir: Ino,
        /// The name.
        name: Vec<u8>,
    },
}

impl PoolFileSystem {
    /// The differences between the file system and `snapshot`, one of its own by its full name. The
    /// file system must not change meanwhile.
    ///
    /// # Errors
    ///
    /// Unreadable objects, and [`Error::InoReused`].
    pub fn rollback_invalidations(&self, snapshot: &str) -> Result<Vec<Invalidation>> {
        let held = &self.0.pool;
        held.sync()?;
        let (now, then) = (
            held.datasets().synced_reader(&self.dataset())?,
            held.datasets().synced_reader(snapshot)?,
        );
        let mut changed = Vec::new();
        for one in now.changed_objects(&then)? {
            push_invalidations(&mut changed, [&now, &then], one)?;
        }
        Ok(changed)
    }

    /// Runs work that may replace the content of the file system: a rollback, or a forced receive. Requests of all
    /// doors wait meanwhile, and then see the new content. Open files are opened again at their next use.
    ///
    /// `door` learns of the change by itself; the others are notified that everything may have
    /// changed. Returns the result of the work, and whether the content was replaced.
    ///
    /// # Errors
    ///
    /// Requests did not end within `timeout`: the work was not begun.
    pub fn replace_content<T>(
        &self,
        door: DoorId,
        timeout: Duration,
        work: impl FnOnce() -> T,
    ) -> std::result::Result<(T, Result<bool>), RequestsPending> {
        let Some(mut files) = self.0.files.try_write_for(timeout) else {
            return Err(RequestsPending);
        };
        let done = work();
        let replaced = self.reopen_content(&mut files);
        drop(files);
        if matches!(replaced, Ok(true)) {
            self.0.doors.leases.revoke_all();
            self.0.doors.changes.publish_overflow(door);
        }
        Ok((done, replaced))
    }

    /// Opens the content again if it was replaced.
    fn reopen_content(&self, files: &mut OpenFileSystem) -> Result<bool> {
        if !files.is_retired() {
            return Ok(false);
        }
        let new = self.0.pool.datasets().filesystem(&self.dataset())?;
        // an open file that is gone must not become another
        new.allocate_ids_after(files);
        *files = new;
        self.0.dir_versions.bump_all();
        self.0.rollbacks.fetch_add(1, Ordering::AcqRel);
        Ok(true)
    }
}

fn push_invalidations(
    changed: &mut Vec<Invalidation>,
    both: [&FileSystemReader; 2],
    one: ChangedObject,
) -> Result<()> {
    let [before, after] =
        [0, 1].map(|at| ObjectState { files: both[at], id: one.id, kind: one.kinds[at] });
    if let (Some(was), Some(will_be)) = (before.generation()?, after.generation()?)
        && was != will_be
    {
        return Err(Error::InoReused { ino: Ino::new(one.id) });
    }
    let Some(number) = Vnode::File(HEAD, one.id).ino() else { return Ok(()) };
    changed.push(Invalidation::Inode(number));
    let (before, after) = (before.entries()?, after.entries()?);
    let gone = before.iter().filter(|(name, id)| after.get(*name) != Some(*id));
    let new = after.iter().filter(|(name, _)| !before.contains_key(*name));
    let names = gone.chain(new).map(|(name, _)| name.clone());
    changed.extend(names.map(|name| Invalidation::Entry { dir: number, name }));
    Ok(())
}

/// An object of one of two file systems.
struct ObjectState<'a> {
    files: &'a FileSystemReader,
    id: u64,
    kind: ObjectKind,
}

impl ObjectState<'_> {
    /// Which of the files that may have had its number it is; none: it is not a file.
    fn generation(&self) -> Result<Option<u64>> {
        if self.kind == ObjectKind::None {
            return Ok(None);
        }
        Ok(Some(self.files.stat(self.id)?.generation))
    }

    /// The objects of its names, if it is a directory.
    fn entries(&self) -> Result<BTreeMap<Vec<u8>, u64>> {
        let mut names = BTreeMap::new();
        if self.kind == ObjectKind::Directory {
            let dir = self.files.file(self.id)?;
            self.files.read_dir(&dir, &mut |name| {
                names.insert(name.name, name.ino);
                true
            })?;
        }
        Ok(names)
    }
}
