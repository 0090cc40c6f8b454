//! From an open pool to an allocator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dmu::{NewObject, Objset};
use lock::{Mutex, rank};
use metaslab::{Allocator, AsizeFn, Class, MapReader, MetaslabGroupSpec, RangeSet};
use ondisk::ObjectType;
use ondisk::label::{Bias, VdevConfig, VdevKind};
use ondisk::spacemap::{Action, Entry};
use txg::Tx;
use units::{Ashift, MetaslabId, MinusOrZero, ObjectId, Txg, VdevId};
use vdev::{VdevNode, VdevTree};
use zap::Zap;

use crate::features::{self, FeatureCheck};
use crate::space::log::{self, LoggedVdev, SpaceLog, UNFLUSHED_TXGS_ENTRY};
use crate::space::map::read_header;
use crate::space::{VdevSpace, free_space_map, removed, space_map_entries};
use crate::{Error, Pool};

/// Maps with this many bytes in all are read at once; of more, each on demand.
const EAGER_LOAD_LIMIT: u64 = 16 << 20;

/// The space of an open pool: its allocator, and the state of its space maps.
pub struct PoolSpace {
    pub(super) allocator: Arc<Allocator>,
    pub(super) maps: Arc<SpaceMaps>,
    /// The tables of removed vdevs, where it is kept what of them is obsolete.
    pub(super) obsolete_zaps: Mutex<BTreeMap<VdevId, ObjectId>, { rank::OBSOLETE_TABLES }>,
    /// The mapping of the vdev that is being removed.
    pub(super) removal: Mutex<Option<removed::RemovalMapping>, { rank::REMOVAL_MAPPING }>,
    /// Whether entries may have two words (spacemap_v2).
    pub(super) has_spacemap_v2: bool,
    /// Whether maps have histograms (spacemap_histogram).
    pub(super) has_histograms: bool,
    /// Whether changes are logged (log_spacemap).
    pub(super) is_logging: AtomicBool,
    /// Whether a checkpoint was discarded, and space that only it used is still to be freed.
    pub(super) is_discarding: AtomicBool,
    /// Space freed by recent txgs, for autotrim.
    pub(super) freed: super::freed::FreedSpace,
    /// Which maps were written in which txg.
    pub(super) written_maps:
        Mutex<(Txg, std::collections::BTreeSet<(VdevId, MetaslabId)>), { rank::WRITTEN_MAPS }>,
}

impl std::fmt::Debug for PoolSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Space({:?})", self.allocator)
    }
}

/// Where the maps are.
pub(crate) struct SpaceMaps {
    mos: Objset,
    pub(super) vdevs: Mutex<BTreeMap<VdevId, VdevSpaceMaps>, { rank::SPACE_MAPS }>,
    pub(super) log: Mutex<SpaceLog, { rank::SPACE_LOG }>,
    /// The last txg that is on disk.
    synced_txg: AtomicU64,
}

/// Where the maps of one vdev are.
#[derive(Clone, Debug)]
pub(crate) struct VdevSpaceMaps {
    pub(crate) ashift: u32,
    /// The object that lists the maps.
    pub(crate) metaslab_array: ObjectId,
    /// The vdev's own table.
    pub(crate) top_zap: Option<ObjectId>,
    pub(crate) metaslabs: Vec<MetaslabMap>,
}

/// A metaslab and its map.
#[derive(Clone, Debug)]
pub(crate) struct MetaslabMap {
    pub(crate) extent: std::ops::Range<u64>,
    /// None where nothing was ever allocated.
    pub(crate) space_map: Option<ObjectId>,
}

/// The facts of a metaslab's map without reading it, at the time of the call.
#[derive(Clone, Debug)]
pub(crate) struct MetaslabInfo {
    pub(crate) ashift: u32,
    /// The object that lists the maps of its vdev.
    pub(crate) metaslab_array: ObjectId,
    pub(crate) extent: std::ops::Range<u64>,
    /// None where nothing was ever allocated.
    pub(crate) space_map: Option<ObjectId>,
}

impl PoolSpace {
    /// Prepares allocation: reads the maps if there are few, else each on demand. `mos`
    /// is the pool's own dirty object set.
    pub fn load(pool: &Pool, mos: &Objset) -> Result<Self, Error> {
        let (space, length) = Self::open_writable(pool, mos)?;
        if length <= EAGER_LOAD_LIMIT {
            space.load_all_metaslabs()?;
        }
        Ok(space)
    }

    /// The same, but every map is read only when it is needed.
    pub fn load_lazily(pool: &Pool, mos: &Objset) -> Result<Self, Error> {
        Self::open_writable(pool, mos).map(|(space, _)| space)
    }

    /// Gives also how many bytes of maps there are.
    fn open_writable(pool: &Pool, mos: &Objset) -> Result<(Self, u64), Error> {
        check_writable(pool)?;
        Self::load_headers(pool, mos)
    }

    /// Of a pool of which nothing is to be allocated: how full it is, as far as that can be read.
    pub fn open_read_only(pool: &Pool, mos: &Objset) -> Self {
        Self::load_headers(pool, mos).map_or_else(|_| Self::empty(mos, &[]), |(space, _)| space)
    }

    fn load_headers(pool: &Pool, mos: &Objset) -> Result<(Self, u64), Error> {
        let allocator = Arc::new(Allocator::default());
        let (mut tops, mut logged, mut closed) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for space in pool.vdev_space()? {
            let Some(config) = concrete_vdev_config(pool, space.vdev) else { continue };
            let bias = crate::capacity::allocation_bias(pool, config);
            let shape = (space.asize, space.metaslab_shift);
            let spec = vdev_spec(pool.tree(), (config, bias), shape)?;
            let top = add_vdev_maps(&allocator, spec, config, &space)?;
            let unflushed = log::read_unflushed_txgs(mos, config.top_zap)?;
            let known = LoggedVdev {
                metaslab_shift: space.metaslab_shift,
                metaslab_count: top.metaslabs.len(),
                unflushed_txgs: unflushed,
            };
            logged.insert(space.vdev, known);
            tops.insert(space.vdev, top);
            if pool.tree().top(space.vdev).is_none_or(|top| is_closed_to_allocation(config, &top)) {
                closed.push(space.vdev);
            }
        }
        let log = SpaceLog::read(pool.directory(), mos, &logged)?;
        let length = describe_metaslabs(&allocator, mos, &tops, &log)?;
        let maps = SpaceMaps {
            mos: mos.clone(),
            vdevs: Mutex::new(tops),
            log: Mutex::new(log),
            synced_txg: AtomicU64::new(pool.txg().get()),
        };
        let two_words = pool.feature_refcount("com.delphix:spacemap_v2") > 0;
        let has = |guid: &str| {
            has_feature(pool, guid) && (two_words || guid != "com.delphix:spacemap_v2")
        };
        let removed = Mutex::new(removed::add_removed_vdevs(&allocator, pool));
        let removal = Mutex::new(removed::continue_removal(&allocator, pool)?);
        let new = Self::new(allocator, Arc::new(maps), has);
        let space = Self { obsolete_zaps: removed, removal, ..new };
        for vdev in closed {
            space.allocator.set_allocatable(vdev, false)?;
        }
        space.load_checkpoint(pool, mos)?;
        Ok((space, length))
    }

    /// Of a new pool: without vdevs, and with just the given ones of the features
    /// spacemap_v2, spacemap_histogram and log_spacemap. `mos` is live.
    pub fn empty(mos: &Objset, features: &[&str]) -> Self {
        let has = |guid: &str| features.contains(&guid);
        let maps = SpaceMaps {
            mos: mos.clone(),
            vdevs: Mutex::default(),
            log: Mutex::default(),
            synced_txg: AtomicU64::new(0),
        };
        Self::new(Arc::default(), Arc::new(maps), has)
    }

    fn new(allocator: Arc<Allocator>, maps: Arc<SpaceMaps>, has: impl Fn(&str) -> bool) -> Self {
        allocator.set_map_reader(Arc::clone(&maps) as Arc<dyn MapReader>);
        let zaps = maps.vdevs.lock().values().all(|top| top.top_zap.is_some());
        let has_histograms = has("com.delphix:spacemap_histogram");
        Self {
            allocator,
            maps,
            obsolete_zaps: Mutex::default(),
            removal: Mutex::default(),
            has_spacemap_v2: has("com.delphix:spacemap_v2"),
            has_histograms,
            // zdb counts each log among the maps with histograms, whether it has one or not
            is_logging: AtomicBool::new(zaps && has_histograms && has("com.delphix:log_spacemap")),
            is_discarding: AtomicBool::new(false),
            freed: super::freed::FreedSpace::default(),
            written_maps: Mutex::default(),
        }
    }

    /// Adds a new, empty vdev; nothing is allocated on it before the allocator has it. Returns the
    /// object of its metaslab array for the configuration. The feature tables must exist by
    /// the first sync.
    pub fn add_vdev(
        &self,
        tx: &Tx,
        spec: MetaslabGroupSpec,
        top_zap: Option<ObjectId>,
    ) -> Result<ObjectId, Error> {
        let array = self.maps.mos.create(tx, &NewObject::new(ObjectType::OBJECT_ARRAY, 512))?.id();
        let (vdev, shift) = (spec.vdev, spec.ashift.get());
        self.allocator.add_closed_vdev(spec);
        let mut slabs = Vec::new();
        for metaslab in self.allocator.metaslabs(vdev)? {
            slabs.push(MetaslabMap {
                extent: self.allocator.extent(vdev, metaslab)?,
                space_map: None,
            });
        }
        self.maps.vdevs.lock().insert(
            vdev,
            VdevSpaceMaps { ashift: shift, metaslab_array: array, top_zap, metaslabs: slabs },
        );
        if top_zap.is_none() {
            self.set_logging(false);
        }
        self.allocator.load_empty(vdev)?;
        Ok(array)
    }

    /// Frees all that the pool keeps about the space of a vdev that is removed, on which nothing is allocated.
    pub(crate) fn remove_vdev(&self, tx: &Tx, vdev: VdevId) -> Result<(), Error> {
        self.allocator.remove_vdev(vdev);
        let mut log = self.maps.log.lock();
        log.changes.retain(|(of, _), _| *of != vdev);
        log.flushing.retain(|(of, _), _| *of != vdev);
        log.unflushed_since.retain(|(of, _), _| *of != vdev);
        drop(log);
        let removed = self.maps.vdevs.lock().remove(&vdev);
        let Some(removed) = removed else { return Ok(()) };
        let mos = &self.maps.mos;
        for map in removed.metaslabs.iter().filter_map(|slab| slab.space_map) {
            free_space_map(mos, tx, map)?;
        }
        mos.free(tx, removed.metaslab_array)?;
        if let Some(table) = removed.top_zap
            && let Some(array) = Zap::open(mos.object(table)?)?.lookup_u64(UNFLUSHED_TXGS_ENTRY)?
        {
            mos.free(tx, ObjectId::new(array))?;
            Zap::open(mos.object(table)?)?.remove(tx, UNFLUSHED_TXGS_ENTRY)?;
        }
        Ok(())
    }

    /// Gives a vdev that grew to `asize` its new metaslabs.
    pub(crate) fn grow_vdev(&self, tx: &Tx, vdev: VdevId, asize: u64) -> Result<(), Error> {
        let count = self.allocator.grow_vdev(vdev, asize)?;
        let mut tops = self.maps.vdevs.lock();
        let Some(top) = tops.get_mut(&vdev) else { return Ok(()) };
        let first = top.metaslabs.len();
        for at in first..count {
            let metaslab = MetaslabId::new(units::narrow::<u32>(at));
            let extent = self.allocator.extent(vdev, metaslab)?;
            top.metaslabs.push(MetaslabMap { extent, space_map: None });
        }
        let array = top.metaslab_array;
        drop(tops);
        let (at, new) = (first * 8, (count - first) * 8);
        let at = units::to_u64(at);
        self.maps.mos.object(array)?.write(tx, at, &vec![0; new])?;
        Ok(())
    }

    /// Loads every metaslab.
    pub fn load_all_metaslabs(&self) -> Result<(), Error> {
        for (vdev, metaslab) in self.allocator.unloaded_metaslabs() {
            let (free, as_of) = self.maps.free_ranges(vdev, metaslab)?;
            self.allocator.load_metaslab(vdev, metaslab, free, as_of)?;
        }
        Ok(())
    }

    /// Whether changes go to a log, and to each metaslab's own map only now and then; else, and
    /// where the pool has not the feature, at once. A log that there is is emptied with the next
    /// txg then: so it is before an export.
    pub fn set_logging(&self, logging: bool) {
        self.is_logging.fetch_and(logging, Ordering::Relaxed);
    }

    /// Space that recent txgs freed.
    pub(crate) fn freed_space(&self) -> &super::freed::FreedSpace {
        &self.freed
    }

    /// The mapping of the vdev that is being removed.
    pub(crate) fn removal_mapping(&self) -> Option<removed::RemovalMapping> {
        self.removal.lock().clone()
    }

    /// A removal begins, with its mapping, or ends.
    pub(crate) fn set_removal_mapping(&self, mapping: Option<removed::RemovalMapping>) {
        *self.removal.lock() = mapping;
    }

    /// The allocator.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// A txg is on disk.
    pub fn mark_synced(&self, txg: Txg) {
        self.maps.synced_txg.store(txg.get(), Ordering::Release);
        self.allocator.mark_synced(txg);
        self.maps.log.lock().flushing.clear();
    }
}

/// Whether a vdev is excluded from allocation: one in removal, or a log whose devices are missing.
pub(crate) fn is_closed_to_allocation(config: &VdevConfig, top: &VdevNode) -> bool {
    config.removing || config.non_allocating || top.is_unavailable()
}

/// Refuses pools in the midst of something that writing does not know how to continue with.
pub(crate) fn check_writable(pool: &Pool) -> Result<(), Error> {
    if let FeatureCheck::ReadOnly(guids) = features::check_features(pool.features()) {
        let why = format!("it uses what is not known here: {}", guids.join(", "));
        return Err(Error::NotWritable { why });
    }
    Ok(())
}

fn has_feature(pool: &Pool, guid: &str) -> bool {
    pool.features().iter().any(|feature| feature.guid == guid)
}

fn concrete_vdev_config(pool: &Pool, vdev: VdevId) -> Option<&VdevConfig> {
    let root = pool.config().tree.as_ref()?;
    let concrete = |top: &&VdevConfig| {
        !matches!(top.kind, VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing)
    };
    root.children.iter().filter(concrete).find(|top| top.id == vdev)
}

/// A top-level vdev as the allocator takes it: with its asize, and log2 of the bytes of a metaslab.
pub(crate) fn vdev_spec(
    tree: &Arc<VdevTree>,
    (config, bias): (&VdevConfig, Option<Bias>),
    (asize, metaslab_shift): (u64, u32),
) -> Result<MetaslabGroupSpec, Error> {
    let found = config.ashift.unwrap_or(0);
    let why = || format!("its sector size is 2^{found} bytes");
    let bad = || vdev::Error::InvalidConfig { guid: config.guid, why: why() };
    let ashift = Ashift::new(found).ok_or_else(bad)?;
    let parity = config.nparity.and_then(|parity| u32::try_from(parity).ok()).unwrap_or(0);
    let children = units::narrow::<u32>(config.children.len());
    let (row, width) = match (&config.kind, &config.draid) {
        (_, Some(draid)) => {
            // the tree of vdevs has checked the shape
            let group = draid.data + u64::from(parity);
            (group * ashift.bytes(), units::narrow(draid.data))
        }
        (VdevKind::Raidz, None) => (ashift.bytes(), children.minus_or_zero(parity)),
        _ => (ashift.bytes(), 1),
    };
    let class = match (config.is_log, bias) {
        (true, _) | (_, Some(Bias::Log)) => Class::Log,
        (_, Some(Bias::Special)) => Class::Special,
        (_, Some(Bias::Dedup)) => Class::Dedup,
        (false, Some(Bias::Unknown(_)) | None) => Class::Normal,
    };
    let (tree, vdev) = (Arc::clone(tree), config.id);
    let cost: AsizeFn = Arc::new(move |psize: u64, birth: Txg| {
        let array = tree.asize(vdev, psize, birth);
        array.unwrap_or_else(|| ashift.round_up(psize.max(1)))
    });
    Ok(MetaslabGroupSpec {
        vdev,
        class,
        asize,
        metaslab_shift,
        ashift,
        alignment: row,
        data_width: width,
        asize_fn: cost,
    })
}

/// Adds a vdev to the allocator; gives where its maps are.
fn add_vdev_maps(
    allocator: &Allocator,
    spec: MetaslabGroupSpec,
    config: &VdevConfig,
    space: &VdevSpace,
) -> Result<VdevSpaceMaps, Error> {
    let (vdev, shift) = (spec.vdev, spec.ashift.get());
    allocator.add_vdev(spec);
    let mut slabs = Vec::new();
    for metaslab in allocator.metaslabs(vdev)? {
        let index = units::to_usize(metaslab.get());
        let map = space.space_maps.get(index).copied().flatten();
        slabs.push(MetaslabMap { extent: allocator.extent(vdev, metaslab)?, space_map: map });
    }
    let array = config.metaslab_array.unwrap_or(ObjectId::META);
    Ok(VdevSpaceMaps {
        ashift: shift,
        metaslab_array: array,
        top_zap: config.top_zap,
        metaslabs: slabs,
    })
}

/// Loads the heads of all maps into the allocator; returns the bytes of all maps.
fn describe_metaslabs(
    allocator: &Allocator,
    mos: &Objset,
    tops: &BTreeMap<VdevId, VdevSpaceMaps>,
    log: &SpaceLog,
) -> Result<u64, Error> {
    let mut length = 0_u64;
    for (vdev, top) in tops {
        let mut known = Vec::new();
        for (at, slab) in top.metaslabs.iter().enumerate() {
            let metaslab = MetaslabId::new(units::narrow::<u32>(at));
            let growth =
                log.changes.get(&(*vdev, metaslab)).map_or(0, log::LoggedChanges::net_allocated);
            let Some(map) = slab.space_map else {
                known.push((growth.max(0).unsigned_abs(), None));
                continue;
            };
            let header = read_header(&mos.object(map)?)?;
            length += header.length;
            let allocated = header.allocated + growth;
            let longest = header.histogram.and_then(|counts| {
                let top_bucket = counts.iter().rposition(|count| *count > 0)?;
                u32::try_from(top_bucket).ok().map(|bucket| bucket + top.ashift)
            });
            known.push((allocated.max(0).unsigned_abs(), longest));
        }
        allocator.set_metaslab_hints(*vdev, &known)?;
    }
    Ok(length)
}

impl SpaceMaps {
    fn synced_txg(&self) -> Txg {
        Txg::new(self.synced_txg.load(Ordering::Acquire))
    }

    /// A metaslab and its map. No thread reads or writes maps under the lock: a status request must
    /// not wait for drives.
    pub(crate) fn metaslab(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
    ) -> Result<MetaslabInfo, Error> {
        let index = units::to_usize(metaslab.get());
        let tops = self.vdevs.lock();
        let found = tops.get(&vdev).and_then(|top| {
            let MetaslabMap { extent, space_map: map } = top.metaslabs.get(index)?.clone();
            Some(MetaslabInfo {
                ashift: top.ashift,
                metaslab_array: top.metaslab_array,
                extent,
                space_map: map,
            })
        });
        found.ok_or(Error::SpaceMap { vdev, metaslab })
    }

    /// Notes that a metaslab has a map now.
    pub(crate) fn set_space_map(&self, vdev: VdevId, metaslab: MetaslabId, map: ObjectId) {
        let index = units::to_usize(metaslab.get());
        let mut tops = self.vdevs.lock();
        if let Some(slab) = tops.get_mut(&vdev).and_then(|top| top.metaslabs.get_mut(index)) {
            slab.space_map = Some(map);
        }
    }

    /// The free space of a metaslab, from its map on disk and the log, and the txg that was on disk
    /// then.
    fn free_ranges(&self, vdev: VdevId, metaslab: MetaslabId) -> Result<(RangeSet, Txg), Error> {
        loop {
            // the state on disk includes this txg, if not later ones
            let as_of = self.synced_txg();
            let own = self.own_map_free_ranges(vdev, metaslab);
            match own.and_then(|free| self.apply_log(free, (vdev, metaslab), as_of)) {
                Ok(Some(free)) => return Ok((free, as_of)),
                // later txgs may have freed the blocks that were being read
                Err(error) if self.synced_txg() == as_of => return Err(error),
                _ => {}
            }
        }
    }

    /// The free space of a metaslab from its own map on disk.
    fn own_map_free_ranges(&self, vdev: VdevId, metaslab: MetaslabId) -> Result<RangeSet, Error> {
        let slab = self.metaslab(vdev, metaslab)?;
        let shift = slab.ashift;
        let mut free = RangeSet::from_range(slab.extent.clone());
        let mut sound = true;
        if let Some(map) = slab.space_map
            && let Some(object) = self.synced_object(map)?
        {
            space_map_entries(&object, &mut |entry| {
                let Entry::Range { action, .. } = entry else { return };
                let range = entry.bytes(shift, slab.extent.start);
                let range = range.map(|(start, length)| start..start + length);
                let inside = range.filter(|range| range.end <= slab.extent.end);
                sound &= inside.is_some_and(|range| apply_entry(&mut free, action, range));
            })?;
            let listed = i64::try_from(slab.extent.end - slab.extent.start - free.total());
            sound &= listed == Ok(read_header(&object)?.allocated);
        }
        if sound { Ok(free) } else { Err(Error::SpaceMap { vdev, metaslab }) }
    }

    /// The same with the log, of a map that was read when `as_of` was on disk. None if another txg
    /// is by now: changes that were flushed with it are no longer in the log, and may not have been
    /// in the map that was read. Allocated blocks would then count as free space.
    ///
    /// # Errors
    /// If the log frees what is free, or allocates what is allocated.
    fn apply_log(
        &self,
        mut free: RangeSet,
        at: (VdevId, MetaslabId),
        as_of: Txg,
    ) -> Result<Option<RangeSet>, Error> {
        let log = self.log.lock();
        if self.synced_txg() != as_of {
            return Ok(None);
        }
        // changes being flushed may be in the map already: then this changes nothing
        if let Some(logged) = log.flushing.get(&at) {
            logged.allocated.iter().for_each(|range| free.remove(&range));
            logged.freed.iter().for_each(|range| free.insert(range));
        }
        let Some(logged) = log.changes.get(&at) else { return Ok(Some(free)) };
        let mut is_sound = true;
        for (action, ranges) in
            [(Action::Allocated, &logged.allocated), (Action::Freed, &logged.freed)]
        {
            for range in ranges.iter() {
                is_sound &= apply_entry(&mut free, action, range);
            }
        }
        let (vdev, metaslab) = at;
        if is_sound { Ok(Some(free)) } else { Err(Error::SpaceLogContradiction { vdev, metaslab }) }
    }

    /// A map as it was last on disk; none if it is being made just now.
    pub(super) fn synced_object(&self, map: ObjectId) -> Result<Option<dmu::Object>, Error> {
        match self.mos.synced().object(map) {
            Ok(object) => Ok(Some(object)),
            Err(dmu::Error::NoSuchObject { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether an entry is consistent with those before it.
fn apply_entry(free: &mut RangeSet, action: Action, range: std::ops::Range<u64>) -> bool {
    match action {
        Action::Allocated => {
            let sound = free.containing(&range).is_some();
            free.remove(&range);
            sound
        }
        Action::Freed => {
            let sound = !free.overlaps(&range);
            free.insert(range);
            sound
        }
    }
}

impl MapReader for SpaceMaps {
    fn read_free_ranges(&self, vdev: VdevId, metaslab: MetaslabId) -> Option<(RangeSet, Txg)> {
        self.free_ranges(vdev, metaslab).ok()
    }
}

#[cfg(test)]
mod tests;
