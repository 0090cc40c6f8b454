//! Partitions of a whole disk: GPT, as OpenZFS makes it, and the older MBR.
//!
//! ```text
//! GPT header, in the second and in the last sector (of 512 or 4096 bytes), little-endian
//! offset  size  field           meaning
//!      0     8  signature       "EFI PART"
//!     12     4  header_size     bytes of the header: 92 or more
//!     16     4  header_crc      CRC32 of the header, with zeros here
//!     72     8  entries         where the table is, in sectors
//!     80     4  count           entries in the table
//!     84     4  entry_size      bytes of an entry: 128 or more
//!     88     4  table_crc       CRC32 of the table
//!
//! GPT entry
//! offset  size  field           meaning
//!      0    16  kind            all 0: unused
//!     32     8  first           its first sector
//!     40     8  last            its last sector
//!
//! MBR: 4 entries of 16 bytes at 446, each with type at 4, first sector at 8 and sectors at 12; 0x55aa at 510
//! ```
//!
//! A table whose checksums fit goes before one whose checksums do not: the copy at the end of a disk stands in for a
//! table that was overwritten.
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
    let mut damaged = Vec::new();
    for sector in [512, 4096] {
        let last = device.size().checked_sub(sector).map(|end| end / sector * sector);
        for at in [Some(sector), last].into_iter().flatten() {
            let Some(table) = GptTable::read(device, sector, at) else { continue };
            let found: Vec<Partition> = table.partitions(device).collect();
            match (found.is_empty(), table.is_intact) {
                (false, true) => return found,
                (false, false) if damaged.is_empty() => damaged = found,
                _ => (),
            }
        }
    }
    if damaged.is_empty() { read_mbr(device) } else { damaged }
}

/// A partition table of a disk with sectors of some size.
struct GptTable {
    sector: u64,
    entry_size: usize,
    entries: Vec<u8>,
    /// Whether its checksums fit.
    is_intact: bool,
}

impl GptTable {
    /// Reads the table whose header is at an offset; none if there is no header.
    fn read(device: &dyn Device, sector: u64, at: u64) -> Option<Self> {
        let mut header = [0; 512];
        device.read_at(at, &mut header).ok()?;
        if !header.starts_with(b"EFI PART") {
            return None;
        }
        let size = usize::try_from(le32(&header[12..])).ok()?;
        let [header_crc, table_crc] = [16, 88].map(|field| le32(&header[field..]));
        let (table, count, entry) = (le64(&header[72..]), le32(&header[80..]), le32(&header[84..]));
        if !(128..=4096).contains(&entry) {
            return None;
        }
        let entry_size = usize::try_from(entry).ok()?;
        let length = usize::try_from(count.min(MAX_ENTRIES)).ok()?.checked_mul(entry_size)?;
        let mut entries = vec![0; length];
        device.read_at(table.checked_mul(sector)?, &mut entries).ok()?;
        header[16..20].fill(0);
        let fits = |bytes: &[u8], crc| crc32fast::hash(bytes) == crc;
        let is_intact = header.get(..size).is_some_and(|bytes| fits(bytes, header_crc))
            && count <= MAX_ENTRIES
            && fits(&entries, table_crc);
        Some(Self { sector, entry_size, entries, is_intact })
    }

    fn partitions(&self, device: &dyn Device) -> impl Iterator<Item = Partition> {
        let (sector, size) = (self.sector, device.size());
        let entries = (1..).zip(self.entries.chunks_exact(self.entry_size));
        entries.filter_map(move |(number, bytes)| read_gpt_entry(size, sector, number, bytes))
    }
}

fn read_gpt_entry(device_size: u64, sector: u64, number: u32, bytes: &[u8]) -> Option<Partition> {
    if bytes[..16] == [0; 16] {
        return None;
    }
    let (first, last) = (le64(&bytes[32..]), le64(&bytes[40..]));
    let size = last.checked_sub(first)?.checked_add(1)?.checked_mul(sector)?;
    let start = first.checked_mul(sector)?;
    (start < device_size).then_some(Partition { number, start, size })
}

fn read_mbr(device: &dyn Device) -> Vec<Partition> {
    let mut block = [0; 512];
    if device.read_at(0, &mut block).is_err() || block[510..] != [0x55, 0xaa] {
        return Vec::new();
    }
    let entry = |(number, bytes): (u32, &[u8])| {
        let (start, size) =
            (u64::from(le32(&bytes[8..])) * 512, u64::from(le32(&bytes[12..])) * 512);
        // the MBR of a GPT disk has this type, so that other programs leave it alone
        let is_protective = bytes[4] == 0xee;
        let is_there = size > 0 && start > 0 && start < device.size() && !is_protective;
        is_there.then_some(Partition { number, start, size })
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
    fn gpt_partitions_are_found() {
        let expected = Partition { number: 1, start: 131_072, size: 262_144 };
        assert_eq!(partitions(&MemoryDevice::new("disk", &gpt_disk())), [expected]);
    }

    /// Writes checksums into the header at an offset.
    fn seal(bytes: &mut [u8], at: usize, table: usize) {
        let entries = crc32fast::hash(&bytes[table..table + 4 * 128]);
        bytes[at + 12] = 92;
        bytes[at + 88..at + 92].copy_from_slice(&entries.to_le_bytes());
        let header = crc32fast::hash(&bytes[at..at + 92]);
        bytes[at + 16..at + 20].copy_from_slice(&header.to_le_bytes());
    }

    #[test]
    fn backup_gpt_replaces_a_damaged_table() {
        let mut bytes = gpt_disk();
        let last = bytes.len() - 512;
        // the copy has its table in the sector before it
        bytes.copy_within(1024..1536, last - 512);
        bytes.copy_within(512..604, last);
        let table = u64::try_from(last / 512 - 1).unwrap();
        bytes[last + 72..last + 80].copy_from_slice(&table.to_le_bytes());
        seal(&mut bytes, last, last - 512);
        seal(&mut bytes, 512, 1024);
        let expected = Partition { number: 1, start: 131_072, size: 262_144 };
        let found = |bytes: &[u8]| partitions(&MemoryDevice::new("disk", bytes));
        assert_eq!(found(&bytes), [expected]);
        // an entry of the first table is overwritten, then its header
        bytes[1024 + 32] = 9;
        assert_eq!(found(&bytes), [expected]);
        bytes[..2048].fill(0);
        assert_eq!(found(&bytes), [expected]);
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
