//! The free ranges of a metaslab, by place and by size.
//!
//! In an unfragmented metaslab, blocks of equal alignment are allocated one after the other (first
//! fit from a cursor for each alignment). In a fragmented or nearly full one, best fit among a few
//! ranges keeps large ranges whole.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::RangeSet;

/// A free range is in the bucket of the largest power of two that fits it.
const BUCKETS: usize = 64;
/// The ranges examined from a cursor on.
const MAX_CURSOR_SCAN: usize = 32;
/// The ranges of the size's own bucket examined before a larger one is split.
const MAX_BUCKET_SCAN: usize = 32;
/// Below this no range is worth keeping whole for a sequence of blocks.
const FIRST_FIT_MIN_RANGE: u64 = 128 << 10;
/// If less than one part in this many is free, best fit is used.
const BEST_FIT_FRACTION: u64 = 25;

/// The free ranges of a metaslab.
#[derive(Clone, Debug)]
pub(crate) struct FreeSpace {
    ranges: RangeSet,
    /// The ends of the ranges of each size.
    buckets: Vec<BTreeSet<u64>>,
    /// Which buckets hold any, a bit each.
    bucket_mask: u64,
    cursors: [u64; BUCKETS],
    /// A size that does not fit, and neither do larger ones.
    min_failed_size: u64,
    /// Bytes of the metaslab.
    size: u64,
}

impl FreeSpace {
    pub(crate) fn new(free: RangeSet, size: u64) -> Self {
        let mut buckets = vec![BTreeSet::new(); BUCKETS];
        let mut bucket_mask = 0;
        for range in free.iter() {
            let bucket = bucket_of(range.end - range.start);
            buckets[bucket].insert(range.end);
            bucket_mask |= 1 << bucket;
        }
        Self {
            ranges: free,
            buckets,
            bucket_mask,
            cursors: [0; BUCKETS],
            min_failed_size: u64::MAX,
            size,
        }
    }

    /// Bytes free.
    pub(crate) fn total(&self) -> u64 {
        self.ranges.total()
    }

    pub(crate) fn ranges(&self) -> &RangeSet {
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
        self.bucket_mask.checked_ilog2()
    }

    /// The length of the longest range.
    pub(crate) fn largest_range(&self) -> u64 {
        let Some(top) = self.largest_bucket() else { return 0 };
        let lengths =
            self.buckets[top as usize].iter().filter_map(|end| self.length_ending_at(*end));
        lengths.max().unwrap_or(0)
    }

    /// Takes `size` bytes out of one range; gives their start.
    pub(crate) fn allocate(&mut self, size: u64) -> Option<u64> {
        if size >= self.min_failed_size {
            return None;
        }
        let Some(found) = self.find_range(size) else {
            self.min_failed_size = size;
            return None;
        };
        assert!(fits(&found, size), "a block is allocated from a range that holds it");
        self.allocate_front(found.clone(), size);
        debug_assert_eq!(
            self.buckets.iter().map(BTreeSet::len).sum::<usize>(),
            self.ranges.len(),
            "each free range is in one bucket"
        );
        self.cursors[cursor_index(size)] = found.start + size;
        Some(found.start)
    }

    fn find_range(&self, size: u64) -> Option<Range<u64>> {
        let own = bucket_of(size);
        let above = if own + 1 < BUCKETS { self.bucket_mask >> (own + 1) << (own + 1) } else { 0 };
        let scarce = self.total() < self.size / BEST_FIT_FRACTION;
        if !scarce && self.largest_bucket()? >= FIRST_FIT_MIN_RANGE.ilog2() {
            let next =
                self.ranges.ranges_after(self.cursors[cursor_index(size)]).take(MAX_CURSOR_SCAN);
            if let Some(found) = first_fit(next, size) {
                return Some(found);
            }
        }
        let few = self.ranges_in_bucket(own).take(MAX_BUCKET_SCAN);
        if let Some(found) = few.filter(|range| fits(range, size)).min_by_key(range_length) {
            return Some(found);
        }
        if above != 0 {
            return self.ranges_in_bucket(above.trailing_zeros() as usize).next();
        }
        first_fit(self.ranges_in_bucket(own), size)
    }

    fn ranges_in_bucket(&self, bucket: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        self.buckets[bucket].iter().filter_map(|end| self.ranges.ending_at(*end))
    }

    fn length_ending_at(&self, end: u64) -> Option<u64> {
        self.ranges.ending_at(end).map(|range| range.end - range.start)
    }

    fn allocate_front(&mut self, range: Range<u64>, size: u64) {
        let (before, left) = (range_length(&range), range_length(&range) - size);
        if left == 0 {
            self.unindex_range(&range);
            self.ranges.remove(&range);
            return;
        }
        self.ranges.trim_front(range.end, size);
        if bucket_of(before) != bucket_of(left) {
            self.unindex_range(&range);
            self.index_range(&(range.start + size..range.end));
        }
    }

    /// Takes out just `range`; whether all of it was free.
    pub(crate) fn remove(&mut self, range: &Range<u64>) -> bool {
        let Some(around) = self.ranges.containing(range) else { return false };
        self.unindex_range(&around);
        self.ranges.remove(range);
        for part in [around.start..range.start, range.end..around.end] {
            if part.start < part.end {
                self.index_range(&part);
            }
        }
        true
    }

    /// Gives `range` back; whether none of it was free.
    pub(crate) fn insert(&mut self, range: Range<u64>) -> bool {
        if self.ranges.overlaps(&range) {
            return false;
        }
        let before = self.ranges.ending_at(range.start);
        let after =
            self.ranges.ranges_after(range.end).next().filter(|next| next.start == range.end);
        for neighbour in [&before, &after].into_iter().flatten() {
            self.unindex_range(neighbour);
        }
        let start = before.map_or(range.start, |before| before.start);
        let end = after.map_or(range.end, |after| after.end);
        let (total, length) = (self.total(), range_length(&range));
        self.ranges.insert(range);
        assert_eq!(self.total(), total + length, "no byte becomes free twice");
        self.index_range(&(start..end));
        self.min_failed_size = u64::MAX;
        true
    }

    fn index_range(&mut self, range: &Range<u64>) {
        let bucket = bucket_of(range_length(range));
        let is_new = self.buckets[bucket].insert(range.end);
        assert!(is_new, "a free range is indexed once");
        self.bucket_mask |= 1 << bucket;
    }

    fn unindex_range(&mut self, range: &Range<u64>) {
        let bucket = bucket_of(range_length(range));
        let was = self.buckets[bucket].remove(&range.end);
        assert!(was, "a free range is in the bucket of its size");
        if self.buckets[bucket].is_empty() {
            self.bucket_mask &= !(1 << bucket);
        }
    }
}

fn first_fit(ranges: impl Iterator<Item = Range<u64>>, size: u64) -> Option<Range<u64>> {
    let mut ranges = ranges;
    ranges.find(|range| fits(range, size))
}

fn fits(range: &Range<u64>, size: u64) -> bool {
    range_length(range) >= size
}

fn range_length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

fn bucket_of(length: u64) -> usize {
    length.checked_ilog2().unwrap_or(0) as usize
}

/// The cursor of a size: blocks of like alignment are laid one after the other.
fn cursor_index(size: u64) -> usize {
    (size.trailing_zeros() as usize).min(BUCKETS - 1)
}
