//! What the kernel is told.
//!
//! An answer is a head (its length of 4 bytes, an error of 4 as a negative number, the number of the
//! question of 8), and what was asked for. The attributes of a node are, in the machine's byte order:
//!
//! ```text
//! offset  size  field
//!      0     8  number, 8 size in bytes, 16 sectors of 512 bytes
//!     24     8  atime, 32 mtime, 40 ctime: seconds since 1970
//!     48     4  atime, 52 mtime, 56 ctime: nanoseconds
//!     60     4  kind and mode, 64 links, 68 user, 72 group, 76 device, 80 block size, 84 flags
//! ```
//!
//! An entry is the node, its generation, how long the name and how long the attributes may be kept (8
//! bytes each of seconds, then 4 each of nanoseconds), and the attributes.
//!
//! Learnt from: Linux's `include/uapi/linux/fuse.h` (protocol 7.45).

use std::time::Duration;

use crate::fields::Message;
use crate::special::packed;

/// Bytes of an answer's head.
pub(crate) const HEAD: usize = 16;

/// The head of an answer to a question, of which so many bytes follow.
pub(crate) fn head(unique: u64, error: i32, length: usize) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let length = u32::try_from(HEAD + length).unwrap_or(u32::MAX);
    let fields = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), &unique.to_ne_bytes()];
    for (slot, byte) in head.iter_mut().zip(fields.concat()) {
        *slot = byte;
    }
    head
}

/// What follows the head of an answer that tells of no error.
#[derive(Debug)]
pub struct Answer(pub(crate) Told);

#[derive(Debug)]
pub(crate) enum Told {
    /// These bytes.
    Bytes(Vec<u8>),
    /// What was given out already.
    Given,
}

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment(pub i64, pub u32);

/// A node's attributes.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of stat(2)")]
pub struct Attributes {
    pub number: u64,
    pub size: u64,
    /// In sectors of 512 bytes.
    pub blocks: u64,
    pub atime: Moment,
    pub mtime: Moment,
    pub ctime: Moment,
    /// When it was made.
    pub btime: Moment,
    /// Kind and permissions.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Major and minor number.
    pub device: (u32, u32),
    pub block_size: u32,
}

/// How long the kernel may keep what it was told.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// What a name names.
    pub name: Duration,
    /// Attributes.
    pub attributes: Duration,
}

/// What was opened, and how the kernel is to treat it.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// What it is known by from now on.
    pub handle: u64,
    flags: u32,
}

impl Opened {
    /// Opened, and nothing special about it.
    pub fn new(handle: u64) -> Self {
        Self { handle, flags: 0 }
    }

    fn with(self, flag: u32) -> Self {
        Self { flags: self.flags | flag, ..self }
    }

    /// Reads and writes take no way through the kernel's memory.
    #[must_use]
    pub fn direct(self) -> Self {
        self.with(1)
    }

    /// What the kernel keeps of the content is still right.
    #[must_use]
    pub fn keeps_content(self) -> Self {
        self.with(2)
    }

    /// The kernel may keep the listing.
    #[must_use]
    pub fn keeps_listing(self) -> Self {
        self.with(8)
    }

    /// Nothing is to be told when a descriptor is closed.
    #[must_use]
    pub fn without_flush(self) -> Self {
        self.with(32)
    }
}

/// The figures of a file system, as statfs(2) has them.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Figures {
    pub sectors: u64,
    pub free_sectors: u64,
    pub files: u64,
    pub free_files: u64,
    pub sector_size: u32,
    pub block_size: u32,
    pub longest_name: u32,
}

fn attributes(to: &mut Message, from: &Attributes) {
    to.u64(from.number).u64(from.size).u64(from.blocks);
    let times = [from.atime, from.mtime, from.ctime];
    for time in times {
        to.u64(time.0.cast_unsigned());
    }
    for time in times {
        to.u32(time.1);
    }
    to.u32(from.mode).u32(from.links).u32(from.uid).u32(from.gid);
    to.u32(packed(from.device)).u32(from.block_size).u32(0);
}

const ENTRY: usize = 128;

fn entry(to: &mut Message, of: &Attributes, generation: u64, validity: Validity) {
    let Validity { name, attributes: facts } = validity;
    to.u64(of.number).u64(generation).u64(name.as_secs()).u64(facts.as_secs());
    to.u32(name.subsec_nanos()).u32(facts.subsec_nanos());
    attributes(to, of);
}

fn opened(to: &mut Message, of: Opened) {
    to.u64(of.handle).u32(of.flags).u32(0);
}

impl Answer {
    fn of(message: Message) -> Self {
        Self(Told::Bytes(message.0))
    }

    fn fields(fill: impl FnOnce(&mut Message)) -> Self {
        let mut message = Message::default();
        fill(&mut message);
        Self::of(message)
    }

    /// Done.
    pub fn done() -> Self {
        Self(Told::Bytes(Vec::new()))
    }

    /// What was given to [`crate::Out`] already.
    pub fn given() -> Self {
        Self(Told::Given)
    }

    /// Just these bytes.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self(Told::Bytes(bytes))
    }

    /// A node that a name leads to.
    pub fn entry(of: &Attributes, generation: u64, validity: Validity) -> Self {
        Self::fields(|to| entry(to, of, generation, validity))
    }

    /// There is no such name, for so long. (An entry of node 0; an error is not kept.)
    pub fn absent(valid: Duration) -> Self {
        let validity = Validity { name: valid, attributes: Duration::ZERO };
        Self::entry(&Attributes::default(), 0, validity)
    }

    /// A file that was made and opened.
    pub fn created(of: &Attributes, generation: u64, validity: Validity, file: Opened) -> Self {
        Self::fields(|to| {
            entry(to, of, generation, validity);
            opened(to, file);
        })
    }

    /// The attributes of a node.
    pub fn attributes(of: &Attributes, valid: Duration) -> Self {
        Self::fields(|to| {
            to.u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0);
            attributes(to, of);
        })
    }

    /// The same in statx(2)'s shape, which knows when a node was made.
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  how long it may be kept: seconds, 8 nanoseconds (4), 12 flags (4), 16 unused
    ///     32     4  which fields there are, 36 block size (4), 40 attributes (8)
    ///     48     4  links, 52 user, 56 group, 60 kind and mode (2), 2 unused
    ///     64     8  number, 72 size, 80 sectors, 88 which attributes there are
    ///     96    16  atime, 112 btime, 128 ctime, 144 mtime: seconds (8), nanoseconds (4), unused
    ///    160     4  device's major and minor, 168 the file system's; 112 unused
    /// ```
    pub fn statx(of: &Attributes, valid: Duration) -> Self {
        /// All of stat(2)'s, and btime.
        const FIELDS: u32 = 0xfff;
        Self::fields(|to| {
            to.u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0).zeros(16);
            to.u32(FIELDS).u32(of.block_size).u64(0);
            to.u32(of.links).u32(of.uid).u32(of.gid);
            to.u16(u16::try_from(of.mode & 0xffff).unwrap_or(0)).u16(0);
            to.u64(of.number).u64(of.size).u64(of.blocks).u64(0);
            for time in [of.atime, of.btime, of.ctime, of.mtime] {
                to.u64(time.0.cast_unsigned()).u32(time.1).u32(0);
            }
            to.u32(of.device.0).u32(of.device.1).zeros(8 + 112);
        })
    }

    /// Something was opened.
    pub fn opened(of: Opened) -> Self {
        Self::fields(|to| opened(to, of))
    }

    /// So many bytes were written.
    pub fn written(bytes: u32) -> Self {
        Self::fields(|to| _ = to.u32(bytes).u32(0))
    }

    /// So many bytes were copied, told in a word of 8.
    pub fn copied(bytes: u64) -> Self {
        Self::fields(|to| _ = to.u64(bytes))
    }

    /// So long is what was asked for.
    pub fn size(bytes: u32) -> Self {
        Self::written(bytes)
    }

    /// At this offset.
    pub fn offset(offset: u64) -> Self {
        Self::copied(offset)
    }

    /// What an ioctl gave.
    pub fn ioctl(bytes: &[u8]) -> Self {
        Self::fields(|to| _ = to.zeros(16).bytes(bytes))
    }

    /// A file system's figures.
    pub fn figures(of: &Figures) -> Self {
        Self::fields(|to| {
            to.u64(of.sectors).u64(of.free_sectors).u64(of.free_sectors);
            to.u64(of.files).u64(of.free_files);
            to.u32(of.block_size).u32(of.longest_name).u32(of.sector_size).zeros(28);
        })
    }
}

/// Names of a directory, as many as there is room for.
///
/// ```text
/// offset  size  field
///      0     8  number, 8 where the next one is read
///     16     4  length of the name, 20 kind, as in the upper bits of a mode
///     24        name, then zeros up to a multiple of 8
/// ```
///
/// With attributes an entry stands before each.
pub struct Page {
    message: Message,
    room: usize,
}

impl Page {
    /// An empty page with room for so many bytes.
    pub fn new(room: u32) -> Self {
        let room = usize::try_from(room).unwrap_or(0);
        Self { message: Message::with_room(room), room }
    }

    /// Adds a name; gives whether there was room for it. `of` is (number, kind and mode).
    pub fn add(&mut self, of: (u64, u32), next: u64, name: &[u8]) -> bool {
        let size = (24 + name.len()).next_multiple_of(8);
        if self.message.0.len() + size > self.room {
            return false;
        }
        let length = u32::try_from(name.len()).unwrap_or(0);
        let rest = size - 24 - name.len();
        self.message.u64(of.0).u64(next).u32(length).u32(of.1 >> 12 & 0xf);
        self.message.bytes(name).zeros(rest);
        true
    }

    /// Adds a name with the attributes of what it names; gives whether there was room for them.
    pub fn add_with(
        &mut self,
        next: u64,
        name: &[u8],
        of: &Attributes,
        (generation, validity): (u64, Validity),
    ) -> bool {
        let size = ENTRY + (24 + name.len()).next_multiple_of(8);
        if self.message.0.len() + size > self.room {
            return false;
        }
        entry(&mut self.message, of, generation, validity);
        self.add((of.number, of.mode), next, name)
    }

    /// Adds a name without what there is to know of what it names, which the kernel looks up when
    /// somebody wants it; gives whether there was room. `of` is (number, kind and mode).
    pub fn add_without(&mut self, of: (u64, u32), next: u64, name: &[u8]) -> bool {
        let size = ENTRY + (24 + name.len()).next_multiple_of(8);
        if self.message.0.len() + size > self.room {
            return false;
        }
        // of node 0
        self.message.zeros(ENTRY);
        self.add(of, next, name)
    }

    /// The page.
    pub fn answer(self) -> Answer {
        Answer::of(self.message)
    }
}
