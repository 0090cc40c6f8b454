//! Replies to the kernel.
//!
//! A reply is a header (its length of 4 bytes, an error of 4 as a negative number, the number of
//! the request of 8), and a body. The attributes of a node are, in the machine's byte order:
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

use crate::rdev::encode_dev;
use crate::wire::MessageBuilder;

/// Bytes of a reply's header.
pub(crate) const HEADER_LEN: usize = 16;

/// The header of a reply with this many bytes of body.
pub(crate) fn encode_header(unique: u64, error: i32, length: usize) -> [u8; HEADER_LEN] {
    let mut head = [0; HEADER_LEN];
    let length = u32::try_from(HEADER_LEN + length).unwrap_or(u32::MAX);
    let fields = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), &unique.to_ne_bytes()];
    for (slot, byte) in head.iter_mut().zip(fields.concat()) {
        *slot = byte;
    }
    head
}

/// The body of a reply without error.
#[derive(Debug)]
pub struct Reply(pub(crate) ReplyBody);

#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The data was sent already.
    Sent,
}

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timespec(pub i64, pub u32);

/// A node's attributes.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of stat(2)")]
pub struct Attr {
    pub ino: u64,
    pub size: u64,
    /// In sectors of 512 bytes.
    pub blocks: u64,
    pub atime: Timespec,
    pub mtime: Timespec,
    pub ctime: Timespec,
    /// When it was made.
    pub btime: Timespec,
    /// Kind and permissions.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Major and minor number.
    pub rdev: (u32, u32),
    pub block_size: u32,
}

/// How long the kernel may cache the reply.
#[derive(Clone, Copy, Debug)]
pub struct CacheTimeouts {
    /// The object of a name.
    pub entry: Duration,
    /// Attributes.
    pub attr: Duration,
}

/// An opened handle, and the kernel's flags for it.
#[derive(Clone, Copy, Debug)]
pub struct OpenReply {
    /// Its handle number.
    pub handle: u64,
    flags: u32,
}

impl OpenReply {
    /// Opened, and nothing special about it.
    pub fn new(handle: u64) -> Self {
        Self { handle, flags: 0 }
    }

    fn with_flag(self, flag: u32) -> Self {
        Self { flags: self.flags | flag, ..self }
    }

    /// Reads and writes take no way through the kernel's memory.
    #[must_use]
    pub fn direct_io(self) -> Self {
        self.with_flag(1)
    }

    /// Several direct writes of the file at a time that do not extend it.
    #[must_use]
    pub fn parallel_direct_writes(self) -> Self {
        self.with_flag(64)
    }

    /// The kernel's cached pages are still valid.
    #[must_use]
    pub fn keep_cache(self) -> Self {
        self.with_flag(2)
    }

    /// The kernel may keep the listing.
    #[must_use]
    pub fn cache_dir(self) -> Self {
        self.with_flag(8)
    }

    /// Do not send FLUSH when a descriptor is closed.
    #[must_use]
    pub fn no_flush(self) -> Self {
        self.with_flag(32)
    }
}

/// The figures of a file system for statfs(2).
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Statfs {
    pub blocks: u64,
    pub free_blocks: u64,
    pub files: u64,
    pub free_files: u64,
    pub fragment_size: u32,
    pub block_size: u32,
    pub max_name_len: u32,
}

fn write_attr(to: &mut MessageBuilder, from: &Attr) {
    to.u64(from.ino).u64(from.size).u64(from.blocks);
    let times = [from.atime, from.mtime, from.ctime];
    for time in times {
        to.u64(time.0.cast_unsigned());
    }
    for time in times {
        to.u32(time.1);
    }
    to.u32(from.mode).u32(from.nlink).u32(from.uid).u32(from.gid);
    to.u32(encode_dev(from.rdev)).u32(from.block_size).u32(0);
}

const ENTRY_LEN: usize = 128;

fn write_entry(to: &mut MessageBuilder, of: &Attr, generation: u64, validity: CacheTimeouts) {
    let CacheTimeouts { entry: name, attr: facts } = validity;
    to.u64(of.ino).u64(generation).u64(name.as_secs()).u64(facts.as_secs());
    to.u32(name.subsec_nanos()).u32(facts.subsec_nanos());
    write_attr(to, of);
}

fn write_open(to: &mut MessageBuilder, of: OpenReply) {
    to.u64(of.handle).u32(of.flags).u32(0);
}

impl Reply {
    fn from_message(message: MessageBuilder) -> Self {
        Self(ReplyBody::Bytes(message.0))
    }

    pub(crate) fn build(fill: impl FnOnce(&mut MessageBuilder)) -> Self {
        let mut message = MessageBuilder::default();
        fill(&mut message);
        Self::from_message(message)
    }

    /// Done.
    pub fn empty() -> Self {
        Self(ReplyBody::Bytes(Vec::new()))
    }

    /// The bytes that were sent to [`crate::ReplyData`] already.
    pub fn sent() -> Self {
        Self(ReplyBody::Sent)
    }

    /// Just these bytes.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self(ReplyBody::Bytes(bytes))
    }

    /// A node that a name leads to.
    pub fn entry(of: &Attr, generation: u64, validity: CacheTimeouts) -> Self {
        Self::build(|to| write_entry(to, of, generation, validity))
    }

    /// The name does not exist; cached for this time. (An entry of node 0; an error is not cached.)
    pub fn negative_entry(valid: Duration) -> Self {
        let validity = CacheTimeouts { entry: valid, attr: Duration::ZERO };
        Self::entry(&Attr::default(), 0, validity)
    }

    /// A file that was made and opened.
    pub fn create(of: &Attr, generation: u64, validity: CacheTimeouts, file: OpenReply) -> Self {
        Self::build(|to| {
            write_entry(to, of, generation, validity);
            write_open(to, file);
        })
    }

    /// The attributes of a node.
    pub fn attr(of: &Attr, valid: Duration) -> Self {
        Self::build(|to| {
            to.u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0);
            write_attr(to, of);
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
    pub fn statx(of: &Attr, valid: Duration) -> Self {
        /// All of stat(2)'s, and btime.
        const STATX_MASK: u32 = 0xfff;
        Self::build(|to| {
            to.u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0).zeros(16);
            to.u32(STATX_MASK).u32(of.block_size).u64(0);
            to.u32(of.nlink).u32(of.uid).u32(of.gid);
            to.u16(u16::try_from(of.mode & 0xffff).unwrap_or(0)).u16(0);
            to.u64(of.ino).u64(of.size).u64(of.blocks).u64(0);
            for time in [of.atime, of.btime, of.ctime, of.mtime] {
                to.u64(time.0.cast_unsigned()).u32(time.1).u32(0);
            }
            to.u32(of.rdev.0).u32(of.rdev.1).zeros(8 + 112);
        })
    }

    /// Something was opened.
    pub fn open(of: OpenReply) -> Self {
        Self::build(|to| write_open(to, of))
    }

    /// The number of written bytes.
    pub fn write_size(bytes: u32) -> Self {
        Self::build(|to| _ = to.u32(bytes).u32(0))
    }

    /// The number of copied bytes, in a word of 8.
    pub fn copied_bytes(bytes: u64) -> Self {
        Self::build(|to| _ = to.u64(bytes))
    }

    /// The length of the value.
    pub fn xattr_size(bytes: u32) -> Self {
        Self::write_size(bytes)
    }

    /// At this offset.
    pub fn seek_offset(offset: u64) -> Self {
        Self::copied_bytes(offset)
    }

    /// The result of an ioctl.
    pub fn ioctl(bytes: &[u8]) -> Self {
        Self::build(|to| _ = to.zeros(16).bytes(bytes))
    }

    /// A file system's figures.
    pub fn statfs(of: &Statfs) -> Self {
        Self::build(|to| {
            to.u64(of.blocks).u64(of.free_blocks).u64(of.free_blocks);
            to.u64(of.files).u64(of.free_files);
            to.u32(of.block_size).u32(of.max_name_len).u32(of.fragment_size).zeros(28);
        })
    }
}

/// Names of a directory, as many as fit.
///
/// ```text
/// offset  size  field
///      0     8  number, 8 where the next one is read
///     16     4  length of the name, 20 kind, as in the upper bits of a mode
///     24        name, then zeros up to a multiple of 8
/// ```
///
/// With attributes an entry stands before each.
pub struct DirentBuffer {
    message: MessageBuilder,
    capacity: usize,
}

impl DirentBuffer {
    /// An empty page of this many bytes.
    pub fn new(room: u32) -> Self {
        let capacity = usize::try_from(room).unwrap_or(0);
        Self { message: MessageBuilder::with_capacity(capacity), capacity }
    }

    /// Adds a name; returns whether it fits. `of` is (number, type and mode).
    pub fn add_dirent(&mut self, of: (u64, u32), next: u64, name: &[u8]) -> bool {
        let size = (24 + name.len()).next_multiple_of(8);
        if self.message.0.len() + size > self.capacity {
            return false;
        }
        let length = u32::try_from(name.len()).unwrap_or(0);
        let rest = size - 24 - name.len();
        self.message.u64(of.0).u64(next).u32(length).u32(of.1 >> 12 & 0xf);
        self.message.bytes(name).zeros(rest);
        true
    }

    /// Adds a name with its attributes; returns whether it fits.
    pub fn add_direntplus(
        &mut self,
        next: u64,
        name: &[u8],
        of: &Attr,
        (generation, validity): (u64, CacheTimeouts),
    ) -> bool {
        let size = ENTRY_LEN + (24 + name.len()).next_multiple_of(8);
        if self.message.0.len() + size > self.capacity {
            return false;
        }
        write_entry(&mut self.message, of, generation, validity);
        self.add_dirent((of.ino, of.mode), next, name)
    }

    /// Adds a name without attributes, which the kernel looks up on demand; returns whether it
    /// fits. `of` is (number, type and mode).
    pub fn add_direntplus_uncached(&mut self, of: (u64, u32), next: u64, name: &[u8]) -> bool {
        let size = ENTRY_LEN + (24 + name.len()).next_multiple_of(8);
        if self.message.0.len() + size > self.capacity {
            return false;
        }
        // of node 0
        self.message.zeros(ENTRY_LEN);
        self.add_dirent(of, next, name)
    }

    /// The page.
    pub fn into_reply(self) -> Reply {
        Reply::from_message(self.message)
    }
}
