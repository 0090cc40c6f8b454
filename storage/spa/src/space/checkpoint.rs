//! The space of the pool's checkpoint: each vdev has a space map of the ranges that were freed since the
//! checkpoint, and that the checkpoint still uses. The metaslabs' own maps have them as allocated.
//!
//! ```text
//! table of a top-level vdev   com.delphix:pool_checkpoint_sm   a space map: only freed ranges, in sectors
//!                                                              from the vdev's start, none over the end of
//!                                                              a metaslab; `allocated` is minus their bytes
//! ```
//!
//! A discard reads each map from its end, one block after the other, and frees its ranges. The map
//! is truncated in the same txg, so a discard continues after an export, here or with OpenZFS. An
//! empty map is freed.
//!
//! Learnt from: `spa_checkpoint.c` and `metaslab_sync` of OpenZFS 2.3.2, and the fixture
//! `checkpoint-raidz`. Proved by: the engine's `tests/it/checkpoint.rs`, and `zdb`.

use std::ops::Range;
use std::sync::atomic::Ordering;

use dmu::Objset;
use ondisk::spacemap::{Action, Entry};
use units::{MinusOrZero, ObjectId, VdevId};
use zap::Zap;

use crate::features::{self, RefcountChange};
use crate::space::free_space_map;
use crate::space::load::PoolSpace;
use crate::space::map::{SpaceMapWriter, read_header};
use crate::space::write::{HISTOGRAM_FEATURE, LARGE_BLOCK_SIZE, MapSyncContext, total_bytes};
use crate::{Error, Pool};

/// In the table of a top-level vdev: the checkpoint's space map.
pub(crate) const CHECKPOINT_MAP_ENTRY: &[u8] = b"com.delphix:pool_checkpoint_sm";
/// In use from the creation of a checkpoint to the end of its discard.
pub(crate) const CHECKPOINT_FEATURE: &str = "com.delphix:zpool_checkpoint";
/// The ranges of a discarded checkpoint freed per txg; the block with the last of them is finished.
const MAX_DISCARDED_RANGES: usize = 1 << 19;

impl PoolSpace {
    /// Sets the allocator's checkpoint, and whether a discard has to continue.
    pub(super) fn load_checkpoint(&self, pool: &Pool, mos: &Objset) -> Result<(), Error> {
        let checkpoint = pool.checkpoint()?;
        if let Some(checkpoint) = &checkpoint {
            self.allocator.set_checkpoint(checkpoint.txg);
        }
        let is_active = pool.feature_refcount(CHECKPOINT_FEATURE) > 0;
        self.is_discarding.store(is_active && checkpoint.is_none(), Ordering::Release);
        for (vdev, table) in self.vdev_zaps() {
            if let Some(map) = checkpoint_map(mos, table)? {
                let header = read_header(&mos.object(map)?)?;
                self.allocator.set_checkpointed_bytes(vdev, header.allocated.unsigned_abs());
            }
        }
        Ok(())
    }

    /// Whether space of a discarded checkpoint is still to be freed.
    pub(crate) fn is_discarding(&self) -> bool {
        self.is_discarding.load(Ordering::Acquire)
    }

    pub(crate) fn set_discarding(&self, discarding: bool) {
        self.is_discarding.store(discarding, Ordering::Release);
    }

    /// Writes down which ranges of the checkpoint the txg freed since this was last called for it; whether
    /// there were any.
    pub(crate) fn write_checkpointed(&self, writing: &MapSyncContext<'_>) -> Result<bool, Error> {
        let freed = self.allocator.drain_checkpointed(writing.tx.txg());
        for (vdev, ranges) in &freed {
            self.append_checkpointed(writing, *vdev, ranges)?;
        }
        Ok(!freed.is_empty())
    }

    fn append_checkpointed(
        &self,
        writing: &MapSyncContext<'_>,
        vdev: VdevId,
        ranges: &[Range<u64>],
    ) -> Result<(), Error> {
        let MapSyncContext { tx, pass, .. } = *writing;
        let (table, shift) = self.vdev_zap(vdev)?;
        let mut map = self.open_checkpoint_map(writing, table)?;
        let mut appendix = map.appendix(self.has_spacemap_v2);
        let sectors = ranges.iter().map(|range| range.start >> shift..range.end >> shift);
        appendix.push_ranges((Action::Freed, tx.txg(), pass), None, sectors)?;
        map.append(tx, &appendix, -total_bytes(ranges))?;
        map.finish(tx)
    }

    /// The map that a vdev's table names; one is made if there is none.
    fn open_checkpoint_map(
        &self,
        writing: &MapSyncContext<'_>,
        table: ObjectId,
    ) -> Result<SpaceMapWriter, Error> {
        let MapSyncContext { mos, tx, .. } = *writing;
        if let Some(map) = checkpoint_map(mos, table)? {
            return SpaceMapWriter::open(mos, map);
        }
        let map = SpaceMapWriter::create(mos, tx, LARGE_BLOCK_SIZE, self.has_histograms)?;
        Zap::open(mos.object(table)?)?.insert_u64(tx, CHECKPOINT_MAP_ENTRY, map.id().get())?;
        if self.has_histograms {
            features::update_refcount(mos, tx, HISTOGRAM_FEATURE, RefcountChange::Delta(1))?;
        }
        Ok(map)
    }

    /// Frees some of the space that only the discarded checkpoint used; whether that was the last of it.
    pub(crate) fn discard_checkpointed(&self, writing: &MapSyncContext<'_>) -> Result<bool, Error> {
        let mut left = MAX_DISCARDED_RANGES;
        for (vdev, table) in self.vdev_zaps() {
            let Some(map) = checkpoint_map(writing.mos, table)? else { continue };
            let mut map = SpaceMapWriter::open(writing.mos, map)?;
            while map.header.length > 0 {
                if left == 0 {
                    map.finish(writing.tx)?;
                    return Ok(false);
                }
                let freed = self.discard_last_block(writing, vdev, &mut map)?;
                left = left.minus_or_zero(freed);
            }
            self.allocator.set_checkpointed_bytes(vdev, 0);
            let id = map.id();
            map.finish(writing.tx)?;
            free_space_map(writing.mos, writing.tx, id)?;
            let table = Zap::open(writing.mos.object(table)?)?;
            table.remove(writing.tx, CHECKPOINT_MAP_ENTRY)?;
        }
        Ok(true)
    }

    /// Frees the ranges of the last block of a map, and cuts it off; how many there were.
    fn discard_last_block(
        &self,
        writing: &MapSyncContext<'_>,
        vdev: VdevId,
        map: &mut SpaceMapWriter,
    ) -> Result<usize, Error> {
        let (_, shift) = self.vdev_zap(vdev)?;
        let mut ranges = Vec::new();
        map.cut_last_block(writing.tx, &mut |entry| {
            if let Entry::Range { action: Action::Freed, .. } = entry {
                ranges.extend(entry.bytes(shift, 0).map(|(start, length)| start..start + length));
            }
        })?;
        for range in &ranges {
            match self.allocator.free_checkpointed(vdev, range, writing.tx.txg()) {
                // a map that is wrong must not stop the pool: a range that is free stays so
                Ok(()) | Err(metaslab::Error::NotAllocated { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        map.header.allocated += total_bytes(&ranges);
        self.allocator.set_checkpointed_bytes(vdev, map.header.allocated.unsigned_abs());
        Ok(ranges.len())
    }

    /// Whether every vdev has a table of its own, and none is too large for entries of one word.
    pub(crate) fn can_have_checkpoint(&self) -> bool {
        let vdevs = self.maps.vdevs.lock();
        vdevs.values().all(|vdev| {
            let end = vdev.metaslabs.last().map_or(0, |last| last.extent.end);
            let is_small = end >> vdev.ashift >> OFFSET_BITS == 0;
            vdev.top_zap.is_some() && (self.has_spacemap_v2 || is_small)
        })
    }

    fn vdev_zaps(&self) -> Vec<(VdevId, ObjectId)> {
        let vdevs = self.maps.vdevs.lock();
        vdevs.iter().filter_map(|(id, vdev)| Some((*id, vdev.top_zap?))).collect()
    }

    /// The table of a vdev, and log2 of its sectors' bytes.
    fn vdev_zap(&self, vdev: VdevId) -> Result<(ObjectId, u32), Error> {
        let vdevs = self.maps.vdevs.lock();
        let found = vdevs.get(&vdev).and_then(|found| Some((found.top_zap?, found.ashift)));
        found.ok_or(Error::CheckpointMap { vdev })
    }
}

/// Bits of the offset in an entry of one word.
const OFFSET_BITS: u32 = 47;

/// The checkpoint's space map of the vdev with that table.
fn checkpoint_map(mos: &Objset, table: ObjectId) -> Result<Option<ObjectId>, Error> {
    let map = Zap::open(mos.object(table)?)?.lookup_u64(CHECKPOINT_MAP_ENTRY)?;
    Ok(map.map(ObjectId::new))
}
