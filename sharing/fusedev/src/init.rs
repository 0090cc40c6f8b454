//! The first message: the kernel's features, and the ones that the server uses.
//!
//! ```text
//! asked:                                    answered:
//!      0     4  major version, 4 minor           0     4  major version, 4 minor
//!      8     4  bytes read ahead at most         8     4  bytes read ahead at most
//!     12     4  flags, 16 further flags         12     4  flags
//!     20        unused                          16     2  background requests at a time
//!                                               18     2  from how many on the kernel holds back
//!                                               20     4  bytes of the largest write
//!                                               24     4  nanoseconds that a clock's tick takes
//!                                               28     2  pages of the largest request
//!                                               30     2  unused
//!                                               32     4  further flags; 28 unused
//! ```
//!
//! Learnt from: Linux's `include/uapi/linux/fuse.h` (protocol 7.45).

use crate::wire::{FieldReader, MessageBuilder};

/// Bytes of the largest request.
pub const MAX_REQUEST_BYTES: u32 = 1 << 20;
/// Requests in the background: reading ahead, closing.
const MAX_BACKGROUND: u16 = 64;
/// The kernel's own version that knows all that is needed: Linux 5.4.
const MIN_MINOR: u32 = 31;
const MAJOR: u32 = 7;
/// The version of the protocol.
const MINOR: u32 = 45;

/// The features that a kernel offers, or is requested to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitFlags(u64);

macro_rules! init_flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl InitFlags { $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)* }
    };
}

init_flags! {
    /// Several reads of one file at a time.
    ASYNC_READ = 0;
    /// Byte-range locks (fcntl) are sent to the server.
    POSIX_LOCKS = 1;
    /// Nodes are looked up by number, as `.` and `..`, when a program returns to one that the
    /// kernel has forgotten (NFS, open_by_handle_at(2)).
    EXPORT_SUPPORT = 4;
    /// Requests larger than 4 KiB.
    BIG_WRITES = 5;
    /// The umask is applied here.
    DONT_MASK = 6;
    /// Whole-file locks (flock) are sent to the server.
    FLOCK_LOCKS = 10;
    /// ioctl(2) of directories.
    IOCTL_DIR = 11;
    /// Listings with attributes.
    READDIRPLUS = 13;
    /// Those only where they are useful.
    READDIRPLUS_AUTO = 14;
    /// Direct requests of the kernel itself (io_submit(2), loop devices) need not wait for each other.
    ASYNC_DIO = 15;
    /// Several lookups in one directory at a time.
    PARALLEL_DIROPS = 18;
    /// POSIX access lists, which the kernel then obeys.
    POSIX_ACL = 20;
    /// The size of requests is given in pages.
    MAX_PAGES = 22;
    /// Targets of symbolic links are kept.
    CACHE_SYMLINKS = 23;
    /// Cached pages are only dropped on request.
    EXPLICIT_INVAL_DATA = 25;
    /// The kernel marks requests that clear set-ID bits.
    HANDLE_KILLPRIV_V2 = 28;
    /// The kernel marks an ACL change that clears set-group-ID.
    SETXATTR_EXT = 29;
    /// There are further flags.
    INIT_EXT = 30;
    /// Names can be expired: they stay, and are looked up again when a program next uses them.
    HAS_EXPIRE_ONLY = 35;
    /// Files that are read and written directly can be mapped all the same.
    DIRECT_IO_ALLOW_MMAP = 36;
    /// Requests come by io_uring.
    OVER_IO_URING = 41;
}

impl InitFlags {
    /// All of these.
    pub fn union_all(of: &[Self]) -> Self {
        Self(of.iter().fold(0, |all, one| all | one.0))
    }

    /// Both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The features of both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether all of `other` is in it.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The kernel's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InitRequest {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    max_readahead: u32,
    pub(crate) flags: InitFlags,
}

impl InitRequest {
    /// Reads the body of the first message.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(bytes);
        let (major, minor) = (fields.u32()?, fields.u32()?);
        let (read_ahead, low) = (fields.u32()?, fields.u32()?);
        let mut abilities = InitFlags(low.into());
        if abilities.contains(InitFlags::INIT_EXT) {
            abilities.0 |= u64::from(fields.u32()?) << 32;
        }
        Some(Self { major, minor, max_readahead: read_ahead, flags: abilities })
    }

    /// Whether the kernel is too old.
    pub(crate) fn is_too_old(&self) -> bool {
        self.major < MAJOR || self.major == MAJOR && self.minor < MIN_MINOR
    }

    /// Whether the kernel knows a later protocol, and should use ours.
    pub(crate) fn is_too_new(&self) -> bool {
        self.major > MAJOR
    }

    /// The wanted features that the kernel offers.
    pub(crate) fn negotiate(&self, wishes: InitFlags) -> InitFlags {
        let always = [
            InitFlags::ASYNC_READ,
            InitFlags::BIG_WRITES,
            InitFlags::MAX_PAGES,
            InitFlags::SETXATTR_EXT,
        ];
        let all = wishes.union(InitFlags::union_all(&always)).union(InitFlags::INIT_EXT);
        all.intersection(self.flags)
    }

    /// The reply: the features to use.
    pub(crate) fn encode_reply(&self, agreed: InitFlags, page: usize) -> Vec<u8> {
        let pages = usize::try_from(MAX_REQUEST_BYTES).unwrap_or(0) / page.max(1);
        let mut to = MessageBuilder::with_capacity(64);
        let [low, high] = [agreed.0, agreed.0 >> 32]
            .map(|word| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0));
        to.u32(MAJOR).u32(MINOR).u32(self.max_readahead.min(MAX_REQUEST_BYTES)).u32(low);
        to.u16(MAX_BACKGROUND).u16(MAX_BACKGROUND / 4 * 3).u32(MAX_REQUEST_BYTES).u32(1);
        to.u16(u16::try_from(pages).unwrap_or(u16::MAX)).u16(0).u32(high).zeros(28);
        to.0
    }
}
