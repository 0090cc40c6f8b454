//! Attributes of files, from what the engine stores and for directories that no dataset stores.

use engine::files::FileStat;
use posix::{Attributes, FileFlags, FileType, Ino, Time};

/// The attributes of a stored file.
pub(crate) fn stored(ino: Ino, stat: &FileStat, allocated: u64, block_size: u64) -> Attributes {
    Attributes {
        ino,
        kind: stat.kind,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        allocated,
        block_size,
        nlink: stat.nlink,
        atime: stat.atime,
        mtime: stat.mtime,
        ctime: stat.ctime,
        crtime: stat.crtime,
        rdev: stat.rdev,
        flags: stat.flags,
        project_id: stat.project_id,
        generation: stat.generation,
    }
}

/// The attributes of a directory below `.zfs`, or of a volume shown as a file.
pub(crate) fn synthetic(ino: Ino, kind: FileType) -> Attributes {
    let is_directory = kind == FileType::Directory;
    let none = Time::default();
    Attributes {
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
        flags: FileFlags::NONE,
        project_id: 0,
        generation: 0,
    }
}
