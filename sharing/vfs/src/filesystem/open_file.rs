//! An open file of a file system that can be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use engine::files::{Content, File};
use engine::pool::{DatasetHold, MemoryParts, OpenFileSystem, OpenVolume};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use posix::access::OpenMode;
use posix::{Credentials, Ino};
use units::ObjectId;

use super::doors::RegisteredOpen;
use super::{HEAD, PoolFileSystem};
use crate::readahead::Readahead;
use crate::vnode::Vnode;
use crate::{Context, Error, FileReader, Result};

/// An open file. It stays although it may lose its last name, until this is dropped.
pub struct OpenFile {
    fs: PoolFileSystem,
    ino: Ino,
    opened: RwLock<Opened>,
    /// How the file was opened.
    mode: OpenMode,
    /// The entry in the table of opens, if a door opened the file.
    registered: Option<Arc<RegisteredOpen>>,
    /// The second in which reading was last noted.
    last_atime_second: AtomicI64,
    /// How often capabilities had been given to files when it was last seen to that this one has none.
    checked_capability_version: AtomicU64,
    /// Whether reading was to be noted when it was opened.
    is_atime_due: bool,
    /// Whether reading is not noted at all.
    is_noatime: bool,
}

/// The content of an open file. A rollback of the file system replaces it.
struct Opened {
    backing: Backing,
    /// The number of rollbacks when the file was opened.
    rollbacks: u64,
}

enum Backing {
    /// A file that may change.
    Writable(WritableFile),
    /// A file of a snapshot.
    Snapshot(Arc<FileReader>),
    /// A volume, looked up at each request: it may have been rolled back or renamed.
    Volume(#[expect(dead_code, reason = "its end tells that the volume is closed")] DatasetHold),
    /// A file that a rollback of its file system removed.
    Stale,
}

/// A file that may change.
struct WritableFile {
    readahead: Mutex<Readahead>,
    content: Content,
    /// Its generation, which distinguishes it from earlier users of its number.
    generation: u64,
    _hold: UnlinkedHold,
}

/// A file stays although it may lose its last name, until this is dropped.
pub struct UnlinkedHold {
    object: ObjectId,
    /// The place of its hold: other inodes may take its place in the file system.
    files: OpenFileSystem,
}

impl OpenFile {
    pub(super) fn new(
        live: &PoolFileSystem,
        number: Ino,
        file: &File,
        rollbacks: u64,
    ) -> Result<Self> {
        let content = file.content();
        let Vnode::File(HEAD, _) = PoolFileSystem::vnode(number)? else {
            let how = Backing::Snapshot(FileReader::new(content, &live.0.prefetch_workers));
            return Ok(Self::with_backing(live, number, how, rollbacks));
        };
        let files = live.0.files().clone();
        let kept = UnlinkedHold::new(&files, PoolFileSystem::writable_object(number)?)?;
        let facts = file.stat();
        let is_atime_due = !live.is_noatime() && files.is_atime_due(&facts, live.now());
        let backing = Backing::Writable(WritableFile::new(kept, facts.generation, content));
        Ok(Self { is_atime_due, ..Self::with_backing(live, number, backing, rollbacks) })
    }

    /// A file without a name that has a hold already.
    pub(super) fn from_tmpfile(
        live: &PoolFileSystem,
        files: &OpenFileSystem,
        file: &File,
        rollbacks: u64,
    ) -> Self {
        let facts = file.stat();
        let kept = UnlinkedHold { object: ObjectId::new(facts.ino), files: files.clone() };
        let hold = WritableFile::new(kept, facts.generation, file.content());
        Self::with_backing(live, Ino::new(facts.ino), Backing::Writable(hold), rollbacks)
    }

    pub(super) fn from_volume(live: &PoolFileSystem, number: Ino, in_use: DatasetHold) -> Self {
        Self::with_backing(live, number, Backing::Volume(in_use), live.rollbacks())
    }

    fn volume(&self) -> Result<OpenVolume> {
        self.fs.find_volume(self.ino)?.ok_or(Error::NotFound)
    }

    fn with_backing(live: &PoolFileSystem, ino: Ino, backing: Backing, rollbacks: u64) -> Self {
        let (last_atime_second, checked_capability_version) =
            (AtomicI64::new(i64::MIN), AtomicU64::new(0));
        let (fs, is_atime_due, is_noatime) = (live.clone(), false, false);
        Self {
            fs,
            ino,
            opened: RwLock::new(Opened { backing, rollbacks }),
            last_atime_second,
            checked_capability_version,
            is_atime_due,
            is_noatime,
            mode: OpenMode::READ_WRITE,
            registered: None,
        }
    }

    /// The same file with another open mode.
    #[must_use]
    pub(super) fn with_mode(self, mode: OpenMode) -> Self {
        Self { mode, ..self }
    }

    /// The same file, with its entry in the table of opens.
    #[must_use]
    pub(super) fn with_registration(self, registered: Arc<RegisteredOpen>) -> Self {
        Self { registered: Some(registered), ..self }
    }

    /// Changes the open mode of the file, and of its entry in the table of opens.
    pub(super) fn change_registration(
        &mut self,
        context: &Context<'_>,
        open: OpenMode,
    ) -> Result<()> {
        if let Some(registered) = &self.registered {
            registered.change(context, open)?;
        }
        self.mode = open;
        Ok(())
    }

    /// How the file was opened.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// The same, of which reading is not noted.
    #[must_use]
    pub fn without_atime(self) -> Self {
        Self { is_atime_due: false, is_noatime: true, ..self }
    }

    /// Whether reads set the atime when it was opened: a client with cached pages must then read
    /// them once more.
    pub fn is_atime_due(&self) -> bool {
        self.is_atime_due
    }

    /// Whether it is a volume, which other writers than this client may change.
    pub fn is_volume(&self) -> bool {
        matches!(self.opened().backing, Backing::Volume(_))
    }

    /// The file system that it is of.
    pub(super) fn file_system(&self) -> &PoolFileSystem {
        &self.fs
    }

    /// Its content, if it is a file or a file of a snapshot, and no volume.
    pub(super) fn file_content(&self) -> Result<Option<Content>> {
        match &self.opened().backing {
            Backing::Writable(file) => Ok(Some(file.content.clone())),
            Backing::Snapshot(reader) => Ok(Some(reader.content().clone())),
            Backing::Volume(_) => Ok(None),
            Backing::Stale => Err(Error::Stale),
        }
    }

    /// Its number, while it is there.
    pub fn ino(&self) -> Result<Ino> {
        match self.opened().backing {
            Backing::Stale => Err(Error::Stale),
            _ => Ok(self.ino),
        }
    }

    /// Opens the file again if its file system was rolled back since. A file that the snapshot lacks is stale.
    pub fn reopen_after_rollback(&self) {
        drop(self.opened());
    }

    /// The content of the file, as of the last rollback.
    fn opened(&self) -> RwLockReadGuard<'_, Opened> {
        let opened = self.opened.read();
        if opened.rollbacks == self.fs.rollbacks() {
            return opened;
        }
        drop(opened);
        let mut opened = self.opened.write();
        let rollbacks = self.fs.rollbacks();
        if opened.rollbacks != rollbacks {
            if let Backing::Writable(file) = &opened.backing {
                opened.backing = self.find_again(file.generation).unwrap_or(Backing::Stale);
            }
            opened.rollbacks = rollbacks;
        }
        RwLockWriteGuard::downgrade(opened)
    }

    /// The file of this number after a rollback, if it is the same file.
    fn find_again(&self, generation: u64) -> Option<Backing> {
        let files = self.fs.0.files().clone();
        let file = files.reader().file(self.ino.get()).ok()?;
        if file.stat().generation != generation {
            return None;
        }
        let hold = UnlinkedHold::new(&files, ObjectId::new(self.ino.get())).ok()?;
        Some(Backing::Writable(WritableFile::new(hold, generation, file.content())))
    }

    /// Sees to it that the file has no capabilities, as a change of it must. Once it has none, it is
    /// looked at again only when any file has been given some since.
    pub(super) fn clear_capabilities(&self, by: &Credentials) -> Result<()> {
        let given = self.fs.0.capability_version.load(Ordering::Acquire);
        if self.checked_capability_version.load(Ordering::Relaxed) != given {
            self.fs.clear_capabilities(by, self.ino()?)?;
            self.checked_capability_version.store(given, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads bytes from `offset` on; returns the number: fewer than the buffer at the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let length = into.len();
        let opened = self.opened();
        let (content, ahead) = match &opened.backing {
            Backing::Snapshot(reader) => {
                return reader.read(offset, length, |bytes| {
                    let (filled, _) = into.split_at_mut(bytes.len());
                    filled.copy_from_slice(bytes);
                    bytes.len()
                });
            }
            Backing::Volume(_) => return Ok(self.volume()?.read(offset, into)?),
            Backing::Writable(hold) => (&hold.content, &hold.readahead),
            Backing::Stale => return Err(Error::Stale),
        };
        self.note_read(ahead, offset, length);
        Ok(content.read(offset, into)?)
    }

    /// Bytes from `offset` on without a copy, fewer at the end, if all of them are in memory.
    pub(super) fn parts_in_memory(&self, offset: u64, length: usize) -> Option<MemoryParts> {
        let opened = self.opened();
        let Backing::Writable(hold) = &opened.backing else { return None };
        let parts = hold.content.parts_in_memory(offset, length)?;
        self.note_read(&hold.readahead, offset, length);
        Some(parts)
    }

    /// Updates the atime, and has the blocks fetched that a reader in sequence reads next.
    fn note_read(&self, ahead: &Mutex<Readahead>, offset: u64, length: usize) {
        self.update_atime();
        let beyond = ahead.lock().next_prefetch(offset, length);
        if let Some(beyond) = beyond {
            // looked up again: the open handle does not know the present size
            if let Ok(content) = self.fs.content(self.ino) {
                self.fs.0.prefetch_workers.handle().queue_warming(content, beyond);
            }
        }
    }

    /// Sets the atime after a read, at most once a second.
    fn update_atime(&self) {
        let now = self.fs.now();
        if self.is_noatime || self.fs.is_noatime() {
            return;
        }
        if self.last_atime_second.swap(now.seconds, Ordering::Relaxed) == now.seconds {
            return;
        }
        if let Ok(object) = PoolFileSystem::writable_object(self.ino) {
            // a full or suspended pool can still be read
            let _ = self.fs.0.files().update_atime(object, now);
        }
    }

    /// The first byte from `from` on that is not in a hole; none if there is only a hole.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        match &self.opened().backing {
            Backing::Snapshot(reader) => reader.next_data(from),
            Backing::Volume(_) => {
                let size = self.volume()?.size();
                Ok(Some(from).filter(|from| *from < size))
            }
            Backing::Writable(_) => Ok(self.fs.content(self.ino)?.next_data(from)?),
            Backing::Stale => Err(Error::Stale),
        }
    }

    /// The first byte from `from` on that is in a hole; the end is one.
    pub fn next_hole(&self, from: u64) -> Result<u64> {
        match &self.opened().backing {
            Backing::Snapshot(reader) => reader.next_hole(from),
            Backing::Volume(_) => Ok(self.volume()?.size()),
            Backing::Writable(_) => Ok(self.fs.content(self.ino)?.next_hole(from)?),
            Backing::Stale => Err(Error::Stale),
        }
    }

    /// Bytes of it.
    pub fn size(&self) -> Result<u64> {
        match &self.opened().backing {
            Backing::Snapshot(reader) => Ok(reader.size()),
            Backing::Volume(_) => Ok(self.volume()?.size()),
            Backing::Writable(_) => Ok(self.fs.attributes_unchecked(self.ino)?.size),
            Backing::Stale => Err(Error::Stale),
        }
    }
}

impl WritableFile {
    fn new(kept: UnlinkedHold, generation: u64, content: Content) -> Self {
        Self { readahead: Mutex::default(), content, generation, _hold: kept }
    }
}

impl UnlinkedHold {
    pub(super) fn new(files: &OpenFileSystem, object: ObjectId) -> Result<Self> {
        files.hold_file(object)?;
        Ok(Self { object, files: files.clone() })
    }
}

impl Drop for UnlinkedHold {
    fn drop(&mut self) {
        // what could not be freed now is freed when the file system is next opened
        let _ = self.files.release_file(self.object);
    }
}
