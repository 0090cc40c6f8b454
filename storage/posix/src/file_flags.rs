//! The flags of a file: immutable, append-only, and the DOS attributes.
//!
//! ```text
//! bit  flag             Linux FS_IOC_GETFLAGS   DOS attribute
//!   0  READONLY                                 read-only
//!   1  HIDDEN                                   hidden
//!   2  SYSTEM                                   system
//!   3  ARCHIVE                                  archive
//!   4  IMMUTABLE        0x10
//!   5  NO_UNLINK
//!   6  APPEND_ONLY      0x20
//!   7  NO_DUMP          0x40
//!   8  OPAQUE
//!   9  AV_QUARANTINED
//!  10  AV_MODIFIED
//!  11  REPARSE                                  reparse point
//!  12  OFFLINE                                  offline
//!  13  SPARSE                                   sparse
//!  14  PROJECT_INHERIT  0x20000000
//! ```
//!
//! ZFS stores these bits in the upper half of a znode's flags.

/// The flags of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FileFlags(u32);

/// A change of flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlagChange {
    /// The flags that change.
    pub mask: FileFlags,
    /// Their new values.
    pub values: FileFlags,
}

#[expect(missing_docs, reason = "the table above explains each")]
impl FileFlags {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(ALL_BITS);
    pub const READONLY: Self = Self(1);
    pub const HIDDEN: Self = Self(1 << 1);
    pub const SYSTEM: Self = Self(1 << 2);
    pub const ARCHIVE: Self = Self(1 << 3);
    pub const IMMUTABLE: Self = Self(1 << 4);
    pub const NO_UNLINK: Self = Self(1 << 5);
    pub const APPEND_ONLY: Self = Self(1 << 6);
    pub const NO_DUMP: Self = Self(1 << 7);
    pub const OPAQUE: Self = Self(1 << 8);
    pub const AV_QUARANTINED: Self = Self(1 << 9);
    pub const AV_MODIFIED: Self = Self(1 << 10);
    pub const REPARSE: Self = Self(1 << 11);
    pub const OFFLINE: Self = Self(1 << 12);
    pub const SPARSE: Self = Self(1 << 13);
    pub const PROJECT_INHERIT: Self = Self(1 << 14);
}

/// The flags that Linux knows, and their bits in its word.
const LINUX_FLAGS: [(FileFlags, u32); 4] = [
    (FileFlags::IMMUTABLE, 0x10),
    (FileFlags::APPEND_ONLY, 0x20),
    (FileFlags::NO_DUMP, 0x40),
    (FileFlags::PROJECT_INHERIT, 0x2000_0000),
];
const ALL_BITS: u32 = (1 << 15) - 1;

impl FileFlags {
    /// The flags of these bits; bits that the table does not list are dropped.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & ALL_BITS)
    }

    /// The bits of the table.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether any of `flags` is set.
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// Whether no flag is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The flags of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The flags of a word of Linux's `FS_IOC_SETFLAGS`. Other bits are dropped.
    pub fn from_linux(word: u32) -> Self {
        let set = LINUX_FLAGS.iter().filter(|(_, bit)| word & bit != 0);
        set.fold(Self::NONE, |all, (flag, _)| all.union(*flag))
    }

    /// The word of Linux's `FS_IOC_GETFLAGS`.
    pub fn to_linux(self) -> u32 {
        LINUX_FLAGS.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, bit)| bit).sum()
    }
}

impl FlagChange {
    /// Sets these flags.
    pub const fn set(flags: FileFlags) -> Self {
        Self { mask: flags, values: flags }
    }

    /// Clears these flags.
    pub const fn clear(flags: FileFlags) -> Self {
        Self { mask: flags, values: FileFlags::NONE }
    }

    /// Every flag that Linux knows takes its value from a word of `FS_IOC_SETFLAGS`.
    pub fn from_linux(word: u32) -> Self {
        let mask = LINUX_FLAGS.iter().fold(FileFlags::NONE, |all, (flag, _)| all.union(*flag));
        Self { mask, values: FileFlags::from_linux(word) }
    }

    /// Whether the change sets one of `flags`.
    pub const fn sets(self, flags: FileFlags) -> bool {
        self.mask.0 & self.values.0 & flags.0 != 0
    }

    /// Whether the change clears one of `flags`.
    pub const fn clears(self, flags: FileFlags) -> bool {
        self.mask.0 & !self.values.0 & flags.0 != 0
    }

    /// The flags of a file after the change.
    pub const fn apply(self, to: FileFlags) -> FileFlags {
        FileFlags(to.0 & !self.mask.0 | self.values.0 & self.mask.0)
    }
}
