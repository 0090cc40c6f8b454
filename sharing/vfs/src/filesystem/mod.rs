//! A file system of a held pool, to be read and written.
//!
//! Its numbers are those of a [`crate::DatasetTree`] (`number.rs`): place 0 is the file system, whose files
//! keep the numbers that OpenZFS shows; each snapshot that somebody looks into gets a place of its
//! own. What is changed is so for everybody at once, and on the drives after [`PoolFileSystem::fsync`], or
//! when the pool's next group is written.

mod checks;
mod contract;
mod dir_versions;
mod doors;
mod handles;
mod open_dir;
mod open_file;
mod rollback;
mod snapshots;
mod suspend_retry;
mod unlinked;
mod volumes;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::files::{Content, DatasetSpace, File, FileSystemReader};
use engine::pool::{OpenFileSystem, Pool, Snapdir, Snapshot};
use parking_lot::{RwLock, RwLockReadGuard};
use posix::{Attributes, FileType, Ino, Time};
use units::ObjectId;

use crate::clock::ChangeClock;
use crate::prefetch::PrefetchWorkers;
use crate::vnode::{DatasetIndex, Vnode};
use crate::{Error, Reason, Result, attributes, control_dir};
use dir_versions::DirVersions;
use doors::Doors;
pub use open_dir::OpenDir;
pub use open_file::{OpenFile, UnlinkedHold};
pub use rollback::Invalidation;
use snapshots::SnapshotTable;
use unlinked::UnlinkedInodes;
use volumes::VolumeTable;

/// A file system that can be written. Cheap to clone.
#[derive(Clone)]
pub struct PoolFileSystem(Arc<Inner>);

struct Inner {
    pool: Pool,
    dataset: String,
    /// Others take their place when the file system is taken back to a snapshot.
    files: RwLock<OpenFileSystem>,
    snapshots: SnapshotTable,
    volumes: VolumeTable,
    dir_versions: DirVersions,
    unlinked: UnlinkedInodes,
    /// Whether a door knows inodes until it forgets them: it asks for those that lost their names.
    keeps_unlinked: AtomicBool,
    /// How often a file was given capabilities; the first time is 1.
    capability_version: AtomicU64,
    prefetch_workers: PrefetchWorkers,
    clock: ChangeClock,
    doors: Doors,
    /// How often it was rolled back since it was opened.
    rollbacks: AtomicU64,
    /// Nothing is noted of who reads.
    is_read_only: AtomicBool,
}

impl Inner {
    fn files(&self) -> RwLockReadGuard<'_, OpenFileSystem> {
        self.files.read_recursive()
    }
}

/// The place of the file system itself.
const HEAD: DatasetIndex = DatasetIndex(0);

impl PoolFileSystem {
    /// Opens a file system of an imported pool. `now` tells the time.
    ///
    /// Open each dataset once: all doors into it must use clones of one file system, or they know nothing of each
    /// other's changes, locks and leases.
    pub fn open(
        held: &Pool,
        dataset: &str,
        now: impl Fn() -> Time + Send + Sync + 'static,
    ) -> Result<Self> {
        let files = held.filesystem(dataset)?;
        Ok(Self(Arc::new(Inner {
            pool: held.clone(),
            dataset: dataset.to_owned(),
            files: RwLock::new(files),
            snapshots: SnapshotTable::default(),
            volumes: VolumeTable::default(),
            dir_versions: DirVersions::default(),
            unlinked: UnlinkedInodes::default(),
            keeps_unlinked: AtomicBool::new(false),
            capability_version: AtomicU64::new(1),
            prefetch_workers: PrefetchWorkers::new(),
            clock: ChangeClock::new(now),
            doors: Doors::default(),
            rollbacks: AtomicU64::new(0),
            is_read_only: AtomicBool::new(false),
        })))
    }

    /// Its full name.
    pub fn dataset(&self) -> &str {
        &self.0.dataset
    }

    /// The number of its topmost directory.
    pub fn root_ino(&self) -> Ino {
        Ino::new(self.0.files().reader().root_object())
    }

    /// Whether files may have POSIX ACLs.
    pub fn has_posix_acls(&self) -> bool {
        self.0.files().has_posix_acls()
    }

    /// Whether NFSv4 ACLs of files can be set.
    pub fn has_nfs4_acls(&self) -> bool {
        self.0.files().has_nfs4_acls()
    }

    /// Whether a name is the same only if all its bytes are.
    pub fn has_exact_names(&self) -> bool {
        self.0.files().has_exact_names()
    }

    /// The most bytes of a name.
    pub fn max_name_len(&self) -> usize {
        self.0.files().max_name_len()
    }

    /// Whether who was told that the pool is stopped is to wait and ask again (failmode).
    pub fn has_failmode_wait(&self) -> bool {
        self.0.pool.has_failmode_wait()
    }

    /// Whether drives failed, and nothing is written until the pool is cleared.
    pub fn is_suspended(&self) -> bool {
        self.0.pool.is_suspended()
    }

    /// The time, as the one who opened this tells it.
    pub fn now(&self) -> Time {
        self.0.clock.now()
    }

    /// Whether who reads here leaves no trace, as where it is mounted to be read only.
    pub fn set_read_only(&self, is_still: bool) {
        self.0.is_read_only.store(is_still, Ordering::Relaxed);
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only.load(Ordering::Relaxed)
    }

    /// Returns when all that was done to a file, and to names before that, will outlast a power
    /// cut, unless the dataset does without (sync=disabled).
    pub fn fsync(&self, number: Ino) -> Result<()> {
        if let Some(volume) = self.find_volume(number)? {
            return Ok(volume.flush()?);
        }
        // nothing of a snapshot waits to be written
        let Vnode::File(HEAD, object) = Self::vnode(number)? else { return Ok(()) };
        Ok(self.0.files().fsync(Some(object))?)
    }

    /// The same of all files of the file system.
    pub fn fsync_all(&self) -> Result<()> {
        Ok(self.0.files().fsync(None)?)
    }

    /// Returns when all that was done to the file system and to the volumes below it that were looked at will
    /// outlast a power cut.
    pub(super) fn sync_unchecked(&self) -> Result<()> {
        self.flush_volumes()?;
        self.fsync_all()
    }

    /// The same where the file system wants that of all that is done (sync=always): for whoever was told
    /// that something is done, but not that it will outlast ([`Reason::NotCommitted`]).
    pub fn commit_if_sync_always(&self) -> Result<()> {
        Ok(self.0.files().commit_if_sync_always()?)
    }

    /// Whether a directory is one of the file system's or of a snapshot's, so that its names are
    /// changed by nobody but who changes them here. Those below `.zfs` come and go by themselves.
    pub fn is_stored_dir(number: Ino) -> bool {
        matches!(Self::vnode(number), Ok(Vnode::File(..)))
    }

    fn vnode(number: Ino) -> Result<Vnode> {
        Vnode::from_ino(number).ok_or(Error::NotFound)
    }

    /// Where a node is that can be changed.
    fn writable_object(number: Ino) -> Result<ObjectId> {
        match Self::vnode(number)? {
            Vnode::File(HEAD, object) => Ok(ObjectId::new(object)),
            _ => Err(Error::Refused { reason: Reason::ReadOnly }),
        }
    }

    /// The files of a place.
    fn files(&self, place: DatasetIndex) -> Result<FileSystemReader> {
        match place {
            HEAD => Ok(self.0.files().reader().clone()),
            place => self.0.snapshots.files(&self.0.pool, &self.0.dataset, place),
        }
    }

    fn file(&self, number: Ino) -> Result<File> {
        match Self::vnode(number)? {
            Vnode::File(place, object) => Ok(self.files(place)?.file(object)?),
            _ => Err(Error::IsDirectory),
        }
    }

    fn list_snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(self.0.pool.snapshots(&self.0.dataset)?)
    }

    /// What there is to know of a node.
    pub(super) fn attributes_unchecked(&self, number: Ino) -> Result<Attributes> {
        match Self::vnode(number)? {
            Vnode::File(place, object) => file_attributes(place, &self.files(place)?.file(object)?),
            Vnode::ControlDir(HEAD)
            | Vnode::SnapshotDir(HEAD)
            | Vnode::VolumeDir(HEAD)
            | Vnode::Unopened(_) => Ok(attributes::synthetic(number, FileType::Directory)),
            Vnode::Volume(place) => {
                let volume = self.0.volumes.open(&self.0.pool, &self.0.dataset, place)?;
                Ok(Self::volume_attributes(number, &volume))
            }
            _ => Err(Error::NotFound),
        }
    }

    /// What a name in a directory names.
    pub(super) fn lookup_unchecked(&self, dir: Ino, name: &[u8]) -> Result<Attributes> {
        if name.len() > self.max_name_len() {
            return Err(Error::Refused { reason: Reason::NameTooLong });
        }
        match Self::vnode(dir)? {
            Vnode::File(place, object) => {
                let files = self.files(place)?;
                let is_root = place == HEAD && object == files.root_object();
                if is_root
                    && name == control_dir::CONTROL_DIR
                    && self.0.files().snapdir() != Snapdir::Disabled
                {
                    return self.attributes_unchecked(to_ino(Vnode::ControlDir(HEAD))?);
                }
                match files.lookup(&files.file(object)?, name)? {
                    Some(found) => file_attributes(place, &found),
                    None => Err(Error::NotFound),
                }
            }
            Vnode::ControlDir(HEAD) if name == control_dir::SNAPSHOT_DIR => {
                self.attributes_unchecked(to_ino(Vnode::SnapshotDir(HEAD))?)
            }
            Vnode::SnapshotDir(HEAD) => {
                let all = self.list_snapshots()?;
                let found = all.into_iter().find(|each| each.name.as_bytes() == name);
                let place = self.0.snapshots.index_of(found.ok_or(Error::NotFound)?)?;
                let root = self.files(place)?.root_object();
                self.attributes_unchecked(to_ino(Vnode::File(place, root))?)
            }
            Vnode::ControlDir(HEAD)
                if name == control_dir::VOLUME_DIR && !self.list_volumes()?.is_empty() =>
            {
                self.attributes_unchecked(to_ino(Vnode::VolumeDir(HEAD))?)
            }
            Vnode::VolumeDir(HEAD) => {
                let all = self.list_volumes()?;
                let found = all.iter().find(|each| each.0.as_bytes() == name);
                let place = self.0.volumes.index_of(found.ok_or(Error::NotFound)?)?;
                self.attributes_unchecked(to_ino(Vnode::Volume(place))?)
            }
            Vnode::ControlDir(_) | Vnode::SnapshotDir(_) | Vnode::VolumeDir(_) => {
                Err(Error::NotFound)
            }
            _ => Err(Error::NotDirectory),
        }
    }

    /// Where a symbolic link points.
    pub(super) fn read_link_unchecked(&self, number: Ino) -> Result<Vec<u8>> {
        Ok(self.file(number)?.read_link()?)
    }

    /// The names of a node's extended attributes, as Linux lists them.
    pub(super) fn xattr_names_unchecked(&self, number: Ino) -> Result<Vec<Vec<u8>>> {
        match Self::vnode(number)? {
            Vnode::File(..) => Ok(self.file(number)?.xattr_names()?),
            _ => Ok(Vec::new()),
        }
    }

    /// The value of an extended attribute; none if there is no such attribute.
    pub(super) fn xattr_unchecked(&self, number: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match Self::vnode(number)? {
            Vnode::File(..) => Ok(self.file(number)?.xattr(name)?),
            _ => Ok(None),
        }
    }

    /// The attributes of an inode; the last ones of an inode without a name that a door still knows.
    pub(super) fn attributes_or_unlinked(&self, ino: Ino) -> Result<Attributes> {
        match self.attributes_unchecked(ino) {
            Err(Error::NotFound) => self.0.unlinked.get(ino).ok_or(Error::NotFound),
            found => found,
        }
    }

    /// From now on a door asks for inodes that have lost their names, until it forgets them.
    pub fn keep_unlinked(&self) {
        self.0.keeps_unlinked.store(true, Ordering::Relaxed);
    }

    /// Whether an inode has a name, or is open.
    pub fn exists(&self, ino: Ino) -> bool {
        self.attributes_unchecked(ino).is_ok()
    }

    /// The door that keeps inodes without names has forgotten one.
    pub fn forget(&self, ino: Ino) {
        self.0.unlinked.remove(ino);
    }

    /// That door has forgotten all. Returns the directories among them.
    pub fn forget_all(&self) -> Vec<Ino> {
        self.0.unlinked.drain()
    }

    /// Opens a file. It stays although it may lose its last name, until this is dropped.
    pub(super) fn open_file(&self, number: Ino) -> Result<OpenFile> {
        if let Some(in_use) = self.open_held_volume(number)? {
            return Ok(OpenFile::from_volume(self, number, in_use));
        }
        let file = self.file(number)?;
        if file.stat().is_directory() {
            return Err(Error::IsDirectory);
        }
        OpenFile::new(self, number, &file)
    }

    /// Keeps a file of any kind, but no directory, although it may lose its last name.
    pub(super) fn hold_unlinked(&self, number: Ino) -> Result<UnlinkedHold> {
        UnlinkedHold::new(&self.0.files(), Self::writable_object(number)?)
    }

    /// Lists a directory.
    pub(super) fn open_dir_unchecked(&self, number: Ino) -> Result<OpenDir> {
        OpenDir::open(self, number)
    }

    /// Lists a directory that is no more: nothing is in it.
    pub(super) fn open_removed_dir(&self, number: Ino) -> OpenDir {
        OpenDir::open_removed(self, number)
    }

    /// The number of the directory above a directory; a root has itself above it.
    pub fn parent_ino(&self, dir: Ino) -> Result<Ino> {
        self.open_dir_unchecked(dir)?.parent_ino()
    }

    /// What the file system takes and may still take.
    pub(super) fn space_unchecked(&self) -> DatasetSpace {
        self.0.pool.space(&self.0.dataset)
    }

    /// The content of a file as it is now.
    fn content(&self, number: Ino) -> Result<Content> {
        Ok(self.file(number)?.content())
    }
}

fn to_ino(node: Vnode) -> Result<Ino> {
    node.ino().ok_or(Error::InoOverflow)
}

/// The attributes of a file of that place.
fn file_attributes(place: DatasetIndex, file: &File) -> Result<Attributes> {
    crate::tree::file_attributes(place, file)
}
