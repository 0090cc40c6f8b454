//! From the tree's words to the kernel's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo};
use vfs::{Attributes, Error, Kind, Reason, Time};

/// ENOKEY of Linux: "Required key not available".
const ENOKEY: i32 = 126;

pub(crate) fn errno(why: &Error) -> Errno {
    match why {
        Error::Absent => Errno::ENOENT,
        Error::NotDirectory => Errno::ENOTDIR,
        Error::IsDirectory => Errno::EISDIR,
        Error::NotSymlink => Errno::EINVAL,
        Error::Locked { .. } => Errno::from_i32(ENOKEY),
        Error::Unreadable { .. } => Errno::EIO,
        Error::TooHigh => Errno::EOVERFLOW,
        Error::Refused { reason } => refusal(*reason),
    }
}

fn refusal(reason: Reason) -> Errno {
    match reason {
        Reason::Absent => Errno::ENOENT,
        Reason::NoXattr => Errno::NO_XATTR,
        Reason::NotDirectory => Errno::ENOTDIR,
        Reason::IsDirectory => Errno::EISDIR,
        Reason::NotSymlink | Reason::Invalid => Errno::EINVAL,
        Reason::Locked => Errno::from_i32(ENOKEY),
        Reason::ReadOnly => Errno::EROFS,
        Reason::Exists => Errno::EEXIST,
        Reason::NotEmpty => Errno::ENOTEMPTY,
        Reason::NotPermitted => Errno::EPERM,
        Reason::NotSupported => Errno::EOPNOTSUPP,
        Reason::NameTooLong => Errno::ENAMETOOLONG,
        Reason::NameNotUtf8 => Errno::EILSEQ,
        Reason::Elsewhere => Errno::EXDEV,
        Reason::TooLarge => Errno::EFBIG,
        Reason::NoSpace => Errno::ENOSPC,
        Reason::OverQuota => Errno::EDQUOT,
        Reason::Stopped | Reason::Unreadable => Errno::EIO,
    }
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        // Linux has no doors nor event ports; like a socket they have no content
        Kind::Socket | Kind::Other => FileType::Socket,
    }
}

/// A time; one that the system's clock cannot have becomes 1970.
fn time(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    let rest = Duration::from_nanos(time.nanoseconds.into());
    whole.and_then(|whole| whole.checked_add(rest)).unwrap_or(UNIX_EPOCH)
}

/// The same backwards.
pub(crate) fn moment(time: SystemTime) -> Time {
    let seconds = |length: Duration| i64::try_from(length.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time { seconds: seconds(since), nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let whole = seconds(before).saturating_neg();
            match before.subsec_nanos() {
                0 => Time { seconds: whole, nanoseconds: 0 },
                part => Time {
                    seconds: whole.saturating_sub(1),
                    nanoseconds: 1_000_000_000_u32.saturating_sub(part),
                },
            }
        }
    }
}

/// Major and minor of a device's number as Linux packs it into 32 bits.
pub(crate) fn numbers(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00)
}

/// A device's number as Linux packs it into 32 bits.
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

pub(crate) fn attributes(from: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(from.number),
        // the kernel refuses a file whose size is no signed number
        size: from.size.min(i64::MAX.unsigned_abs()),
        blocks: from.space.div_ceil(512),
        atime: time(from.atime),
        mtime: time(from.mtime),
        ctime: time(from.ctime),
        crtime: time(from.crtime),
        kind: file_type(from.kind),
        perm: u16::try_from(from.mode & 0o7777).unwrap_or(0),
        nlink: u32::try_from(from.links).unwrap_or(u32::MAX),
        uid: from.uid,
        gid: from.gid,
        rdev: device(from.rdev),
        blksize: block_size(from.block_size),
        flags: 0,
    }
}

/// What programs should read at a time; a power of two, as the kernel wants it.
fn block_size(bytes: u64) -> u32 {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(4096, 1 << 20);
    bytes.checked_next_power_of_two().unwrap_or(1 << 20)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use vfs::Time;

    use super::{block_size, device, moment, numbers, time};

    #[test]
    fn times_before_1970_and_after_2106() {
        let before = Time { seconds: -1, nanoseconds: 250_000_000 };
        assert_eq!(time(before), UNIX_EPOCH - Duration::from_millis(750));
        assert_eq!(moment(time(before)), before);
        let whole = Time { seconds: -7, nanoseconds: 0 };
        assert_eq!(moment(time(whole)), whole);
        let after = Time { seconds: 1 << 33, nanoseconds: 1 };
        assert_eq!(time(after), UNIX_EPOCH + Duration::new(1 << 33, 1));
        assert_eq!(moment(time(after)), after);
        // further away than any clock goes, but no panic
        let _ = time(Time { seconds: i64::MIN, nanoseconds: 999_999_999 });
        let _ = time(Time { seconds: i64::MAX, nanoseconds: u32::MAX });
    }

    #[test]
    fn devices_are_packed_as_linux_does() {
        assert_eq!(device((8, 1)), 0x801);
        assert_eq!(device((0xfff, 0xf_ffff)), u32::MAX);
        for pair in [(8, 1), (0xfff, 0xf_ffff), (259, 0x12345)] {
            assert_eq!(numbers(device(pair)), pair);
        }
    }

    #[test]
    fn block_sizes_are_powers_of_two() {
        assert_eq!([block_size(512), block_size(131_072)], [4096, 131_072]);
        assert_eq!([block_size(200_000), block_size(16 << 20)], [262_144, 1 << 20]);
    }
}
