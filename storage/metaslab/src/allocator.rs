//! The allocator of a pool: all vdevs, all classes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::Dva;
use parking_lot::{Mutex, RwLock};
use units::{MetaslabId, Txg, VdevId};

use crate::checkpoint::Checkpoint;
use crate::group::{AllocResult, MetaslabGroup, MetaslabGroupSpec, metaslab_id};
use crate::metaslab::Metaslab;
use crate::pin::{Pin, Pins};
use crate::removed_vdev::RemovedVdev;
use crate::removing_vdev::RemovingVdev;
use crate::rotor::Rotor;
use crate::{Class, Error, MetaslabChange, RangeSet, SpaceUsage};

/// Bytes of a gang header, the allocated size of a gang address.
pub(crate) const GANG_HEADER_SIZE: u64 = 512;
/// A map that is too old as soon as it is read is read again so often.
const MAX_READS: usize = 8;

/// A pin that keeps one part in this many of a vdev's free space is too costly.
const MAX_PINNED_FRACTION: u64 = 4;

/// A request to the allocator.
#[derive(Clone, Copy, Debug)]
pub struct AllocRequest {
    /// Bytes to be stored.
    pub psize: u64,
    /// How often: 1 to 3.
    pub copies: u8,
    /// The class of the space.
    pub class: Class,
    /// The txg that the block is written in.
    pub txg: Txg,
    /// The vdev to try first.
    pub preferred_vdev: Option<VdevId>,
    /// A vdev to try last.
    pub avoided_vdev: Option<VdevId>,
}

impl AllocRequest {
    /// One copy in the normal class.
    pub const fn new(psize: u64, txg: Txg) -> Self {
        Self {
            psize,
            copies: 1,
            class: Class::Normal,
            txg,
            preferred_vdev: None,
            avoided_vdev: None,
        }
    }
}

/// A reader of metaslabs' space maps.
pub trait MapReader: Send + Sync {
    /// The free space of a metaslab, and the txg of that state; `None` if its map is
    /// unreadable.
    fn read_free_ranges(&self, vdev: VdevId, metaslab: MetaslabId) -> Option<(RangeSet, Txg)>;
}

/// The allocator of a pool.
#[derive(Default)]
pub struct Allocator {
    pub(crate) groups: RwLock<BTreeMap<VdevId, Arc<MetaslabGroup>>>,
    pub(crate) rotors: [Mutex<Rotor>; Class::ALL.len()],
    map_reader: RwLock<Option<Arc<dyn MapReader>>>,
    /// Locked by the thread that reads maps ahead.
    map_read_lock: Mutex<()>,
    pins: Arc<Pins>,
    pub(crate) removed_vdevs: RwLock<BTreeMap<VdevId, Arc<RemovedVdev>>>,
    pub(crate) removing: RwLock<Option<Arc<RemovingVdev>>>,
    pub(crate) checkpoint: Checkpoint,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Allocator({:?})", self.class_usage(Class::Normal))
    }
}

impl Allocator {
    /// The allocator of vdevs whose metaslabs are not loaded yet.
    pub fn new(tops: Vec<MetaslabGroupSpec>) -> Self {
        let allocator = Self::default();
        for spec in tops {
            allocator.add_vdev(spec);
        }
        allocator
    }

    /// Has the maps of metaslabs read when they are needed. Without this, allocating fails with
    /// [`Error::NotLoaded`].
    pub fn set_map_reader(&self, reader: Arc<dyn MapReader>) {
        *self.map_reader.write() = Some(reader);
    }

    /// Adds a vdev whose metaslabs are not loaded yet.
    pub fn add_vdev(&self, spec: MetaslabGroupSpec) {
        self.insert_vdev(spec, true);
    }

    /// Adds a vdev on which nothing is allocated until [`Allocator::set_allocatable`] allows it.
    pub fn add_closed_vdev(&self, spec: MetaslabGroupSpec) {
        self.insert_vdev(spec, false);
    }

    fn insert_vdev(&self, spec: MetaslabGroupSpec, is_allocatable: bool) {
        let (vdev, class) = (spec.vdev, spec.class);
        let top = Arc::new(MetaslabGroup::new(spec));
        top.is_allocatable.store(is_allocatable, Ordering::Relaxed);
        self.groups.write().insert(vdev, Arc::clone(&top));
        self.rotors[class as usize].lock().add(top);
    }

    /// Sets the allocated bytes of each unloaded metaslab, and log2 of the longest free range if
    /// known, in their order: these decide which to load. Reserves one for embedded logs if there
    /// are enough.
    pub fn set_metaslab_hints(
        &self,
        vdev: VdevId,
        known: &[(u64, Option<u32>)],
    ) -> Result<(), Error> {
        let top = self.group(vdev)?;
        let mut state = top.state.lock();
        for (slab, (allocated, hint)) in state.metaslabs.iter_mut().zip(known) {
            if !slab.is_loaded() {
                // a larger figure is wrong; the map is read before anything is allocated by it
                slab.allocated = (*allocated).min(slab.size());
                slab.largest_bucket_hint = *hint;
            }
        }
        state.reserve_log_metaslab(&top.spec);
        top.update_available(&state);
        let embedded = state.log_index.is_some();
        drop(state);
        let mut rotor = self.rotors[Class::EmbeddedLog as usize].lock();
        if embedded && rotor.groups().iter().all(|other| other.spec.vdev != vdev) {
            rotor.add(Arc::clone(&top));
        }
        Ok(())
    }

    /// Loads all metaslabs of a new vdev: all is free.
    pub fn load_empty(&self, vdev: VdevId) -> Result<(), Error> {
        for metaslab in self.metaslabs(vdev)? {
            let extent = self.extent(vdev, metaslab)?;
            self.load_metaslab(vdev, metaslab, RangeSet::from_range(extent), Txg::ZERO)?;
        }
        self.set_metaslab_hints(vdev, &[])
    }

    /// The metaslabs of a vdev.
    pub fn metaslabs(&self, vdev: VdevId) -> Result<Vec<MetaslabId>, Error> {
        let top = self.group(vdev)?;
        let count = top.state.lock().metaslabs.len();
        Ok((0..count).map(metaslab_id).collect())
    }

    /// The bytes of a metaslab in its vdev.
    pub fn extent(&self, vdev: VdevId, metaslab: MetaslabId) -> Result<Range<u64>, Error> {
        self.with_metaslab(vdev, metaslab, |slab| slab.extent.clone())
    }

    /// Sets the free space of a metaslab, from its maps as they were when `as_of` was on disk.
    /// [`Error::StaleMap`] if space freed since then has been reused: read them again.
    pub fn load_metaslab(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
        free: RangeSet,
        as_of: Txg,
    ) -> Result<(), Error> {
        let top = self.group(vdev)?;
        let at = metaslab_index(vdev, metaslab, &top)?;
        let mut state = top.state.lock();
        if !state.load(at, free, as_of) {
            return Err(Error::StaleMap { vdev, metaslab });
        }
        top.update_available(&state);
        Ok(())
    }

    /// Whether a metaslab is loaded.
    pub fn is_loaded(&self, vdev: VdevId, metaslab: MetaslabId) -> Result<bool, Error> {
        self.with_metaslab(vdev, metaslab, Metaslab::is_loaded)
    }

    /// The metaslabs that are not loaded, the best of each vdev first.
    pub fn unloaded_metaslabs(&self) -> Vec<(VdevId, MetaslabId)> {
        let all = self.groups.read();
        let of = |top: &Arc<MetaslabGroup>| {
            let vdev = top.spec.vdev;
            let unread = top.state.lock().unloaded();
            unread.into_iter().map(move |metaslab| (vdev, metaslab))
        };
        all.values().flat_map(of).collect()
    }

    /// The free ranges of a loaded metaslab after all drained changes are written: the content of
    /// its map if it is rewritten.
    pub fn free_as_written(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
    ) -> Result<Option<RangeSet>, Error> {
        self.with_metaslab(vdev, metaslab, Metaslab::free_as_written)
    }

    /// How many ranges no block has in a loaded metaslab, by log2 of their bytes.
    pub fn histogram(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
    ) -> Result<Option<[u64; 64]>, Error> {
        self.with_metaslab(vdev, metaslab, Metaslab::histogram)
    }

    /// Opens a vdev for allocation, or closes it (one that is being removed, or is missing).
    pub fn set_allocatable(&self, vdev: VdevId, open: bool) -> Result<(), Error> {
        self.group(vdev)?.is_allocatable.store(open, Ordering::Relaxed);
        Ok(())
    }

    /// Allocates each copy of a block, on different vdevs if there are several. All copies or
    /// none.
    pub fn allocate(&self, want: &AllocRequest) -> Result<[Option<Dva>; 3], Error> {
        loop {
            match self.allocate_once(want) {
                Err(Error::NotLoaded { vdev, metaslab }) => {
                    self.read_and_load(vdev, metaslab, want.txg)?;
                }
                other => return other,
            }
        }
    }

    fn allocate_once(&self, want: &AllocRequest) -> Result<[Option<Dva>; 3], Error> {
        for class in want.class.fallback_order() {
            if let Some(found) = self.allocate_in_class(*class, want)? {
                return Ok(found);
            }
        }
        Err(Error::NoSpace { psize: want.psize })
    }

    /// Has maps read again that could not be read, when they are needed: drives may be back.
    pub fn retry_unreadable_maps(&self) {
        for top in self.groups.read().values() {
            top.state.lock().metaslabs.iter_mut().for_each(Metaslab::reset_read_backoff);
        }
    }

    /// Reads the map of a metaslab and loads it, if there is a map reader. An unreadable
    /// one is not used for some txgs, or until [`Self::retry_unreadable_maps`].
    pub(crate) fn read_and_load(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
        txg: Txg,
    ) -> Result<(), Error> {
        let reader = self.map_reader.read().clone();
        let reader = reader.ok_or(Error::NotLoaded { vdev, metaslab })?;
        for _ in 0..MAX_READS {
            if let Some((free, as_of)) = reader.read_free_ranges(vdev, metaslab) {
                match self.load_metaslab(vdev, metaslab, free, as_of) {
                    Err(Error::StaleMap { .. }) => continue,
                    other => return other,
                }
            }
            break;
        }
        let top = self.group(vdev)?;
        let at = metaslab_index(vdev, metaslab, &top)?;
        let mut state = top.state.lock();
        if !state.metaslabs[at].is_loaded() {
            state.metaslabs[at].defer_read(txg);
        }
        top.update_available(&state);
        Ok(())
    }

    /// Loads metaslabs of a class, the best first, until this many bytes are known to be free or no
    /// readable map is left: an unloaded map's figures are no guarantee.
    pub fn ensure_loaded_free(&self, class: Class, bytes: u64, txg: Txg) {
        if self.loaded_free(class) >= bytes {
            return;
        }
        let _one = self.map_read_lock.lock();
        while self.loaded_free(class) < bytes
            && let Some((vdev, metaslab)) = self.next_unloaded(class, txg)
            && self.read_and_load(vdev, metaslab, txg).is_ok()
        {}
    }

    /// Bytes that are known to be free.
    fn loaded_free(&self, class: Class) -> u64 {
        let tops = self.groups.read();
        tops.values()
            .filter(|top| top.can_allocate(class))
            .map(|top| top.state.lock().loaded_free())
            .sum()
    }

    /// The next map to load.
    fn next_unloaded(&self, class: Class, txg: Txg) -> Option<(VdevId, MetaslabId)> {
        let tops = self.groups.read();
        tops.values().filter(|top| top.can_allocate(class)).find_map(|top| {
            let metaslab = top.state.lock().best_unloaded(false, 1, txg)?;
            Some((top.spec.vdev, metaslab))
        })
    }

    fn allocate_in_class(
        &self,
        class: Class,
        want: &AllocRequest,
    ) -> Result<Option<[Option<Dva>; 3]>, Error> {
        let mut copies = [None; 3];
        let wanted = usize::from(want.copies).min(3);
        for copy in 0..wanted {
            match self.allocate_copy(class, want, &copies) {
                Ok(Some(dva)) => {
                    let end = dva.offset + dva.asize;
                    let is_apart = |other: &Dva| {
                        other.vdev != dva.vdev
                            || other.offset + other.asize <= dva.offset
                            || end <= other.offset
                    };
                    let others = copies.iter().flatten();
                    assert!(others.clone().all(is_apart), "the copies of a block share no bytes");
                    copies[copy] = Some(dva);
                }
                other => {
                    for dva in copies.into_iter().flatten() {
                        self.unallocate(&dva, want.txg)?;
                    }
                    return other.map(|_| None);
                }
            }
        }
        let found = copies.iter().flatten().count();
        assert_eq!(found, wanted, "a block has all its copies, or none");
        Ok(Some(copies))
    }

    fn allocate_copy(
        &self,
        class: Class,
        want: &AllocRequest,
        others: &[Option<Dva>; 3],
    ) -> Result<Option<Dva>, Error> {
        let mut rotor = self.rotors[class as usize].lock();
        let mut unread = None;
        for index in allocation_order(&mut rotor, class, want, others) {
            let top = Arc::clone(&rotor.groups()[index]);
            let (vdev, asize) = (top.spec.vdev, top.psize_to_asize(want.psize, want.txg).max(1));
            let mut near = [0; 3];
            let count = copy_offsets(others, vdev, &mut near);
            match top.allocate(class, asize, want.txg, &near[..count]) {
                AllocResult::Offset(offset) => {
                    rotor.charge(index, asize);
                    return Ok(Some(Dva { vdev, offset, asize, gang: false }));
                }
                AllocResult::NeedsLoad(metaslab) => unread = unread.or(Some((vdev, metaslab))),
                AllocResult::NoSpace => {}
            }
            rotor.skip(index);
        }
        match unread {
            Some((vdev, metaslab)) => Err(Error::NotLoaded { vdev, metaslab }),
            None => Ok(None),
        }
    }

    /// The largest block that fits in one piece, in one copy: stored bytes, of loaded
    /// metaslabs.
    pub fn largest_free_block(&self, class: Class) -> u64 {
        let of = |class: &Class| {
            let rotor = self.rotors[*class as usize].lock();
            let open =
                rotor.groups().iter().filter(|top| top.is_allocatable.load(Ordering::Relaxed));
            open.map(|top| top.largest_free_block(*class)).max().unwrap_or(0)
        };
        class.fallback_order().iter().map(of).max().unwrap_or(0)
    }

    /// Allocates a block that the maps do not have: one of an intent log.
    pub fn claim(&self, dva: &Dva, txg: Txg) -> Result<(), Error> {
        // Rule Z5: the map is read before the claim. Without it the range would be free once it is read, and
        // a block of the log would be overwritten before its replay.
        let top = self.group(dva.vdev)?;
        let range = dva_range(&top, dva);
        let mut state = top.state.lock();
        let at = top.require_metaslab(&state, &range)?;
        if !state.metaslabs[at].is_loaded() {
            drop(state);
            self.read_and_load(dva.vdev, metaslab_id(at), txg)?;
            state = top.state.lock();
        }
        if !state.metaslabs[at].is_loaded() {
            return Err(Error::NotLoaded { vdev: dva.vdev, metaslab: metaslab_id(at) });
        }
        let (vdev, offset, length) = (dva.vdev, range.start, range.end - range.start);
        if state.claim(at, range, txg) {
            return Ok(());
        }
        Err(Error::NotFree { vdev, offset, length })
    }

    /// Undoes an allocation of `txg` whose write failed, or that was not used: no pointer
    /// refers to it.
    pub fn unallocate(&self, dva: &Dva, txg: Txg) -> Result<(), Error> {
        let top = self.group(dva.vdev)?;
        let range = dva_range(&top, dva);
        let mut state = top.state.lock();
        let at = top.require_metaslab(&state, &range)?;
        // Rule W1: an allocation that is in a space map already is freed, and waits like all freed space. Made
        // free at once, it could be allocated in a txg whose map has it as allocated.
        if state.unallocate(at, range, txg) {
            return Ok(());
        }
        drop(state);
        self.free(dva, txg)
    }

    /// Whether `txg` changed anything since it was last taken.
    pub fn has_changes(&self, txg: Txg) -> bool {
        self.groups.read().values().any(|top| top.state.lock().is_dirty(txg))
    }

    /// Drains the changes of `txg` since the last call, to be written to space maps, which may
    /// change something again: call it until it returns nothing.
    pub fn drain_changes(&self, txg: Txg) -> Vec<MetaslabChange> {
        let mut all = Vec::new();
        for top in self.groups.read().values() {
            for (metaslab, changed) in top.state.lock().drain_changes(txg) {
                let (allocated, freed) = (changed.allocated, changed.freed);
                all.push(MetaslabChange { vdev: top.spec.vdev, metaslab, allocated, freed });
            }
        }
        all
    }

    /// A txg is on disk, all its changes in space maps. Its frees become allocatable when two more
    /// are.
    pub fn mark_synced(&self, txg: Txg) {
        // Rule W1: the caller has flushed the uberblock of `txg`. Space that is released earlier could be
        // overwritten, and a crash would import the last txg, which still refers to it.
        let kept = self.pins.min_pinned_txg();
        let mut short = false;
        for top in self.groups.read().values() {
            let mut state = top.state.lock();
            let held = state.mark_synced(txg, kept);
            top.update_available(&state);
            let all: u64 =
                Class::ALL.into_iter().map(|class| top.available(class)).max().unwrap_or(0);
            short |= held > all / MAX_PINNED_FRACTION;
        }
        if short {
            self.pins.request_release();
        }
    }

    /// Pins the blocks freed from now on: they are not reused before the pin is dropped. The blocks
    /// of the txg `synced` can be read, and repaired in place, meanwhile.
    pub fn pin(&self, synced: Txg) -> Pin {
        Pins::add_pin(&self.pins, synced)
    }

    /// Space is short: requests the release of pins, and waits for it.
    pub fn wait_for_pins(&self) {
        self.pins.wait_for_release();
    }

    /// The used space of a vdev.
    pub fn vdev_usage(&self, vdev: VdevId) -> Result<SpaceUsage, Error> {
        let top = self.group(vdev)?;
        let state = top.state.lock();
        Ok(SpaceUsage::of_metaslabs(state.metaslabs.iter()))
    }

    /// The used space of each metaslab of a vdev that is not reserved for embedded logs; with its
    /// number.
    pub fn metaslab_usage(&self, vdev: VdevId) -> Result<Vec<(usize, SpaceUsage)>, Error> {
        let top = self.group(vdev)?;
        let state = top.state.lock();
        let slabs =
            state.metaslabs.iter().enumerate().filter(|(at, _)| state.log_index != Some(*at));
        Ok(slabs.map(|(at, slab)| (at, SpaceUsage::of_metaslabs(std::iter::once(slab)))).collect())
    }

    /// The vdevs of a class.
    pub fn vdevs_in_class(&self, class: Class) -> Vec<VdevId> {
        let tops = self.groups.read();
        let of_class = tops.iter().filter(|(_, top)| top.spec.class == class);
        of_class.map(|(vdev, _)| *vdev).collect()
    }

    /// The class of a vdev.
    pub fn vdev_class(&self, vdev: VdevId) -> Result<Class, Error> {
        Ok(self.group(vdev)?.spec.class)
    }

    /// The used space of a class.
    pub fn class_usage(&self, class: Class) -> SpaceUsage {
        let rotor = self.rotors[class as usize].lock();
        let mut all = SpaceUsage::default();
        for top in rotor.groups() {
            let state = top.state.lock();
            let of_class =
                |at: usize| (state.log_index == Some(at)) == (class == Class::EmbeddedLog);
            let slabs = state.metaslabs.iter().enumerate().filter(|(at, _)| of_class(*at));
            let mut usage = SpaceUsage::of_metaslabs(slabs.map(|(_, slab)| slab));
            if !top.is_allocatable.load(Ordering::Relaxed) {
                usage.unreadable = usage.capacity - usage.allocated - usage.deferred;
            }
            all += usage;
        }
        all
    }

    pub(crate) fn group(&self, vdev: VdevId) -> Result<Arc<MetaslabGroup>, Error> {
        let none = Error::InvalidRange { vdev, offset: 0, length: 0 };
        self.groups.read().get(&vdev).cloned().ok_or(none)
    }

    fn with_metaslab<T>(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
        ask: impl FnOnce(&Metaslab) -> T,
    ) -> Result<T, Error> {
        let top = self.group(vdev)?;
        let at = metaslab_index(vdev, metaslab, &top)?;
        let state = top.state.lock();
        Ok(ask(&state.metaslabs[at]))
    }
}

/// The vdevs of a class in the order in which to try them for one more copy.
fn allocation_order(
    rotor: &mut Rotor,
    class: Class,
    want: &AllocRequest,
    others: &[Option<Dva>; 3],
) -> Vec<usize> {
    let (first, count) = (rotor.next_index(class), rotor.groups().len());
    let mut order: Vec<usize> = (0..count).map(|step| (first + step) % count).collect();
    let has = |vdev: VdevId| others.iter().flatten().any(|other| other.vdev == vdev);
    order.sort_by_key(|index| {
        let vdev = rotor.groups()[*index].spec.vdev;
        (
            has(vdev),
            Some(vdev) == want.avoided_vdev,
            want.preferred_vdev.is_some() && Some(vdev) != want.preferred_vdev,
        )
    });
    order
}

pub(crate) fn metaslab_index(
    vdev: VdevId,
    metaslab: MetaslabId,
    top: &MetaslabGroup,
) -> Result<usize, Error> {
    let at = units::to_usize(metaslab.get());
    let offset = u64::from(metaslab.get()) << top.spec.metaslab_shift.min(31);
    let none = Error::InvalidRange { vdev, offset, length: 0 };
    if at < top.state.lock().metaslabs.len() { Ok(at) } else { Err(none) }
}

/// The bytes that an address has allocated.
pub(crate) fn dva_range(top: &MetaslabGroup, dva: &Dva) -> Range<u64> {
    let length = if dva.gang { top.psize_to_asize(GANG_HEADER_SIZE, Txg::ZERO) } else { dva.asize };
    dva.offset..dva.offset + length
}

fn copy_offsets(others: &[Option<Dva>; 3], vdev: VdevId, near: &mut [u64; 3]) -> usize {
    let on_it = others.iter().flatten().filter(|other| other.vdev == vdev);
    let mut count = 0;
    for (other, place) in on_it.zip(near) {
        *place = other.offset;
        count += 1;
    }
    count
}
