//! The kernel's questions, answered from a file system that can be written.
//!
//! All changes come through the kernel, so it may keep what it was told; only what a file takes on
//! the drives changes by itself, when its group is written. Files of a snapshot never change.

mod answers;
mod patience;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, Request,
};
use vfs::{Attributes, By, Error, Kind, Live, LiveListing, New, Open, Position};

use crate::convert::{attributes, errno};
use crate::handles::Handles;
use crate::server::SEEK_DATA;

/// Answers the kernel. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LiveServer {
    live: Live,
    /// How long the kernel may keep what a name names.
    names: Duration,
    files: Arc<Handles<Open>>,
    listings: Arc<Handles<LiveListing>>,
    /// Whether the kernel forgets what it keeps of a file where that is written directly.
    direct: bool,
}

/// Nobody but the kernel changes anything.
const LONG: Duration = Duration::from_hours(24);
/// Until so many seconds after a change, the space that a file takes may not be known.
const SETTLES: i64 = 30;
const SHORT: Duration = Duration::from_secs(1);

const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;
const O_ACCMODE: i32 = 3;
const O_WRONLY: i32 = 1;
const O_EXCL: i32 = 0o200;
const FORMAT: u32 = 0o170_000;

impl LiveServer {
    pub(crate) fn new(live: Live) -> Self {
        // what one name becomes may change what another one names
        let names = if live.names_are_exact() { LONG } else { Duration::ZERO };
        let (files, listings) = (Arc::new(Handles::new()), Arc::new(Handles::new()));
        Self { live, names, files, listings, direct: false }
    }

    /// The kernel calls the root 1, whatever its number is.
    fn number(&self, inode: INodeNo) -> u64 {
        if inode == INodeNo::ROOT { self.live.root() } else { inode.0 }
    }

    /// How long the kernel may keep attributes.
    fn keeps(&self, of: &Attributes) -> Duration {
        if self.live.now().seconds.saturating_sub(of.ctime.seconds) > SETTLES {
            LONG
        } else {
            SHORT
        }
    }

    fn entry(&self, reply: ReplyEntry, found: Result<Attributes, Error>) {
        match found {
            Ok(found) => {
                let generation = Generation(found.generation);
                let keeps = self.keeps(&found);
                // snapshots come and go
                let names = if found.generation == 0 { SHORT } else { self.names };
                reply.entry_with_ttls(&keeps, &names, &attributes(&found), generation);
            }
            Err(why) => reply.error(errno(&why)),
        }
    }

    fn attr(&self, reply: ReplyAttr, found: Result<Attributes, Error>) {
        match found {
            Ok(found) => reply.attr(&self.keeps(&found), &attributes(&found)),
            Err(why) => reply.error(errno(&why)),
        }
    }

    fn open_file(&self, number: u64) -> Result<FileHandle, Error> {
        Ok(FileHandle(self.files.add(self.live.read(number)?.into())))
    }

    /// How the kernel is to treat an open file. What is only written needs no copy in the kernel's
    /// memory on its way; whoever reads the file elsewhere keeps what was read there.
    fn ways(&self, flags: i32) -> FopenFlags {
        let keeps = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
        let only_written = flags & O_ACCMODE == O_WRONLY;
        if self.direct && only_written { keeps | FopenFlags::FOPEN_DIRECT_IO } else { keeps }
    }

    fn created(
        &self,
        by: By,
        (dir, name): (u64, &OsStr),
        new: &New<'_>,
        flags: i32,
    ) -> Result<(Attributes, FileHandle), Error> {
        let made = match self.live.make(by, dir, name.as_bytes(), new) {
            Err(Error::Refused { reason: vfs::Reason::Exists }) if flags & O_EXCL == 0 => {
                self.live.lookup(dir, name.as_bytes())?
            }
            made => made?,
        };
        Ok((made, self.open_file(made.number)?))
    }

    /// Writes bytes; `lasts`: it is to outlast a power cut at once.
    fn written(
        &self,
        by: By,
        file: &Open,
        (offset, bytes): (u64, &[u8]),
        lasts: bool,
    ) -> Result<(), Error> {
        if file.is_first_change() {
            self.live.drop_capabilities(by, file.number())?;
        }
        self.live.write(by, file.number(), Position::At(offset), bytes)?;
        if lasts { self.live.fsync(file.number()) } else { Ok(()) }
    }

    fn allocated(&self, by: By, file: u64, range: (u64, u64), mode: i32) -> Result<(), Error> {
        let (offset, length) = range;
        let range = offset..offset.saturating_add(length);
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            self.live.punch(by, file, range.clone())?;
        }
        if mode & KEEP_SIZE == 0 { self.live.reach(by, file, &range) } else { Ok(()) }
    }

    fn sought(&self, handle: FileHandle, offset: i64, whence: i32) -> Result<Option<u64>, Error> {
        let file = self.files.find(handle.0).ok_or(Error::Absent)?;
        let Ok(from) = u64::try_from(offset) else { return Ok(None) };
        if from >= file.size()? {
            return Ok(None);
        }
        match whence {
            SEEK_DATA => file.next_data(from),
            _ => file.next_hole(from).map(Some),
        }
    }
}

/// Who asks, to make something: what it is to have of set-id bits the kernel has seen to.
fn by(req: &Request) -> By {
    By { uid: req.uid(), gid: req.gid(), keeps_setid: true }
}

fn done(reply: ReplyEmpty, what: Result<(), Error>) {
    match what {
        Ok(()) => reply.ok(),
        Err(why) => reply.error(errno(&why)),
    }
}

fn kind_of(mode: u32) -> Option<Kind> {
    match mode & FORMAT {
        0o100_000 | 0 => Some(Kind::File),
        0o010_000 => Some(Kind::Fifo),
        0o020_000 => Some(Kind::CharDevice),
        0o060_000 => Some(Kind::BlockDevice),
        0o140_000 => Some(Kind::Socket),
        _ => None,
    }
}
