//! From the tree's words to the kernel's.

use fusedev::{Attr, Timespec};
use posix::{Attributes, FileType, Time};
use rustix::io::Errno;
use vfs::{Error, Reason};

pub(crate) fn to_errno(why: &Error) -> Errno {
    match why {
        Error::NotFound => Errno::NOENT,
        Error::Stale | Error::InoReused { .. } => Errno::STALE,
        Error::AccessDenied => Errno::ACCESS,
        Error::WrongOpenMode => Errno::BADF,
        Error::ShareConflict(_) => Errno::BUSY,
        Error::RecallPending(_) => Errno::AGAIN,
        Error::NotDirectory => Errno::NOTDIR,
        Error::IsDirectory => Errno::ISDIR,
        Error::NotSymlink => Errno::INVAL,
        Error::Locked { .. } => Errno::NOKEY,
        Error::Unreadable { .. } | Error::PoolSuspended => Errno::IO,
        Error::InoOverflow => Errno::OVERFLOW,
        Error::Refused { reason } => reason_errno(*reason),
    }
}

/// The result of an operation in the kernel's error numbers.
pub(crate) fn map_errno<T>(what: Result<T, Error>) -> Result<T, Errno> {
    what.map_err(|why| to_errno(&why))
}

fn reason_errno(reason: Reason) -> Errno {
    match reason {
        Reason::NotFound => Errno::NOENT,
        Reason::NoXattr => Errno::NODATA,
        Reason::NotDirectory => Errno::NOTDIR,
        Reason::IsDirectory => Errno::ISDIR,
        Reason::NotSymlink | Reason::Invalid => Errno::INVAL,
        Reason::Locked => Errno::NOKEY,
        Reason::ReadOnly => Errno::ROFS,
        Reason::Exists => Errno::EXIST,
        Reason::NotEmpty => Errno::NOTEMPTY,
        Reason::ChangedMeanwhile => Errno::AGAIN,
        Reason::NotPermitted => Errno::PERM,
        Reason::NotSupported => Errno::OPNOTSUPP,
        Reason::NameTooLong => Errno::NAMETOOLONG,
        Reason::NameNotUtf8 => Errno::ILSEQ,
        Reason::CrossDevice => Errno::XDEV,
        Reason::TooLarge => Errno::FBIG,
        Reason::NoSpace => Errno::NOSPC,
        Reason::OverQuota => Errno::DQUOT,
        Reason::Suspended | Reason::NotCommitted | Reason::Unreadable => Errno::IO,
    }
}

/// The type of a node, in the upper bits of a mode.
pub(crate) fn file_type_bits(kind: FileType) -> u32 {
    match kind {
        FileType::File => 0o100_000,
        FileType::Directory => 0o040_000,
        FileType::Symlink => 0o120_000,
        FileType::Fifo => 0o010_000,
        FileType::CharDevice => 0o020_000,
        FileType::BlockDevice => 0o060_000,
        // Linux has no doors nor event ports; like a socket they have no content
        FileType::Socket | FileType::Other(_) => 0o140_000,
    }
}

fn to_timespec(time: Time) -> Timespec {
    Timespec(time.seconds, time.nanoseconds)
}

pub(crate) fn to_attr(from: &Attributes) -> Attr {
    Attr {
        ino: from.ino.get(),
        // the kernel refuses a file whose size is not a signed number
        size: from.size.min(i64::MAX.unsigned_abs()),
        blocks: from.allocated.div_ceil(512),
        atime: to_timespec(from.atime),
        mtime: to_timespec(from.mtime),
        ctime: to_timespec(from.ctime),
        btime: to_timespec(from.crtime),
        mode: file_type_bits(from.kind) | from.mode & 0o7777,
        nlink: u32::try_from(from.nlink).unwrap_or(u32::MAX),
        uid: from.uid,
        gid: from.gid,
        rdev: from.rdev,
        block_size: round_block_size(from.block_size),
    }
}

/// The preferred size of reads; a power of two, as the kernel requires.
fn round_block_size(bytes: u64) -> u32 {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(4096, 1 << 20);
    bytes.checked_next_power_of_two().unwrap_or(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::round_block_size;

    #[test]
    fn block_sizes_are_powers_of_two() {
        assert_eq!([round_block_size(512), round_block_size(131_072)], [4096, 131_072]);
        assert_eq!([round_block_size(200_000), round_block_size(16 << 20)], [262_144, 1 << 20]);
    }
}
