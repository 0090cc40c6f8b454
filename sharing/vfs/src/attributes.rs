//! What there is to know of a node, as plain data.

use engine::files::{FileStat, FileType, Time};

/// What there is to know of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Its number in the tree.
    pub ino: u64,
    /// What it is.
    pub kind: FileType,
    /// Permissions with set-id and sticky bits: 12 bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; of a directory its entries with `.` and `..`; of a link its target's length.
    pub size: u64,
    /// Bytes that it takes on the drives.
    pub allocated: u64,
    /// Bytes of a block of its content.
    pub block_size: u64,
    /// How many names it has.
    pub nlink: u64,
    /// When it was last read.
    pub atime: Time,
    /// When its content last changed.
    pub mtime: Time,
    /// When anything about it last changed.
    pub ctime: Time,
    /// When it was made.
    pub crtime: Time,
    /// Of a device node the device: major and minor.
    pub rdev: (u32, u32),
    /// Flags as Linux's FS_IOC_GETFLAGS gives them.
    pub flags: u32,
    /// The project that it is counted in.
    pub project_id: u64,
    /// Tells it from another that had its number before.
    pub generation: u64,
}

impl Attributes {
    pub(crate) fn from_file(ino: u64, facts: &FileStat, allocated: u64, block_size: u64) -> Self {
        Self {
            ino,
            kind: facts.kind,
            mode: facts.mode,
            uid: facts.uid,
            gid: facts.gid,
            size: facts.size,
            allocated,
            block_size,
            nlink: facts.nlink,
            atime: facts.atime,
            mtime: facts.mtime,
            ctime: facts.ctime,
            crtime: facts.crtime,
            rdev: facts.rdev,
            flags: facts.flags,
            project_id: facts.project_id,
            generation: facts.generation,
        }
    }

    /// Those of a directory that no dataset stores.
    pub(crate) fn synthetic(ino: u64, kind: FileType) -> Self {
        let is_directory = kind == FileType::Directory;
        let none = Time::default();
        Self {
            ino,
            kind,
            mode: if is_directory { 0o555 } else { 0o444 },
            uid: 0,
            gid: 0,
            size: if is_directory { 2 } else { 0 },
            allocated: 0,
            block_size: 4096,
            nlink: if is_directory { 2 } else { 1 },
            atime: none,
            mtime: none,
            ctime: none,
            crtime: none,
            rdev: (0, 0),
            flags: 0,
            project_id: 0,
            generation: 0,
        }
    }
}
