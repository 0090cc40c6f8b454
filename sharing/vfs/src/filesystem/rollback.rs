//! A file system that is taken back to a snapshot of it while it is in use: what whoever keeps what
//! he was told must ask for again, and how the rest goes on.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use engine::files::{ChangedObject, FileSystemReader, ObjectKind};
use posix::Ino;

use super::{HEAD, PoolFileSystem};
use crate::vnode::Vnode;
use crate::{Error, Result};

/// Something that is another than it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invalidation {
    /// A file of any kind, or one that is no more.
    Inode(Ino),
    /// What a name names, if anything.
    Entry {
        /// The directory's number.
        dir: Ino,
        /// The name.
        name: Vec<u8>,
    },
}

impl PoolFileSystem {
    /// What will be another when the file system is what `snapshot`, one of its own by its full name,
    /// has. Nobody may change it meanwhile.
    ///
    /// # Errors
    ///
    /// What cannot be read, and [`Error::InoReused`].
    pub fn rollback_invalidations(&self, snapshot: &str) -> Result<Vec<Invalidation>> {
        let held = &self.0.pool;
        held.sync()?;
        let (now, then) = (held.synced_reader(&self.0.dataset)?, held.synced_reader(snapshot)?);
        let mut changed = Vec::new();
        for one in now.changed_objects(&then)? {
            push_invalidations(&mut changed, [&now, &then], one)?;
        }
        Ok(changed)
    }

    /// Opens the file system anew after it was taken back to a snapshot; gives whether it was. Nobody may
    /// ask for anything meanwhile, and what is open must be opened [again](super::OpenFile::reopen_after_rollback).
    pub fn reopen_after_rollback(&self) -> Result<bool> {
        if !self.0.files().is_retired() {
            return Ok(false);
        }
        let files = self.0.pool.filesystem(&self.0.dataset)?;
        let mut here = self.0.files.write();
        // what a program still has open of a file that is no more must not become another
        files.allocate_ids_after(&here);
        *here = files;
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
    /// Which of the files that may have had its number it is; none: it is no file.
    fn generation(&self) -> Result<Option<u64>> {
        if self.kind == ObjectKind::None {
            return Ok(None);
        }
        Ok(Some(self.files.stat(self.id)?.generation))
    }

    /// What names in it name, if it is a directory.
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
