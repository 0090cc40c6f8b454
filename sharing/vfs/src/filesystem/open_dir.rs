//! Directories of a file system that can be written, listed.
//!
//! ```text
//! cookie     what comes next
//! 0          .
//! 1          ..
//! 2          .zfs, in the topmost directory, if it is to be listed
//! 3 ...      the stored names: the engine's cookie and 3; in made-up directories an index and 3
//! ```
//!
//! Cookies of stored names stand for places in the order of their hashes, so that names that come
//! and go do not make others be shown twice or not at all.

use engine::pool::{Snapdir, Snapshot};
use parking_lot::Mutex;
use posix::{Attributes, FileType, Ino};
use units::{MinusOrZero, ObjectId};

use super::snapshots::SnapshotView;
use super::{HEAD, PoolFileSystem, shadow, to_ino};
use crate::entry_batch::EntryBatch;
use crate::vnode::Vnode;
use crate::{DirEntry, Error, Result, control_dir};

/// A directory that is being listed.
pub struct OpenDir {
    fs: PoolFileSystem,
    ino: Ino,
    vnode: Vnode,
    /// Its generation, which distinguishes it from earlier users of its number.
    generation: u64,
    /// Whether listing it leaves the atime alone (O_NOATIME).
    is_noatime: bool,
    batch: Mutex<EntryBatch>,
}

const CONTROL_COOKIE: u64 = 2;
const STORED_COOKIE: u64 = 3;
/// Names in a batch.
const BATCH_LEN: usize = 512;

impl OpenDir {
    pub(super) fn open(live: &PoolFileSystem, number: Ino) -> Result<Self> {
        let found = live.attributes_unchecked(number)?;
        if found.kind != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        Ok(Self::new(live, number, (PoolFileSystem::vnode(number)?, found.generation)))
    }

    pub(super) fn open_removed(live: &PoolFileSystem, number: Ino) -> Self {
        Self::new(live, number, (Vnode::Unopened(HEAD), 0))
    }

    fn new(live: &PoolFileSystem, ino: Ino, (vnode, generation): (Vnode, u64)) -> Self {
        let (fs, batch) = (live.clone(), Mutex::new(EntryBatch::new(false)));
        Self { fs, ino, vnode, generation, is_noatime: false, batch }
    }

    /// The same, where listing it leaves the atime alone.
    #[must_use]
    pub fn without_atime(self) -> Self {
        Self { is_noatime: true, ..self }
    }

    /// Calls `visit` with the names from a cookie on, until it returns false: that name comes
    /// again.
    pub fn visit_from(&self, cookie: u64, visit: &mut dyn FnMut(&DirEntry) -> bool) -> Result<()> {
        if cookie == 0 {
            self.update_atime();
        }
        let mut batch = self.batch.lock();
        let version = self.fs.0.dir_versions.current(self.ino);
        batch.visit_from((cookie, version), &mut |at| self.read_batch(at), visit)
    }

    /// Sets the atime by the dataset's rule at the start of a listing.
    fn update_atime(&self) {
        if self.is_noatime || self.fs.is_noatime() {
            return;
        }
        let Vnode::File(HEAD, object) = self.vnode else { return };
        let Ok(Ok(stat)) = self.fs.files(HEAD).map(|files| files.stat(object)) else { return };
        let (files, now) = (self.fs.0.files().clone(), self.fs.now());
        if stat.generation == self.generation && files.is_atime_due(&stat, now) {
            // a full or suspended pool can still be listed
            let _ = files.update_atime(ObjectId::new(object), now);
        }
    }

    /// Whether its names change only through the file system ([`PoolFileSystem::is_stored_dir`]).
    pub fn is_stored_dir(&self) -> bool {
        PoolFileSystem::is_stored_dir(self.ino)
    }

    /// The attributes of an item, for protocols that return them with the names. None: the client
    /// looks the name up, and gets the error then.
    pub fn attributes(&self, item: &DirEntry) -> Option<Attributes> {
        if item.needs_lookup { None } else { self.fs.attributes_unchecked(item.ino).ok() }
    }

    /// The names from a cookie on, a batch of them; none at the end.
    fn read_batch(&self, from: u64) -> Result<Vec<DirEntry>> {
        let mut items = Vec::new();
        for (cookie, name) in [(0, &b"."[..]), (1, b"..")] {
            if from <= cookie {
                let number = if cookie == 0 { self.ino } else { self.parent_ino()? };
                items.push(new_entry(name, number, FileType::Directory, cookie + 1));
            }
        }
        if from <= CONTROL_COOKIE && self.lists_control_dir() {
            let number = to_ino(Vnode::ControlDir(HEAD))?;
            items.push(new_entry(
                control_dir::CONTROL_DIR,
                number,
                FileType::Directory,
                CONTROL_COOKIE + 1,
            ));
        }
        match self.vnode {
            Vnode::File(..) => self.push_stored(from, &mut items)?,
            Vnode::ControlDir(_) => self.push_control_dir(from, &mut items)?,
            Vnode::VolumeDir(_) => self.push_volumes(from, &mut items)?,
            Vnode::SnapshotDir(_) => self.push_snapshots(from, &mut items)?,
            Vnode::ShadowDir(_) => self.push_shadows(from, &mut items)?,
            _ => {}
        }
        Ok(items)
    }

    /// Whether `.zfs` is to be listed here.
    fn lists_control_dir(&self) -> bool {
        self.ino == self.fs.root_ino() && self.fs.0.files().snapdir() == Snapdir::Visible
    }

    fn push_stored(&self, from: u64, items: &mut Vec<DirEntry>) -> Result<()> {
        let Vnode::File(place, object) = self.vnode else { return Ok(()) };
        let files = self.fs.files(place)?;
        let dir = match files.file(object).map_err(Error::from) {
            Ok(dir) if dir.stat().generation == self.generation => dir,
            // it was removed, or new content gave its number to another directory: nothing is in it
            Ok(_) | Err(Error::NotFound) => return Ok(()),
            Err(why) => return Err(why),
        };
        files.read_dir_from(&dir, from.minus_or_zero(STORED_COOKIE), &mut |name, next| {
            let number = Vnode::File(place, name.ino).ino();
            let mut item = new_entry(&name.name, self.ino, name.kind, next + STORED_COOKIE);
            // a number that does not fit is told of when the name is looked up
            item.needs_lookup = number.is_none();
            item.ino = number.unwrap_or(Ino::new(u64::MAX));
            items.push(item);
            items.len() < BATCH_LEN
        })?;
        Ok(())
    }

    fn push_control_dir(&self, from: u64, items: &mut Vec<DirEntry>) -> Result<()> {
        // `shadow` has the same again, and is not listed: a program that walks `.zfs` reads each snapshot once
        let snapshots = Some((control_dir::SNAPSHOT_DIR, Vnode::SnapshotDir(HEAD)));
        let any = !self.fs.list_volumes()?.is_empty();
        let volumes = any.then_some((control_dir::VOLUME_DIR, Vnode::VolumeDir(HEAD)));
        for (index, (name, node)) in (STORED_COOKIE..).zip(snapshots.into_iter().chain(volumes)) {
            if index >= from {
                items.push(new_entry(name, to_ino(node)?, FileType::Directory, index + 1));
            }
        }
        Ok(())
    }

    fn push_volumes(&self, from: u64, items: &mut Vec<DirEntry>) -> Result<()> {
        for (index, volume) in (STORED_COOKIE..).zip(self.fs.list_volumes()?) {
            if index >= from {
                let number = to_ino(Vnode::Volume(self.fs.0.volumes.index_of(&volume)?))?;
                items.push(new_entry(volume.0.as_bytes(), number, FileType::File, index + 1));
            }
        }
        Ok(())
    }

    fn push_snapshots(&self, from: u64, items: &mut Vec<DirEntry>) -> Result<()> {
        let all = self.fs.list_snapshots()?;
        for (index, snapshot) in (STORED_COOKIE..).zip(all) {
            if index >= from {
                let name = snapshot.name.clone();
                items.push(self.new_snapshot(
                    name.as_bytes(),
                    snapshot,
                    SnapshotView::ByName,
                    index + 1,
                )?);
            }
        }
        Ok(())
    }

    fn push_shadows(&self, from: u64, items: &mut Vec<DirEntry>) -> Result<()> {
        let all = shadow::list(self.fs.list_snapshots()?);
        for (index, (name, snapshot)) in (STORED_COOKIE..).zip(all) {
            if index >= from {
                let view = SnapshotView::ByTime;
                items.push(self.new_snapshot(name.as_bytes(), snapshot, view, index + 1)?);
            }
        }
        Ok(())
    }

    /// The entry of a snapshot. Opening thousands of snapshots for a listing would take too long, so that its
    /// attributes need a lookup.
    fn new_snapshot(
        &self,
        name: &[u8],
        snapshot: Snapshot,
        view: SnapshotView,
        next: u64,
    ) -> Result<DirEntry> {
        let number = to_ino(Vnode::Unopened(self.fs.0.snapshots.index_of(snapshot, view)?))?;
        let item = new_entry(name, number, FileType::Directory, next);
        Ok(DirEntry { needs_lookup: true, ..item })
    }

    /// The number for `..`; a root has itself above it.
    pub(super) fn parent_ino(&self) -> Result<Ino> {
        match self.vnode {
            Vnode::File(place, object) => {
                let files = self.fs.files(place)?;
                if object == files.root_object() {
                    return Ok(self.ino);
                }
                match files.stat(object).map_err(Error::from) {
                    Ok(facts) => to_ino(Vnode::File(place, facts.parent)),
                    Err(Error::NotFound) => Ok(self.ino),
                    Err(why) => Err(why),
                }
            }
            Vnode::SnapshotDir(_) | Vnode::ShadowDir(_) | Vnode::VolumeDir(_) => {
                to_ino(Vnode::ControlDir(HEAD))
            }
            _ => Ok(self.fs.root_ino()),
        }
    }
}

fn new_entry(name: &[u8], number: Ino, kind: FileType, next: u64) -> DirEntry {
    DirEntry { name: name.to_vec(), ino: number, kind, next_cookie: next, needs_lookup: false }
}
