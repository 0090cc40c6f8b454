//! Blocks that have their addresses on removed vdevs: freed where they lie now, and their addresses
//! noted as obsolete, each vdev's in a space map of bytes from the end of its front labels, which
//! the vdev's own table names. By these maps the real system shortens the mappings.
//!
//! Learnt from: `zdb -mmm` of the fixtures `removed`, `removed-twice`. Proved by:
//! `shared_blocks_live_until_their_last_reference`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use dmu::Objset;
use metaslab::{Allocator, RangeSet, RemapFn};
use ondisk::label::VdevKind;
use ondisk::spacemap::Action;
use parking_lot::RwLock;
use txg::Tx;
use units::{Ashift, ObjectId, VdevId};
use vdev::{IndirectMapping, MappingSegment, NodeKind, VdevTree};
use zap::Zap;

use crate::features::{self, RefcountChange};
use crate::space::load::PoolSpace;
use crate::space::map::SpaceMapWriter;
use crate::space::write::{HISTOGRAM_FEATURE, LARGE_BLOCK_SIZE, MapSyncContext, free_space_map};
use crate::{Error, Pool};

/// In the vdev's table: the map of obsolete ranges.
pub(crate) const OBSOLETE_MAP_ENTRY: &[u8] = b"com.delphix:indirect_obsolete_sm";
/// In use once for each such map, among others; pools without it keep none.
pub(crate) const OBSOLETE_COUNTS: &str = "com.delphix:obsolete_counts";

/// Sets the allocator's removed vdevs. Returns the tables of those whose obsolete ranges are to be
/// recorded.
pub(crate) fn add_removed_vdevs(allocator: &Allocator, pool: &Pool) -> BTreeMap<VdevId, ObjectId> {
    let keeps = pool.features().iter().any(|feature| feature.guid == OBSOLETE_COUNTS);
    let mut tables = BTreeMap::new();
    for top in pool.config().tree.iter().flat_map(|root| &root.children) {
        let Some(ashift) = top.ashift.and_then(Ashift::new) else { continue };
        let is_removed = top.kind == VdevKind::Indirect;
        if is_removed {
            allocator.add_removed_vdev(top.id, ashift, remap_fn(pool.tree(), top.id));
        }
        if is_removed || top.removing {
            tables.extend(top.top_zap.filter(|_| keeps).map(|table| (top.id, table)));
        }
    }
    tables
}

/// The mapping of the vdev that is being removed, as far as it is copied.
#[derive(Clone, Default)]
pub(crate) struct RemovalMapping(Arc<RwLock<IndirectMapping>>);

impl RemovalMapping {
    /// Adds ranges that were copied, in order.
    pub(crate) fn extend(&self, copied: &[MappingSegment]) {
        let mut mapping = self.0.write();
        for segment in copied {
            mapping.push(*segment);
        }
    }

    /// All blocks in use before it are copied.
    pub(crate) fn end(&self) -> u64 {
        self.0.read().end()
    }

    /// Where a range lies now; `None` where some of it was not copied.
    pub(crate) fn map_range(&self, range: Range<u64>) -> Option<Vec<MappingSegment>> {
        self.0.read().map_range(range)
    }

    /// The mapping of a vdev whose removal is complete.
    pub(crate) fn to_indirect(&self) -> Arc<IndirectMapping> {
        Arc::new(self.0.read().clone())
    }

    pub(crate) fn remap_fn(&self) -> RemapFn {
        let mapping = self.clone();
        Arc::new(move |range: Range<u64>| mapping.map_range(range).map(to_pieces))
    }
}

/// Has the allocator go on with the removal of a vdev, if one goes on; returns its mapping.
pub(crate) fn continue_removal(
    allocator: &Allocator,
    pool: &Pool,
) -> Result<Option<RemovalMapping>, Error> {
    let Some((vdev, mapping)) = pool.removal_mapping()? else { return Ok(None) };
    let mapping = RemovalMapping(Arc::new(RwLock::new(mapping)));
    allocator.begin_removal(vdev, mapping.end(), mapping.remap_fn())?;
    Ok(Some(mapping))
}

fn remap_fn(tree: &Arc<VdevTree>, vdev: VdevId) -> RemapFn {
    let tree = Arc::clone(tree);
    Arc::new(move |range: Range<u64>| {
        let top = tree.top(vdev)?;
        let NodeKind::Indirect(removed) = &top.kind else { return None };
        removed.mapping()?.map_range(range).map(to_pieces)
    })
}

fn to_pieces(segments: Vec<MappingSegment>) -> Vec<(VdevId, Range<u64>)> {
    let piece = |it: MappingSegment| (it.vdev, it.offset..it.offset.saturating_add(it.length));
    segments.into_iter().map(piece).collect()
}

impl PoolSpace {
    /// Has the space of a vdev that is removed be found by its mapping, from now on.
    pub(crate) fn add_removed_vdev(&self, tree: &Arc<VdevTree>, vdev: VdevId, ashift: Ashift) {
        self.allocator.add_removed_vdev(vdev, ashift, remap_fn(tree, vdev));
    }

    /// Notes obsolete ranges of a vdev in its table from now on.
    pub(crate) fn track_obsolete(&self, vdev: VdevId, table: ObjectId) {
        self.obsolete_zaps.lock().insert(vdev, table);
    }

    /// Frees the map of obsolete ranges of a vdev, if there is one, and keeps none any more.
    pub(crate) fn free_obsolete_map(
        &self,
        mos: &Objset,
        tx: &Tx,
        vdev: VdevId,
    ) -> Result<(), Error> {
        let Some(table) = self.obsolete_zaps.lock().remove(&vdev) else { return Ok(()) };
        let table = Zap::open(mos.object(table)?)?;
        if let Some(map) = table.lookup_u64(OBSOLETE_MAP_ENTRY)? {
            free_space_map(mos, tx, ObjectId::new(map))?;
            table.remove(tx, OBSOLETE_MAP_ENTRY)?;
            features::update_refcount(mos, tx, OBSOLETE_COUNTS, RefcountChange::Delta(-1))?;
        }
        Ok(())
    }
}

impl PoolSpace {
    /// Writes down what became obsolete on removed vdevs; gives whether that was anything.
    pub(crate) fn write_obsolete(&self, writing: &MapSyncContext<'_>) -> Result<bool, Error> {
        let mut wrote = false;
        for (vdev, ranges) in self.allocator.drain_obsolete(writing.tx.txg()) {
            let table = self.obsolete_zaps.lock().get(&vdev).copied();
            if let Some(table) = table {
                self.append_obsolete(writing, table, &ranges)?;
                wrote = true;
            }
        }
        Ok(wrote)
    }

    fn append_obsolete(
        &self,
        writing: &MapSyncContext<'_>,
        table: ObjectId,
        ranges: &RangeSet,
    ) -> Result<(), Error> {
        let MapSyncContext { tx, pass, .. } = *writing;
        let mut map = self.open_obsolete_map(writing, table)?;
        let mut appendix = map.appendix(self.has_spacemap_v2);
        appendix.push_ranges((Action::Allocated, tx.txg(), pass), None, ranges.iter())?;
        let growth = units::narrow::<i64>(ranges.total());
        map.append(tx, &appendix, growth)?;
        map.finish(tx)
    }

    /// The map that a removed vdev's table names; one is made if there is none.
    fn open_obsolete_map(
        &self,
        writing: &MapSyncContext<'_>,
        table: ObjectId,
    ) -> Result<SpaceMapWriter, Error> {
        let MapSyncContext { mos, tx, .. } = *writing;
        let table = Zap::open(mos.object(table)?)?;
        if let Some(map) = table.lookup_u64(OBSOLETE_MAP_ENTRY)? {
            return SpaceMapWriter::open(mos, ObjectId::new(map));
        }
        let map = SpaceMapWriter::create(mos, tx, LARGE_BLOCK_SIZE, self.has_histograms)?;
        table.insert_u64(tx, OBSOLETE_MAP_ENTRY, map.id().get())?;
        features::update_refcount(mos, tx, OBSOLETE_COUNTS, RefcountChange::Delta(1))?;
        if self.has_histograms {
            features::update_refcount(mos, tx, HISTOGRAM_FEATURE, RefcountChange::Delta(1))?;
        }
        Ok(map)
    }
}
