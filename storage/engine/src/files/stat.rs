//! The attributes of a file, as plain data.

use posix::{FileFlags, FileType, Time};
use units::ObjectId;
use zpl::ZnodeAttributes;

/// The attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStat {
    /// The inode number.
    pub ino: u64,
    /// Its type.
    pub kind: FileType,
    /// Permissions with set-id and sticky bits: 12 bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; of a directory its entries with `.` and `..`; of a link its target's length.
    pub size: u64,
    /// How many names it has; of a directory 2 and the directories in it.
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
    /// Flags.
    pub flags: FileFlags,
    /// The project that it is counted in; 0 by default.
    pub project_id: u64,
    /// The directory that it is in, or one of them.
    pub parent: u64,
    /// The txg that made it.
    pub generation: u64,
}

impl FileStat {
    pub(crate) fn new(id: ObjectId, from: &ZnodeAttributes) -> Self {
        Self {
            ino: id.get(),
            kind: from.kind,
            mode: from.mode,
            uid: from.uid,
            gid: from.gid,
            size: from.size,
            nlink: from.nlink,
            atime: from.atime,
            mtime: from.mtime,
            ctime: from.ctime,
            crtime: from.crtime,
            rdev: from.rdev,
            flags: from.file_flags(),
            project_id: from.project_id,
            parent: from.parent.get(),
            generation: from.generation.get(),
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}
