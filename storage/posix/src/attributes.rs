//! The attributes of a file: `stat(2)` and what file protocols add to it.

use crate::{FileFlags, FileType, Time};

/// An inode number, unique among all datasets that one [`Ino`] space shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ino(u64);

impl Ino {
    /// The inode of that number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, as protocols send it.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for Ino {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// The inode number.
    pub ino: Ino,
    /// The type.
    pub kind: FileType,
    /// Permission bits: 12 bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes of the content; of a directory its entries with `.` and `..`; of a symbolic link its target.
    pub size: u64,
    /// Bytes that the file occupies on the drives.
    pub allocated: u64,
    /// Bytes of a block of the content.
    pub block_size: u64,
    /// Number of hard links.
    pub nlink: u64,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last change of the content.
    pub mtime: Time,
    /// Time of the last change of the content or the attributes.
    pub ctime: Time,
    /// Time of the creation.
    pub crtime: Time,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
    /// Flags.
    pub flags: FileFlags,
    /// The project to which the file's space is charged.
    pub project_id: u64,
    /// The txg that created the file: it differs if an inode number is used again.
    pub generation: u64,
}
