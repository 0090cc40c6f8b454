//! One metaslab: what of it is free, what changed in which txg, and what waits.
//!
//! ```text
//!            allocate                    free              its txg and two more are on disk
//!   free ───────────────▶ allocated ───────────▶ waiting ───────────────────────▶ free
//!     ▲                        │
//!     └───── unallocate ───────┘ (the write failed, and nothing points there)
//! ```

use std::ops::Range;

use units::Txg;

use crate::Ranges;
use crate::free::Free;

/// Freed space is used again when this many txgs more are on disk: until then an import may go
/// back to them.
const DEFERRED_TXGS: u64 = 2;

/// One metaslab.
#[derive(Debug)]
pub(crate) struct Slab {
    /// Its bytes in the vdev.
    pub(crate) extent: Range<u64>,
    /// What is free and may be allocated; `None` before the map was read.
    free: Option<Box<Free>>,
    /// What was freed and may not be used yet.
    waiting: Ranges,
    /// The same by the txg that freed it, oldest first.
    deferred: Vec<(Txg, Vec<Range<u64>>)>,
    /// What was not yet given to be written, by txg.
    pending: Vec<(Txg, Pending)>,
    /// Bytes allocated.
    pub(crate) allocated: u64,
    /// The txg of the newest range that was freed and was dropped since there was no map yet.
    dropped: Txg,
    /// log2 of the longest range, as was said of it before the map was read.
    pub(crate) hint: Option<u32>,
    /// Its map could not be read: nothing is allocated here.
    unreadable: Option<Unreadable>,
}

/// A map that could not be read is read again after a txg, then after two, and so on up to this: a
/// drive that is gone for good must not cost a read in each, one that hiccuped may be whole at once.
const MOST_WAITED: u64 = 64;

/// How long a map that could not be read is left alone.
#[derive(Clone, Copy, Debug)]
struct Unreadable {
    /// From which txg on it is tried again.
    again: Txg,
    /// How many txgs were waited for that.
    waited: u64,
}

/// What happened in a metaslab and is in no map yet.
#[derive(Debug, Default)]
struct Pending {
    allocated: Vec<Range<u64>>,
    freed: Vec<Range<u64>>,
}

/// The ranges of one metaslab that one txg changed.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub(crate) allocated: Vec<Range<u64>>,
    pub(crate) freed: Vec<Range<u64>>,
}

impl Slab {
    pub(crate) fn new(extent: Range<u64>) -> Self {
        Self {
            extent,
            free: None,
            waiting: Ranges::new(),
            deferred: Vec::new(),
            pending: Vec::new(),
            allocated: 0,
            dropped: Txg::ZERO,
            hint: None,
            unreadable: None,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.extent.end - self.extent.start
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.free.is_some()
    }

    /// Bytes freed that may not be used yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.total()
    }

    /// Bytes that may be allocated, as far as is known.
    pub(crate) fn available(&self) -> u64 {
        match &self.free {
            Some(free) => free.total(),
            None => self.size().saturating_sub(self.allocated).saturating_sub(self.waiting()),
        }
    }

    /// Its map could not be read.
    pub(crate) fn leave_alone(&mut self, txg: Txg) {
        let waited = self.unreadable.map_or(1, |before| (before.waited * 2).clamp(1, MOST_WAITED));
        let again = Txg::new(txg.get().saturating_add(waited));
        self.unreadable = Some(Unreadable { again, waited });
    }

    /// Its map may be read again at once.
    pub(crate) fn try_again(&mut self) {
        if let Some(unreadable) = &mut self.unreadable {
            *unreadable = Unreadable { again: Txg::ZERO, waited: 0 };
        }
    }

    /// Whether its map is still to be read, and may be in this txg.
    pub(crate) fn may_be_read(&self, txg: Txg) -> bool {
        !self.is_loaded() && self.unreadable.is_none_or(|unreadable| unreadable.again <= txg)
    }

    /// Bytes that nobody has, and that cannot be allocated as the map cannot be read.
    pub(crate) fn out_of_reach(&self) -> u64 {
        if self.unreadable.is_some() { self.available() } else { 0 }
    }

    /// log2 of the longest free range, as far as is known.
    pub(crate) fn largest_bucket(&self) -> Option<u32> {
        match &self.free {
            Some(free) => free.largest_bucket(),
            None => self.available().checked_ilog2().map(|all| all.min(self.hint.unwrap_or(all))),
        }
    }

    /// The length of the longest range that may be allocated, if the map was read.
    pub(crate) fn largest(&self) -> u64 {
        self.free.as_ref().map_or(0, |free| free.largest())
    }

    /// What no block has once all that was taken to be written is written, as the map will say it.
    pub(crate) fn as_written(&self) -> Option<Ranges> {
        let free = self.free.as_ref()?;
        let mut all = free.ranges().clone();
        for range in self.waiting.iter() {
            all.put(range);
        }
        // what was not taken has not happened yet, frees before allocations: what came and went
        // was free before
        for range in self.pending.iter().flat_map(|(_, pending)| &pending.freed) {
            all.cut(range);
        }
        for range in self.pending.iter().flat_map(|(_, pending)| &pending.allocated) {
            all.put(range.clone());
        }
        Some(all)
    }

    /// How many ranges no block has, by log2 of their bytes.
    pub(crate) fn histogram(&self) -> Option<[u64; 64]> {
        let mut counts = self.free.as_ref()?.histogram();
        for range in self.waiting.iter() {
            counts[(range.end - range.start).ilog2() as usize] += 1;
        }
        Some(counts)
    }

    /// Takes what is free from a map that is as of `as_of`; `false` where that is too old.
    pub(crate) fn load(&mut self, mut free: Ranges, as_of: Txg) -> bool {
        if self.is_loaded() {
            return true;
        }
        if self.dropped > as_of {
            return false;
        }
        free.cut(&(0..self.extent.start));
        free.cut(&(self.extent.end..u64::MAX));
        for range in self.waiting.iter() {
            free.cut(&range);
        }
        self.allocated = self.size() - free.total() - self.waiting();
        self.free = Some(Box::new(Free::new(free, self.size())));
        self.unreadable = None;
        true
    }

    /// Whether this txg changed nothing here yet.
    pub(crate) fn is_clean(&self, txg: Txg) -> bool {
        self.pending.iter().all(|(of, _)| *of != txg)
    }

    pub(crate) fn allocate(&mut self, size: u64, txg: Txg) -> Option<u64> {
        let start = self.free.as_mut()?.allocate(size)?;
        self.allocated += size;
        append(&mut self.pending(txg).allocated, start..start + size);
        Some(start)
    }

    /// Allocates just that range; whether all of it was free.
    pub(crate) fn claim(&mut self, range: Range<u64>, txg: Txg) -> bool {
        if !self.free.as_mut().is_some_and(|free| free.take(&range)) {
            return false;
        }
        self.allocated += range.end - range.start;
        append(&mut self.pending(txg).allocated, range);
        true
    }

    /// Whether all of the range is allocated, as far as is known.
    pub(crate) fn is_allocated(&self, range: &Range<u64>) -> bool {
        let free = self.free.as_ref().is_some_and(|free| free.ranges().touches(range));
        !free && !self.waiting.touches(range)
    }

    /// Frees an allocated range.
    pub(crate) fn free(&mut self, range: Range<u64>, txg: Txg) {
        assert!(self.is_allocated(&range), "only what is allocated is freed");
        self.allocated = self.allocated.saturating_sub(range.end - range.start);
        self.waiting.put(range.clone());
        let at = self.deferred.partition_point(|(of, _)| *of < txg);
        if self.deferred.get(at).is_none_or(|(of, _)| *of != txg) {
            self.deferred.insert(at, (txg, Vec::new()));
        }
        append(&mut self.deferred[at].1, range.clone());
        append(&mut self.pending(txg).freed, range);
    }

    /// Takes back an allocation of `txg` that nobody knows of. Gives `false` where it was given
    /// out to be written already: then it can only be freed.
    pub(crate) fn unallocate(&mut self, range: Range<u64>, txg: Txg) -> bool {
        let here = |all: &[Range<u64>]| {
            all.iter().rev().any(|one| one.start <= range.start && range.end <= one.end)
        };
        let mut pending = self.pending.iter_mut();
        let Some((_, pending)) = pending.find(|(of, _)| *of == txg) else { return false };
        let Some(free) = &mut self.free else { return false };
        if !here(&pending.allocated) || !free.give(range.clone()) {
            return false;
        }
        self.allocated -= range.end - range.start;
        // it may be allocated again before the txg is taken: so it is undone here and now
        let mut left: Ranges = std::mem::take(&mut pending.allocated).into_iter().collect();
        left.cut(&range);
        pending.allocated = left.iter().collect();
        true
    }

    fn pending(&mut self, txg: Txg) -> &mut Pending {
        let at = self.pending.iter().position(|(of, _)| *of == txg);
        let at = at.unwrap_or_else(|| {
            self.pending.push((txg, Pending::default()));
            self.pending.len() - 1
        });
        &mut self.pending[at].1
    }

    /// Takes what a txg changed since this was last asked. A range that came and went in between
    /// is not told.
    pub(crate) fn take_changes(&mut self, txg: Txg) -> Option<Changed> {
        let at = self.pending.iter().position(|(of, _)| *of == txg)?;
        let (_, pending) = self.pending.swap_remove(at);
        let mut allocated: Ranges = pending.allocated.into_iter().collect();
        let mut freed: Ranges = pending.freed.into_iter().collect();
        let brief: Vec<_> = freed.iter().flat_map(|range| allocated.common(&range)).collect();
        for range in brief {
            allocated.cut(&range);
            freed.cut(&range);
        }
        let changed =
            Changed { allocated: allocated.iter().collect(), freed: freed.iter().collect() };
        (!changed.allocated.is_empty() || !changed.freed.is_empty()).then_some(changed)
    }

    /// Makes usable what waited long enough, now that `txg` is on disk, but for what was freed after
    /// `kept`. How many bytes, and how many of them wait for `kept` alone.
    pub(crate) fn ripen(&mut self, txg: Txg, kept: Option<Txg>) -> (u64, u64) {
        let old = |of: Txg| of.get().saturating_add(DEFERRED_TXGS) <= txg.get();
        let ripe = |of: Txg| old(of) && kept.is_none_or(|kept| of <= kept);
        let count = self.deferred.partition_point(|(of, _)| ripe(*of));
        let held = self.deferred[count..].iter().take_while(|(of, _)| old(*of));
        let held = held.flat_map(|(_, ranges)| ranges).map(|range| range.end - range.start).sum();
        let mut bytes = 0;
        for (of, ranges) in self.deferred.drain(..count) {
            for range in ranges {
                bytes += range.end - range.start;
                self.waiting.cut(&range);
                match &mut self.free {
                    Some(free) => assert!(free.give(range), "what waited was not free"),
                    None => self.dropped = of,
                }
            }
        }
        (bytes, held)
    }

    /// Whether something waits here.
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }
}

/// Appends a range; blocks that were laid one after the other become one.
fn append(all: &mut Vec<Range<u64>>, range: Range<u64>) {
    match all.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => all.push(range),
    }
}
