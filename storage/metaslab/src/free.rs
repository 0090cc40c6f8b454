//! The free ranges of a metaslab, by place and by size.
//!
//! While there is room, blocks of like alignment are laid one after the other (first fit from a
//! cursor for each alignment); once the metaslab is fragmented or nearly full, into the range that
//! fits best among a few, so that the large ones stay whole.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::Ranges;

/// A range of free space is in the bucket of the power of two that it has room for.
const BUCKETS: usize = 64;
/// So many ranges are looked at from a cursor on.
const MOST_FROM_CURSOR: usize = 32;
/// So many ranges of the size's own bucket are looked at before a larger one is broken.
const MOST_OF_BUCKET: usize = 32;
/// Below this there is no range worth keeping whole for a sequence of blocks.
const ROOMY: u64 = 128 << 10;
/// Below one part in so many, what is free is given by best fit.
const SCARCE: u64 = 25;

/// The free ranges of a metaslab.
#[derive(Clone, Debug)]
pub(crate) struct Free {
    ranges: Ranges,
    /// The ends of the ranges of each size.
    buckets: Vec<BTreeSet<u64>>,
    /// Which buckets hold any, a bit each.
    filled: u64,
    cursors: [u64; BUCKETS],
    /// A size for which there was no room, and there is none for larger ones either.
    too_large: u64,
    /// Bytes of the metaslab.
    size: u64,
}

impl Free {
    pub(crate) fn new(free: Ranges, size: u64) -> Self {
        let mut buckets = vec![BTreeSet::new(); BUCKETS];
        let mut filled = 0;
        for range in free.iter() {
            let bucket = bucket(range.end - range.start);
            buckets[bucket].insert(range.end);
            filled |= 1 << bucket;
        }
        Self { ranges: free, buckets, filled, cursors: [0; BUCKETS], too_large: u64::MAX, size }
    }

    /// Bytes free.
    pub(crate) fn total(&self) -> u64 {
        self.ranges.total()
    }

    pub(crate) fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// How many ranges there are, by log2 of their bytes.
    pub(crate) fn histogram(&self) -> [u64; BUCKETS] {
        let mut counts = [0; BUCKETS];
        for (count, bucket) in counts.iter_mut().zip(&self.buckets) {
            *count = bucket.len() as u64;
        }
        counts
    }

    /// log2 of the longest range; `None` if there is none.
    pub(crate) fn largest_bucket(&self) -> Option<u32> {
        self.filled.checked_ilog2()
    }

    /// The length of the longest range.
    pub(crate) fn largest(&self) -> u64 {
        let Some(top) = self.largest_bucket() else { return 0 };
        let lengths = self.buckets[top as usize].iter().filter_map(|end| self.length(*end));
        lengths.max().unwrap_or(0)
    }

    /// Takes `size` bytes out of one range; gives their start.
    pub(crate) fn allocate(&mut self, size: u64) -> Option<u64> {
        if size >= self.too_large {
            return None;
        }
        let Some(found) = self.find(size) else {
            self.too_large = size;
            return None;
        };
        self.take_front(found.clone(), size);
        self.cursors[cursor(size)] = found.start + size;
        Some(found.start)
    }

    fn find(&self, size: u64) -> Option<Range<u64>> {
        let own = bucket(size);
        let above = if own + 1 < BUCKETS { self.filled >> (own + 1) << (own + 1) } else { 0 };
        let scarce = self.total() < self.size / SCARCE;
        if !scarce && self.largest_bucket()? >= ROOMY.ilog2() {
            let next = self.ranges.after(self.cursors[cursor(size)]).take(MOST_FROM_CURSOR);
            if let Some(found) = first_that_holds(next, size) {
                return Some(found);
            }
        }
        let few = self.of_bucket(own).take(MOST_OF_BUCKET);
        if let Some(found) = few.filter(|range| holds(range, size)).min_by_key(length) {
            return Some(found);
        }
        if above != 0 {
            return self.of_bucket(above.trailing_zeros() as usize).next();
        }
        first_that_holds(self.of_bucket(own), size)
    }

    fn of_bucket(&self, bucket: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        self.buckets[bucket].iter().filter_map(|end| self.ranges.ending_at(*end))
    }

    fn length(&self, end: u64) -> Option<u64> {
        self.ranges.ending_at(end).map(|range| range.end - range.start)
    }

    fn take_front(&mut self, range: Range<u64>, size: u64) {
        let (before, left) = (length(&range), length(&range) - size);
        if left == 0 {
            self.leave(&range);
            self.ranges.cut(&range);
            return;
        }
        self.ranges.shorten(range.end, size);
        if bucket(before) != bucket(left) {
            self.leave(&range);
            self.enter(&(range.start + size..range.end));
        }
    }

    /// Takes out just `range`; whether all of it was free.
    pub(crate) fn take(&mut self, range: &Range<u64>) -> bool {
        let Some(around) = self.ranges.around(range) else { return false };
        self.leave(&around);
        self.ranges.cut(range);
        for part in [around.start..range.start, range.end..around.end] {
            if part.start < part.end {
                self.enter(&part);
            }
        }
        true
    }

    /// Gives `range` back; whether none of it was free.
    pub(crate) fn give(&mut self, range: Range<u64>) -> bool {
        if self.ranges.touches(&range) {
            return false;
        }
        let before = self.ranges.ending_at(range.start);
        let after = self.ranges.after(range.end).next().filter(|next| next.start == range.end);
        for neighbour in [&before, &after].into_iter().flatten() {
            self.leave(neighbour);
        }
        let start = before.map_or(range.start, |before| before.start);
        let end = after.map_or(range.end, |after| after.end);
        self.ranges.put(range);
        self.enter(&(start..end));
        self.too_large = u64::MAX;
        true
    }

    fn enter(&mut self, range: &Range<u64>) {
        let bucket = bucket(length(range));
        self.buckets[bucket].insert(range.end);
        self.filled |= 1 << bucket;
    }

    fn leave(&mut self, range: &Range<u64>) {
        let bucket = bucket(length(range));
        let was = self.buckets[bucket].remove(&range.end);
        assert!(was, "a free range is in the bucket of its size");
        if self.buckets[bucket].is_empty() {
            self.filled &= !(1 << bucket);
        }
    }
}

fn first_that_holds(ranges: impl Iterator<Item = Range<u64>>, size: u64) -> Option<Range<u64>> {
    let mut ranges = ranges;
    ranges.find(|range| holds(range, size))
}

fn holds(range: &Range<u64>, size: u64) -> bool {
    length(range) >= size
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

fn bucket(length: u64) -> usize {
    length.checked_ilog2().unwrap_or(0) as usize
}

/// The cursor of a size: blocks of like alignment are laid one after the other.
fn cursor(size: u64) -> usize {
    (size.trailing_zeros() as usize).min(BUCKETS - 1)
}
