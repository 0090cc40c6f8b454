//! The first message: what the kernel can do, and what we want of it.
//!
//! ```text
//! asked:                                    answered:
//!      0     4  major version, 4 minor           0     4  major version, 4 minor
//!      8     4  bytes read ahead at most         8     4  bytes read ahead at most
//!     12     4  flags, 16 further flags         12     4  flags
//!     20        unused                          16     2  questions at a time that nobody waits for
//!                                               18     2  from how many on the kernel holds back
//!                                               20     4  bytes of the largest write
//!                                               24     4  nanoseconds that a clock's tick takes
//!                                               28     2  pages of the largest request
//!                                               30     2  unused
//!                                               32     4  further flags; 28 unused
//! ```
//!
//! Learnt from: Linux's `include/uapi/linux/fuse.h` (protocol 7.45).

use crate::fields::{Fields, Message};

/// Bytes of the largest request.
pub const LARGEST: u32 = 1 << 20;
/// Questions that nobody waits for: reading ahead, closing.
const BACKGROUND: u16 = 64;
/// The kernel's own version that knows all that is needed: Linux 5.4.
const OLDEST_MINOR: u32 = 31;
const MAJOR: u32 = 7;
/// What is spoken here.
const MINOR: u32 = 45;

/// What a kernel can do, or is asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ability(u64);

macro_rules! abilities {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl Ability { $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)* }
    };
}

abilities! {
    /// Several reads of one file at a time.
    ASYNC_READ = 0;
    /// Nodes are looked up by number, as `.` and `..`, when somebody comes back to one that the kernel
    /// has forgotten (NFS, open_by_handle_at(2)).
    EXPORT_SUPPORT = 4;
    /// Requests larger than 4 KiB.
    BIG_WRITES = 5;
    /// The umask is applied here.
    DONT_MASK = 6;
    /// ioctl(2) of directories.
    IOCTL_DIR = 11;
    /// Listings with attributes.
    READDIRPLUS = 13;
    /// Those only where they are of use.
    READDIRPLUS_AUTO = 14;
    /// Several lookups in one directory at a time.
    PARALLEL_DIROPS = 18;
    /// POSIX access lists, which the kernel then obeys.
    POSIX_ACL = 20;
    /// The size of requests is told in pages.
    MAX_PAGES = 22;
    /// Targets of symbolic links are kept.
    CACHE_SYMLINKS = 23;
    /// What is kept is only dropped when it is said.
    EXPLICIT_INVAL_DATA = 25;
    /// The kernel says when set-id bits are to go.
    HANDLE_KILLPRIV_V2 = 28;
    /// The kernel says when set-group is to go with an access list that is set.
    SETXATTR_EXT = 29;
    /// There are further flags.
    INIT_EXT = 30;
    /// Files that are read and written directly can be mapped all the same.
    DIRECT_IO_ALLOW_MMAP = 36;
    /// Questions come by io_uring.
    OVER_IO_URING = 41;
}

impl Ability {
    /// All of these.
    pub fn all(of: &[Self]) -> Self {
        Self(of.iter().fold(0, |all, one| all | one.0))
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What both can.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether all of `other` is in it.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    read_ahead: u32,
    pub(crate) abilities: Ability,
}

impl Offer {
    /// Reads what follows the head of the first message.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (major, minor) = (fields.u32()?, fields.u32()?);
        let (read_ahead, low) = (fields.u32()?, fields.u32()?);
        let mut abilities = Ability(low.into());
        if abilities.has(Ability::INIT_EXT) {
            abilities.0 |= u64::from(fields.u32()?) << 32;
        }
        Some(Self { major, minor, read_ahead, abilities })
    }

    /// Whether the kernel is too old.
    pub(crate) fn is_too_old(&self) -> bool {
        self.major < MAJOR || self.major == MAJOR && self.minor < OLDEST_MINOR
    }

    /// Whether the kernel knows a later protocol, and should ask by ours.
    pub(crate) fn is_too_new(&self) -> bool {
        self.major > MAJOR
    }

    /// What of the wishes can be had.
    pub(crate) fn agreed(&self, wishes: Ability) -> Ability {
        let always =
            [Ability::ASYNC_READ, Ability::BIG_WRITES, Ability::MAX_PAGES, Ability::SETXATTR_EXT];
        let all = wishes.and(Ability::all(&always)).and(Ability::INIT_EXT);
        all.common(self.abilities)
    }

    /// The answer: this is wanted.
    pub(crate) fn answer(&self, agreed: Ability, page: usize) -> Vec<u8> {
        let pages = usize::try_from(LARGEST).unwrap_or(0) / page.max(1);
        let mut to = Message::with_room(64);
        let [low, high] = [agreed.0, agreed.0 >> 32]
            .map(|word| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0));
        to.u32(MAJOR).u32(MINOR).u32(self.read_ahead.min(LARGEST)).u32(low);
        to.u16(BACKGROUND).u16(BACKGROUND / 4 * 3).u32(LARGEST).u32(1);
        to.u16(u16::try_from(pages).unwrap_or(u16::MAX)).u16(0).u32(high).zeros(28);
        to.0
    }
}
