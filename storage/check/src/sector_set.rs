//! A set of sectors: one bit each, and nothing for long runs.
//!
//! Space comes in long runs, so that chunks that are wholly in or wholly out take no memory. The
//! rest takes a bit a sector: at most 32 MiB for each TiB of 4 KiB sectors.

use std::ops::Range;

/// 64-bit words of a chunk.
const CHUNK_WORDS: usize = 1024;
/// Bits of a chunk.
const CHUNK_BITS: u32 = 64 * 1024;
/// Sectors of a chunk.
const CHUNK_SECTORS: u64 = 64 * CHUNK_WORDS as u64;

#[derive(Clone, Default)]
enum Chunk {
    #[default]
    Empty,
    Full,
    /// The bits, and how many are set.
    Mixed(Box<[u64; CHUNK_WORDS]>, u32),
}

/// A set of sectors below a limit.
#[derive(Clone, Default)]
pub(crate) struct SectorSet {
    chunks: Vec<Chunk>,
    limit: u64,
}

impl SectorSet {
    /// The empty set of sectors below `limit`.
    pub(crate) fn new(limit: u64) -> Self {
        let chunks = units::to_usize(limit.div_ceil(CHUNK_SECTORS));
        Self { chunks: vec![Chunk::Empty; chunks], limit }
    }

    /// Sectors are below this.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Adds or removes sectors; returns how many had that state already. Sectors beyond the limit
    /// are left out.
    pub(crate) fn set_range(&mut self, range: Range<u64>, wanted: bool) -> u64 {
        let end = range.end.min(self.limit);
        let mut at = range.start;
        let mut already = 0;
        while at < end {
            let (index, first) = (at / CHUNK_SECTORS, at % CHUNK_SECTORS);
            let length = (CHUNK_SECTORS - first).min(end - at);
            if let Some(chunk) = self.chunks.get_mut(units::to_usize(index)) {
                already += chunk.set_range(first, length, wanted);
            }
            at += length;
        }
        already
    }

    /// How many of the sectors are in it.
    pub(crate) fn count(&self, range: Range<u64>) -> u64 {
        let mut found = 0;
        self.visit_words(range, |word, _, _| found += u64::from(word.count_ones()));
        found
    }

    /// How many sectors are in it.
    pub(crate) fn total(&self) -> u64 {
        let count = |chunk: &Chunk| match chunk {
            Chunk::Empty => 0,
            Chunk::Full => CHUNK_SECTORS,
            Chunk::Mixed(_, set) => u64::from(*set),
        };
        self.chunks.iter().map(count).sum()
    }

    /// Shows the runs of sectors that are in this set and not in the other.
    pub(crate) fn visit_difference(&self, other: &Self, visit: &mut dyn FnMut(Range<u64>)) {
        let mut run = 0..0;
        for (index, (ours, theirs)) in (0_u64..).zip(self.chunks.iter().zip(&other.chunks)) {
            if matches!(ours, Chunk::Empty) || matches!(theirs, Chunk::Full) {
                continue;
            }
            for word in 0..CHUNK_WORDS {
                let mut left = ours.word(word) & !theirs.word(word);
                let base = index * CHUNK_SECTORS + 64 * word as u64;
                while left != 0 {
                    let first = left.trailing_zeros();
                    let length = (left >> first).trailing_ones();
                    left &= !bit_mask(first, length);
                    let start = base + u64::from(first);
                    if start != run.end {
                        if !run.is_empty() {
                            visit(run.clone());
                        }
                        run.start = start;
                    }
                    run.end = start + u64::from(length);
                }
            }
        }
        if !run.is_empty() {
            visit(run);
        }
    }

    /// Shows the words of a range, with bits that are not of it taken out.
    fn visit_words(&self, range: Range<u64>, mut visit: impl FnMut(u64, u64, u32)) {
        let end = range.end.min(self.limit);
        let mut at = range.start;
        while at < end {
            let chunk =
                usize::try_from(at / CHUNK_SECTORS).ok().and_then(|index| self.chunks.get(index));
            let bit = units::narrow::<u32>(at % 64);
            let length = units::narrow::<u32>((end - at).min(64 - u64::from(bit)));
            let index = units::to_usize(at % CHUNK_SECTORS / 64);
            let word = chunk.map_or(0, |chunk| chunk.word(index)) & bit_mask(bit, length);
            visit(word, at, length);
            at += u64::from(length);
        }
    }
}

impl Chunk {
    fn word(&self, index: usize) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Full => u64::MAX,
            Self::Mixed(words, _) => words.get(index).copied().unwrap_or(0),
        }
    }

    fn set_range(&mut self, first: u64, length: u64, wanted: bool) -> u64 {
        match (&*self, wanted) {
            (Self::Empty, false) | (Self::Full, true) => return length,
            (_, _) if length == CHUNK_SECTORS => {
                let set = match self {
                    Self::Empty => 0,
                    Self::Full => CHUNK_SECTORS,
                    Self::Mixed(_, set) => u64::from(*set),
                };
                *self = if wanted { Self::Full } else { Self::Empty };
                return if wanted { set } else { CHUNK_SECTORS - set };
            }
            (Self::Empty, true) => *self = Self::Mixed(Box::new([0; CHUNK_WORDS]), 0),
            (Self::Full, false) => {
                *self = Self::Mixed(Box::new([u64::MAX; CHUNK_WORDS]), CHUNK_BITS);
            }
            (Self::Mixed(..), _) => {}
        }
        let Self::Mixed(words, set) = self else { return 0 };
        let mut already = 0;
        let (mut at, end) = (first, first + length);
        while at < end {
            let bit = units::narrow::<u32>(at % 64);
            let here = units::narrow::<u32>((end - at).min(64 - u64::from(bit)));
            let mask = bit_mask(bit, here);
            if let Some(word) = words.get_mut(units::to_usize(at / 64)) {
                let had = (*word & mask).count_ones();
                if wanted {
                    *word |= mask;
                    *set += here - had;
                    already += had;
                } else {
                    *word &= !mask;
                    *set -= had;
                    already += here - had;
                }
            }
            at += u64::from(here);
        }
        match u64::from(*set) {
            0 => *self = Self::Empty,
            CHUNK_SECTORS => *self = Self::Full,
            _ => {}
        }
        u64::from(already)
    }
}

fn bit_mask(first: u32, length: u32) -> u64 {
    u64::MAX.checked_shr(64 - length).unwrap_or(0).checked_shl(first).unwrap_or(0)
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "numbers below 200,000")]
mod tests {
    use super::SectorSet;

    proptest::proptest! {
        #[test]
        fn sector_set_equals_a_set_of_numbers(
            steps in proptest::collection::vec((0_u64..200_000, 0_u64..150_000, proptest::bool::ANY), 1..12),
            others in proptest::collection::vec((0_u64..200_000, 1_u64..90_000), 0..4),
        ) {
            const LIMIT: u64 = 190_001;
            let mut bits = SectorSet::new(LIMIT);
            let mut plain = vec![false; LIMIT as usize];
            for (start, length, wanted) in steps {
                let range = start..start + length;
                let inside = start.min(LIMIT) as usize..range.end.min(LIMIT) as usize;
                let counted = plain[inside.clone()].iter().filter(|bit| **bit).count();
                assert_eq!(bits.count(range.clone()), counted as u64);
                let same = plain[inside.clone()].iter().filter(|bit| **bit == wanted).count();
                assert_eq!(bits.set_range(range, wanted), same as u64);
                plain[inside].fill(wanted);
            }
            assert_eq!(bits.total(), plain.iter().filter(|bit| **bit).count() as u64);
            let mut other = SectorSet::new(LIMIT);
            for (start, length) in others {
                other.set_range(start..start + length, true);
                plain[start.min(LIMIT) as usize..(start + length).min(LIMIT) as usize].fill(false);
            }
            let mut left = vec![false; LIMIT as usize];
            let mut end = None;
            bits.visit_difference(&other, &mut |run| {
                assert!(!run.is_empty() && end.is_none_or(|end| end < run.start));
                end = Some(run.end);
                left[run.start as usize..run.end as usize].fill(true);
            });
            assert!(left == plain);
        }
    }
}
