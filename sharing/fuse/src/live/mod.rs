//! The kernel's questions, answered from a file system that can be written.
//!
//! All changes come through the kernel, so it may keep what it was told; only what a file takes on
//! the drives changes by itself, when its group is written. Files of a snapshot never change.

mod answers;
mod back;
mod changes;
mod file_handle;
mod patience;
mod removed;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fusedev::{CacheTimeouts, Notifier, OpenReply, Reply, RequestContext};
use parking_lot::RwLock;
use vfs::{Attributes, Credentials, Error, FileSystem, FileType, OpenDir, OpenFile, Reason};

use crate::ROOT;
use crate::convert::attributes;
use crate::handles::Handles;
use crate::ioctl;
pub use back::{Beside, TakenBack};
use file_handle::{FileHandle, MappableFiles};
use removed::{Removed, Revived};

/// Answers the kernel.
pub(crate) struct LiveServer {
    live: FileSystem,
    /// Closed while the file system becomes another: who answers holds it open.
    gate: RwLock<()>,
    /// How long the kernel may keep what a name names.
    names: Duration,
    files: Handles<FileHandle>,
    mappable: Arc<MappableFiles>,
    listings: Handles<OpenDir>,
    removed: Removed,
    revived: Revived,
    /// Whether the kernel forgets what it keeps of a file where that is written directly.
    direct: AtomicBool,
    /// Whether sync(2) waits until the kernel has written out mapped pages.
    sync_waits: bool,
    /// The way to the kernel, as soon as something is mounted.
    notices: OnceLock<Notifier>,
}

/// Nobody but the kernel changes anything.
const LONG: Duration = Duration::from_hours(24);
/// Until so many seconds after a change, the space that a file takes may not be known.
const SETTLES: i64 = 30;
const SHORT: Duration = Duration::from_secs(1);

const O_ACCMODE: i32 = 3;
const O_WRONLY: i32 = 1;
const O_TRUNC: i32 = 0o1000;
const O_APPEND: i32 = 0o2000;
const O_NOATIME: i32 = 0o1_000_000;
const FORMAT: u32 = 0o170_000;
const SET_ID: u32 = 0o6000;

impl LiveServer {
    pub(crate) fn new(live: FileSystem, sync_waits: bool) -> Self {
        // what one name becomes may change what another one names
        let names = if live.has_exact_names() { LONG } else { Duration::ZERO };
        let (files, listings) = (Handles::new(), Handles::new());
        let (removed, revived) = (Removed::default(), Revived::default());
        let (direct, mappable) = (AtomicBool::new(false), Arc::default());
        let (gate, notices) = (RwLock::new(()), OnceLock::new());
        Self {
            live,
            gate,
            names,
            files,
            mappable,
            listings,
            removed,
            revived,
            direct,
            sync_waits,
            notices,
        }
    }

    /// The kernel calls the root 1, whatever its number is.
    fn number(&self, node: u64) -> u64 {
        if node == ROOT { self.live.root_ino() } else { node }
    }

    /// How long the kernel may keep attributes. Whoever writes takes set-id bits away here, and the
    /// kernel would start a program by those that it keeps.
    fn keeps(&self, of: &Attributes) -> Duration {
        if of.kind == FileType::File && of.mode & SET_ID != 0 {
            Duration::ZERO
        } else if self.live.now().seconds.saturating_sub(of.ctime.seconds) > SETTLES {
            LONG
        } else {
            SHORT
        }
    }

    fn entry(&self, found: &Attributes) -> Reply {
        // `.zfs` may come and go
        let name = if found.generation == 0 { SHORT } else { self.names };
        self.named(found, name)
    }

    /// What a name names for so long.
    fn named(&self, found: &Attributes, name: Duration) -> Reply {
        let validity = CacheTimeouts { entry: name, attr: self.keeps(found) };
        Reply::entry(&attributes(found), self.revived.generation(found), validity)
    }

    /// What a name names, if anything: that there is none is kept, too.
    fn looked_up(&self, dir: u64, name: &[u8]) -> Result<Reply, Error> {
        if let b"." | b".." = name {
            return self.known(dir, name == b"..");
        }
        match self.live.lookup(dir, name) {
            // snapshots and volumes come and go, and so may `.zfs` itself
            Err(Error::NotFound) if self.keeps_absence(dir, name) => {
                Ok(Reply::negative_entry(self.names))
            }
            // those of snapshots and volumes may be another's or gone at any time
            Ok(found) if !FileSystem::is_stored_dir(dir) => Ok(self.named(&found, Duration::ZERO)),
            found => found.map(|found| self.entry(&found)),
        }
    }

    /// A node that the kernel has forgotten, and somebody comes back to; or the directory above it.
    fn known(&self, number: u64, above: bool) -> Result<Reply, Error> {
        let number = if above { self.live.parent_ino(number)? } else { number };
        let mut found = self.live.attributes(number)?;
        if number == self.live.root_ino() {
            // as the kernel has known it from the beginning
            (found.ino, found.generation) = (ROOT, 0);
        }
        Ok(self.entry(&found))
    }

    /// Whether the kernel is to keep that there is no such name.
    fn keeps_absence(&self, dir: u64, name: &[u8]) -> bool {
        let comes_and_goes = dir == self.live.root_ino() && name == b".zfs";
        FileSystem::is_stored_dir(dir) && !comes_and_goes && !self.names.is_zero()
    }

    /// A file that was made and opened. Its space may not be known yet.
    fn created(&self, found: &Attributes, file: OpenReply) -> Reply {
        let validity = CacheTimeouts { entry: self.names, attr: SHORT.min(self.keeps(found)) };
        Reply::create(&attributes(found), self.revived.generation(found), validity, file)
    }

    /// Of what is there, or went while the kernel knew it.
    fn attributes(&self, number: u64) -> Result<Attributes, Error> {
        match self.live.attributes(number) {
            Err(Error::NotFound) => self.removed.find(number).ok_or(Error::NotFound),
            found => found,
        }
    }

    fn facts(&self, found: &Attributes) -> Reply {
        Reply::attr(&attributes(found), self.keeps(found))
    }

    fn open_file(&self, number: u64, flags: i32) -> Result<OpenReply, Error> {
        let file = self.live.open_file(number)?;
        let file = if flags & O_NOATIME == 0 { file } else { file.without_atime() };
        // what the kernel keeps it reads without a word to us
        let is_noted = flags & O_ACCMODE != O_WRONLY && file.is_atime_due();
        // a volume may be another by now, as it was taken back to a snapshot
        let stays = !file.is_volume();
        let opened = self.opened(file, flags);
        Ok(if stays && !is_noted { opened.keep_cache() } else { opened })
    }

    /// The kernel knows of no flags that forbid writing.
    fn may_open(found: &Attributes, flags: i32) -> Result<(), Error> {
        let has = if is_writing(flags) { found.flags } else { 0 };
        let is_appended_to = flags & (O_APPEND | O_TRUNC) == O_APPEND;
        if has & ioctl::IMMUTABLE != 0 || has & ioctl::APPEND_ONLY != 0 && !is_appended_to {
            return Err(Error::Refused { reason: Reason::NotPermitted });
        }
        Ok(())
    }

    /// How the kernel is to treat an open file. What is only written needs no copy in the kernel's
    /// memory on its way; whoever reads the file elsewhere keeps what was read there.
    fn opened(&self, file: OpenFile, flags: i32) -> OpenReply {
        let file = FileHandle::new(file, flags, &self.mappable);
        let file = OpenReply::new(self.files.add(file.into())).no_flush();
        let only_written = flags & O_ACCMODE == O_WRONLY;
        if only_written && self.direct.load(Relaxed) { file.direct_io() } else { file }
    }
}

fn is_writing(flags: i32) -> bool {
    flags & O_ACCMODE != 0
}

/// Who asks, to make something: what it is to have of set-id bits the kernel has seen to.
fn by(asker: &RequestContext<'_>) -> Credentials {
    Credentials { uid: asker.uid, gid: asker.gid, has_cap_fsetid: true }
}

fn kind_of(mode: u32) -> Option<FileType> {
    match mode & FORMAT {
        0o100_000 | 0 => Some(FileType::File),
        0o010_000 => Some(FileType::Fifo),
        0o020_000 => Some(FileType::CharDevice),
        0o060_000 => Some(FileType::BlockDevice),
        0o140_000 => Some(FileType::Socket),
        _ => None,
    }
}
