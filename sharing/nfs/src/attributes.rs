//! Attributes of files as both versions of the protocol need them.

use posix::{Attributes, FileType, Time};

use crate::wire::{v3, v4};

/// The attributes of a file or pseudo directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeAttributes {
    pub(crate) stat: Attributes,
    /// The guid of the dataset or snapshot; 0 for pseudo directories.
    pub(crate) fsid: u64,
    /// The object number, which is the same after a restart.
    pub(crate) fileid: u64,
    /// Differs after each change.
    pub(crate) change: u64,
}

/// The number of a file type in both versions (`ftype3`, `nfs_ftype4`).
pub(crate) fn type_number(kind: FileType) -> u32 {
    match kind {
        FileType::File | FileType::Other(_) => 1,
        FileType::Directory => 2,
        FileType::BlockDevice => 3,
        FileType::CharDevice => 4,
        FileType::Symlink => 5,
        FileType::Socket => 6,
        FileType::Fifo => 7,
    }
}

/// The file type of a number that MKNOD and CREATE take.
pub(crate) fn special_type(number: u32) -> Option<FileType> {
    match number {
        3 => Some(FileType::BlockDevice),
        4 => Some(FileType::CharDevice),
        6 => Some(FileType::Socket),
        7 => Some(FileType::Fifo),
        _ => None,
    }
}

/// A time that NFSv3 can express. Its seconds are unsigned and end in 2106; others wrap, as in
/// Linux.
fn to_v3_time(time: Time) -> v3::Time {
    let [.., a, b, c, d] = time.seconds.to_be_bytes();
    v3::Time { seconds: u32::from_be_bytes([a, b, c, d]), nanoseconds: time.nanoseconds }
}

pub(crate) fn from_v3_time(time: v3::Time) -> Time {
    Time { seconds: i64::from(time.seconds), nanoseconds: time.nanoseconds }
}

pub(crate) fn to_v4_time(time: Time) -> v4::Time {
    v4::Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

pub(crate) fn from_v4_time(time: v4::Time) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

impl NodeAttributes {
    /// The number of links; more than 32 bits do not fit the protocol.
    pub(crate) fn nlink(&self) -> u32 {
        u32::try_from(self.stat.nlink).unwrap_or(u32::MAX)
    }

    pub(crate) fn to_v3(self) -> v3::Attributes {
        let stat = &self.stat;
        v3::Attributes {
            kind: type_number(stat.kind),
            mode: stat.mode,
            nlink: self.nlink(),
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            used: stat.allocated,
            rdev: stat.rdev,
            fsid: self.fsid,
            fileid: self.fileid,
            atime: to_v3_time(stat.atime),
            mtime: to_v3_time(stat.mtime),
            ctime: to_v3_time(stat.ctime),
        }
    }
}
