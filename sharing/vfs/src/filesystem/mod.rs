//! A file system of an imported pool, to read and write.
//!
//! Inode numbers are those of a [`crate::DatasetTree`] (`vnode.rs`): dataset 0 is the file system, whose files
//! keep the numbers that OpenZFS shows. Each snapshot that a caller looks into gets an index of its own. All
//! callers see a change at once. It is on the drives after [`PoolFileSystem::fsync`] or the next txg.

mod checks;
mod contract;
mod dir_versions;
mod doors;
mod handles;
mod open_dir;
mod open_file;
mod rollback;
mod shadow;
mod shared;
mod snapshot_admin;
mod snapshots;
mod suspend_retry;
mod unlinked;
mod volumes;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

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
pub use rollback::{Invalidation, RequestsPending};
pub use snapshot_admin::SnapshotAdmin;
use snapshots::{SnapshotTable, SnapshotView};
use unlinked::UnlinkedInodes;
use volumes::VolumeTable;

/// A file system of an imported pool, to read and write. Cheap to clone.
#[derive(Clone)]
pub struct PoolFileSystem(Arc<Inner>);

struct Inner {
    pool: Pool,
    /// The full name of the dataset. A rename changes it.
    dataset: RwLock<Arc<str>>,
    /// A rollback replaces them.
    files: RwLock<OpenFileSystem>,
    snapshots: SnapshotTable,
    volumes: VolumeTable,
    dir_versions: DirVersions,
    unlinked: UnlinkedInodes,
    /// Doors that know inodes until they forget them, and use those that lost their names.
    unlinked_keepers: AtomicUsize,
    /// Number of times that a file got capabilities, plus 1.
    capability_version: AtomicU64,
    prefetch_workers: PrefetchWorkers,
    clock: ChangeClock,
    doors: Doors,
    /// How often it was rolled back since it was opened.
    rollbacks: AtomicU64,
    /// Whether reads leave the atime alone.
    is_noatime: AtomicBool,
    /// Changes snapshots by `.zfs/snapshot`; none: nobody can.
    snapshot_admin: RwLock<Option<Arc<dyn SnapshotAdmin>>>,
}

/// A door that uses inodes without names. Once all such doors are closed, the space of removed
/// files is freed at once.
pub struct UnlinkedKeeper(PoolFileSystem);

impl Drop for UnlinkedKeeper {
    fn drop(&mut self) {
        if self.0.0.unlinked_keepers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.0.unlinked.drain();
        }
    }
}

impl Inner {
    /// The files. A caller must not take this lock twice: a rollback that waits for it comes between.
    fn files(&self) -> RwLockReadGuard<'_, OpenFileSystem> {
        self.files.read()
    }
}

/// The index of the file system itself.
const HEAD: DatasetIndex = DatasetIndex(0);

impl PoolFileSystem {
    /// Opens a file system of an imported pool. `now` is the clock of its changes.
    ///
    /// Open each dataset once: all doors into it must use clones of one file system, or they know nothing of each
    /// other's changes, locks and leases.
    pub fn open(
        held: &Pool,
        dataset: &str,
        now: impl Fn() -> Time + Send + Sync + 'static,
    ) -> Result<Self> {
        let files = held.datasets().filesystem(dataset)?;
        Ok(Self(Arc::new(Inner {
            pool: held.clone(),
            dataset: RwLock::new(dataset.into()),
            files: RwLock::new(files),
            snapshots: SnapshotTable::default(),
            volumes: VolumeTable::default(),
            dir_versions: DirVersions::default(),
            unlinked: UnlinkedInodes::default(),
            unlinked_keepers: AtomicUsize::new(0),
            capability_version: AtomicU64::new(1),
            prefetch_workers: PrefetchWorkers::new(),
            clock: ChangeClock::new(now),
            doors: Doors::default(),
            rollbacks: AtomicU64::new(0),
            is_noatime: AtomicBool::new(false),
            snapshot_admin: RwLock::default(),
        })))
    }

    /// The full name of the dataset.
    pub fn dataset(&self) -> Arc<str> {
        Arc::clone(&self.0.dataset.read())
    }

    /// The dataset has another name now. Snapshots and volumes below it are looked up by that.
    pub fn set_dataset(&self, name: &str) {
        *self.0.dataset.write() = name.into();
    }

    /// The inode number of the topmost directory.
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

    /// Whether two names are the same only if all their bytes are.
    pub fn has_exact_names(&self) -> bool {
        self.0.files().has_exact_names()
    }

    /// The most bytes of a name.
    pub fn max_name_len(&self) -> usize {
        self.0.files().max_name_len()
    }

    /// Whether a change of a suspended pool waits until the pool resumes (failmode=wait).
    pub fn has_failmode_wait(&self) -> bool {
        self.0.pool.properties().has_failmode_wait()
    }

    /// Whether the pool is suspended: drives failed, and nothing is written until a clear.
    pub fn is_suspended(&self) -> bool {
        self.0.pool.is_suspended()
    }

    /// The time by the clock that the file system was opened with.
    pub fn now(&self) -> Time {
        self.0.clock.now()
    }

    /// Sets whether reads leave the atime alone, as on a mount that is read-only or has noatime.
    pub fn set_noatime(&self, is_noatime: bool) {
        self.0.is_noatime.store(is_noatime, Ordering::Relaxed);
    }

    fn is_noatime(&self) -> bool {
        self.0.is_noatime.load(Ordering::Relaxed)
    }

    /// The number of rollbacks since the file system was opened.
    fn rollbacks(&self) -> u64 {
        self.0.rollbacks.load(Ordering::Acquire)
    }

    /// Commits all changes of a file, and all earlier changes of names, to stable storage, unless the
    /// dataset has sync=disabled.
    pub fn fsync(&self, number: Ino) -> Result<()> {
        if let Some(volume) = self.find_volume(number)? {
            return Ok(volume.flush()?);
        }
        // a snapshot has no changes to commit
        let Vnode::File(HEAD, object) = Self::vnode(number)? else { return Ok(()) };
        Ok(self.0.files().fsync(Some(object))?)
    }

    /// Commits all changes of the file system to stable storage.
    pub fn fsync_all(&self) -> Result<()> {
        Ok(self.0.files().fsync(None)?)
    }

    /// Commits all changes of the file system, and of the volumes below it that have an inode, to stable
    /// storage.
    pub(super) fn sync_unchecked(&self) -> Result<()> {
        self.flush_volumes()?;
        self.fsync_all()
    }

    /// Commits all changes if the dataset has sync=always. A change that is done and whose commit
    /// failed gives [`Reason::NotCommitted`].
    pub fn commit_if_sync_always(&self) -> Result<()> {
        Ok(self.0.files().commit_if_sync_always()?)
    }

    /// Whether a dataset stores a directory, so that only requests change its names. Names below `.zfs` come
    /// and go with snapshots and volumes.
    pub fn is_stored_dir(number: Ino) -> bool {
        matches!(Self::vnode(number), Ok(Vnode::File(..)))
    }

    /// The name of the snapshot whose root below `.zfs/snapshot` has this inode number; none: it is another inode.
    pub fn snapshot_by_root(&self, ino: Ino) -> Option<String> {
        match Vnode::from_ino(ino)? {
            Vnode::File(place, object) if place != HEAD => {
                self.0.snapshots.name_by_root(place, object)
            }
            _ => None,
        }
    }

    fn vnode(number: Ino) -> Result<Vnode> {
        Vnode::from_ino(number).ok_or(Error::NotFound)
    }

    /// The object of an inode that can be changed.
    fn writable_object(number: Ino) -> Result<ObjectId> {
        match Self::vnode(number)? {
            Vnode::File(HEAD, object) => Ok(ObjectId::new(object)),
            _ => Err(Error::Refused { reason: Reason::ReadOnly }),
        }
    }

    /// The files of the file system or of a snapshot.
    fn files(&self, place: DatasetIndex) -> Result<FileSystemReader> {
        match place {
            HEAD => Ok(self.0.files().reader().clone()),
            place => self.0.snapshots.files(&self.0.pool, &self.dataset(), place),
        }
    }

    fn file(&self, number: Ino) -> Result<File> {
        match Self::vnode(number)? {
            Vnode::File(place, object) => Ok(self.files(place)?.file(object)?),
            _ => Err(Error::IsDirectory),
        }
    }

    fn list_snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(self.0.pool.snapshots().list(&self.dataset())?)
    }

    /// The attributes of an inode.
    pub(super) fn attributes_unchecked(&self, number: Ino) -> Result<Attributes> {
        match Self::vnode(number)? {
            Vnode::File(place, object) => {
                let files = self.files(place)?;
                let mut found = file_attributes(place, &files.file(object)?)?;
                let is_root = place == HEAD && object == files.root_object();
                if is_root && self.0.files().snapdir() == Snapdir::Visible {
                    // `.zfs` leads back to it
                    found.nlink = found.nlink.saturating_add(1);
                }
                Ok(found)
            }
            Vnode::SnapshotDir(HEAD) => {
                let mut found = attributes::synthetic(number, FileType::Directory);
                let changed =
                    self.0.pool.snapshots().changed_at(&self.dataset()).unwrap_or_default();
                let seconds = i64::try_from(changed).unwrap_or_default();
                found.mtime = Time { seconds, nanoseconds: 0 };
                (found.ctime, found.atime) = (found.mtime, self.now());
                if self.snapshot_admin().is_some() {
                    found.mode = snapshot_admin::OPEN_PERMISSIONS;
                }
                Ok(found)
            }
            Vnode::ControlDir(HEAD)
            | Vnode::VolumeDir(HEAD)
            | Vnode::ShadowDir(HEAD)
            | Vnode::Unopened(_) => Ok(attributes::synthetic(number, FileType::Directory)),
            Vnode::Volume(place) => {
                let volume = self.0.volumes.open(&self.0.pool, &self.dataset(), place)?;
                Ok(Self::volume_attributes(number, &volume))
            }
            _ => Err(Error::NotFound),
        }
    }

    /// The attributes of the inode that a name leads to.
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
                self.snapshot_root(found.ok_or(Error::NotFound)?, SnapshotView::ByName)
            }
            Vnode::ControlDir(HEAD) if name == control_dir::SHADOW_DIR => {
                self.attributes_unchecked(to_ino(Vnode::ShadowDir(HEAD))?)
            }
            Vnode::ShadowDir(HEAD) => {
                let found = shadow::find(self.list_snapshots()?, name);
                self.snapshot_root(found.ok_or(Error::NotFound)?, SnapshotView::ByTime)
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
            Vnode::ControlDir(_)
            | Vnode::SnapshotDir(_)
            | Vnode::ShadowDir(_)
            | Vnode::VolumeDir(_) => Err(Error::NotFound),
            _ => Err(Error::NotDirectory),
        }
    }

    /// The attributes of the root of a snapshot.
    fn snapshot_root(&self, snapshot: Snapshot, view: SnapshotView) -> Result<Attributes> {
        let place = self.0.snapshots.index_of(snapshot, view)?;
        let root = self.files(place)?.root_object();
        self.attributes_unchecked(to_ino(Vnode::File(place, root))?)
    }

    /// The target of a symbolic link.
    pub(super) fn read_link_unchecked(&self, number: Ino) -> Result<Vec<u8>> {
        Ok(self.file(number)?.read_link()?)
    }

    /// The names of the extended attributes of an inode, as Linux lists them.
    pub(super) fn xattr_names_unchecked(&self, number: Ino) -> Result<Vec<Vec<u8>>> {
        match Self::vnode(number)? {
            Vnode::File(..) => Ok(self.file(number)?.xattr_names()?),
            _ => Ok(Vec::new()),
        }
    }

    /// The value of an extended attribute; none if it does not exist.
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

    /// Keeps inodes that lose their names, for a door that uses them until it forgets them.
    pub fn keep_unlinked(&self) -> UnlinkedKeeper {
        self.0.unlinked_keepers.fetch_add(1, Ordering::Relaxed);
        UnlinkedKeeper(self.clone())
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

    /// Opens a file. The open file keeps its content even without a name, until it is dropped.
    pub(super) fn open_file(&self, number: Ino) -> Result<OpenFile> {
        if let Some(in_use) = self.open_held_volume(number)? {
            return Ok(OpenFile::from_volume(self, number, in_use));
        }
        // counted before: a rollback meanwhile makes the file be opened again
        let rollbacks = self.rollbacks();
        let file = self.file(number)?;
        if file.stat().is_directory() {
            return Err(Error::IsDirectory);
        }
        OpenFile::new(self, number, &file, rollbacks)
    }

    /// Holds a file that is not a directory, so that it keeps its content without a name.
    pub(super) fn hold_unlinked(&self, number: Ino) -> Result<UnlinkedHold> {
        UnlinkedHold::new(&self.0.files(), Self::writable_object(number)?)
    }

    /// Opens a directory.
    pub(super) fn open_dir_unchecked(&self, number: Ino) -> Result<OpenDir> {
        OpenDir::open(self, number)
    }

    /// Opens a removed directory, which is empty.
    pub(super) fn open_removed_dir(&self, number: Ino) -> OpenDir {
        OpenDir::open_removed(self, number)
    }

    /// The parent of a directory. The parent of a root is the root.
    pub fn parent_ino(&self, dir: Ino) -> Result<Ino> {
        self.open_dir_unchecked(dir)?.parent_ino()
    }

    /// The space of the dataset.
    pub(super) fn space_unchecked(&self) -> DatasetSpace {
        self.0.pool.datasets().space(&self.dataset())
    }

    /// The current content of a file.
    fn content(&self, number: Ino) -> Result<Content> {
        Ok(self.file(number)?.content())
    }
}

fn to_ino(node: Vnode) -> Result<Ino> {
    node.ino().ok_or(Error::InoOverflow)
}

/// The attributes of a file of the dataset with that index.
fn file_attributes(place: DatasetIndex, file: &File) -> Result<Attributes> {
    crate::tree::file_attributes(place, file)
}
