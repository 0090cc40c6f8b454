//! What there is to know of a file, as plain data.

use units::ObjectId;
use zpl::ZnodeAttributes;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is the field's name of it")]
pub enum FileType {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
    /// Something that only other systems know, or nothing that is known.
    Other,
}

impl FileType {
    /// The word that manifests have for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "dir",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharDevice => "char",
            Self::BlockDevice => "block",
            Self::Other => "other",
        }
    }

    /// The letter that `ls -l` and `find -type` have for it.
    pub const fn letter(self) -> char {
        match self {
            Self::File => '-',
            Self::Directory => 'd',
            Self::Symlink => 'l',
            Self::Fifo => 'p',
            Self::Socket => 's',
            Self::CharDevice => 'c',
            Self::BlockDevice => 'b',
            Self::Other => '?',
        }
    }
}

impl From<zpl::FileType> for FileType {
    fn from(kind: zpl::FileType) -> Self {
        match kind {
            zpl::FileType::Fifo => Self::Fifo,
            zpl::FileType::CharDevice => Self::CharDevice,
            zpl::FileType::Directory => Self::Directory,
            zpl::FileType::BlockDevice => Self::BlockDevice,
            zpl::FileType::File => Self::File,
            zpl::FileType::Symlink => Self::Symlink,
            zpl::FileType::Socket => Self::Socket,
            zpl::FileType::Other(_) => Self::Other,
        }
    }
}

/// A time since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// What remains of a second.
    pub nanoseconds: u32,
}

impl Time {
    /// All of it in nanoseconds.
    pub fn total_nanoseconds(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }

    pub(crate) fn to_znode(self) -> ondisk::znode::Time {
        ondisk::znode::Time { seconds: self.seconds, nanoseconds: self.nanoseconds }
    }
}

impl From<ondisk::znode::Time> for Time {
    fn from(time: ondisk::znode::Time) -> Self {
        Self { seconds: time.seconds, nanoseconds: time.nanoseconds }
    }
}

/// What there is to know of a file besides its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStat {
    /// Its number: the inode.
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
    /// Flags as Linux's FS_IOC_GETFLAGS gives them.
    pub flags: u32,
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
            kind: from.kind.into(),
            mode: from.mode,
            uid: from.uid,
            gid: from.gid,
            size: from.size,
            nlink: from.nlink,
            atime: from.atime.into(),
            mtime: from.mtime.into(),
            ctime: from.ctime.into(),
            crtime: from.crtime.into(),
            rdev: from.rdev,
            flags: from.linux_flags(),
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
