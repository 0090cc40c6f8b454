//! Finds the start of pools on a disk whose partition table is lost.
//!
//! ```text
//! vdev     256 KiB    256 KiB              256 KiB    256 KiB
//! start    label 0    label 1   ... data   label 2    label 3    end
//!
//! label, from its offset 16 KiB on: a list of names and values in XDR, which begins with
//! 01 01 00 00  00 00 00 00  00 00 00 01
//! ```
//!
//! The labels in front give the start of a vdev, the two at its end give its length. Without those
//! it is taken to reach to the end of the disk.
//!
//! Learnt from: the partitions that OpenZFS, TrueNAS, FreeBSD and illumos make. Proved by: the tests below.

use crate::Device;
use units::MinusOrZero as _;

const LABEL_SIZE: u64 = 256 << 10;
/// Where the list of names and values is in a label.
const LIST_OFFSET: u64 = 16 << 10;
const LIST_START: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// Bytes of the list that two labels of a vdev share.
const COMPARED: usize = 2048;
/// Bytes that are searched at once.
const CHUNK: usize = 1 << 20;
/// Labels begin at sectors.
const SECTOR: usize = 512;
/// Vdevs that are found, at most.
const MAX_FOUND: usize = 64;

/// Where the first partition for data begins on disks that systems partition themselves.
const USUAL_STARTS: [u64; 5] = [
    40 * 512,        // FreeBSD
    63 * 512,        // MBR
    256 * 512,       // illumos
    1 << 20,         // Linux
    4_194_432 * 512, // TrueNAS, behind 2 GiB of swap
];

/// A part of a disk that holds a vdev, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostVdev {
    pub(crate) start: u64,
    pub(crate) size: u64,
}

/// Vdevs at the usual places of a disk without partitions.
pub(crate) fn find_at_usual_starts(device: &dyn Device) -> Vec<LostVdev> {
    let is_first = |start: &u64| {
        let second = start.checked_add(LABEL_SIZE);
        has_label(device, *start) && second.is_some_and(|second| has_label(device, second))
    };
    let starts = USUAL_STARTS.into_iter().filter(is_first);
    starts.map(|start| LostVdev { start, size: device.size().minus_or_zero(start) }).collect()
}

/// Vdevs anywhere on a disk, all of which is read.
pub(crate) fn find_anywhere(device: &dyn Device) -> Vec<LostVdev> {
    let mut pairs = label_pairs(device);
    let mut found = Vec::new();
    while !pairs.is_empty() && found.len() < MAX_FOUND {
        let first = pairs.remove(0);
        let list = read_list(device, first);
        // the last pair with the same list: a vdev may have been moved, and its old labels be left
        let end = pairs.iter().rposition(|pair| list.is_some() && read_list(device, *pair) == list);
        let size = match end {
            Some(at) => (pairs.remove(at) + 2 * LABEL_SIZE) - first,
            None => device.size() - first,
        };
        found.push(LostVdev { start: first, size });
    }
    found
}

/// Where two labels follow each other.
fn label_pairs(device: &dyn Device) -> Vec<u64> {
    let mut labels = Vec::new();
    let mut chunk = vec![0; CHUNK];
    let (mut at, size) = (0, device.size());
    while at < size && labels.len() < 4 * MAX_FOUND {
        let length = usize::try_from(size - at).map_or(CHUNK, |rest| rest.min(CHUNK));
        let Some(bytes) = chunk.get_mut(..length) else { break };
        // what cannot be read holds no label that could be used
        if device.read_at(at, bytes).is_ok() {
            let sectors = (at..).step_by(SECTOR).zip(bytes.chunks(SECTOR));
            let lists = sectors.filter(|(_, sector)| sector.starts_with(&LIST_START));
            labels.extend(lists.filter_map(|(list, _)| list.checked_sub(LIST_OFFSET)));
        }
        at += CHUNK as u64;
    }
    let mut pairs: Vec<u64> = Vec::new();
    for label in &labels {
        let follows = labels.contains(&(label + LABEL_SIZE));
        let is_second = pairs.last().is_some_and(|pair| pair + LABEL_SIZE == *label);
        if follows && !is_second {
            pairs.push(*label);
        }
    }
    pairs
}

fn has_label(device: &dyn Device, start: u64) -> bool {
    let mut bytes = [0; LIST_START.len()];
    let at = start + LIST_OFFSET;
    device.read_at(at, &mut bytes).is_ok() && bytes == LIST_START
}

fn read_list(device: &dyn Device, label: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; COMPARED];
    device.read_at(label + LIST_OFFSET, &mut bytes).ok().map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use super::{
        LABEL_SIZE, LIST_OFFSET, LIST_START, LostVdev, find_anywhere, find_at_usual_starts,
    };
    use crate::MemoryDevice;

    /// A disk with vdevs: the start and length of each, and a byte that distinguishes its labels.
    fn disk(vdevs: &[(u64, u64, u8)]) -> MemoryDevice {
        let mut bytes = vec![0; 16 << 20];
        for (start, size, own) in vdevs {
            for label in [0, LABEL_SIZE, size - 2 * LABEL_SIZE, size - LABEL_SIZE] {
                let at = usize::try_from(start + label + LIST_OFFSET).unwrap();
                bytes[at..at + 12].copy_from_slice(&LIST_START);
                bytes[at + 12] = *own;
            }
        }
        MemoryDevice::new("disk", &bytes)
    }

    #[test]
    fn vdevs_are_found_at_one_mebibyte() {
        let found = find_at_usual_starts(&disk(&[(1 << 20, 15 << 20, 1)]));
        assert_eq!(found, [LostVdev { start: 1 << 20, size: 15 << 20 }]);
        assert_eq!(find_at_usual_starts(&disk(&[(3 << 20, 8 << 20, 1)])), []);
    }

    #[test]
    fn deep_search_finds_vdevs_with_their_sizes() {
        let all = [(512 * 77, 4 << 20, 1), (6 << 20, 9 << 20, 2)];
        let expected = all.map(|(start, size, _)| LostVdev { start, size });
        assert_eq!(find_anywhere(&disk(&all)), expected);
        assert_eq!(find_anywhere(&disk(&[])), []);
    }
}
