//! One top-level vdev: its metaslabs, and which of them is in use.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use units::{Ashift, MetaslabId, MinusOrZero, Txg, VdevId};

use crate::metaslab::{ChangedRanges, Metaslab};
use crate::{Class, Error, RangeSet};

/// Allocated bytes of a block on a vdev if it is born in a txg, parity and padding included.
pub type AsizeFn = Arc<dyn Fn(u64, Txg) -> u64 + Send + Sync>;

/// A vdev with more metaslabs than this keeps one of them for logs.
const EMBEDDED_LOG_MIN_METASLABS: usize = 64;
/// Copies of a block on one vdev are at least one part in this many of it apart, if possible.
const COPY_DISTANCE_FRACTION: usize = 8;
/// The unit of addresses in block pointers.
const SECTOR_SIZE: u64 = 512;

/// Ranges longer than this are all alike to the choice of a metaslab.
const MAX_RANKED_BUCKET: u32 = 27;

/// A top-level vdev, as the allocator has to know it.
#[derive(Clone)]
pub struct MetaslabGroupSpec {
    /// Which vdev.
    pub vdev: VdevId,
    /// Its class: any but [`Class::EmbeddedLog`], which it gets by itself.
    pub class: Class,
    /// Bytes for data.
    pub asize: u64,
    /// log2 of the bytes of a metaslab.
    pub metaslab_shift: u32,
    /// Its sectors.
    pub ashift: Ashift,
    /// Metaslabs begin and end at multiples of this many bytes: a row of a group on dRAID, a sector
    /// elsewhere.
    pub alignment: u64,
    /// The data columns of a stripe: this many times more is allocated in a run.
    pub data_width: u32,
    /// The allocated size of a block there.
    pub asize_fn: AsizeFn,
}

impl std::fmt::Debug for MetaslabGroupSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TopSpec({}, {:?}, {} bytes)", self.vdev, self.class, self.asize)
    }
}

/// One top-level vdev.
#[derive(Debug)]
pub(crate) struct MetaslabGroup {
    pub(crate) spec: MetaslabGroupSpec,
    /// Bytes that may be allocated, for the rotor; by class: everything, embedded log.
    available: [AtomicU64; 2],
    /// Whether blocks may be allocated here.
    pub(crate) is_allocatable: AtomicBool,
    pub(crate) state: Mutex<GroupState>,
}

/// Its mutable state.
#[derive(Debug, Default)]
pub(crate) struct GroupState {
    pub(crate) metaslabs: Vec<Metaslab>,
    /// The metaslab of embedded logs.
    pub(crate) log_index: Option<usize>,
    /// The metaslabs in use for the first, second and third copy of a block on this vdev.
    active: [Option<usize>; 3],
    /// Which metaslabs have changes that were not taken, or something that waits.
    dirty_by_txg: Vec<(Txg, BTreeSet<usize>)>,
    with_deferred: BTreeSet<usize>,
    /// A size that fits no loaded metaslab: for other classes than logs, and for logs.
    min_failed_size: [u64; 2],
}

/// The result of an allocation on a vdev.
pub(crate) enum AllocResult {
    /// It succeeded, at that offset.
    Offset(u64),
    /// Only this one may have the space, but was not loaded yet.
    NeedsLoad(MetaslabId),
    /// There is no space.
    NoSpace,
}

impl MetaslabGroup {
    pub(crate) fn new(spec: MetaslabGroupSpec) -> Self {
        let mut state = GroupState { min_failed_size: [u64::MAX; 2], ..GroupState::default() };
        state.add_metaslabs(&spec);
        let top = Self {
            spec,
            available: [AtomicU64::new(0), AtomicU64::new(0)],
            is_allocatable: AtomicBool::new(true),
            state: Mutex::new(state),
        };
        top.update_available(&top.state.lock());
        top
    }

    /// Whether anything of a class may be allocated here.
    pub(crate) fn can_allocate(&self, class: Class) -> bool {
        self.spec.class == class && self.is_allocatable.load(Ordering::Relaxed)
    }

    /// Bytes that may be allocated for a class, about.
    pub(crate) fn available(&self, class: Class) -> u64 {
        self.available[lane_index(class)].load(Ordering::Relaxed)
    }

    pub(crate) fn psize_to_asize(&self, psize: u64, birth: Txg) -> u64 {
        (self.spec.asize_fn)(psize, birth)
    }

    /// The largest psize whose cost fits the longest range of a class.
    pub(crate) fn largest_free_block(&self, class: Class) -> u64 {
        let state = self.state.lock();
        let of_class = |at: usize| (state.log_index == Some(at)) == (class == Class::EmbeddedLog);
        let slabs = state.metaslabs.iter().enumerate().filter(|(at, _)| of_class(*at));
        let room = slabs.map(|(_, slab)| slab.largest_range()).max().unwrap_or(0);
        let sector = self.spec.ashift.bytes();
        let cost = |psize| self.psize_to_asize(psize, Txg::ZERO);
        let (mut fits, mut fails) = (0, room / sector + 1);
        while fits + 1 < fails {
            let middle = u64::midpoint(fits, fails);
            if cost(middle * sector) <= room { fits = middle } else { fails = middle }
        }
        fits * sector
    }

    /// Recounts the allocatable bytes.
    pub(crate) fn update_available(&self, state: &GroupState) {
        let of = |slab: &Metaslab| slab.available() - slab.unreadable_bytes();
        let log = state.log_index.and_then(|at| state.metaslabs.get(at)).map_or(0, of);
        let all: u64 = state.metaslabs.iter().map(of).sum();
        self.available[0].store(all - log, Ordering::Relaxed);
        self.available[1].store(log, Ordering::Relaxed);
    }

    /// Allocates `size` bytes, far from the offsets `others` of other copies of the block.
    pub(crate) fn allocate(
        &self,
        class: Class,
        size: u64,
        txg: Txg,
        others: &[u64],
    ) -> AllocResult {
        if !self.is_allocatable.load(Ordering::Relaxed) {
            return AllocResult::NoSpace;
        }
        let mut state = self.state.lock();
        let found = state.allocate(lane_index(class) == 1, size, txg, others);
        if let AllocResult::Offset(start) = found {
            let extent = start..start + size;
            assert!(
                state.metaslab_containing(self.spec.metaslab_shift, &extent).is_some(),
                "a block lies in one metaslab of its vdev"
            );
            assert!(start.is_multiple_of(SECTOR_SIZE), "a block begins with a sector");
            // approximate on purpose: two writers may pass each other, and `count` mends it
            let left = self.available(class).minus_or_zero(size);
            self.available[lane_index(class)].store(left, Ordering::Relaxed);
        }
        found
    }
}

fn lane_index(class: Class) -> usize {
    usize::from(class == Class::EmbeddedLog)
}

impl GroupState {
    /// Adds the metaslabs of the vdev's new space.
    pub(crate) fn add_metaslabs(&mut self, spec: &MetaslabGroupSpec) {
        let size = 1_u64.checked_shl(spec.metaslab_shift).unwrap_or(0);
        let count = units::to_usize(spec.asize.checked_div(size).unwrap_or(0));
        let row = spec.alignment.max(1);
        let mut start = size * (self.metaslabs.len() as u64);
        while self.metaslabs.len() < count {
            let end = start + size;
            let from = start.checked_next_multiple_of(row).unwrap_or(end).min(end);
            let length = (end - from) / row * row;
            self.metaslabs.push(Metaslab::new(from..from + length));
            start = end;
        }
        let is_apart = |slab: &Metaslab, next: &Metaslab| slab.extent.end <= next.extent.start;
        assert!(self.metaslabs.is_sorted_by(is_apart), "metaslabs of {} share no bytes", spec.vdev);
    }

    /// Sets the emptiest metaslab aside for logs, if there are enough.
    pub(crate) fn reserve_log_metaslab(&mut self, spec: &MetaslabGroupSpec) {
        if self.log_index.is_none()
            && spec.class == Class::Normal
            && self.metaslabs.len() > EMBEDDED_LOG_MIN_METASLABS
        {
            let by_use = |at: &usize| self.metaslabs[*at].allocated;
            self.log_index = (0..self.metaslabs.len()).min_by_key(by_use);
        }
    }

    /// The metaslab that a range lies in, wholly.
    pub(crate) fn metaslab_containing(&self, shift: u32, range: &Range<u64>) -> Option<usize> {
        let at = usize::try_from(range.start.checked_shr(shift)?).ok()?;
        let extent = &self.metaslabs.get(at)?.extent;
        let inside = range.start >= extent.start && range.end <= extent.end;
        (inside && range.start < range.end).then_some(at)
    }

    fn allocate(&mut self, log: bool, size: u64, txg: Txg, others: &[u64]) -> AllocResult {
        let copy = others.len().min(2);
        if size < self.min_failed_size[usize::from(log)] || copy > 0 {
            let active = if log { self.log_index } else { self.active[copy] };
            if let Some(at) = active
                && self.is_distant(at, others)
                && let Some(start) = self.allocate_in(at, size, txg)
            {
                return AllocResult::Offset(start);
            }
            if let Some(start) = self.search_loaded(log, size, txg, others) {
                return AllocResult::Offset(start);
            }
            let known = &mut self.min_failed_size[usize::from(log)];
            *known = size.min(*known);
        }
        self.best_unloaded(log, size, txg).map_or(AllocResult::NoSpace, AllocResult::NeedsLoad)
    }

    /// The best unloaded metaslab that may fit this much.
    pub(crate) fn best_unloaded(&self, log: bool, size: u64, txg: Txg) -> Option<MetaslabId> {
        let all = self.metaslabs_in_lane(log).filter(|at| self.can_fit(*at, size, txg));
        all.max_by_key(|at| self.rank(*at)).map(metaslab_id)
    }

    fn metaslabs_in_lane(&self, log: bool) -> impl Iterator<Item = usize> + '_ {
        (0..self.metaslabs.len()).filter(move |at| (self.log_index == Some(*at)) == log)
    }

    fn can_fit(&self, at: usize, size: u64, txg: Txg) -> bool {
        let slab = &self.metaslabs[at];
        let bucket = slab.largest_bucket().unwrap_or(0);
        slab.can_read_map(txg) && slab.available() >= size && bucket >= size.ilog2()
    }

    /// Bytes that are known to be free, but for logs.
    pub(crate) fn loaded_free(&self) -> u64 {
        let loaded = self.metaslabs_in_lane(false).filter(|at| self.metaslabs[*at].is_loaded());
        loaded.map(|at| self.metaslabs[at].available()).sum()
    }

    /// Searches all loaded metaslabs, the best first, those that are far from other copies
    /// before the others.
    fn search_loaded(&mut self, log: bool, size: u64, txg: Txg, others: &[u64]) -> Option<u64> {
        let holds = |at: &usize| {
            let slab = &self.metaslabs[*at];
            slab.is_loaded() && slab.largest_bucket().is_some_and(|top| top >= size.ilog2())
        };
        let mut fit: Vec<usize> = self.metaslabs_in_lane(log).filter(holds).collect();
        fit.sort_by_key(|at| std::cmp::Reverse((self.is_distant(*at, others), self.rank(*at))));
        for at in fit {
            if let Some(start) = self.allocate_in(at, size, txg) {
                if !log {
                    self.active[others.len().min(2)] = Some(at);
                }
                return Some(start);
            }
        }
        None
    }

    /// How good a metaslab is to continue in: whether it has long ranges, how empty it is in eighths,
    /// and, as outer tracks are faster, how near to the start it lies.
    fn rank(&self, at: usize) -> (u32, u64, std::cmp::Reverse<usize>) {
        let slab = &self.metaslabs[at];
        let bucket = slab.largest_bucket().unwrap_or(0).min(MAX_RANKED_BUCKET);
        let eighths = slab.available() * 8 / slab.size().max(1);
        (bucket, eighths, std::cmp::Reverse(at))
    }

    fn is_distant(&self, at: usize, others: &[u64]) -> bool {
        let distance = self.metaslabs.len().div_ceil(COPY_DISTANCE_FRACTION);
        others.iter().all(|other| {
            let before = self.metaslabs.partition_point(|slab| slab.extent.start <= *other);
            (before - 1).abs_diff(at) >= distance
        })
    }

    fn allocate_in(&mut self, at: usize, size: u64, txg: Txg) -> Option<u64> {
        let clean = self.metaslabs[at].is_clean(txg);
        let start = self.metaslabs[at].allocate(size, txg)?;
        if clean {
            self.mark_dirty(at, txg);
        }
        // Rule: a metaslab that a txg changed is drained with it. Otherwise no space map has the allocation, and
        // after an import the same space would be allocated again.
        let mut dirty = self.dirty_by_txg.iter().filter(|(of, _)| *of == txg);
        assert!(dirty.any(|(_, set)| set.contains(&at)), "the txg drains what it allocates");
        Some(start)
    }

    /// Allocates just that range; whether all of it was free.
    pub(crate) fn claim(&mut self, at: usize, range: Range<u64>, txg: Txg) -> bool {
        let done = self.metaslabs[at].claim(range, txg);
        if done {
            self.mark_dirty(at, txg);
        }
        done
    }

    /// Frees a range of a metaslab; whether all of it was allocated.
    pub(crate) fn free(&mut self, at: usize, range: Range<u64>, txg: Txg) -> bool {
        if !self.metaslabs[at].is_allocated(&range) {
            return false;
        }
        self.metaslabs[at].free(range, txg);
        self.mark_dirty(at, txg);
        self.with_deferred.insert(at);
        true
    }

    /// Takes an allocation back.
    pub(crate) fn unallocate(&mut self, at: usize, range: Range<u64>, txg: Txg) -> bool {
        let done = self.metaslabs[at].unallocate(range, txg);
        if done {
            self.min_failed_size = [u64::MAX; 2];
        }
        done
    }

    pub(crate) fn load(&mut self, at: usize, free: RangeSet, as_of: Txg) -> bool {
        self.min_failed_size = [u64::MAX; 2];
        self.metaslabs[at].load(free, as_of)
    }

    fn mark_dirty(&mut self, at: usize, txg: Txg) {
        match self.dirty_by_txg.iter_mut().find(|(of, _)| *of == txg) {
            Some((_, set)) => drop(set.insert(at)),
            None => self.dirty_by_txg.push((txg, BTreeSet::from([at]))),
        }
    }

    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        self.dirty_by_txg.iter().any(|(of, _)| *of == txg)
    }

    pub(crate) fn drain_changes(&mut self, txg: Txg) -> Vec<(MetaslabId, ChangedRanges)> {
        let Some(at) = self.dirty_by_txg.iter().position(|(of, _)| *of == txg) else {
            return Vec::new();
        };
        let (_, set) = self.dirty_by_txg.swap_remove(at);
        let take = |at: usize| Some((metaslab_id(at), self.metaslabs[at].drain_changes(txg)?));
        set.into_iter().filter_map(take).collect()
    }

    /// A txg is on disk. Gives how many bytes could be used if nothing freed after `kept` were kept.
    pub(crate) fn mark_synced(&mut self, txg: Txg, kept: Option<Txg>) -> u64 {
        let left = self.dirty_by_txg.iter().filter(|(of, _)| *of <= txg);
        assert!(left.count() == 0, "all changes of a txg are in it before it is on disk");
        // Rule W1: deferred space becomes free after the assertion: its frees are in space maps of a synced txg.
        let (mut ripe, mut held) = (0, 0);
        for at in std::mem::take(&mut self.with_deferred) {
            let (now, later) = self.metaslabs[at].release_deferred(txg, kept);
            (ripe, held) = (ripe + now, held + later);
            if self.metaslabs[at].has_deferred() {
                self.with_deferred.insert(at);
            }
        }
        let deferring = self.metaslabs.iter().filter(|slab| slab.has_deferred()).count();
        assert_eq!(
            deferring,
            self.with_deferred.len(),
            "each metaslab with deferred space is known"
        );
        if ripe > 0 {
            self.min_failed_size = [u64::MAX; 2];
        }
        held
    }

    /// The metaslabs that were not read yet, the best first.
    pub(crate) fn unloaded(&self) -> Vec<MetaslabId> {
        let mut all: Vec<usize> =
            (0..self.metaslabs.len()).filter(|at| !self.metaslabs[*at].is_loaded()).collect();
        all.sort_by_key(|at| std::cmp::Reverse(self.rank(*at)));
        all.into_iter().map(metaslab_id).collect()
    }
}

/// The number of the metaslab at an index.
pub(crate) fn metaslab_id(at: usize) -> MetaslabId {
    MetaslabId::new(units::narrow::<u32>(at))
}

impl MetaslabGroup {
    /// Frees an allocated range.
    pub(crate) fn free_range(&self, range: Range<u64>, txg: Txg) -> Result<(), Error> {
        let mut state = self.state.lock();
        let at = self.require_metaslab(&state, &range)?;
        let (vdev, offset, length) = (self.spec.vdev, range.start, range.end - range.start);
        let is_freed = state.free(at, range, txg);
        is_freed.then_some(()).ok_or(Error::NotAllocated { vdev, offset, length })
    }

    /// The metaslab that a range lies in, wholly, or an error that names the range.
    pub(crate) fn require_metaslab(
        &self,
        state: &GroupState,
        range: &Range<u64>,
    ) -> Result<usize, Error> {
        state.metaslab_containing(self.spec.metaslab_shift, range).ok_or(Error::InvalidRange {
            vdev: self.spec.vdev,
            offset: range.start,
            length: range.end.minus_or_zero(range.start),
        })
    }
}
