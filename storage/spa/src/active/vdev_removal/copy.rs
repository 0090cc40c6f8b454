//! Copying what is allocated on a vdev that is being removed, batch by batch.
//!
//! ```text
//! plan       ranges that blocks have, behind the mapping's end; short gaps between them are copied, too
//! hold       a txg is held open: space for the copies is allocated in it, and they are written
//! map        a sync task of that txg: entries of the mapping, and what nobody needs any more is freed
//! ```
//!
//! The txg frees what dies in it only while it is synced. So what the sync task finds in use is what the txg
//! leads to, and what is freed after it is freed at both places.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dmu::Object;
use dsl::write::SyncTaskContext;
use job::Job;
use metaslab::{AllocRequest, RangeSet};
use ondisk::indirect::{Birth, MappingEntry, MappingHeader, Removing};
use ondisk::{Dva, Reader};
use parking_lot::Mutex;
use txg::Tx;
use units::{Txg, VdevId};
use vdev::{EvacuationPause, IoClass, MappingSegment, RangeCopy};

use super::super::device_change::DeviceChangeError;
use super::{ActivePool, RemovalError, U64_METADATA};
use crate::Error;

/// Bytes that one batch copies at most: as long as that takes, the txg stays open.
const MAX_BATCH_BYTES: u64 = 32 << 20;
const MIN_BATCH_BYTES: u64 = 4 << 20;
/// A batch is no larger than one part in so many of what may be dirty: with little memory, txgs are small.
const DIRTY_FRACTION: u64 = 16;
/// The longest range of one entry of the mapping.
const MAX_SEGMENT: u64 = 16 << 20;
/// A gap that is not longer is copied with the ranges beside it, which saves an entry.
const MAX_GAP: u64 = 32 << 10;
/// Bytes copied in one request.
const CHUNK_BYTES: usize = 1 << 20;
/// Threads that copy.
const COPY_THREADS: usize = 4;

/// A range of the vdev and the space of its copy.
#[derive(Clone, Debug)]
struct PlacedRange {
    source: Range<u64>,
    target: Dva,
}

impl ActivePool {
    /// Copies some more of the vdev; `false` if nothing is left.
    pub(super) fn copy_batch(&self, vdev: VdevId, job: &Job) -> Result<bool, Error> {
        let planned = self.plan_batch(vdev)?;
        if planned.is_empty() {
            return Ok(false);
        }
        let tx = self.begin_tx()?;
        let mut placed = Vec::new();
        let copied = self
            .place_ranges(vdev, &planned, &tx, &mut placed)
            .and_then(|()| Ok(self.copy_ranges(vdev, &placed, tx.txg(), job)?));
        let txg = tx.txg();
        if let Err(error) = copied {
            self.unallocate_ranges(&placed, txg)?;
            return Err(error);
        }
        let placed = Arc::new(placed);
        let mapped = Arc::clone(&placed);
        // the pool is suspended: the space is allocated in a txg that does not map it
        let undo = || drop(self.unallocate_ranges(&placed, txg));
        let map = move |active: &Self, change: &SyncTaskContext<'_>| {
            active.map_ranges_sync(change, vdev, &mapped)
        };
        self.run_sync_task_in(tx, map, &undo)??;
        Ok(true)
    }

    /// Frees the space of copies that are not in the mapping.
    fn unallocate_ranges(&self, placed: &[PlacedRange], txg: Txg) -> Result<(), Error> {
        for range in placed {
            self.space.allocator().unallocate(&range.target, txg)?;
        }
        Ok(())
    }

    /// The next ranges to copy, in order.
    fn plan_batch(&self, vdev: VdevId) -> Result<Vec<Range<u64>>, Error> {
        let allocator = self.space.allocator();
        let start = self.removal_mapping()?.end();
        let dirty = self.environment.limits.max_dirty / DIRTY_FRACTION;
        // the copies of a pool that is in use wait for users, and the txg with them
        let largest =
            if self.txgs.unsynced_bytes() > 0 { MIN_BATCH_BYTES } else { MAX_BATCH_BYTES };
        let most = dirty.clamp(MIN_BATCH_BYTES, largest);
        let (mut plan, mut bytes) = (Vec::new(), 0);
        for metaslab in allocator.metaslabs(vdev)? {
            let extent = allocator.extent(vdev, metaslab)?;
            let part = extent.start.max(start)..extent.end;
            if part.start >= part.end {
                continue;
            }
            bytes += self.plan_metaslab(vdev, part, most - bytes, &mut plan)?;
            if bytes >= most {
                break;
            }
        }
        assert!(bytes <= most, "a batch of a removal has {bytes} bytes, and at most {most}");
        assert!(
            plan.is_sorted_by(|range: &Range<u64>, next| range.end <= next.start),
            "a batch of a removal has each byte of vdev {vdev} once"
        );
        Ok(plan)
    }

    /// Adds the ranges of a part of a metaslab, up to so many bytes in use; returns how many. An entry of the
    /// mapping must be within one metaslab.
    fn plan_metaslab(
        &self,
        vdev: VdevId,
        part: Range<u64>,
        most: u64,
        plan: &mut Vec<Range<u64>>,
    ) -> Result<u64, Error> {
        let (mut own, mut bytes) = (Vec::new(), 0);
        for range in self.in_use_between(vdev, part)? {
            let length = (range.end - range.start).min(most - bytes);
            bytes += length;
            add_range(&mut own, range.start..range.start + length);
            if bytes >= most {
                break;
            }
        }
        plan.append(&mut own);
        Ok(bytes)
    }

    /// The ranges that blocks have in a part of a vdev.
    pub(super) fn in_use_between(
        &self,
        vdev: VdevId,
        part: Range<u64>,
    ) -> Result<Vec<Range<u64>>, Error> {
        Ok(self.load_in_use(vdev, &part)?.iter().collect())
    }

    /// The ranges that blocks have on a vdev behind an offset.
    pub(super) fn in_use_from(&self, vdev: VdevId, start: u64) -> Result<RangeSet, Error> {
        self.load_in_use(vdev, &(start..u64::MAX))
    }

    fn load_in_use(&self, vdev: VdevId, part: &Range<u64>) -> Result<RangeSet, Error> {
        let allocator = self.space.allocator();
        allocator.load_range(vdev, part, self.txgs.open_txg())?;
        Ok(allocator.in_use(vdev, part)?)
    }

    /// Allocates space for copies of ranges; of a range for which there is no space in one piece, for parts.
    fn place_ranges(
        &self,
        vdev: VdevId,
        planned: &[Range<u64>],
        tx: &Tx,
        placed: &mut Vec<PlacedRange>,
    ) -> Result<(), Error> {
        let allocator = self.space.allocator();
        let class = allocator.vdev_class(vdev)?;
        let sector = self.tree.top(vdev).ok_or(DeviceChangeError::NotInPool)?.ashift();
        for range in planned {
            let (mut start, mut longest) = (range.start, MAX_SEGMENT);
            while start < range.end {
                let length = longest.min(range.end - start);
                let request = AllocRequest { class, ..AllocRequest::new(length, tx.txg()) };
                match allocator.allocate(&request) {
                    Ok([Some(target), ..]) => {
                        placed.push(PlacedRange { source: start..start + length, target });
                        assert_eq!(target.asize, length, "copies have no padding");
                        self.tree.check_evacuation_target(target.vdev)?;
                        start += length;
                    }
                    Err(metaslab::Error::NoSpace { .. }) | Ok(_) if length > sector.bytes() => {
                        longest = sector.round_up(length / 2);
                    }
                    Err(metaslab::Error::NoSpace { .. }) | Ok(_) => {
                        return Err(EvacuationPause::NoSpace.into());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Copies ranges, some at once.
    fn copy_ranges(
        &self,
        vdev: VdevId,
        placed: &[PlacedRange],
        txg: Txg,
        job: &Job,
    ) -> Result<(), EvacuationPause> {
        let chunks: Vec<RangeCopy> =
            placed.iter().flat_map(|range| chunks_of(vdev, range)).collect();
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let copy = || self.tree.evacuate(*chunk, txg);
                match vdev::with_class(IoClass::Removal, copy) {
                    Ok(()) => job.progress.add(chunk.length as u64, 0),
                    Err(pause) => {
                        failed.lock().get_or_insert(pause);
                        // the others end with the chunk that they have
                        next.store(chunks.len(), Ordering::Relaxed);
                    }
                }
            }
        };
        std::thread::scope(|scope| (0..COPY_THREADS).for_each(|_| drop(scope.spawn(work))));
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Adds copied ranges to the mapping, in the txg in which their space was allocated.
    fn map_ranges_sync(
        &self,
        change: &SyncTaskContext<'_>,
        vdev: VdevId,
        placed: &[PlacedRange],
    ) -> Result<(), Error> {
        let allocator = self.space.allocator();
        let ascend = placed.is_sorted_by(|range, next| range.source.end <= next.source.start);
        assert!(ascend, "copied ranges of vdev {vdev} are mapped in order, each byte once");
        let (mut segments, mut obsolete, mut copied) = (Vec::new(), Vec::new(), 0);
        for range in placed {
            let used = allocator.in_use(vdev, &range.source)?;
            let unused = self.free_unused_parts(range, &used, change.tx.txg())?;
            let length = range.source.end - range.source.start;
            assert_eq!(
                used.total() + unused,
                length,
                "the copy of {:?} of vdev {vdev} is in use or freed",
                range.source
            );
            if used.is_empty() {
                continue;
            }
            copied += used.total();
            obsolete.push(units::narrow::<u32>(unused));
            segments.push(MappingSegment {
                source: range.source.start,
                length: range.target.asize,
                vdev: range.target.vdev,
                offset: range.target.offset,
            });
        }
        if segments.is_empty() {
            return Ok(());
        }
        assert_eq!(
            segments.len(),
            obsolete.len(),
            "each entry of a mapping has its obsolete bytes"
        );
        self.append_to_mapping(change, vdev, &segments, &obsolete)?;
        let mapping = self.removal_mapping()?;
        mapping.extend(&segments);
        allocator.set_mapped_end(mapping.end());
        let entry = (*self.removal.entry.lock()).ok_or(RemovalError::NotRemoving)?;
        self.write_removal_entry(change, Removing { copied: entry.copied + copied, ..entry })
    }

    /// Frees the parts of a copy that no block has: gaps, and what was freed since it was planned. Returns
    /// their bytes.
    fn free_unused_parts(
        &self,
        range: &PlacedRange,
        used: &RangeSet,
        txg: Txg,
    ) -> Result<u64, Error> {
        let mut unused = RangeSet::from_range(range.source.clone());
        used.iter().for_each(|part| unused.remove(&part));
        for part in unused.iter() {
            let offset = range.target.offset + (part.start - range.source.start);
            let end = offset + (part.end - part.start);
            assert!(
                end <= range.target.offset + range.target.asize,
                "{part:?} is freed in its copy, which ends before {end}"
            );
            let dva = Dva { offset, asize: part.end - part.start, ..range.target };
            self.space.allocator().unallocate(&dva, txg)?;
        }
        Ok(unused.total())
    }

    fn append_to_mapping(
        &self,
        change: &SyncTaskContext<'_>,
        vdev: VdevId,
        segments: &[MappingSegment],
        obsolete: &[u32],
    ) -> Result<(), Error> {
        let (mos, tx) = (change.mos, change.tx);
        let config = self.config();
        let tops = config.tree.map(|root| root.children).unwrap_or_default();
        let top = tops.into_iter().find(|top| top.id == vdev);
        let indirect = top.and_then(|top| top.indirect).ok_or(RemovalError::NotRemoving)?;
        let object = mos.object(indirect.mapping)?;
        let mut header = mapping_header(&object)?;
        let entries: Vec<u8> = segments.iter().map(to_entry).flat_map(|e| e.encode()).collect();
        object.write(tx, header.size(), &entries)?;
        if let Some(counts) = header.counts {
            let bytes: Vec<u8> = obsolete.iter().flat_map(|bytes| bytes.to_le_bytes()).collect();
            mos.object(counts)?.write(tx, header.entries * 4, &bytes)?;
        }
        header.entries += segments.len() as u64;
        header.bytes_mapped += segments.iter().map(|segment| segment.length).sum::<u64>();
        header.max_offset = segments.last().map_or(0, |last| last.source + last.length);
        object.set_bonus(tx, U64_METADATA, &header.encode())?;
        if let Some(births) = indirect.births {
            let object = mos.object(births)?;
            let count = Birth::count(object.bonus(), object.bonus_order())?;
            let birth = Birth { end: header.max_offset, txg: tx.txg() };
            object.write(tx, count * Birth::SIZE as u64, &birth.encode())?;
            object.set_bonus(tx, U64_METADATA, &(count + 1).to_le_bytes())?;
        }
        Ok(())
    }

    /// Bytes of memory that the mapping of a vdev would take if it were removed now.
    pub fn removal_memory(&self, vdev: VdevId) -> Result<u64, Error> {
        let allocator = self.space.allocator();
        let mut plan = Vec::new();
        for metaslab in allocator.metaslabs(vdev)? {
            let extent = allocator.extent(vdev, metaslab)?;
            self.plan_metaslab(vdev, extent, u64::MAX, &mut plan)?;
        }
        Ok(plan.len() as u64 * super::ENTRY_BYTES)
    }
}

/// Adds a range to a plan: joined with the last one if the gap between them is short, cut if it is long.
fn add_range(plan: &mut Vec<Range<u64>>, range: Range<u64>) {
    if let Some(last) = plan.last_mut()
        && range.start - last.end <= MAX_GAP
        && range.end - last.start <= MAX_SEGMENT
    {
        last.end = range.end;
        return;
    }
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start + MAX_SEGMENT);
        plan.push(start..end);
        start = end;
    }
}

/// The requests that copy a range.
fn chunks_of(vdev: VdevId, range: &PlacedRange) -> impl Iterator<Item = RangeCopy> {
    let (source, target) = (range.source.clone(), range.target);
    source.clone().step_by(CHUNK_BYTES).map(move |start| RangeCopy {
        from: (vdev, start),
        to: (target.vdev, target.offset + (start - source.start)),
        length: usize::try_from(source.end - start).map_or(CHUNK_BYTES, |n| n.min(CHUNK_BYTES)),
    })
}

/// A segment as an entry of the mapping object.
pub(super) fn to_entry(segment: &MappingSegment) -> MappingEntry {
    let (vdev, offset, asize) = (segment.vdev, segment.offset, segment.length);
    MappingEntry { source: segment.source, target: Dva { vdev, offset, asize, gang: false } }
}

/// The head of a mapping.
pub(super) fn mapping_header(object: &Object) -> Result<MappingHeader, Error> {
    let mut bonus = Reader::new("mapping header", object.bonus(), object.bonus_order());
    Ok(MappingHeader::read(&mut bonus)?)
}

#[cfg(test)]
mod tests {
    use super::{MAX_GAP, MAX_SEGMENT, add_range};

    #[test]
    fn plan_joins_over_short_gaps_and_cuts_long_ranges() {
        let mut plan = Vec::new();
        add_range(&mut plan, 0..4096);
        add_range(&mut plan, 4096 + MAX_GAP..8192 + MAX_GAP);
        add_range(&mut plan, (1 << 20)..(1 << 20) + 2 * MAX_SEGMENT + 512);
        let second = (1 << 20) + MAX_SEGMENT;
        let third = second + MAX_SEGMENT;
        let expected = [0..8192 + MAX_GAP, 1 << 20..second, second..third, third..third + 512];
        assert_eq!(plan, expected);
    }
}
