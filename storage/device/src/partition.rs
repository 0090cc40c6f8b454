//! Partitions of a whole disk: GPT, as OpenZFS makes it, and the older MBR.
//!
//! ```text
//! GPT header, at 512 (or 4096 on drives with such sectors), little-endian
//! offset  size  field           meaning
//!      0     8  signature       "EFI PART"
//!     72     8  entries         where the table is, in sectors
//!     80     4  count           entries in the table
//!     84     4  entry_size      bytes of an entry: 128 or more
//!
//! GPT entry
//! offset  size  field           meaning
//!      0    16  kind            all 0: unused
//!     32     8  first           its first sector
//!     40     8  last            its last sector
//!
//! MBR: 4 entries of 16 bytes at 446, each with first sector at 8 and sectors at 12; 0x55aa at 510
//! ```
//!
//! Learnt from: the UEFI specification, and disks that OpenZFS partitioned. Proved by: the tests
//! below.

use crate::Device;

/// A part of a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1 on.
    pub number: u32,
    /// Where it begins.
    pub start: u64,
    /// How long it is.
    pub size: u64,
}

/// More entries than this are not looked at.
const MAX_ENTRIES: u32 = 256;

/// The partitions of a device; none where it has no table that makes sense.
pub fn partitions(device: &dyn Device) -> Vec<Partition> {
    for sector in [512, 4096] {
        let found = read_gpt(device, sector);
        if !found.is_empty() {
            return found;
        }
    }
    read_mbr(device)
}

fn read_gpt(device: &dyn Device, sector: u64) -> Vec<Partition> {
    let mut header = [0; 92];
    if device.read_at(sector, &mut header).is_err() || !header.starts_with(b"EFI PART") {
        return Vec::new();
    }
    let (table, count, entry) = (le64(&header[72..]), le32(&header[80..]), le32(&header[84..]));
    if !(128..=4096).contains(&entry) {
        return Vec::new();
    }
    (0..count.min(MAX_ENTRIES))
        .filter_map(|index| read_gpt_entry(device, sector, table, entry, index))
        .collect()
}

fn read_gpt_entry(
    device: &dyn Device,
    sector: u64,
    table: u64,
    entry: u32,
    index: u32,
) -> Option<Partition> {
    let at = table.checked_mul(sector)?.checked_add(u64::from(index) * u64::from(entry))?;
    let mut bytes = [0; 48];
    device.read_at(at, &mut bytes).ok()?;
    if bytes[..16] == [0; 16] {
        return None;
    }
    let (first, last) = (le64(&bytes[32..]), le64(&bytes[40..]));
    let size = last.checked_sub(first)?.checked_add(1)?.checked_mul(sector)?;
    let start = first.checked_mul(sector)?;
    (start < device.size()).then_some(Partition { number: index + 1, start, size })
}

fn read_mbr(device: &dyn Device) -> Vec<Partition> {
    let mut block = [0; 512];
    if device.read_at(0, &mut block).is_err() || block[510..] != [0x55, 0xaa] {
        return Vec::new();
    }
    let entry = |(number, bytes): (u32, &[u8])| {
        let (start, size) =
            (u64::from(le32(&bytes[8..])) * 512, u64::from(le32(&bytes[12..])) * 512);
        (size > 0 && start > 0 && start < device.size()).then_some(Partition {
            number,
            start,
            size,
        })
    };
    (1..).zip(block[446..510].chunks_exact(16)).filter_map(entry).collect()
}

/// The number in the first 8 bytes, which the caller has.
fn le64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// The number in the first 4 bytes, which the caller has.
fn le32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::{Partition, partitions};
    use crate::MemoryDevice;

    fn gpt_disk() -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        bytes[512..520].copy_from_slice(b"EFI PART");
        bytes[512 + 72] = 2;
        bytes[512 + 80] = 4;
        bytes[512 + 84] = 128;
        bytes[1024] = 7;
        bytes[1024 + 32..1024 + 34].copy_from_slice(&[0, 1]); // sector 256
        bytes[1024 + 40..1024 + 42].copy_from_slice(&[0xff, 2]); // to 767
        bytes
    }

    #[test]
    fn a_gpt_disk_tells_its_partitions() {
        let expected = Partition { number: 1, start: 131_072, size: 262_144 };
        assert_eq!(partitions(&MemoryDevice::new("disk", &gpt_disk())), [expected]);
    }

    #[test]
    fn an_mbr_disk_too_and_garbage_none() {
        let mut bytes = vec![0; 1 << 20];
        assert_eq!(partitions(&MemoryDevice::new("empty", &bytes)), []);
        bytes[446 + 8] = 64;
        bytes[446 + 12] = 128;
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        let expected = Partition { number: 1, start: 32_768, size: 65_536 };
        assert_eq!(partitions(&MemoryDevice::new("old", &bytes)), [expected]);
        assert_eq!(partitions(&MemoryDevice::new("tiny", &[0; 100])), []);
    }
}
