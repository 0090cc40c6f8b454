//! Whether a file is being read in sequence, and how far ahead to go.
//!
//! A sequential reader has several requests in flight, which arrive slightly out of order: a read
//! near the end of the last one counts as the next.

use std::ops::Range;
use units::MinusOrZero as _;

/// Bytes that a piece may come too early or too late.
const REORDER_TOLERANCE: u64 = 2 << 20;
/// Bytes that are fetched ahead at first and at most.
const INITIAL_WINDOW: u64 = 512 << 10;
const MAX_WINDOW: u64 = 8 << 20;

/// Where a reader is and how far ahead to go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readahead {
    expected_offset: u64,
    /// Bytes ahead of the place where the last piece ends; 0 while nothing points to a sequence.
    window: u64,
    /// The offset up to which [`Readahead::next_prefetch`] has returned ranges.
    prefetched_to: u64,
}

impl Readahead {
    /// Records a read as [`Readahead::record_read`] does, and returns the range to prefetch that it
    /// has not returned before: at least half of the read-ahead, so that the prefetcher is not
    /// woken for each read.
    pub(crate) fn next_prefetch(&mut self, start: u64, length: usize) -> Option<Range<u64>> {
        let until = self.record_read(start, length)?;
        let from = self.prefetched_to.max(self.expected_offset);
        if until.minus_or_zero(from) < self.window / 2 {
            return None;
        }
        self.prefetched_to = until;
        Some(from..until)
    }

    /// Records a read up to `end`, and returns the offset up to which to prefetch, if at
    /// all.
    pub(crate) fn record_read(&mut self, start: u64, length: usize) -> Option<u64> {
        // a client may ask for any offset; no file has bytes beyond 2^63
        let end = start.checked_add(units::to_u64(length)).filter(|end| *end < 1 << 63)?;
        let is_next = start + REORDER_TOLERANCE >= self.expected_offset
            && start <= self.expected_offset + REORDER_TOLERANCE
            && self.expected_offset > 0;
        if !is_next {
            *self = Self { expected_offset: end, window: 0, prefetched_to: 0 };
            return None;
        }
        if end > self.expected_offset {
            self.expected_offset = end;
            self.window = (self.window * 2).clamp(INITIAL_WINDOW, MAX_WINDOW);
        }
        Some(self.expected_offset + self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::{INITIAL_WINDOW, MAX_WINDOW, Readahead};

    const READ_SIZE: usize = 128 << 10;

    #[test]
    fn slightly_unordered_reads_are_sequential() {
        let mut ahead = Readahead::default();
        let piece = READ_SIZE as u64;
        assert_eq!(ahead.record_read(0, READ_SIZE), None);
        assert_eq!(ahead.record_read(2 * piece, READ_SIZE), Some(3 * piece + INITIAL_WINDOW));
        assert_eq!(ahead.record_read(piece, READ_SIZE), Some(3 * piece + INITIAL_WINDOW));
        for at in 3..100 {
            ahead.record_read(at * piece, READ_SIZE);
        }
        assert_eq!(ahead.record_read(100 * piece, READ_SIZE), Some(101 * piece + MAX_WINDOW));
    }

    #[test]
    fn prefetch_ranges_never_overlap() {
        let mut ahead = Readahead::default();
        let (piece, mut told) = (READ_SIZE as u64, Vec::new());
        for at in 0..400 {
            if let Some(range) = ahead.next_prefetch(at * piece, READ_SIZE) {
                assert!(
                    range.start >= (at + 1) * piece,
                    "the present read is not prefetched as well"
                );
                told.push(range);
            }
            // the next read is prefetched already
            assert!(at == 0 || told.last().unwrap().end >= (at + 2) * piece);
        }
        assert!(told.windows(2).all(|pair| pair[0].end == pair[1].start), "no gaps: {told:?}");
        assert!(told.len() < 30, "in long stretches: {}", told.len());
        // elsewhere, and back
        assert_eq!(ahead.next_prefetch(1 << 40, READ_SIZE), None);
        assert_eq!(ahead.next_prefetch(0, READ_SIZE), None);
        assert_eq!(
            ahead.next_prefetch(piece, READ_SIZE),
            Some(2 * piece..2 * piece + INITIAL_WINDOW)
        );
    }

    #[test]
    fn random_reads_are_not_sequential() {
        let mut ahead = Readahead::default();
        for at in [0_u64, 1 << 30, 5 << 20, 1 << 40] {
            assert_eq!(ahead.record_read(at, READ_SIZE), None);
        }
    }
}
