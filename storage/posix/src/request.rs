//! The arguments of file operations.
//!
//! `D` and `F` are the caller's identifiers of directories and files: `ObjectId` inside a dataset,
//! [`Ino`](crate::Ino) among file protocols.

use crate::{FileType, FlagChange, SetTime, Time};

/// A file to create.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// The type.
    pub kind: FileType,
    /// The requested permission bits: 12 bits.
    pub mode: u32,
    /// Bits that the caller's umask clears, unless the directory has a default ACL.
    pub umask: u32,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
    /// The target of a symbolic link.
    pub target: &'a [u8],
    /// Access and modification time; none: the time of the creation.
    pub times: Option<[Time; 2]>,
}

impl Default for NewInode<'_> {
    fn default() -> Self {
        let (kind, rdev, target) = (FileType::File, (0, 0), b"");
        Self { kind, mode: 0o666, umask: 0o022, rdev, target, times: None }
    }
}

/// Attributes to set; by default none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttributes {
    /// Permission bits: 12 bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size in bytes.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime: Option<SetTime>,
    /// Time of the last change of the content.
    pub mtime: Option<SetTime>,
    /// Time of the creation.
    pub crtime: Option<Time>,
    /// Flags that change.
    pub flags: Option<FlagChange>,
    /// The project.
    pub project_id: Option<u64>,
    /// The change fails unless the file was last changed (ctime) at this time: the guard of NFSv3.
    pub if_ctime: Option<Time>,
}

/// The effects of a rename: on an existing new name, and on the old name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameMode {
    /// The file that has the new name loses it.
    #[default]
    Replace,
    /// The rename fails if the new name exists (`RENAME_NOREPLACE`).
    NoReplace,
    /// Both names exist and exchange their files (`RENAME_EXCHANGE`).
    Exchange,
    /// As `Replace`, and a whiteout remains at the old name (`RENAME_WHITEOUT`).
    Whiteout,
}

/// A rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RenameRequest<'a, D> {
    /// The directory of the old name.
    pub from_dir: D,
    /// The old name.
    pub from_name: &'a [u8],
    /// The directory of the new name.
    pub to_dir: D,
    /// The new name.
    pub to_name: &'a [u8],
    /// The effect of the rename on the names.
    pub mode: RenameMode,
}

/// Whether an extended attribute must exist before it is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrMode {
    /// It may exist or not.
    #[default]
    Any,
    /// It must not exist (`XATTR_CREATE`).
    Create,
    /// It must exist (`XATTR_REPLACE`).
    Replace,
}

/// Where a write begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOffset {
    /// At this byte.
    At(u64),
    /// At the end of the file (`O_APPEND`).
    End,
}

/// A byte range of one file to clone into another file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloneRange<F> {
    /// The file to clone from.
    pub source: F,
    /// The first byte in the source.
    pub source_offset: u64,
    /// The file to clone into.
    pub target: F,
    /// The first byte in the target.
    pub target_offset: u64,
    /// The length in bytes.
    pub length: u64,
}
