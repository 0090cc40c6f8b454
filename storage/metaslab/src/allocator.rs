//! The allocator of a pool: all vdevs, all classes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::Dva;
use parking_lot::{Mutex, RwLock};
use units::{MetaslabId, Txg, VdevId};

use crate::pin::{Pin, Pins};
use crate::removed::Removed;
use crate::rotor::Rotor;
use crate::slab::Slab;
use crate::top::{Found, Top, TopSpec, id};
use crate::{Class, Error, Ranges};

/// Bytes of a gang header, which is what an address of one has allocated.
pub(crate) const GANG_HEADER: u64 = 512;
/// A map that is too old as soon as it is read is read again so often.
const MOST_READS: usize = 8;

/// When one part in so many of what is free on a vdev is kept by a pin, that is too much.
const SHARE_HELD: u64 = 4;

/// What is wanted of the allocator.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Bytes to be stored.
    pub psize: u64,
    /// How often: 1 to 3.
    pub copies: u8,
    /// What kind of space.
    pub class: Class,
    /// The txg that the block is written in.
    pub txg: Txg,
    /// The vdev to try first.
    pub hint: Option<VdevId>,
    /// A vdev to try last.
    pub avoid: Option<VdevId>,
}

impl Want {
    /// One copy in the normal class.
    pub const fn new(psize: u64, txg: Txg) -> Self {
        Self { psize, copies: 1, class: Class::Normal, txg, hint: None, avoid: None }
    }
}

/// What one txg changed in one metaslab since it was last asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The vdev.
    pub vdev: VdevId,
    /// Its metaslab.
    pub metaslab: MetaslabId,
    /// What came into use: bytes from the end of the vdev's front labels.
    pub allocated: Vec<Range<u64>>,
    /// What went out of use.
    pub freed: Vec<Range<u64>>,
}

/// What is used of a vdev or a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of all metaslabs.
    pub capacity: u64,
    /// Bytes that blocks have.
    pub allocated: u64,
    /// Bytes that were freed, and may not be used yet.
    pub deferred: u64,
    /// Bytes that nobody has, of metaslabs whose maps could not be read.
    pub out_of_reach: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.capacity += other.capacity;
        self.allocated += other.allocated;
        self.deferred += other.deferred;
        self.out_of_reach += other.out_of_reach;
    }
}

/// Somebody who can read the maps of metaslabs.
pub trait ReadMap: Send + Sync {
    /// What is free in a metaslab, and the txg as of whose sync that is; `None` if its map cannot be
    /// read.
    fn read(&self, vdev: VdevId, metaslab: MetaslabId) -> Option<(Ranges, Txg)>;
}

/// The allocator of a pool.
#[derive(Default)]
pub struct Allocator {
    tops: RwLock<BTreeMap<VdevId, Arc<Top>>>,
    rotors: [Mutex<Rotor>; Class::ALL.len()],
    reader: RwLock<Option<Arc<dyn ReadMap>>>,
    /// Held by who reads maps ahead.
    reading: Mutex<()>,
    pins: Arc<Pins>,
    pub(crate) removed: RwLock<BTreeMap<VdevId, Arc<Removed>>>,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Allocator({:?})", self.usage(Class::Normal))
    }
}

impl Allocator {
    /// Of vdevs whose metaslabs are still to be loaded.
    pub fn new(tops: Vec<TopSpec>) -> Self {
        let allocator = Self::default();
        for spec in tops {
            allocator.add_top(spec);
        }
        allocator
    }

    /// Has the maps of metaslabs read when they are needed. Without this, allocating fails with
    /// [`Error::NotLoaded`].
    pub fn read_with(&self, reader: Arc<dyn ReadMap>) {
        *self.reader.write() = Some(reader);
    }

    /// Adds a vdev whose metaslabs are still to be loaded.
    pub fn add_top(&self, spec: TopSpec) {
        let (vdev, class) = (spec.vdev, spec.class);
        let top = Arc::new(Top::new(spec));
        self.tops.write().insert(vdev, Arc::clone(&top));
        self.rotors[class as usize].lock().add(top);
    }

    /// Says of metaslabs that are not loaded how many bytes of each are allocated, and log2 of the
    /// longest free range if that is known, in their order: by this is chosen which to load.
    /// Sets one aside for embedded logs if there are enough.
    pub fn describe(&self, vdev: VdevId, known: &[(u64, Option<u32>)]) -> Result<(), Error> {
        let top = self.top(vdev)?;
        let mut state = top.state.lock();
        for (slab, (allocated, hint)) in state.slabs.iter_mut().zip(known) {
            if !slab.is_loaded() {
                slab.allocated = *allocated;
                slab.hint = *hint;
            }
        }
        state.set_log_aside(&top.spec);
        top.count(&state);
        let embedded = state.log.is_some();
        drop(state);
        let mut rotor = self.rotors[Class::EmbeddedLog as usize].lock();
        if embedded && rotor.tops().iter().all(|other| other.spec.vdev != vdev) {
            rotor.add(Arc::clone(&top));
        }
        Ok(())
    }

    /// Loads all metaslabs of a new vdev: all is free.
    pub fn load_empty(&self, vdev: VdevId) -> Result<(), Error> {
        for metaslab in self.metaslabs(vdev)? {
            let extent = self.extent(vdev, metaslab)?;
            self.load(vdev, metaslab, Ranges::of(extent), Txg::ZERO)?;
        }
        self.describe(vdev, &[])
    }

    /// The metaslabs of a vdev.
    pub fn metaslabs(&self, vdev: VdevId) -> Result<Vec<MetaslabId>, Error> {
        let top = self.top(vdev)?;
        let count = top.state.lock().slabs.len();
        Ok((0..count).map(id).collect())
    }

    /// The bytes of a metaslab in its vdev.
    pub fn extent(&self, vdev: VdevId, metaslab: MetaslabId) -> Result<Range<u64>, Error> {
        self.with_slab(vdev, metaslab, |slab| slab.extent.clone())
    }

    /// Takes what is free in a metaslab, from its maps as they were when `as_of` was on disk.
    /// [`Error::Stale`] if space freed since then has been reused: read them again.
    pub fn load(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
        free: Ranges,
        as_of: Txg,
    ) -> Result<(), Error> {
        let top = self.top(vdev)?;
        let at = place(vdev, metaslab, &top)?;
        let mut state = top.state.lock();
        if !state.load(at, free, as_of) {
            return Err(Error::Stale { vdev, metaslab });
        }
        top.count(&state);
        Ok(())
    }

    /// Whether a metaslab is loaded.
    pub fn is_loaded(&self, vdev: VdevId, metaslab: MetaslabId) -> Result<bool, Error> {
        self.with_slab(vdev, metaslab, Slab::is_loaded)
    }

    /// The metaslabs that are not loaded, the best of each vdev first.
    pub fn unloaded(&self) -> Vec<(VdevId, MetaslabId)> {
        let all = self.tops.read();
        let of = |top: &Arc<Top>| {
            let vdev = top.spec.vdev;
            let unread = top.state.lock().unread();
            unread.into_iter().map(move |metaslab| (vdev, metaslab))
        };
        all.values().flat_map(of).collect()
    }

    /// What no block has in a loaded metaslab once all that was taken to be written is written:
    /// what its map says if it is written anew.
    pub fn as_written(&self, vdev: VdevId, metaslab: MetaslabId) -> Result<Option<Ranges>, Error> {
        self.with_slab(vdev, metaslab, Slab::as_written)
    }

    /// How many ranges no block has in a loaded metaslab, by log2 of their bytes.
    pub fn histogram(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
    ) -> Result<Option<[u64; 64]>, Error> {
        self.with_slab(vdev, metaslab, Slab::histogram)
    }

    /// Opens a vdev for allocation, or closes it (one that is being removed, or is missing).
    pub fn set_open(&self, vdev: VdevId, open: bool) -> Result<(), Error> {
        self.top(vdev)?.open.store(open, Ordering::Relaxed);
        Ok(())
    }

    /// Room for each copy of a block, on different vdevs where there are several. All copies or
    /// none.
    pub fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], Error> {
        loop {
            match self.allocate_once(want) {
                Err(Error::NotLoaded { vdev, metaslab }) => {
                    self.read_map(vdev, metaslab, want.txg)?;
                }
                other => return other,
            }
        }
    }

    fn allocate_once(&self, want: &Want) -> Result<[Option<Dva>; 3], Error> {
        for class in want.class.places() {
            if let Some(found) = self.allocate_in(*class, want)? {
                return Ok(found);
            }
        }
        Err(Error::NoSpace { psize: want.psize })
    }

    /// Has maps read again that could not be read, when they are needed: drives may be back.
    pub fn try_again(&self) {
        for top in self.tops.read().values() {
            top.state.lock().slabs.iter_mut().for_each(Slab::try_again);
        }
    }

    /// Reads the map of a metaslab and loads it, if there is somebody who can read maps. One that
    /// cannot be read is left alone for some txgs, or until it [may be](Self::try_again).
    fn read_map(&self, vdev: VdevId, metaslab: MetaslabId, txg: Txg) -> Result<(), Error> {
        let reader = self.reader.read().clone();
        let reader = reader.ok_or(Error::NotLoaded { vdev, metaslab })?;
        for _ in 0..MOST_READS {
            if let Some((free, as_of)) = reader.read(vdev, metaslab) {
                match self.load(vdev, metaslab, free, as_of) {
                    Err(Error::Stale { .. }) => continue,
                    other => return other,
                }
            }
            break;
        }
        let top = self.top(vdev)?;
        let at = place(vdev, metaslab, &top)?;
        let mut state = top.state.lock();
        if !state.slabs[at].is_loaded() {
            state.slabs[at].leave_alone(txg);
        }
        top.count(&state);
        Ok(())
    }

    /// Reads maps of a class, the best first, until so many bytes are known to be free or no map is
    /// left that can be read: what is said of one that was not read is no promise.
    pub fn make_sure_of(&self, class: Class, bytes: u64, txg: Txg) {
        if self.known(class) >= bytes {
            return;
        }
        let _one = self.reading.lock();
        while self.known(class) < bytes
            && let Some((vdev, metaslab)) = self.unread(class, txg)
            && self.read_map(vdev, metaslab, txg).is_ok()
        {}
    }

    /// Bytes that are known to be free.
    fn known(&self, class: Class) -> u64 {
        let tops = self.tops.read();
        tops.values().filter(|top| top.is_open_to(class)).map(|top| top.state.lock().known()).sum()
    }

    /// A map that would tell of more.
    fn unread(&self, class: Class, txg: Txg) -> Option<(VdevId, MetaslabId)> {
        let tops = self.tops.read();
        tops.values().filter(|top| top.is_open_to(class)).find_map(|top| {
            let metaslab = top.state.lock().best_unread(false, 1, txg)?;
            Some((top.spec.vdev, metaslab))
        })
    }

    fn allocate_in(&self, class: Class, want: &Want) -> Result<Option<[Option<Dva>; 3]>, Error> {
        let mut copies = [None; 3];
        let wanted = usize::from(want.copies).min(3);
        for copy in 0..wanted {
            match self.allocate_copy(class, want, &copies) {
                Ok(Some(dva)) => copies[copy] = Some(dva),
                other => {
                    for dva in copies.into_iter().flatten() {
                        self.unallocate(&dva, want.txg)?;
                    }
                    return other.map(|_| None);
                }
            }
        }
        Ok(Some(copies))
    }

    fn allocate_copy(
        &self,
        class: Class,
        want: &Want,
        others: &[Option<Dva>; 3],
    ) -> Result<Option<Dva>, Error> {
        let mut rotor = self.rotors[class as usize].lock();
        let mut unread = None;
        for index in order(&mut rotor, class, want, others) {
            let top = Arc::clone(&rotor.tops()[index]);
            let (vdev, asize) = (top.spec.vdev, top.cost(want.psize).max(1));
            let mut near = [0; 3];
            let count = offsets(others, vdev, &mut near);
            match top.allocate(class, asize, want.txg, &near[..count]) {
                Found::At(offset) => {
                    rotor.used(index, asize);
                    return Ok(Some(Dva { vdev, offset, asize, gang: false }));
                }
                Found::Unread(metaslab) => unread = unread.or(Some((vdev, metaslab))),
                Found::Full => {}
            }
            rotor.pass(index);
        }
        match unread {
            Some((vdev, metaslab)) => Err(Error::NotLoaded { vdev, metaslab }),
            None => Ok(None),
        }
    }

    /// The largest block for which there is room in one piece, in one copy: bytes to be stored.
    /// Of metaslabs that are loaded.
    pub fn largest(&self, class: Class) -> u64 {
        let of = |class: &Class| {
            let rotor = self.rotors[*class as usize].lock();
            let open = rotor.tops().iter().filter(|top| top.open.load(Ordering::Relaxed));
            open.map(|top| largest_on(top, *class)).max().unwrap_or(0)
        };
        class.places().iter().map(of).max().unwrap_or(0)
    }

    /// Frees what a copy of a block has.
    pub fn free(&self, dva: &Dva, txg: Txg) -> Result<(), Error> {
        if let Some(freed) = self.free_moved(dva, txg) {
            return freed;
        }
        let top = self.top(dva.vdev)?;
        let range = range_of(&top, dva);
        let mut state = top.state.lock();
        let at = top.slab_of(&state, &range)?;
        let (vdev, offset, length) = (dva.vdev, range.start, range.end - range.start);
        if state.free(at, range, txg) {
            return Ok(());
        }
        Err(Error::NotAllocated { vdev, offset, length })
    }

    /// Allocates just what a block has that the maps do not know of: one of an intent log.
    pub fn claim(&self, dva: &Dva, txg: Txg) -> Result<(), Error> {
        let top = self.top(dva.vdev)?;
        let range = range_of(&top, dva);
        let mut state = top.state.lock();
        let at = top.slab_of(&state, &range)?;
        if !state.slabs[at].is_loaded() {
            drop(state);
            self.read_map(dva.vdev, id(at), txg)?;
            state = top.state.lock();
        }
        if !state.slabs[at].is_loaded() {
            return Err(Error::NotLoaded { vdev: dva.vdev, metaslab: id(at) });
        }
        let (vdev, offset, length) = (dva.vdev, range.start, range.end - range.start);
        if state.claim(at, range, txg) {
            return Ok(());
        }
        Err(Error::NotFree { vdev, offset, length })
    }

    /// Takes back an allocation of `txg` whose write failed, or that was not used: nothing points
    /// there.
    pub fn unallocate(&self, dva: &Dva, txg: Txg) -> Result<(), Error> {
        let top = self.top(dva.vdev)?;
        let range = range_of(&top, dva);
        let mut state = top.state.lock();
        let at = top.slab_of(&state, &range)?;
        if state.unallocate(at, range, txg) {
            return Ok(());
        }
        drop(state);
        self.free(dva, txg)
    }

    /// Whether `txg` changed anything since it was last taken.
    pub fn has_changes(&self, txg: Txg) -> bool {
        self.tops.read().values().any(|top| top.state.lock().is_dirty(txg))
    }

    /// Takes what `txg` changed since this was last asked, to be written to space maps, which may
    /// change something again: ask until there is nothing.
    pub fn take_changes(&self, txg: Txg) -> Vec<Change> {
        let mut all = Vec::new();
        for top in self.tops.read().values() {
            for (metaslab, changed) in top.state.lock().take_changes(txg) {
                let (allocated, freed) = (changed.allocated, changed.freed);
                all.push(Change { vdev: top.spec.vdev, metaslab, allocated, freed });
            }
        }
        all
    }

    /// A txg is on disk, all its changes in space maps. What it freed may be used when two more
    /// are.
    pub fn synced(&self, txg: Txg) {
        let kept = self.pins.kept();
        let mut short = false;
        for top in self.tops.read().values() {
            let mut state = top.state.lock();
            let held = state.synced(txg, kept);
            top.count(&state);
            let all: u64 =
                Class::ALL.into_iter().map(|class| top.available(class)).max().unwrap_or(0);
            short |= held > all / SHARE_HELD;
        }
        if short {
            self.pins.press();
        }
    }

    /// Keeps what is freed from now on from being used, as long as the pin is not dropped: what the
    /// last txg leads to, which is `synced`, can be read and written in its place meanwhile.
    pub fn pin(&self, synced: Txg) -> Pin {
        Pins::pin(&self.pins, synced)
    }

    /// Room is short: who holds a pin is asked to drop it, and waited for.
    pub fn make_room(&self) {
        self.pins.wait();
    }

    /// What is used of a vdev.
    pub fn usage_of(&self, vdev: VdevId) -> Result<Usage, Error> {
        let top = self.top(vdev)?;
        let state = top.state.lock();
        Ok(sum(state.slabs.iter()))
    }

    /// What is used of each metaslab of a vdev that is not kept for embedded logs; with its number.
    pub fn usage_of_metaslabs(&self, vdev: VdevId) -> Result<Vec<(usize, Usage)>, Error> {
        let top = self.top(vdev)?;
        let state = top.state.lock();
        let slabs = state.slabs.iter().enumerate().filter(|(at, _)| state.log != Some(*at));
        Ok(slabs.map(|(at, slab)| (at, sum(std::iter::once(slab)))).collect())
    }

    /// The vdevs of a class.
    pub fn vdevs_of(&self, class: Class) -> Vec<VdevId> {
        let tops = self.tops.read();
        let of_class = tops.iter().filter(|(_, top)| top.spec.class == class);
        of_class.map(|(vdev, _)| *vdev).collect()
    }

    /// What a vdev is for.
    pub fn class_of(&self, vdev: VdevId) -> Result<Class, Error> {
        Ok(self.top(vdev)?.spec.class)
    }

    /// What is used of a class.
    pub fn usage(&self, class: Class) -> Usage {
        let rotor = self.rotors[class as usize].lock();
        let mut all = Usage::default();
        for top in rotor.tops() {
            let state = top.state.lock();
            let of_class = |at: usize| (state.log == Some(at)) == (class == Class::EmbeddedLog);
            let slabs = state.slabs.iter().enumerate().filter(|(at, _)| of_class(*at));
            all += sum(slabs.map(|(_, slab)| slab));
        }
        all
    }

    fn top(&self, vdev: VdevId) -> Result<Arc<Top>, Error> {
        let none = Error::NoPlace { vdev, offset: 0, length: 0 };
        self.tops.read().get(&vdev).cloned().ok_or(none)
    }

    fn with_slab<T>(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
        ask: impl FnOnce(&Slab) -> T,
    ) -> Result<T, Error> {
        let top = self.top(vdev)?;
        let at = place(vdev, metaslab, &top)?;
        let state = top.state.lock();
        Ok(ask(&state.slabs[at]))
    }
}

/// The vdevs of a class in the order in which to try them for one more copy.
fn order(rotor: &mut Rotor, class: Class, want: &Want, others: &[Option<Dva>; 3]) -> Vec<usize> {
    let (first, count) = (rotor.turn(class), rotor.tops().len());
    let mut order: Vec<usize> = (0..count).map(|step| (first + step) % count).collect();
    let has = |vdev: VdevId| others.iter().flatten().any(|other| other.vdev == vdev);
    order.sort_by_key(|index| {
        let vdev = rotor.tops()[*index].spec.vdev;
        (has(vdev), Some(vdev) == want.avoid, want.hint.is_some() && Some(vdev) != want.hint)
    });
    order
}

fn place(vdev: VdevId, metaslab: MetaslabId, top: &Top) -> Result<usize, Error> {
    let at = usize::try_from(metaslab.get()).unwrap_or(usize::MAX);
    let offset = u64::from(metaslab.get()) << top.spec.metaslab_shift.min(31);
    let none = Error::NoPlace { vdev, offset, length: 0 };
    if at < top.state.lock().slabs.len() { Ok(at) } else { Err(none) }
}

/// The bytes that an address has allocated.
fn range_of(top: &Top, dva: &Dva) -> Range<u64> {
    let length = if dva.gang { top.cost(GANG_HEADER) } else { dva.asize };
    dva.offset..dva.offset.saturating_add(length)
}

fn offsets(others: &[Option<Dva>; 3], vdev: VdevId, near: &mut [u64; 3]) -> usize {
    let on_it = others.iter().flatten().filter(|other| other.vdev == vdev);
    let mut count = 0;
    for (other, place) in on_it.zip(near) {
        *place = other.offset;
        count += 1;
    }
    count
}

fn sum<'a>(slabs: impl Iterator<Item = &'a Slab>) -> Usage {
    let mut all = Usage::default();
    for slab in slabs {
        let (capacity, allocated, deferred) = (slab.size(), slab.allocated, slab.waiting());
        all += Usage { capacity, allocated, deferred, out_of_reach: slab.out_of_reach() };
    }
    all
}

/// The largest psize whose cost fits the longest range of a class on a vdev.
fn largest_on(top: &Top, class: Class) -> u64 {
    let state = top.state.lock();
    let of_class = |at: usize| (state.log == Some(at)) == (class == Class::EmbeddedLog);
    let slabs = state.slabs.iter().enumerate().filter(|(at, _)| of_class(*at));
    let room = slabs.map(|(_, slab)| slab.largest()).max().unwrap_or(0);
    let sector = top.spec.ashift.bytes();
    let (mut fits, mut fails) = (0, room / sector + 1);
    while fits + 1 < fails {
        let middle = u64::midpoint(fits, fails);
        if top.cost(middle * sector) <= room { fits = middle } else { fails = middle }
    }
    fits * sector
}
