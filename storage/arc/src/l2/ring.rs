//! The ring of a cache device: the hand, and the valid range.
//!
//! ```text
//! start │ newest ….│hand  (free)  evict│…. oldest …│ end
//! ```
//!
//! In the first sweep nothing lies before the hand, and `evict` is the start.

use std::ops::Range;

use ondisk::l2arc;
use units::Ashift;

/// The least bytes of a ring: four of the largest requests.
const MIN_SIZE: u64 = 16 << 20;

/// A ring. Addresses are bytes from the drive's start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ring {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Where the next block goes.
    pub(super) hand: u64,
    /// The content from the hand up to here is gone.
    pub(super) evict_end: u64,
    /// The hand has not reached the end yet.
    pub(super) is_first_sweep: bool,
}

impl Ring {
    /// An empty one on a drive of that many bytes.
    pub(super) fn new(size: u64, ashift: Ashift) -> Option<Self> {
        use ondisk::label;
        let start = l2arc::HEADER_OFFSET + header_size(ashift);
        let end = label::usable_size(size).checked_sub(2 * label::SIZE)?;
        let fits = end.checked_sub(start)? >= MIN_SIZE;
        fits.then_some(Self { start, end, hand: start, evict_end: start, is_first_sweep: true })
    }

    /// Bytes of it.
    pub(super) fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Makes space for `bytes` in one piece behind the hand, and evicts `ahead` bytes at once.
    /// Returns the evicted ranges.
    pub(super) fn evict_for(&mut self, bytes: u64, ahead: u64) -> Vec<Range<u64>> {
        let mut gone = Vec::new();
        if self.hand + bytes > self.end {
            gone.push(self.hand..self.end);
            (self.hand, self.evict_end, self.is_first_sweep) = (self.start, self.start, false);
        }
        if !self.is_first_sweep && self.hand + bytes > self.evict_end {
            let to = (self.hand + bytes.max(ahead)).min(self.end);
            gone.push(self.evict_end..to);
            self.evict_end = to;
        }
        assert!(self.hand + bytes <= self.end, "there is space behind the hand");
        assert!(
            self.is_first_sweep || self.hand + bytes <= self.evict_end,
            "what is overwritten was evicted"
        );
        gone
    }

    /// Whether the bytes written from `from` to `to`, maybe around the end, are still valid.
    pub(super) fn contains(&self, from: u64, to: u64) -> bool {
        let within = |at: u64| (self.start..=self.end).contains(&at);
        let order = within(from)
            && within(to)
            && self.distance_behind_hand(to) < self.distance_behind_hand(from);
        order && self.distance_behind_hand(from) <= self.live_bytes()
    }

    /// How far behind the hand an address within the ring is.
    pub(super) fn distance_behind_hand(&self, at: u64) -> u64 {
        if at <= self.hand { self.hand - at } else { self.hand - self.start + (self.end - at) }
    }

    /// Bytes behind the hand that are still there.
    fn live_bytes(&self) -> u64 {
        if self.is_first_sweep {
            self.hand - self.start
        } else if self.evict_end < self.hand {
            self.hand - self.evict_end
        } else {
            self.hand - self.start + (self.end - self.evict_end)
        }
    }
}

/// Bytes of the header of a cache drive: a sector.
pub(super) fn header_size(ashift: Ashift) -> u64 {
    ashift.bytes().max(l2arc::Header::SIZE as u64)
}
