//! Whether a file is being read in sequence, and how far ahead to go.
//!
//! Who reads a file from its start to its end asks for one piece after another, but several at a
//! time, so that they come in a slightly different order: what is near the place where the last
//! piece ended counts as the next.

use std::ops::Range;

/// Bytes that a piece may come too early or too late.
const NEAR: u64 = 2 << 20;
/// Bytes that are fetched ahead at first and at most.
const FIRST: u64 = 512 << 10;
const MOST: u64 = 8 << 20;

/// Where a reader is and how far ahead to go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    expected: u64,
    /// Bytes ahead of the place where the last piece ends; 0 while nothing points to a sequence.
    window: u64,
    /// Up to where [`Ahead::beyond`] has told what to fetch.
    told: u64,
}

impl Ahead {
    /// Takes note of a piece as [`Ahead::note`] does, and gives what is to be fetched that was not told
    /// before: half of what lies ahead at least, so that who fetches is not woken for each piece.
    pub(crate) fn beyond(&mut self, start: u64, length: usize) -> Option<Range<u64>> {
        let until = self.note(start, length)?;
        let from = self.told.max(self.expected);
        if until.saturating_sub(from) < self.window / 2 {
            return None;
        }
        self.told = until;
        Some(from..until)
    }

    /// Takes note that a piece up to `end` is read, and gives up to where to fetch ahead, if at
    /// all.
    pub(crate) fn note(&mut self, start: u64, length: usize) -> Option<u64> {
        let end = start.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        let is_next = start.saturating_add(NEAR) >= self.expected
            && start <= self.expected.saturating_add(NEAR)
            && self.expected > 0;
        if !is_next {
            *self = Self { expected: end, window: 0, told: 0 };
            return None;
        }
        if end > self.expected {
            self.expected = end;
            self.window = self.window.saturating_mul(2).clamp(FIRST, MOST);
        }
        Some(self.expected.saturating_add(self.window))
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, FIRST, MOST};

    const PIECE: usize = 128 << 10;

    #[test]
    fn a_sequence_is_seen_even_a_little_out_of_order() {
        let mut ahead = Ahead::default();
        let piece = PIECE as u64;
        assert_eq!(ahead.note(0, PIECE), None);
        assert_eq!(ahead.note(2 * piece, PIECE), Some(3 * piece + FIRST));
        assert_eq!(ahead.note(piece, PIECE), Some(3 * piece + FIRST));
        for at in 3..100 {
            ahead.note(at * piece, PIECE);
        }
        assert_eq!(ahead.note(100 * piece, PIECE), Some(101 * piece + MOST));
    }

    #[test]
    fn what_lies_ahead_is_told_once() {
        let mut ahead = Ahead::default();
        let (piece, mut told) = (PIECE as u64, Vec::new());
        for at in 0..400 {
            if let Some(range) = ahead.beyond(at * piece, PIECE) {
                assert!(range.start >= (at + 1) * piece, "what is read now is not fetched as well");
                told.push(range);
            }
            // what is to be read next has been told
            assert!(at == 0 || told.last().unwrap().end >= (at + 2) * piece);
        }
        assert!(told.windows(2).all(|pair| pair[0].end == pair[1].start), "no gaps: {told:?}");
        assert!(told.len() < 30, "in long stretches: {}", told.len());
        // elsewhere, and back
        assert_eq!(ahead.beyond(1 << 40, PIECE), None);
        assert_eq!(ahead.beyond(0, PIECE), None);
        assert_eq!(ahead.beyond(piece, PIECE), Some(2 * piece..2 * piece + FIRST));
    }

    #[test]
    fn jumps_are_no_sequence() {
        let mut ahead = Ahead::default();
        for at in [0_u64, 1 << 30, 5 << 20, 1 << 40] {
            assert_eq!(ahead.note(at, PIECE), None);
        }
    }
}
