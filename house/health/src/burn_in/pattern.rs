//! The pattern of a burn-in: every sector is different, so that a sector in a wrong place is recognized.
//!
//! ```text
//! offset size  sector of 512 bytes, little-endian
//! 0      8     tag: the seed, mixed
//! 8      8     the byte of the drive where the sector was written
//! 16     496   62 words of a generator (SplitMix64) that starts from seed and offset
//! ```
//!
//! The words do not compress, so that a drive that compresses has to store them.
//!
//! Learnt from: nothing else; only a burn-in writes and reads this pattern.

use super::{Fault, FaultKind};

/// The bytes of a sector.
pub(super) const SECTOR: usize = 512;
/// The bytes of a word.
const WORD: usize = 8;
/// The increment of SplitMix64.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64.
fn mix(state: u64) -> u64 {
    let first = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let second = (first ^ (first >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    second ^ (second >> 31)
}

/// The words of the sector at a byte of the drive.
fn words(seed: u64, offset: u64) -> impl Iterator<Item = u64> {
    let start = mix(seed ^ offset.wrapping_mul(GAMMA));
    let rest = (1..).map(move |step: u64| mix(start.wrapping_add(step.wrapping_mul(GAMMA))));
    [mix(seed), offset].into_iter().chain(rest)
}

/// Fills sectors that begin at a byte of the drive.
pub(super) fn fill(seed: u64, offset: u64, bytes: &mut [u8]) {
    for (sector, at) in bytes.chunks_mut(SECTOR).zip((offset..).step_by(SECTOR)) {
        for (place, word) in sector.chunks_exact_mut(WORD).zip(words(seed, at)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Compares sectors that begin at a byte of the drive. Returns the fault; its kind is that of the first wrong sector.
pub(super) fn compare(seed: u64, offset: u64, bytes: &[u8]) -> Option<Fault> {
    let mut fault: Option<Fault> = None;
    for (sector, at) in bytes.chunks(SECTOR).zip((offset..).step_by(SECTOR)) {
        let found = sector.chunks_exact(WORD).map(read_word);
        if found.eq(words(seed, at).take(SECTOR / WORD)) {
            continue;
        }
        let end = at + SECTOR as u64;
        if let Some(fault) = &mut fault {
            fault.length = end - fault.offset;
        } else {
            let kind = classify(seed, at, sector);
            fault = Some(Fault { offset: at, length: SECTOR as u64, kind });
        }
    }
    fault
}

fn read_word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// The kind of a wrong sector.
fn classify(seed: u64, offset: u64, sector: &[u8]) -> FaultKind {
    let found: Vec<u64> = sector.chunks_exact(WORD).map(read_word).collect();
    let matches = |at: u64| {
        found.iter().zip(words(seed, at)).filter(|(found, written)| **found == *written).count()
    };
    match found.as_slice() {
        // the whole sector was written elsewhere, not only the two words that say so
        [tag, at, ..] if *tag == mix(seed) && *at != offset && matches(*at) > found.len() / 2 => {
            FaultKind::Misplaced { written_at: *at }
        }
        _ if matches(offset) == 0 => FaultKind::Lost,
        _ => FaultKind::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::{FaultKind, SECTOR, compare, fill};

    #[test]
    fn wrong_sectors_are_classified() {
        let mut bytes = vec![0; 8 * SECTOR];
        fill(7, 4096, &mut bytes);
        assert_eq!(compare(7, 4096, &bytes), None);
        assert!(compare(8, 4096, &bytes).is_some(), "another seed");
        let moved = compare(7, 8192, &bytes).unwrap();
        assert_eq!((moved.offset, moved.length), (8192, 4096));
        assert_eq!(moved.kind, FaultKind::Misplaced { written_at: 4096 });
        bytes[3 * SECTOR + 100] ^= 1;
        bytes[5 * SECTOR + 9] ^= 0x80;
        let damaged = compare(7, 4096, &bytes).unwrap();
        assert_eq!((damaged.offset, damaged.length), (4096 + 3 * 512, 3 * 512));
        assert_eq!(damaged.kind, FaultKind::Damaged);
        bytes[..SECTOR].fill(0);
        assert_eq!(compare(7, 4096, &bytes).unwrap().kind, FaultKind::Lost);
    }
}
