//! The drives: how they are written, and what of a whole disk becomes the pool's.
//!
//! OpenZFS on Linux partitions a disk that it is given whole, in sectors of 512 bytes:
//!
//! ```text
//! sectors                 what
//! 0 to 2047               the table, and nothing up to the first MiB
//! 2048 to N               partition 1, the pool's: a whole number of MiB
//! N to N + 16383          partition 9, reserved, 8 MiB
//! rest                    less than 1 MiB, and the table's copy in the last 33 sectors
//! ```
//!
//! Learnt from: disks partitioned by zpool of OpenZFS 2.3.2. Proved by:
//! `whole_disks_are_partitioned_as_zpool_does`.

use crate::Error;

/// Drives that a plan may have at most.
pub const MAX_DRIVES: usize = 10_000;

const SECTOR_SIZE: u64 = 512;
/// Where the first partition begins, and what its size is a multiple of; sectors.
const ALIGNMENT_SECTORS: u64 = 2048;
/// The reserved partition, sectors.
const RESERVED_SECTORS: u64 = 16384;
/// The copy of the partition table at the end, sectors.
const BACKUP_GPT_SECTORS: u64 = 33;

/// Reads a list of drives, `24x4TB` or `2x3TB,3x2TiB 6x4000787030016`: the bytes of each, in order.
pub fn parse_drives(text: &str) -> Result<Vec<u64>, Error> {
    let mut drives = Vec::new();
    for part in text.split([',', ' ', '+']).filter(|part| !part.is_empty()) {
        let wrong = || Error::InvalidDrives { part: part.to_owned() };
        let (count, size) = match part.split_once(['x', 'X', '*']) {
            Some((count, size)) => (count.parse::<usize>().map_err(|_| wrong())?, size),
            None => (1, part),
        };
        let bytes = units::parse_bytes(size).filter(|bytes| *bytes > 0).ok_or_else(wrong)?;
        if count == 0 {
            return Err(wrong());
        }
        let total = drives.len().saturating_add(count);
        if total > MAX_DRIVES {
            return Err(Error::TooManyDrives { count: total, max: MAX_DRIVES });
        }
        drives.resize(total, bytes);
    }
    if drives.is_empty() { Err(Error::NoDrives) } else { Ok(drives) }
}

/// Bytes of the partition that OpenZFS makes for the pool on a whole disk of `bytes` bytes (with
/// sectors of 512 bytes, or 512 emulated).
pub fn partition_size(bytes: u64) -> u64 {
    let usable = (bytes / SECTOR_SIZE)
        .saturating_sub(BACKUP_GPT_SECTORS + RESERVED_SECTORS + ALIGNMENT_SECTORS);
    (usable - usable % ALIGNMENT_SECTORS) * SECTOR_SIZE
}

#[cfg(test)]
mod tests {
    use super::{parse_drives, partition_size};

    #[test]
    fn drive_lists_and_units_are_parsed() {
        assert_eq!(parse_drives("3x4TB"), Ok(vec![4_000_000_000_000; 3]));
        assert_eq!(parse_drives("1x4TiB"), Ok(vec![4 << 40]));
        assert_eq!(
            parse_drives("2x3TB,1x2TB 500107862016"),
            Ok(vec![3_000_000_000_000, 3_000_000_000_000, 2_000_000_000_000, 500_107_862_016])
        );
        for wrong in ["", "0x4TB", "x", "4x", "ax4TB", "3x0", "99999999x4TB"] {
            assert!(parse_drives(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn whole_disks_are_partitioned_as_zpool_does() {
        // partition sizes that zpool of OpenZFS 2.3.2 made on disks of these sizes, in sectors
        for (disk, first) in [
            (7_814_037_168, 7_814_017_024),
            (1_953_525_168, 1_953_505_280),
            (5_859_375_001, 5_859_354_624),
        ] {
            assert_eq!(partition_size(disk * 512), first * 512);
        }
        assert_eq!(partition_size(1000), 0);
    }
}
