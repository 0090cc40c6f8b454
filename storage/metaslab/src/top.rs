//! One top-level vdev: its metaslabs, and which of them is in use.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use units::{Ashift, MetaslabId, Txg, VdevId};

use crate::slab::{Changed, Slab};
use crate::{Class, Error, Ranges};

/// Bytes that a block of so many takes on a vdev, parity and padding included.
pub type Cost = Arc<dyn Fn(u64) -> u64 + Send + Sync>;

/// A vdev with more metaslabs than this keeps one of them for logs.
const ENOUGH_FOR_A_LOG: usize = 64;
/// Copies of a block on one vdev lie one part in so many of it apart, if that can be.
const APART: usize = 8;
/// Ranges longer than this are all alike to the choice of a metaslab.
const LONG_ENOUGH: u32 = 27;

/// A top-level vdev, as the allocator has to know it.
#[derive(Clone)]
pub struct TopSpec {
    /// Which vdev.
    pub vdev: VdevId,
    /// What it is for: any but [`Class::EmbeddedLog`], which it gets by itself.
    pub class: Class,
    /// Bytes for data.
    pub asize: u64,
    /// log2 of the bytes of a metaslab.
    pub metaslab_shift: u32,
    /// Its sectors.
    pub ashift: Ashift,
    /// Metaslabs begin and end at multiples of so many bytes: a row of a group on dRAID, a sector
    /// elsewhere.
    pub row: u64,
    /// How many drives' worth of data a stripe has: so much more is laid there in a run.
    pub width: u32,
    /// What a block takes there.
    pub cost: Cost,
}

impl std::fmt::Debug for TopSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TopSpec({}, {:?}, {} bytes)", self.vdev, self.class, self.asize)
    }
}

/// One top-level vdev.
#[derive(Debug)]
pub(crate) struct Top {
    pub(crate) spec: TopSpec,
    /// Bytes that may be allocated, for the rotor; by class: everything, embedded log.
    available: [AtomicU64; 2],
    /// Whether blocks may be allocated here.
    pub(crate) open: AtomicBool,
    pub(crate) state: Mutex<State>,
}

/// What changes in it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) slabs: Vec<Slab>,
    /// The metaslab of embedded logs.
    pub(crate) log: Option<usize>,
    /// The metaslabs in use for the first, second and third copy of a block on this vdev.
    active: [Option<usize>; 3],
    /// Which metaslabs have changes that were not taken, or something that waits.
    dirty: Vec<(Txg, BTreeSet<usize>)>,
    deferred: BTreeSet<usize>,
    /// A size for which there is no room in any loaded metaslab: but for logs, and for them.
    too_large: [u64; 2],
}

/// What came of looking for room in a vdev.
pub(crate) enum Found {
    /// It is there, at that offset.
    At(u64),
    /// Only this one may have room, but was not read yet.
    Unread(MetaslabId),
    /// There is no room.
    Full,
}

impl Top {
    pub(crate) fn new(spec: TopSpec) -> Self {
        let mut state = State { too_large: [u64::MAX; 2], ..State::default() };
        state.extend(&spec);
        let top = Self {
            spec,
            available: [AtomicU64::new(0), AtomicU64::new(0)],
            open: AtomicBool::new(true),
            state: Mutex::new(state),
        };
        top.count(&top.state.lock());
        top
    }

    /// Whether anything of a class may be allocated here.
    pub(crate) fn is_open_to(&self, class: Class) -> bool {
        self.spec.class == class && self.open.load(Ordering::Relaxed)
    }

    /// Bytes that may be allocated for a class, about.
    pub(crate) fn available(&self, class: Class) -> u64 {
        self.available[lane(class)].load(Ordering::Relaxed)
    }

    pub(crate) fn cost(&self, psize: u64) -> u64 {
        (self.spec.cost)(psize)
    }

    /// Counts again what may be allocated.
    pub(crate) fn count(&self, state: &State) {
        let of = |slab: &Slab| slab.available() - slab.out_of_reach();
        let log = state.log.and_then(|at| state.slabs.get(at)).map_or(0, of);
        let all: u64 = state.slabs.iter().map(of).sum();
        self.available[0].store(all - log, Ordering::Relaxed);
        self.available[1].store(log, Ordering::Relaxed);
    }

    /// Room for `size` bytes, far from the offsets `others`, where copies of the same block are.
    pub(crate) fn allocate(&self, class: Class, size: u64, txg: Txg, others: &[u64]) -> Found {
        if !self.open.load(Ordering::Relaxed) {
            return Found::Full;
        }
        let mut state = self.state.lock();
        let found = state.allocate(lane(class) == 1, size, txg, others);
        if let Found::At(_) = found {
            // approximate on purpose: two writers may pass each other, and `count` mends it
            let left = self.available(class).saturating_sub(size);
            self.available[lane(class)].store(left, Ordering::Relaxed);
        }
        found
    }
}

fn lane(class: Class) -> usize {
    usize::from(class == Class::EmbeddedLog)
}

impl State {
    /// Adds the metaslabs that the vdev has room for and has not yet.
    pub(crate) fn extend(&mut self, spec: &TopSpec) {
        let size = 1_u64.checked_shl(spec.metaslab_shift).unwrap_or(u64::MAX);
        let count = usize::try_from(spec.asize / size).unwrap_or(0);
        let row = spec.row.max(1);
        let mut start = size.saturating_mul(self.slabs.len() as u64);
        while self.slabs.len() < count {
            let end = start.saturating_add(size);
            let from = start.checked_next_multiple_of(row).unwrap_or(end).min(end);
            let length = end.saturating_sub(from) / row * row;
            self.slabs.push(Slab::new(from..from + length));
            start = end;
        }
    }

    /// Sets the emptiest metaslab aside for logs, if there are enough.
    pub(crate) fn set_log_aside(&mut self, spec: &TopSpec) {
        if self.log.is_none() && spec.class == Class::Normal && self.slabs.len() > ENOUGH_FOR_A_LOG
        {
            let by_use = |at: &usize| self.slabs[*at].allocated;
            self.log = (0..self.slabs.len()).min_by_key(by_use);
        }
    }

    /// The metaslab that a range lies in, wholly.
    pub(crate) fn slab_of(&self, shift: u32, range: &Range<u64>) -> Option<usize> {
        let at = usize::try_from(range.start.checked_shr(shift)?).ok()?;
        let extent = &self.slabs.get(at)?.extent;
        let inside = range.start >= extent.start && range.end <= extent.end;
        (inside && range.start < range.end).then_some(at)
    }

    fn allocate(&mut self, log: bool, size: u64, txg: Txg, others: &[u64]) -> Found {
        let copy = others.len().min(2);
        if size < self.too_large[usize::from(log)] || copy > 0 {
            let active = if log { self.log } else { self.active[copy] };
            if let Some(at) = active
                && self.is_apart(at, others)
                && let Some(start) = self.allocate_in(at, size, txg)
            {
                return Found::At(start);
            }
            if let Some(start) = self.search(log, size, txg, others) {
                return Found::At(start);
            }
            let known = &mut self.too_large[usize::from(log)];
            *known = size.min(*known);
        }
        self.best_unread(log, size, txg).map_or(Found::Full, Found::Unread)
    }

    /// The best metaslab that may hold so much, as far as is known without its map.
    pub(crate) fn best_unread(&self, log: bool, size: u64, txg: Txg) -> Option<MetaslabId> {
        let all = self.of_lane(log).filter(|at| self.may_hold(*at, size, txg));
        all.max_by_key(|at| self.rank(*at)).map(id)
    }

    fn of_lane(&self, log: bool) -> impl Iterator<Item = usize> + '_ {
        (0..self.slabs.len()).filter(move |at| (self.log == Some(*at)) == log)
    }

    fn may_hold(&self, at: usize, size: u64, txg: Txg) -> bool {
        let slab = &self.slabs[at];
        let bucket = slab.largest_bucket().unwrap_or(0);
        slab.may_be_read(txg) && slab.available() >= size && bucket >= size.ilog2()
    }

    /// Bytes that are known to be free, but for logs.
    pub(crate) fn known(&self) -> u64 {
        let loaded = self.of_lane(false).filter(|at| self.slabs[*at].is_loaded());
        loaded.map(|at| self.slabs[at].available()).sum()
    }

    /// Looks through all loaded metaslabs, the best first, those that are far from other copies
    /// before those that are not.
    fn search(&mut self, log: bool, size: u64, txg: Txg, others: &[u64]) -> Option<u64> {
        let holds = |at: &usize| {
            let slab = &self.slabs[*at];
            slab.is_loaded() && slab.largest_bucket().is_some_and(|top| top >= size.ilog2())
        };
        let mut fit: Vec<usize> = self.of_lane(log).filter(holds).collect();
        fit.sort_by_key(|at| std::cmp::Reverse((self.is_apart(*at, others), self.rank(*at))));
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

    /// How good a metaslab is to go on in: whether it has long ranges, how empty it is in eighths,
    /// and, as outer tracks are faster, how near to the start it lies.
    fn rank(&self, at: usize) -> (u32, u64, std::cmp::Reverse<usize>) {
        let slab = &self.slabs[at];
        let bucket = slab.largest_bucket().unwrap_or(0).min(LONG_ENOUGH);
        let eighths = slab.available().saturating_mul(8) / slab.size().max(1);
        (bucket, eighths, std::cmp::Reverse(at))
    }

    fn is_apart(&self, at: usize, others: &[u64]) -> bool {
        let distance = self.slabs.len().div_ceil(APART);
        others.iter().all(|other| {
            let before = self.slabs.partition_point(|slab| slab.extent.start <= *other);
            before.saturating_sub(1).abs_diff(at) >= distance
        })
    }

    fn allocate_in(&mut self, at: usize, size: u64, txg: Txg) -> Option<u64> {
        let clean = self.slabs[at].is_clean(txg);
        let start = self.slabs[at].allocate(size, txg)?;
        if clean {
            self.mark(at, txg);
        }
        Some(start)
    }

    /// Allocates just that range; whether all of it was free.
    pub(crate) fn claim(&mut self, at: usize, range: Range<u64>, txg: Txg) -> bool {
        let done = self.slabs[at].claim(range, txg);
        if done {
            self.mark(at, txg);
        }
        done
    }

    /// Frees a range of a metaslab; whether all of it was allocated.
    pub(crate) fn free(&mut self, at: usize, range: Range<u64>, txg: Txg) -> bool {
        if !self.slabs[at].is_allocated(&range) {
            return false;
        }
        self.slabs[at].free(range, txg);
        self.mark(at, txg);
        self.deferred.insert(at);
        true
    }

    /// Takes an allocation back.
    pub(crate) fn unallocate(&mut self, at: usize, range: Range<u64>, txg: Txg) -> bool {
        let done = self.slabs[at].unallocate(range, txg);
        if done {
            self.too_large = [u64::MAX; 2];
        }
        done
    }

    pub(crate) fn load(&mut self, at: usize, free: Ranges, as_of: Txg) -> bool {
        self.too_large = [u64::MAX; 2];
        self.slabs[at].load(free, as_of)
    }

    fn mark(&mut self, at: usize, txg: Txg) {
        match self.dirty.iter_mut().find(|(of, _)| *of == txg) {
            Some((_, set)) => drop(set.insert(at)),
            None => self.dirty.push((txg, BTreeSet::from([at]))),
        }
    }

    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        self.dirty.iter().any(|(of, _)| *of == txg)
    }

    pub(crate) fn take_changes(&mut self, txg: Txg) -> Vec<(MetaslabId, Changed)> {
        let Some(at) = self.dirty.iter().position(|(of, _)| *of == txg) else {
            return Vec::new();
        };
        let (_, set) = self.dirty.swap_remove(at);
        let take = |at: usize| Some((id(at), self.slabs[at].take_changes(txg)?));
        set.into_iter().filter_map(take).collect()
    }

    /// A txg is on disk. Gives how many bytes could be used if nothing freed after `kept` were kept.
    pub(crate) fn synced(&mut self, txg: Txg, kept: Option<Txg>) -> u64 {
        let left = self.dirty.iter().filter(|(of, _)| *of <= txg);
        assert!(left.count() == 0, "all changes of a txg are in it before it is on disk");
        let (mut ripe, mut held) = (0, 0);
        for at in std::mem::take(&mut self.deferred) {
            let (now, later) = self.slabs[at].ripen(txg, kept);
            (ripe, held) = (ripe + now, held + later);
            if self.slabs[at].has_deferred() {
                self.deferred.insert(at);
            }
        }
        if ripe > 0 {
            self.too_large = [u64::MAX; 2];
        }
        held
    }

    /// The metaslabs that were not read yet, the best first.
    pub(crate) fn unread(&self) -> Vec<MetaslabId> {
        let mut all: Vec<usize> =
            (0..self.slabs.len()).filter(|at| !self.slabs[*at].is_loaded()).collect();
        all.sort_by_key(|at| std::cmp::Reverse(self.rank(*at)));
        all.into_iter().map(id).collect()
    }
}

/// The number of the metaslab at an index.
pub(crate) fn id(at: usize) -> MetaslabId {
    MetaslabId::new(u32::try_from(at).unwrap_or(u32::MAX))
}

impl Top {
    /// The metaslab that a range lies in, wholly, or an error that names the range.
    pub(crate) fn slab_of(&self, state: &State, range: &Range<u64>) -> Result<usize, Error> {
        state.slab_of(self.spec.metaslab_shift, range).ok_or(Error::NoPlace {
            vdev: self.spec.vdev,
            offset: range.start,
            length: range.end.saturating_sub(range.start),
        })
    }
}
