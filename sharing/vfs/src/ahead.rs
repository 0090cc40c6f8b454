//! Whether a file is being read in sequence, and how far ahead to go.
//!
//! Who reads a file from its start to its end asks for one piece after another, but several at a
//! time, so that they come in a slightly different order: what is near the place where the last
//! piece ended counts as the next.

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
}

impl Ahead {
    /// Takes note that a piece up to `end` is read, and gives up to where to fetch ahead, if at
    /// all.
    pub(crate) fn note(&mut self, start: u64, length: usize) -> Option<u64> {
        let end = start.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        let is_next = start.saturating_add(NEAR) >= self.expected
            && start <= self.expected.saturating_add(NEAR)
            && self.expected > 0;
        if !is_next {
            *self = Self { expected: end, window: 0 };
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
    fn jumps_are_no_sequence() {
        let mut ahead = Ahead::default();
        for at in [0_u64, 1 << 30, 5 << 20, 1 << 40] {
            assert_eq!(ahead.note(at, PIECE), None);
        }
    }
}
