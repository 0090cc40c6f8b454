//! Recognizes foreign data on a device by the signatures of file systems, encryption, volume
//! managers and partition tables.
//!
//! | offset | bytes | whose |
//! | --- | --- | --- |
//! | 0 | `XFSB` | xfs |
//! | 0 | `LUKS` BA BE | LUKS |
//! | 0 or 4096, or near the end | FC 4E 2B A9 | Linux RAID (1.1, 1.2, 1.0) |
//! | 0, 512, 1024, 1536 | `LABELONE` | LVM |
//! | 3 | `NTFS    `, `EXFAT   ` | ntfs, exfat |
//! | 54 or 82 | `FAT12   `, `FAT16   `, `FAT32   ` | fat |
//! | 446 | four entries of 16 bytes, their kinds at 4; 55 AA at 510 | partitions (MBR) |
//! | 512 or 4096 | `EFI PART` | partitions (GPT) |
//! | 1024 | 10 20 F5 F2 | f2fs |
//! | 1080 | 53 EF | ext2, ext3, ext4 |
//! | 4086 | `SWAPSPACE2` | swap |
//! | 4120 | C6 85 73 F6 4E 1A 45 CA | bcache |
//! | 32769 | `CD001` | iso9660 |
//! | 65600 | `_BHRfS_M` | btrfs |
//!
//! Learnt from: the formats' own descriptions. Proved by: `marks_are_known` and, where mkfs
//! programs are installed, `signatures_of_real_tools_are_recognized`.

use crate::Device;

/// Bytes at the beginning in which all marks but one lie.
const HEAD_SIZE: usize = 68 << 10;

/// A signature: its offset, its bytes, and its owner.
type Signature = (usize, &'static [u8], &'static str);

const MD_RAID_MAGIC: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];

const SIGNATURES: [Signature; 21] = [
    (0, b"XFSB", "an xfs file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0, MD_RAID_MAGIC, "a part of a Linux RAID"),
    (4096, MD_RAID_MAGIC, "a part of a Linux RAID"),
    (0, b"LABELONE", "an LVM volume"),
    (512, b"LABELONE", "an LVM volume"),
    (1024, b"LABELONE", "an LVM volume"),
    (1536, b"LABELONE", "an LVM volume"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT12   ", "a FAT file system"),
    (54, b"FAT16   ", "a FAT file system"),
    (82, b"FAT32   ", "a FAT file system"),
    (512, b"EFI PART", "partitions"),
    (4096, b"EFI PART", "partitions"),
    (1024, b"\x10\x20\xf5\xf2", "an f2fs file system"),
    (1080, b"\x53\xef", "an ext file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "a bcache device"),
    (32_769, b"CD001", "an ISO 9660 file system"),
    (65_600, b"_BHRfS_M", "a btrfs file system"),
];

/// The owner of the device's data; none if no signature is known. Unreadable parts count as without
/// signature.
pub fn detect_signature(device: &dyn Device) -> Option<&'static str> {
    let size = units::to_usize(device.size());
    let mut head = vec![0; HEAD_SIZE.min(size)];
    device.read_at(0, &mut head).ok()?;
    let is_there =
        |(at, mark, _): &&Signature| head.get(*at..).is_some_and(|rest| rest.starts_with(mark));
    if let Some((_, _, whose)) = SIGNATURES.iter().find(is_there) {
        return Some(whose);
    }
    has_md_raid_at_end(device).then_some("a part of a Linux RAID").or(detect_mbr_partitions(&head))
}

/// Version 1.0 of Linux RAID has its mark at least 8 KiB before the end, at a multiple of 4 KiB.
fn has_md_raid_at_end(device: &dyn Device) -> bool {
    let Some(at) = device.size().checked_sub(8 << 10) else { return false };
    let mut found = [0; MD_RAID_MAGIC.len()];
    device.read_at(at & !4095, &mut found).is_ok() && found == MD_RAID_MAGIC
}

/// Whether the first sector has a table with a partition in it.
fn detect_mbr_partitions(head: &[u8]) -> Option<&'static str> {
    let table = head.get(446..512)?;
    let (entries, end) = table.split_at(64);
    let used = entries.chunks_exact(16).any(|entry| entry.get(4).is_some_and(|kind| *kind != 0));
    (end == [0x55, 0xaa] && used).then_some("partitions")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::{SIGNATURES, detect_signature};
    use crate::{Device, File, MemoryDevice};

    fn device_with(at: u64, mark: &[u8]) -> MemoryDevice {
        let memory = MemoryDevice::zeroed("drive", 1 << 20);
        memory.write_at(at, mark).unwrap();
        memory
    }

    #[test]
    fn marks_are_known() {
        for (at, mark, whose) in SIGNATURES {
            assert_eq!(detect_signature(&device_with(at as u64, mark)), Some(whose));
        }
        assert_eq!(detect_signature(&device_with(0, b"")), None);
        let end = (1 << 20) - (8 << 10);
        assert!(detect_signature(&device_with(end, &[0xfc, 0x4e, 0x2b, 0xa9])).is_some());
        let boot = device_with(510, &[0x55, 0xaa]);
        assert_eq!(detect_signature(&boot), None, "a boot sector without partitions");
        boot.write_at(450, &[0x83]).unwrap();
        assert_eq!(detect_signature(&boot), Some("partitions"));
        assert_eq!(detect_signature(&MemoryDevice::new("tiny", &[0; 100])), None);
    }

    #[test]
    fn signatures_of_real_tools_are_recognized() {
        let path = std::env::temp_dir().join(format!("poolhouse-signature-{}", std::process::id()));
        for (program, words, whose) in [
            ("mkfs.ext4", vec!["-q", "-F"], "an ext file system"),
            ("mkfs.btrfs", vec!["-q", "-f"], "a btrfs file system"),
            ("mkfs.xfs", vec!["-q", "-f"], "an xfs file system"),
            ("mkfs.vfat", vec![], "a FAT file system"),
            ("mkswap", vec![], "swap space"),
        ] {
            std::fs::File::create(&path).unwrap().set_len(512 << 20).unwrap();
            let mut command = Command::new(program);
            command.args(words).arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
            if command.status().is_ok_and(|status| status.success()) {
                assert_eq!(detect_signature(&File::open(&path).unwrap()), Some(whose), "{program}");
            } else {
                eprintln!("{program} is not installed: its mark is known from descriptions only");
            }
        }
        let _ = std::fs::remove_file(&path);
    }
}
