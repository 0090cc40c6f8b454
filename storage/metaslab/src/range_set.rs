//! A set of byte ranges: disjoint, joined where they touch.
//!
//! Ranges are keyed by their ends, so that an allocation from the front of a range changes its
//! entry in place.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of byte ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// End to start.
    by_end: BTreeMap<u64, u64>,
    total: u64,
}

impl RangeSet {
    /// None.
    pub const fn new() -> Self {
        Self { by_end: BTreeMap::new(), total: 0 }
    }

    /// One range, or none if it is empty.
    pub fn from_range(range: Range<u64>) -> Self {
        let mut set = Self::new();
        set.insert(range);
        set
    }

    /// Bytes in all.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// How many ranges.
    pub fn len(&self) -> usize {
        self.by_end.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    /// The ranges in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.by_end.iter().map(|(end, start)| *start..*end)
    }

    /// The ranges that end after `from`, in their order.
    pub(crate) fn ranges_after(&self, from: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        self.by_end.range(from + 1..).map(|(end, start)| *start..*end)
    }

    /// Whether any byte of `range` is in the set.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        range.start < range.end
            && self.ranges_after(range.start).next().is_some_and(|next| next.start < range.end)
    }

    /// The range of the set that all of `range` is in.
    pub fn containing(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let found = self.ranges_after(range.start).next()?;
        (found.start <= range.start && range.end <= found.end).then_some(found)
    }

    /// The range that ends just there.
    pub(crate) fn ending_at(&self, end: u64) -> Option<Range<u64>> {
        self.by_end.get(&end).map(|start| *start..end)
    }

    /// The parts of `range` that are in the set.
    pub fn intersection(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let cut = |part: Range<u64>| part.start.max(range.start)..part.end.min(range.end);
        self.ranges_after(range.start).take_while(|part| part.start < range.end).map(cut).collect()
    }

    /// Adds what of `range` is not in the set yet.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // all that it overlaps or touches becomes one with it
        let joined: Vec<(u64, u64)> = self
            .by_end
            .range(range.start..)
            .take_while(|(_, from)| **from <= range.end)
            .map(|(to, from)| (*to, *from))
            .collect();
        for (to, from) in joined {
            self.by_end.remove(&to);
            self.total -= to - from;
            start = start.min(from);
            end = end.max(to);
        }
        let known = self.by_end.insert(end, start);
        assert!(known.is_none(), "ranges that touch are joined");
        self.total += end - start;
    }

    /// Takes out what of `range` is in the set.
    pub fn remove(&mut self, range: &Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let touched: Vec<(u64, u64)> = self
            .by_end
            .range(range.start + 1..)
            .take_while(|(_, from)| **from < range.end)
            .map(|(to, from)| (*to, *from))
            .collect();
        for (to, from) in touched {
            self.by_end.remove(&to);
            self.total -= to - from;
            for (from, to) in [(from, to.min(range.start)), (from.max(range.end), to)] {
                if from < to {
                    self.by_end.insert(to, from);
                    self.total += to - from;
                }
            }
        }
    }

    /// Takes `length` bytes from the front of the range that ends at `end`, which is longer.
    pub(crate) fn trim_front(&mut self, end: u64, length: u64) {
        let start = self.by_end.get_mut(&end).expect("a range of the set");
        *start += length;
        assert!(*start < end, "a range that is used up is taken out");
        self.total -= length;
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(all: I) -> Self {
        let mut set = Self::new();
        for range in all {
            set.insert(range);
        }
        set
    }
}
