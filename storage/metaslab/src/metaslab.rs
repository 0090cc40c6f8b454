//! One metaslab: what of it is free, what changed in which txg, and what waits.
//!
//! ```text
//!            allocate                    free              its txg and two more are on disk
//!   free ───────────────▶ allocated ───────────▶ waiting ───────────────────────▶ free
//!     ▲                        │
//!     └───── unallocate ───────┘ (the write failed, and nothing points there)
//! ```

use std::ops::Range;

use units::{MinusOrZero, Txg};

use crate::RangeSet;
use crate::free_space::FreeSpace;

/// Freed space is used again when this many txgs more are on disk: until then an import may go
/// back to them.
const DEFERRED_TXGS: u64 = 2;

/// One metaslab.
#[derive(Debug)]
pub(crate) struct Metaslab {
    /// Its bytes in the vdev.
    pub(crate) extent: Range<u64>,
    /// The allocatable space; `None` before the map was read.
    free: Option<Box<FreeSpace>>,
    /// Freed space that may not be allocated yet.
    defer_ranges: RangeSet,
    /// The same by the txg that freed it, oldest first.
    defer_by_txg: Vec<(Txg, Vec<Range<u64>>)>,
    /// Free ranges that are lent: they are not allocated until they are returned.
    lent: RangeSet,
    /// Changes that were not drained yet, by txg.
    pending: Vec<(Txg, PendingChanges)>,
    /// Bytes allocated.
    pub(crate) allocated: u64,
    /// The txg of the newest range that was freed and was dropped since there was no map yet.
    dropped_txg: Txg,
    /// log2 of the longest free range, known before the map was read.
    pub(crate) largest_bucket_hint: Option<u32>,
    /// Its map could not be read: nothing is allocated here.
    read_backoff: Option<ReadBackoff>,
}

/// An unreadable map is read again after a txg, then after two, and so on up to this. A
/// lost drive must not cost a read in each txg; a transient error may be over at once.
const MAX_BACKOFF_TXGS: u64 = 64;

/// How long a map that could not be read is left alone.
#[derive(Clone, Copy, Debug)]
struct ReadBackoff {
    /// From which txg on it is tried again.
    retry_txg: Txg,
    /// How many txgs were waited for that.
    delay: u64,
}

/// The changes of a metaslab that are in no map yet.
#[derive(Debug, Default)]
struct PendingChanges {
    allocated: Vec<Range<u64>>,
    freed: Vec<Range<u64>>,
}

/// The ranges of one metaslab that one txg changed.
#[derive(Debug, Default)]
pub(crate) struct ChangedRanges {
    pub(crate) allocated: Vec<Range<u64>>,
    pub(crate) freed: Vec<Range<u64>>,
}

impl Metaslab {
    pub(crate) fn new(extent: Range<u64>) -> Self {
        assert!(extent.start <= extent.end, "a metaslab ends behind its start: {extent:?}");
        Self {
            extent,
            free: None,
            defer_ranges: RangeSet::new(),
            defer_by_txg: Vec::new(),
            lent: RangeSet::new(),
            pending: Vec::new(),
            allocated: 0,
            dropped_txg: Txg::ZERO,
            largest_bucket_hint: None,
            read_backoff: None,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.extent.end - self.extent.start
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.free.is_some()
    }

    /// Bytes freed that may not be used yet.
    pub(crate) fn deferred_bytes(&self) -> u64 {
        self.defer_ranges.total()
    }

    /// Bytes that may be allocated, as far as is known.
    pub(crate) fn available(&self) -> u64 {
        match &self.free {
            Some(free) => free.total(),
            None => self.size().minus_or_zero(self.allocated + self.deferred_bytes()),
        }
    }

    /// Its map could not be read.
    pub(crate) fn defer_read(&mut self, txg: Txg) {
        let waited =
            self.read_backoff.map_or(1, |before| (before.delay * 2).clamp(1, MAX_BACKOFF_TXGS));
        let again = Txg::new(txg.get() + waited);
        self.read_backoff = Some(ReadBackoff { retry_txg: again, delay: waited });
    }

    /// Its map may be read again at once.
    pub(crate) fn reset_read_backoff(&mut self) {
        if let Some(unreadable) = &mut self.read_backoff {
            *unreadable = ReadBackoff { retry_txg: Txg::ZERO, delay: 0 };
        }
    }

    /// Whether its map is still to be read, and may be in this txg.
    pub(crate) fn can_read_map(&self, txg: Txg) -> bool {
        !self.is_loaded() && self.read_backoff.is_none_or(|unreadable| unreadable.retry_txg <= txg)
    }

    /// Free bytes that cannot be allocated because the map is unreadable.
    pub(crate) fn unreadable_bytes(&self) -> u64 {
        if self.read_backoff.is_some() { self.available() } else { 0 }
    }

    /// log2 of the longest free range, as far as is known.
    pub(crate) fn largest_bucket(&self) -> Option<u32> {
        match &self.free {
            Some(free) => free.largest_bucket(),
            None => self
                .available()
                .checked_ilog2()
                .map(|all| all.min(self.largest_bucket_hint.unwrap_or(all))),
        }
    }

    /// The length of the longest range that may be allocated, if the map was read.
    pub(crate) fn largest_range(&self) -> u64 {
        self.free.as_ref().map_or(0, |free| free.largest_range())
    }

    /// The free space after all drained changes are written, as the map will have it.
    pub(crate) fn free_as_written(&self) -> Option<RangeSet> {
        let free = self.free.as_ref()?;
        let mut all = free.ranges().clone();
        for range in self.defer_ranges.iter().chain(self.lent.iter()) {
            all.insert(range);
        }
        // undo the changes that were not drained yet, frees before allocations: a range that was
        // allocated and freed was free before
        for range in self.pending.iter().flat_map(|(_, pending)| &pending.freed) {
            all.remove(range);
        }
        for range in self.pending.iter().flat_map(|(_, pending)| &pending.allocated) {
            all.insert(range.clone());
        }
        let pending = |of: fn(&PendingChanges) -> &Vec<Range<u64>>| -> u64 {
            self.pending.iter().map(|(_, pending)| total_length(of(pending))).sum()
        };
        let (allocated, freed) = (pending(|it| &it.allocated), pending(|it| &it.freed));
        assert_eq!(
            all.total() + freed,
            self.size() - self.allocated + allocated,
            "a map has as free what is not allocated, but for changes of later txgs"
        );
        Some(all)
    }

    /// Adds the parts of a range in this metaslab that cannot be allocated, in order.
    pub(crate) fn push_allocated(&self, range: Range<u64>, into: &mut Vec<Range<u64>>) {
        let free = self.free.as_ref().map(|free| free.ranges().intersection(&range));
        let mut from = range.start;
        for free in free.into_iter().flatten() {
            if from < free.start {
                into.push(from..free.start);
            }
            from = free.end;
        }
        if from < range.end {
            into.push(from..range.end);
        }
    }

    /// Adds the parts of a range in this metaslab that blocks have; `false` where that is not known, as the
    /// map is not loaded.
    pub(crate) fn add_in_use(&self, range: Range<u64>, into: &mut RangeSet) -> bool {
        let Some(free) = &self.free else { return false };
        into.insert(range.clone());
        for unused in [free.ranges(), &self.defer_ranges, &self.lent] {
            for part in unused.intersection(&range) {
                into.remove(&part);
            }
        }
        true
    }

    /// How many ranges no block has, by log2 of their bytes.
    pub(crate) fn histogram(&self) -> Option<[u64; 64]> {
        let mut counts = self.free.as_ref()?.histogram();
        for range in self.defer_ranges.iter().chain(self.lent.iter()) {
            counts[(range.end - range.start).ilog2() as usize] += 1;
        }
        Some(counts)
    }

    /// Loads the free space of a map as of `as_of`; `false` if that is too old.
    pub(crate) fn load(&mut self, mut free: RangeSet, as_of: Txg) -> bool {
        if self.is_loaded() {
            return true;
        }
        // Rule W1: a map is not used if space that was freed after it was released meanwhile. The map has that space
        // as allocated still, and nothing would ever make it free.
        if self.dropped_txg > as_of {
            return false;
        }
        assert!(self.lent.is_empty(), "nothing is lent of space that is not known");
        free.remove(&(0..self.extent.start));
        free.remove(&(self.extent.end..u64::MAX));
        for range in self.defer_ranges.iter() {
            free.remove(&range);
        }
        self.allocated = self.size() - free.total() - self.deferred_bytes();
        self.free = Some(Box::new(FreeSpace::new(free, self.size())));
        self.read_backoff = None;
        true
    }

    /// Whether this txg changed nothing here yet.
    pub(crate) fn is_clean(&self, txg: Txg) -> bool {
        self.pending.iter().all(|(of, _)| *of != txg)
    }

    pub(crate) fn allocate(&mut self, size: u64, txg: Txg) -> Option<u64> {
        let start = self.free.as_mut()?.allocate(size)?;
        assert!(
            self.extent.start <= start && start + size <= self.extent.end,
            "a block is allocated inside its metaslab"
        );
        let range = start..start + size;
        assert!(
            !self.defer_ranges.overlaps(&range) && !self.lent.overlaps(&range),
            "freed and lent space is not allocated"
        );
        self.allocated += size;
        append_range(&mut self.pending_mut(txg).allocated, range);
        Some(start)
    }

    /// Lends the first free range that ends after `from`, cut to `most` bytes.
    pub(crate) fn lend_free(&mut self, from: u64, most: u64) -> Option<Range<u64>> {
        let free = self.free.as_mut()?;
        let found = free.ranges().ranges_after(from).next()?;
        let start = found.start.max(from);
        let range = start..start + most.min(found.end - start);
        let extent = &self.extent;
        assert!(
            extent.start <= range.start && range.end <= extent.end,
            "{range:?} is lent of the metaslab at {extent:?}"
        );
        free.remove(&range);
        self.lent.insert(range.clone());
        self.assert_totals();
        Some(range)
    }

    /// Has a lent range be allocated again.
    pub(crate) fn return_lent(&mut self, range: &Range<u64>) {
        assert!(self.lent.containing(range).is_some(), "lent space is returned");
        self.lent.remove(range);
        if let Some(free) = &mut self.free {
            assert!(free.insert(range.clone()), "what was lent was not free");
        }
        self.assert_totals();
    }

    /// Allocates just that range; whether all of it was free.
    pub(crate) fn claim(&mut self, range: Range<u64>, txg: Txg) -> bool {
        if !self.free.as_mut().is_some_and(|free| free.remove(&range)) {
            return false;
        }
        let extent = &self.extent;
        assert!(
            extent.start <= range.start && range.end <= extent.end,
            "{range:?} is claimed in the metaslab at {extent:?}"
        );
        self.allocated += range.end - range.start;
        self.assert_totals();
        append_range(&mut self.pending_mut(txg).allocated, range);
        true
    }

    /// Whether all of the range is allocated, as far as is known.
    pub(crate) fn is_allocated(&self, range: &Range<u64>) -> bool {
        let free = self.free.as_ref().is_some_and(|free| free.ranges().overlaps(range));
        // the figure of a map that was not read yet is only claimed by its header on disk
        let known = range.end - range.start <= self.allocated;
        known && !free && !self.defer_ranges.overlaps(range) && !self.lent.overlaps(range)
    }

    /// Frees an allocated range.
    pub(crate) fn free(&mut self, range: Range<u64>, txg: Txg) {
        assert!(self.is_allocated(&range), "only what is allocated is freed");
        // Rule W1: freed space goes to the deferred ranges, never to the free ones. The last synced txg refers to
        // it until this txg is synced, and an import may rewind to two txgs before.
        self.allocated -= range.end - range.start;
        self.defer_ranges.insert(range.clone());
        self.assert_totals();
        let at = self.defer_by_txg.partition_point(|(of, _)| *of < txg);
        if self.defer_by_txg.get(at).is_none_or(|(of, _)| *of != txg) {
            self.defer_by_txg.insert(at, (txg, Vec::new()));
        }
        append_range(&mut self.defer_by_txg[at].1, range.clone());
        append_range(&mut self.pending_mut(txg).freed, range);
    }

    /// Undoes an allocation of `txg` that no pointer refers to. Returns `false` if it was drained
    /// already: then it can only be freed.
    pub(crate) fn unallocate(&mut self, range: Range<u64>, txg: Txg) -> bool {
        let here = |all: &[Range<u64>]| {
            all.iter().rev().any(|one| one.start <= range.start && range.end <= one.end)
        };
        let mut pending = self.pending.iter_mut();
        let Some((_, pending)) = pending.find(|(of, _)| *of == txg) else { return false };
        let Some(free) = &mut self.free else { return false };
        if !here(&pending.allocated) || !free.insert(range.clone()) {
            return false;
        }
        self.allocated -= range.end - range.start;
        // it may be allocated again before the txg is taken: so it is undone here and now
        let mut left: RangeSet = std::mem::take(&mut pending.allocated).into_iter().collect();
        left.remove(&range);
        pending.allocated = left.iter().collect();
        self.assert_totals();
        true
    }

    fn pending_mut(&mut self, txg: Txg) -> &mut PendingChanges {
        let at = self.pending.iter().position(|(of, _)| *of == txg);
        let at = at.unwrap_or_else(|| {
            self.pending.push((txg, PendingChanges::default()));
            self.pending.len() - 1
        });
        &mut self.pending[at].1
    }

    /// Drains the changes of a txg since the last call. A range that was allocated and freed in
    /// between is left out.
    pub(crate) fn drain_changes(&mut self, txg: Txg) -> Option<ChangedRanges> {
        self.assert_totals();
        let at = self.pending.iter().position(|(of, _)| *of == txg)?;
        let (_, pending) = self.pending.swap_remove(at);
        let sums = [total_length(&pending.allocated), total_length(&pending.freed)];
        let mut allocated: RangeSet = pending.allocated.into_iter().collect();
        let mut freed: RangeSet = pending.freed.into_iter().collect();
        assert_eq!(allocated.total(), sums[0], "a txg allocates no byte twice");
        assert_eq!(freed.total(), sums[1], "a txg frees no byte twice");
        let brief: Vec<_> = freed.iter().flat_map(|range| allocated.intersection(&range)).collect();
        for range in brief {
            allocated.remove(&range);
            freed.remove(&range);
        }
        let changed =
            ChangedRanges { allocated: allocated.iter().collect(), freed: freed.iter().collect() };
        (!changed.allocated.is_empty() || !changed.freed.is_empty()).then_some(changed)
    }

    /// Asserts that the sums of a loaded metaslab agree with its ranges: every byte is in one of them.
    fn assert_totals(&self) {
        if let Some(free) = &self.free {
            let unused = free.total() + self.deferred_bytes() + self.lent.total();
            assert_eq!(
                self.allocated + unused,
                self.size(),
                "allocated, free, deferred and lent bytes are the metaslab"
            );
        }
    }

    /// Makes usable what waited long enough, now that `txg` is on disk, but for what was freed after
    /// `kept`. How many bytes, and how many of them wait for `kept` alone.
    pub(crate) fn release_deferred(&mut self, txg: Txg, kept: Option<Txg>) -> (u64, u64) {
        let old = |of: Txg| of.get() + DEFERRED_TXGS <= txg.get();
        let ripe = |of: Txg| old(of) && kept.is_none_or(|kept| of <= kept);
        let count = self.defer_by_txg.partition_point(|(of, _)| ripe(*of));
        let held = self.defer_by_txg[count..].iter().take_while(|(of, _)| old(*of));
        let held = held.flat_map(|(_, ranges)| ranges).map(|range| range.end - range.start).sum();
        // Rule W1: the oldest txg an import can rewind to is two before the synced one. Only space that was free in
        // it as well is released.
        let before = self.defer_ranges.total();
        let mut bytes = 0;
        for (of, ranges) in self.defer_by_txg.drain(..count) {
            for range in ranges {
                bytes += range.end - range.start;
                self.defer_ranges.remove(&range);
                match &mut self.free {
                    Some(free) => assert!(free.insert(range), "what waited was not free"),
                    None => self.dropped_txg = of,
                }
            }
        }
        assert_eq!(
            self.defer_ranges.total() + bytes,
            before,
            "each deferred byte is released once"
        );
        let oldest = self.defer_by_txg.first();
        assert!(oldest.is_none_or(|(of, _)| !ripe(*of)), "deferred space is sorted by txg");
        self.assert_totals();
        (bytes, held)
    }

    /// Whether something waits here.
    pub(crate) fn has_deferred(&self) -> bool {
        !self.defer_by_txg.is_empty()
    }
}

fn total_length(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Appends a range; blocks that were laid one after the other become one.
fn append_range(all: &mut Vec<Range<u64>>, range: Range<u64>) {
    match all.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => all.push(range),
    }
}
