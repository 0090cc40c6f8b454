//! Blocks that have their addresses on removed vdevs: freed where they lie now, and their addresses
//! noted as obsolete, each vdev's in a space map of bytes from the end of its front labels, which
//! the vdev's own table names. By these maps the real system shortens the mappings.
//!
//! Learnt from: `zdb -mmm` of the fixtures `removed`, `removed-twice`. Proved by:
//! `shared_blocks_live_until_their_last_reference`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use metaslab::{Allocator, RangeSet, RemapFn};
use ondisk::label::VdevKind;
use ondisk::spacemap::Action;
use units::{Ashift, ObjectId, VdevId};
use vdev::{NodeKind, VdevTree};
use zap::Zap;

use crate::features::{self, RefcountChange};
use crate::space::load::PoolSpace;
use crate::space::map::SpaceMapWriter;
use crate::space::write::{HISTOGRAM_FEATURE, LARGE_BLOCK_SIZE, MapSyncContext};
use crate::{Error, Pool};

/// In the vdev's table: the map of obsolete ranges.
const OBSOLETE_MAP_ENTRY: &[u8] = b"com.delphix:indirect_obsolete_sm";
/// In use once for each such map, among others; pools without it keep none.
const OBSOLETE_COUNTS: &str = "com.delphix:obsolete_counts";

/// Sets the allocator's removed vdevs. Returns the tables of those whose obsolete ranges are to be
/// recorded.
pub(crate) fn add_removed_vdevs(allocator: &Allocator, pool: &Pool) -> BTreeMap<VdevId, ObjectId> {
    let keeps = pool.features().iter().any(|feature| feature.guid == OBSOLETE_COUNTS);
    let mut tables = BTreeMap::new();
    for top in pool.config().tree.iter().flat_map(|root| &root.children) {
        let Some(ashift) = top.ashift.and_then(Ashift::new) else { continue };
        if top.kind == VdevKind::Indirect {
            allocator.add_removed_vdev(top.id, ashift, remap_fn(pool.tree(), top.id));
            tables.extend(top.top_zap.filter(|_| keeps).map(|table| (top.id, table)));
        }
    }
    tables
}

fn remap_fn(tree: &Arc<VdevTree>, vdev: VdevId) -> RemapFn {
    let tree = Arc::clone(tree);
    Arc::new(move |range: Range<u64>| {
        let top = tree.top(vdev)?;
        let NodeKind::Indirect(removed) = &top.kind else { return None };
        let pieces = removed.mapping()?.map_range(range)?;
        let end = |offset: u64, length| offset.saturating_add(length);
        let range = |offset, length| offset..end(offset, length);
        Some(pieces.into_iter().map(|p| (p.vdev, range(p.offset, p.length))).collect())
    })
}

impl PoolSpace {
    /// Writes down what became obsolete on removed vdevs; gives whether that was anything.
    pub(crate) fn write_obsolete(&self, writing: &MapSyncContext<'_>) -> Result<bool, Error> {
        let mut wrote = false;
        for (vdev, ranges) in self.allocator.drain_obsolete(writing.tx.txg()) {
            if let Some(table) = self.obsolete_zaps.get(&vdev) {
                self.append_obsolete(writing, *table, &ranges)?;
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
        let growth = i64::try_from(ranges.total()).unwrap_or(i64::MAX);
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
