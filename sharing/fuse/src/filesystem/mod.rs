//! The kernel's questions, answered from a file system that can be written.
//!
//! All changes come through the kernel, so it may keep what it was told; only what a file takes on
//! the drives changes by itself, when its group is written. Files of a snapshot never change.

mod file_handle;
mod invalidation;
mod known_inodes;
mod read_requests;
mod rollback;
mod suspend_retry;
mod unlinked;
mod write_requests;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fusedev::{CacheTimeouts, Notifier, OpenReply, Reply, RequestContext};
use parking_lot::RwLock;
use vfs::{
    Attributes, Credentials, DoorId, Error, FileSystem, FileType, OpenDir, OpenFile, Reason,
};

use crate::ROOT_NODEID;
use crate::convert::to_attr;
use crate::handle_table::HandleTable;
use crate::ioctl;
use file_handle::{FileHandle, MappableFiles};
use invalidation::Invalidator;
use known_inodes::KnownInodes;
pub use rollback::{RollbackHandle, RollbackOutcome};
use unlinked::{RestoredDirs, UnlinkedInodes};

/// Answers the kernel.
pub(crate) struct FileSystemServer {
    fs: FileSystem,
    /// Closed while the file system becomes another: who answers holds it open.
    rollback_gate: RwLock<()>,
    /// How long the kernel may keep what a name names.
    entry_timeout: Duration,
    open_files: HandleTable<FileHandle>,
    mappable: Arc<MappableFiles>,
    open_dirs: HandleTable<OpenDir>,
    unlinked: UnlinkedInodes,
    restored_dirs: RestoredDirs,
    /// Whether the kernel forgets what it keeps of a file where that is written directly.
    has_direct_io_mmap: AtomicBool,
    /// Whether sync(2) waits until the kernel has written out mapped pages.
    sync_waits: bool,
    /// The way to the kernel, as soon as something is mounted.
    notifier: OnceLock<Notifier>,
    /// This mount, among the doors into the file system.
    door: DoorId,
    invalidator: OnceLock<Invalidator>,
    known: KnownInodes,
    /// Whether the kernel can expire a name.
    can_expire_names: AtomicBool,
}

/// Nobody but the kernel changes anything.
const LONG_TIMEOUT: Duration = Duration::from_hours(24);
/// Until so many seconds after a change, the space that a file takes may not be known.
const SPACE_SETTLE_SECONDS: i64 = 30;
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);

const O_ACCMODE: i32 = 3;
const O_WRONLY: i32 = 1;
const O_TRUNC: i32 = 0o1000;
const O_APPEND: i32 = 0o2000;
const O_NOATIME: i32 = 0o1_000_000;
const S_IFMT: u32 = 0o170_000;
const SETID_BITS: u32 = 0o6000;

impl FileSystemServer {
    pub(crate) fn new(fs: FileSystem, sync_waits: bool) -> Self {
        // what one name becomes may change what another one names
        let entry_timeout = if fs.has_exact_names() { LONG_TIMEOUT } else { Duration::ZERO };
        let (open_files, open_dirs) = (HandleTable::new(), HandleTable::new());
        let (unlinked, restored_dirs) = (UnlinkedInodes::default(), RestoredDirs::default());
        let (has_direct_io_mmap, mappable) = (AtomicBool::new(false), Arc::default());
        let (rollback_gate, notifier) = (RwLock::new(()), OnceLock::new());
        let (door, invalidator) = (DoorId::new_unique(), OnceLock::new());
        let (known, can_expire_names) = (KnownInodes::default(), AtomicBool::new(false));
        Self {
            fs: fs.with_door(door),
            rollback_gate,
            entry_timeout,
            open_files,
            mappable,
            open_dirs,
            unlinked,
            restored_dirs,
            has_direct_io_mmap,
            sync_waits,
            notifier,
            door,
            invalidator,
            known,
            can_expire_names,
        }
    }

    /// The kernel calls the root 1, whatever its number is.
    fn to_ino(&self, node: u64) -> u64 {
        if node == ROOT_NODEID { self.fs.root_ino() } else { node }
    }

    /// How long the kernel may keep attributes. Whoever writes takes set-id bits away here, and the
    /// kernel would start a program by those that it keeps.
    fn attr_timeout(&self, of: &Attributes) -> Duration {
        if of.kind == FileType::File && of.mode & SETID_BITS != 0 {
            Duration::ZERO
        } else if self.fs.now().seconds.saturating_sub(of.ctime.seconds) > SPACE_SETTLE_SECONDS {
            LONG_TIMEOUT
        } else {
            SHORT_TIMEOUT
        }
    }

    fn entry_reply(&self, found: &Attributes) -> Reply {
        // `.zfs` may come and go
        let name = if found.generation == 0 { SHORT_TIMEOUT } else { self.entry_timeout };
        self.entry_reply_with(found, name)
    }

    /// What a name names for so long.
    fn entry_reply_with(&self, found: &Attributes, name: Duration) -> Reply {
        let validity = CacheTimeouts { entry: name, attr: self.attr_timeout(found) };
        self.known.add(found.ino);
        Reply::entry(&to_attr(found), self.restored_dirs.generation(found), validity)
    }

    /// What a name names, if anything: that there is none is kept, too.
    fn lookup(&self, dir: u64, name: &[u8]) -> Result<Reply, Error> {
        if let b"." | b".." = name {
            return self.lookup_ino(dir, name == b"..");
        }
        match self.fs.lookup(dir, name) {
            // snapshots and volumes come and go, and so may `.zfs` itself
            Err(Error::NotFound) if self.can_cache_negative(dir, name) => {
                Ok(Reply::negative_entry(self.entry_timeout))
            }
            // those of snapshots and volumes may be another's or gone at any time
            Ok(found) if !FileSystem::is_stored_dir(dir) => {
                Ok(self.entry_reply_with(&found, Duration::ZERO))
            }
            found => found.map(|found| self.entry_reply(&found)),
        }
    }

    /// A node that the kernel has forgotten, and somebody comes back to; or the directory above it.
    fn lookup_ino(&self, number: u64, above: bool) -> Result<Reply, Error> {
        let number = if above { self.fs.parent_ino(number)? } else { number };
        let mut found = self.fs.attributes(number)?;
        if number == self.fs.root_ino() {
            // as the kernel has known it from the beginning
            (found.ino, found.generation) = (ROOT_NODEID, 0);
        }
        Ok(self.entry_reply(&found))
    }

    /// Whether the kernel is to keep that there is no such name.
    fn can_cache_negative(&self, dir: u64, name: &[u8]) -> bool {
        let comes_and_goes = dir == self.fs.root_ino() && name == b".zfs";
        FileSystem::is_stored_dir(dir) && !comes_and_goes && !self.entry_timeout.is_zero()
    }

    /// A file that was made and opened. Its space may not be known yet.
    fn create_reply(&self, found: &Attributes, file: OpenReply) -> Reply {
        let validity = CacheTimeouts {
            entry: self.entry_timeout,
            attr: SHORT_TIMEOUT.min(self.attr_timeout(found)),
        };
        self.known.add(found.ino);
        Reply::create(&to_attr(found), self.restored_dirs.generation(found), validity, file)
    }

    /// Of what is there, or went while the kernel knew it.
    fn attributes(&self, number: u64) -> Result<Attributes, Error> {
        match self.fs.attributes(number) {
            Err(Error::NotFound) => self.unlinked.get(number).ok_or(Error::NotFound),
            found => found,
        }
    }

    fn attr_reply(&self, found: &Attributes) -> Reply {
        Reply::attr(&to_attr(found), self.attr_timeout(found))
    }

    fn open_file(&self, number: u64, flags: i32) -> Result<OpenReply, Error> {
        let file = self.fs.open_file(number)?;
        let file = if flags & O_NOATIME == 0 { file } else { file.without_atime() };
        // what the kernel keeps it reads without a word to us
        let is_noted = flags & O_ACCMODE != O_WRONLY && file.is_atime_due();
        // a volume may be another by now, as it was taken back to a snapshot
        let stays = !file.is_volume();
        let opened = self.open_reply(file, flags);
        Ok(if stays && !is_noted { opened.keep_cache() } else { opened })
    }

    /// The kernel knows of no flags that forbid writing.
    fn check_open_flags(found: &Attributes, flags: i32) -> Result<(), Error> {
        let has = if is_write_open(flags) { found.flags } else { 0 };
        let is_appended_to = flags & (O_APPEND | O_TRUNC) == O_APPEND;
        if has & ioctl::IMMUTABLE != 0 || has & ioctl::APPEND_ONLY != 0 && !is_appended_to {
            return Err(Error::Refused { reason: Reason::NotPermitted });
        }
        Ok(())
    }

    /// How the kernel is to treat an open file. What is only written needs no copy in the kernel's
    /// memory on its way; whoever reads the file elsewhere keeps what was read there.
    fn open_reply(&self, file: OpenFile, flags: i32) -> OpenReply {
        let file = FileHandle::new(file, flags, &self.mappable);
        let file = OpenReply::new(self.open_files.insert(file.into())).no_flush();
        let only_written = flags & O_ACCMODE == O_WRONLY;
        if only_written && self.has_direct_io_mmap.load(Relaxed) { file.direct_io() } else { file }
    }
}

fn is_write_open(flags: i32) -> bool {
    flags & O_ACCMODE != 0
}

/// Who asks, to make something: what it is to have of set-id bits the kernel has seen to.
fn credentials(asker: &RequestContext<'_>) -> Credentials {
    Credentials { uid: asker.uid, gid: asker.gid, has_cap_fsetid: true }
}

fn kind_of_mode(mode: u32) -> Option<FileType> {
    match mode & S_IFMT {
        0o100_000 | 0 => Some(FileType::File),
        0o010_000 => Some(FileType::Fifo),
        0o020_000 => Some(FileType::CharDevice),
        0o060_000 => Some(FileType::BlockDevice),
        0o140_000 => Some(FileType::Socket),
        _ => None,
    }
}
