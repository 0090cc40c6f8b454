//! Writes the changes of a txg to the maps of metaslabs, or to the log of the txg.
//!
//! Without log space maps, changes go straight to each metaslab's own map. An unwanted existing log
//! is emptied first: all its changes go to the metaslabs' maps, and it is freed.

use std::sync::atomic::Ordering;

use dmu::Objset;
use metaslab::{MetaslabChange, RangeSet};
use ondisk::spacemap::{Action, SpaceMapHeader};
use txg::Tx;
use units::{MetaslabId, MinusOrZero, ObjectId, Txg, VdevId};
use zap::Zap;

use crate::Error;
use crate::features::{self, RefcountChange};
use crate::space::load::{MetaslabInfo, PoolSpace};
use crate::space::log::{self, LoggedChanges, SpaceLog};
use crate::space::map::{SpaceMapWriter, read_header};

/// Bytes of the blocks of a new map that is written to in each txg,
const BLOCK_SIZE: u32 = 16 << 10;
/// and of one that gets much at once.
pub(crate) const LARGE_BLOCK_SIZE: u32 = 128 << 10;
/// A map is rewritten when it is this many times longer than needed,
const CONDENSE_RATIO: u64 = 2;
/// and longer than this many of its blocks.
const CONDENSE_MIN_BLOCKS: u64 = 4;
/// The most units in an entry of one word.
const ENTRY_SHIFT: u32 = 15;
/// The pool's directory, in every pool.
pub(crate) const POOL_DIRECTORY: ObjectId = ObjectId::new(1);

/// The context of a write.
pub(crate) struct MapSyncContext<'a> {
    pub(crate) mos: &'a Objset,
    pub(crate) tx: &'a Tx,
    pub(crate) pass: u16,
}

impl PoolSpace {
    /// Writes the changes of the txg of `tx` since the last call for it. Returns whether there
    /// was any: then the MOS has changed, which may allocate space again.
    pub fn write_changes(&self, mos: &Objset, tx: &Tx, pass: u16) -> Result<bool, Error> {
        let writing = MapSyncContext { mos, tx, pass };
        let noted = self.write_obsolete(&writing)? | self.write_checkpointed(&writing)?;
        if self.is_logging.load(Ordering::Relaxed) {
            return Ok(self.log_changes(&writing)? || noted);
        }
        // Rule: the log is emptied before the changes of this txg go to the maps. A range that the log has as free
        // may be allocated now, and its entries would follow in the wrong order.
        let emptied = self.flush_entire_log(&writing)?;
        let changes = self.allocator.drain_changes(tx.txg());
        self.freed.record(&changes);
        for change in &changes {
            self.write_metaslab(&writing, change)?;
        }
        Ok(noted || emptied || !changes.is_empty())
    }

    /// Writes a change to its metaslab's own map, which may be rewritten for it.
    pub(crate) fn write_metaslab(
        &self,
        writing: &MapSyncContext<'_>,
        change: &MetaslabChange,
    ) -> Result<(), Error> {
        let slab = self.maps.metaslab(change.vdev, change.metaslab)?;
        let mut map = self.open_map(writing, &slab, change)?;
        let first = self.is_first_write(writing.tx.txg(), change.vdev, change.metaslab);
        if !(first && self.condense(writing, &slab, change, &mut map)?) {
            self.append_changes(writing, &slab, change, &mut map)?;
        }
        self.update_histogram(&slab, change, &mut map)?;
        map.finish(writing.tx)
    }

    /// Updates the free-space histogram in the head of a metaslab's own map.
    pub(crate) fn write_map_header(
        &self,
        writing: &MapSyncContext<'_>,
        change: &MetaslabChange,
    ) -> Result<(), Error> {
        let slab = self.maps.metaslab(change.vdev, change.metaslab)?;
        let mut map = self.open_map(writing, &slab, change)?;
        self.update_histogram(&slab, change, &mut map)?;
        map.finish(writing.tx)
    }

    fn update_histogram(
        &self,
        slab: &MetaslabInfo,
        change: &MetaslabChange,
        map: &mut SpaceMapWriter,
    ) -> Result<(), Error> {
        if let Some(counts) = self.allocator.histogram(change.vdev, change.metaslab)?
            && let Some(histogram) = &mut map.header.histogram
        {
            *histogram = scale_histogram(&counts, slab.ashift);
        } else {
            add_freed_ranges(&mut map.header, &change.freed, slab.ashift);
        }
        Ok(())
    }

    /// Whether a map is written for the first time in a txg.
    fn is_first_write(&self, txg: Txg, vdev: VdevId, metaslab: MetaslabId) -> bool {
        let mut written = self.written_maps.lock();
        if written.0 != txg {
            *written = (txg, std::collections::BTreeSet::new());
        }
        written.1.insert((vdev, metaslab))
    }

    /// The map of a metaslab; one is made if it has none.
    fn open_map(
        &self,
        writing: &MapSyncContext<'_>,
        slab: &MetaslabInfo,
        change: &MetaslabChange,
    ) -> Result<SpaceMapWriter, Error> {
        if let Some(map) = slab.space_map {
            return SpaceMapWriter::open(writing.mos, map);
        }
        let size =
            if self.is_logging.load(Ordering::Relaxed) { LARGE_BLOCK_SIZE } else { BLOCK_SIZE };
        let map = SpaceMapWriter::create(writing.mos, writing.tx, size, self.has_histograms)?;
        self.maps.set_space_map(change.vdev, change.metaslab, map.id());
        let array = writing.mos.object(slab.metaslab_array)?;
        let offset = u64::from(change.metaslab.get()) * 8;
        array.write(writing.tx, offset, &map.id().get().to_le_bytes())?;
        if self.has_histograms {
            features::update_refcount(
                writing.mos,
                writing.tx,
                HISTOGRAM_FEATURE,
                RefcountChange::Delta(1),
            )?;
        }
        Ok(map)
    }

    fn append_changes(
        &self,
        writing: &MapSyncContext<'_>,
        slab: &MetaslabInfo,
        change: &MetaslabChange,
        map: &mut SpaceMapWriter,
    ) -> Result<(), Error> {
        let mut appendix = map.appendix(self.has_spacemap_v2);
        let (txg, pass) = (writing.tx.txg(), writing.pass);
        let start = slab.extent.start;
        for (action, ranges) in
            [(Action::Allocated, &change.allocated), (Action::Freed, &change.freed)]
        {
            assert!(
                ranges.iter().all(|range| start <= range.start && range.end <= slab.extent.end),
                "changes of metaslab {} of vdev {} lie within it",
                change.metaslab,
                change.vdev
            );
            let units = ranges.iter().map(|range| to_units(range, start, slab.ashift));
            appendix.push_ranges((action, txg, pass), None, units)?;
        }
        let growth = total_bytes(&change.allocated) - total_bytes(&change.freed);
        map.append(writing.tx, &appendix, growth)
    }

    /// Rewrites a map if it is far longer than needed: all is allocated, and then the free ranges
    /// are freed. This includes the change.
    fn condense(
        &self,
        writing: &MapSyncContext<'_>,
        slab: &MetaslabInfo,
        change: &MetaslabChange,
        map: &mut SpaceMapWriter,
    ) -> Result<bool, Error> {
        let block = u64::from(map.block_size()).max(1 << slab.ashift);
        if map.header.length <= CONDENSE_MIN_BLOCKS * block {
            return Ok(false);
        }
        let (vdev, metaslab) = (change.vdev, change.metaslab);
        let Some(counts) = self.allocator.histogram(vdev, metaslab)? else { return Ok(false) };
        if map.header.length < CONDENSE_RATIO * condensed_size(&counts, slab.ashift) {
            return Ok(false);
        }
        let Some(free) = self.allocator.free_as_written(vdev, metaslab)? else { return Ok(false) };
        let extent = self.allocator.extent(vdev, metaslab)?;
        let (all, free_bytes) = (extent.end - extent.start, free.total());
        let counted = map.header.allocated;
        let growth = total_bytes(&change.allocated) - total_bytes(&change.freed);
        assert!(free_bytes <= all, "a metaslab has no more free space than its size");
        // the sum is of the drives, and so are the ranges: a log that contradicts the map makes them differ
        if units::narrow::<i64>(all - free_bytes) != counted + growth {
            return Err(Error::SpaceMap { vdev, metaslab });
        }
        map.truncate(writing.tx)?;
        let mut appendix = map.appendix(self.has_spacemap_v2);
        let (txg, pass) = (writing.tx.txg(), writing.pass);
        let whole = std::iter::once(to_units(&extent, extent.start, slab.ashift));
        appendix.push_ranges((Action::Allocated, txg, pass), None, whole)?;
        let parts = free.iter().map(|range| to_units(&range, extent.start, slab.ashift));
        appendix.push_ranges((Action::Freed, txg, pass), None, parts)?;
        map.append(writing.tx, &appendix, counted + growth)?;
        Ok(true)
    }

    /// Moves all that is logged to the metaslabs' own maps, and frees the log.
    fn flush_entire_log(&self, writing: &MapSyncContext<'_>) -> Result<bool, Error> {
        let log = self.maps.log.lock().clone();
        let Some(table) = log.zap else { return Ok(false) };
        for (key, logged) in &log.changes {
            self.write_metaslab(writing, &to_change(*key, logged))?;
        }
        let tops: Vec<_> = self.maps.vdevs.lock().values().filter_map(|top| top.top_zap).collect();
        for top_zap in tops {
            let top_zap = Zap::open(writing.mos.object(top_zap)?)?;
            if let Some(array) = top_zap.lookup_u64(log::UNFLUSHED_TXGS_ENTRY)? {
                writing.mos.free(writing.tx, ObjectId::new(array))?;
                top_zap.remove(writing.tx, log::UNFLUSHED_TXGS_ENTRY)?;
            }
        }
        let MapSyncContext { mos, tx, .. } = writing;
        for map in log.logs.values() {
            free_space_map(mos, tx, *map)?;
        }
        mos.free(tx, table)?;
        Zap::open(mos.object(POOL_DIRECTORY)?)?.remove(tx, log::LOG_ZAP_ENTRY.as_bytes())?;
        features::update_refcount(mos, tx, LOG_FEATURE, RefcountChange::Exact(0))?;
        let mut left = self.maps.log.lock();
        let SpaceLog { changes, mut flushing, .. } = std::mem::take(&mut *left);
        // logging may have been switched off after this txg flushed some metaslabs: their maps are not on the drives yet
        for (key, logged) in changes {
            flushing.entry(key).or_default().apply_all(&logged);
        }
        left.flushing = flushing;
        Ok(true)
    }
}

/// The logged changes of a metaslab, as a change of its map.
pub(crate) fn to_change(
    (vdev, metaslab): (VdevId, MetaslabId),
    logged: &LoggedChanges,
) -> MetaslabChange {
    let all = |ranges: &RangeSet| ranges.iter().collect();
    let (allocated, freed) = (all(&logged.allocated), all(&logged.freed));
    MetaslabChange { vdev, metaslab, allocated, freed }
}

/// Its number of uses is that of maps with a histogram.
pub(crate) const HISTOGRAM_FEATURE: &str = "com.delphix:spacemap_histogram";
/// In use while there is a log.
pub(crate) const LOG_FEATURE: &str = "com.delphix:log_spacemap";

/// Frees a space map.
pub(crate) fn free_space_map(mos: &Objset, tx: &Tx, map: ObjectId) -> Result<(), Error> {
    if read_header(&mos.object(map)?)?.histogram.is_some() {
        features::update_refcount(mos, tx, HISTOGRAM_FEATURE, RefcountChange::Delta(-1))?;
    }
    Ok(mos.free(tx, map)?)
}

fn to_units(range: &std::ops::Range<u64>, start: u64, shift: u32) -> std::ops::Range<u64> {
    let unit = |at: u64| (at - start) >> shift;
    unit(range.start)..unit(range.end)
}

pub(crate) fn total_bytes(ranges: &[std::ops::Range<u64>]) -> i64 {
    let length = |range: &std::ops::Range<u64>| range.end - range.start;
    let total = ranges.iter().map(length).sum::<u64>();
    units::narrow::<i64>(total)
}

/// Bytes of a rewritten map.
fn condensed_size(counts: &[u64; 64], shift: u32) -> u64 {
    let entries = (0_u32..).zip(counts).map(|(bucket, count)| {
        let each = 1_u64 << bucket.minus_or_zero(shift + ENTRY_SHIFT).min(32);
        count * each
    });
    (4 + entries.sum::<u64>()) * 8
}

/// Counts by log2 of bytes for a map's head: from the sector on, in 32 buckets, of which
/// the last counts longer ranges several times.
fn scale_histogram(counts: &[u64; 64], shift: u32) -> [u64; 32] {
    let mut histogram = [0_u64; 32];
    for (bucket, count) in (0_u32..).zip(counts).skip_while(|(bucket, _)| *bucket < shift) {
        let at = bucket - shift;
        let over = at.minus_or_zero(31);
        if let Some(place) = histogram.get_mut(units::to_usize(at.min(31))) {
            *place += count << over;
        }
    }
    histogram
}

/// The freed ranges of an unloaded metaslab are added to its head's histogram.
fn add_freed_ranges(header: &mut SpaceMapHeader, freed: &[std::ops::Range<u64>], shift: u32) {
    let Some(histogram) = &mut header.histogram else { return };
    let mut counts = [0_u64; 64];
    for range in freed {
        let length = range.end - range.start;
        if let Some(log) = length.checked_ilog2()
            && let Some(count) = counts.get_mut(units::to_usize(log))
        {
            *count += 1;
        }
    }
    for (place, more) in histogram.iter_mut().zip(scale_histogram(&counts, shift)) {
        *place = place.saturating_add(more);
    }
}
