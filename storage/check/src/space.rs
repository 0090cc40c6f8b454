//! Compares the allocations in the space maps with the references found by the walk.
//!
//! Both are sets of sectors ([`crate::sector_set`]): at most 64 MiB for each TiB of 4 KiB
//! sectors that is neither wholly used nor wholly free.

use std::collections::HashMap;
use std::ops::Range;

use dmu::Objset;
use ondisk::spacemap::{Action, Entry, parse_unflushed_txgs};
use ondisk::{Blkptr, Dva};
use parking_lot::Mutex;
use spa::{Pool, VdevSpace, space_map_entries};
use units::{Ashift, BlockId, MinusOrZero, ObjectId, Txg, VdevId, Zbookmark};
use vdev::{NodeKind, VdevTree};
use zap::Zap;

use crate::Error;
use crate::report::{ClaimedRange, SpaceReport};
use crate::sector_set::SectorSet;

/// More vdevs than this are never removed one into the other.
const MAX_DEPTH: u32 = 64;
/// The most ranges of each kind in the report; the others are counted.
const MAX_LISTED: usize = 1000;
/// Bytes of a gang header.
const GANG_HEADER_SIZE: u64 = 512;

/// A range of a vdev, and its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) vdev: VdevId,
    /// Bytes from the end of the front labels.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// The block that it belongs to.
    pub(crate) zbookmark: Zbookmark,
    /// Whether others may own it too.
    pub(crate) may_be_shared: bool,
}

/// The space of one top-level vdev.
struct VdevSectors {
    vdev_space: VdevSpace,
    ashift: u32,
    allocated: SectorSet,
    referenced: Mutex<SectorSet>,
    /// Space that need not be allocated: blocks of intent logs, which only an import claims.
    log_claimable: Mutex<SectorSet>,
    contradictions: u64,
}

/// The space of a pool.
pub(crate) struct SpaceMapCheck {
    vdevs: HashMap<VdevId, VdevSectors>,
    errors: Mutex<SpaceErrors>,
}

#[derive(Default)]
struct SpaceErrors {
    double_claims: Vec<ClaimedRange>,
    double_claimed_bytes: u64,
    out_of_range: Vec<ClaimedRange>,
    out_of_range_count: u64,
}

impl SpaceMapCheck {
    /// Reads all space maps, and the log of those changes that are not in them yet.
    pub(crate) fn load(pool: &Pool) -> Result<Self, Error> {
        let mut space = Self { vdevs: HashMap::new(), errors: Mutex::default() };
        for top in pool.vdev_space()? {
            let area = VdevSectors::load(pool, top)?;
            space.vdevs.insert(area.vdev_space.vdev, area);
        }
        space.apply_log(pool)?;
        space.claim_removal_copies(pool)?;
        space.claim_discarded(pool)?;
        Ok(space)
    }

    /// Bytes allocated in all.
    pub(crate) fn allocated(&self) -> u64 {
        self.vdevs.values().map(|area| area.allocated.total() << area.ashift).sum()
    }

    /// Notes the copies of what is allocated on a vdev that is being removed: no block names them yet.
    fn claim_removal_copies(&self, pool: &Pool) -> Result<(), Error> {
        let Some((vdev, mapping)) = pool.removal_mapping()? else { return Ok(()) };
        let Some(area) = self.vdevs.get(&vdev) else { return Ok(()) };
        let none = SectorSet::new(area.allocated.limit());
        let mut runs = Vec::new();
        area.allocated.visit_difference(&none, &mut |run| {
            runs.push(run.start << area.ashift..(run.end << area.ashift).min(mapping.end()));
        });
        for run in runs.into_iter().filter(|run| run.start < run.end) {
            let (offset, length) = (run.start, run.end - run.start);
            let place = Zbookmark::default();
            let extent = Extent { vdev, offset, length, zbookmark: place, may_be_shared: false };
            match mapping.map_range(run) {
                Some(pieces) => pieces.into_iter().for_each(|piece| {
                    self.add_reference(pool.tree(), moved_extent(extent, piece), 0);
                }),
                None => self.errors.lock().add_out_of_range(extent),
            }
        }
        Ok(())
    }

    /// Notes what only a discarded checkpoint used, as long as no txg has freed it. While the pool has the checkpoint,
    /// the walk over its state finds that.
    fn claim_discarded(&self, pool: &Pool) -> Result<(), Error> {
        if !matches!(pool.checkpoint(), Ok(None)) {
            return Ok(());
        }
        for (vdev, area) in &self.vdevs {
            let table = vdev_table(pool, *vdev)?;
            let map = table.map(|table| table.lookup_u64(b"com.delphix:pool_checkpoint_sm"));
            let Some(map) = map.transpose()?.flatten() else { continue };
            let mut freed = Vec::new();
            space_map_entries(&pool.mos().object(ObjectId::new(map))?, &mut |entry| {
                freed.extend(entry.bytes(area.ashift, 0));
            })?;
            for (offset, length) in freed {
                let place = Zbookmark::default();
                let (vdev, may_be_shared) = (*vdev, false);
                let extent = Extent { vdev, offset, length, zbookmark: place, may_be_shared };
                self.add_reference(pool.tree(), extent, 0);
            }
        }
        Ok(())
    }

    fn apply_log(&mut self, pool: &Pool) -> Result<(), Error> {
        let Some(table) = pool.directory().object("com.delphix:log_spacemap_zap")? else {
            return Ok(());
        };
        let mut since = HashMap::new();
        for vdev in self.vdevs.keys() {
            since.insert(*vdev, unflushed_txgs(pool, *vdev)?);
        }
        let mut maps = Vec::new();
        for entry in Zap::open(table)?.entries() {
            let entry = entry?;
            let txg = std::str::from_utf8(&entry.name).ok();
            let txg = txg.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            if let (Some(txg), Some(map)) = (txg, entry.value.u64()) {
                maps.push((Txg::new(txg), ObjectId::new(map)));
            }
        }
        maps.sort_unstable();
        for (txg, map) in maps {
            let object = pool.mos().object(map)?;
            space_map_entries(&object, &mut |entry| {
                let Entry::Range { action, vdev: Some(vdev), .. } = entry else { return };
                let Some((start, length)) = entry.bytes(9, 0) else { return };
                let Some(area) = self.vdevs.get_mut(&vdev) else { return };
                let metaslab = usize::try_from(start >> area.vdev_space.metaslab_shift).ok();
                let flushed = since.get(&vdev).zip(metaslab);
                let flushed = flushed.and_then(|(all, index)| all.get(index).copied());
                if txg >= flushed.unwrap_or(Txg::ZERO) {
                    area.apply_entry(action, start, length);
                }
            })?;
        }
        Ok(())
    }

    /// Notes that ranges are referred to.
    pub(crate) fn add_references(&self, tree: &VdevTree, extents: &mut Vec<Extent>) {
        for extent in extents.drain(..) {
            self.add_reference(tree, extent, 0);
        }
    }

    fn add_reference(&self, tree: &VdevTree, extent: Extent, depth: u32) {
        if let Some(area) = self.vdevs.get(&extent.vdev) {
            let sectors = area.sector_range(extent.offset, extent.length);
            let mut referenced = area.referenced.lock();
            let fits = sectors.end <= referenced.limit();
            let already = referenced.set_range(sectors, true);
            drop(referenced);
            if already > 0 && !extent.may_be_shared {
                self.errors.lock().add_double_claim(extent, already << area.ashift);
            }
            if fits {
                return;
            }
        } else if let Some(pieces) = remapped_extents(tree, extent)
            && depth < MAX_DEPTH
        {
            for piece in pieces {
                self.add_reference(tree, piece, depth + 1);
            }
            return;
        }
        self.errors.lock().add_out_of_range(extent);
    }

    /// Notes that a range is in use if it is allocated, and that it need not be.
    pub(crate) fn add_log_claim(&self, extent: Extent) {
        if let Some(area) = self.vdevs.get(&extent.vdev) {
            let sectors = area.sector_range(extent.offset, extent.length);
            area.log_claimable.lock().set_range(sectors, true);
        }
    }

    /// Whether the first copy of a block has been referred to already.
    pub(crate) fn is_referenced(&self, tree: &VdevTree, dva: Dva) -> bool {
        let mut at = Extent {
            vdev: dva.vdev,
            offset: dva.offset,
            length: 512,
            zbookmark: Zbookmark::default(),
            may_be_shared: true,
        };
        for _ in 0..MAX_DEPTH {
            if let Some(area) = self.vdevs.get(&at.vdev) {
                return area.referenced.lock().count(area.sector_range(at.offset, 1)) > 0;
            }
            match remapped_extents(tree, at).as_deref() {
                Some([first, ..]) => at = *first,
                _ => return false,
            }
        }
        false
    }

    /// The space of a block's copy on its vdev.
    pub(crate) fn extent(&self, tree: &VdevTree, dva: Dva, birth: Txg, place: Zbookmark) -> Extent {
        let length = if dva.gang {
            tree.asize(dva.vdev, GANG_HEADER_SIZE, birth).unwrap_or_else(|| {
                let shift = self.vdevs.get(&dva.vdev).map_or(9, |area| area.ashift);
                GANG_HEADER_SIZE.max(1 << shift)
            })
        } else {
            dva.asize
        };
        Extent {
            vdev: dva.vdev,
            offset: dva.offset,
            length,
            zbookmark: place,
            may_be_shared: false,
        }
    }

    /// Compares, once all is referred to.
    pub(crate) fn compare(&self) -> Vec<SpaceReport> {
        let mut reports: Vec<SpaceReport> = self.vdevs.values().map(VdevSectors::compare).collect();
        reports.sort_by_key(|report| report.vdev);
        reports
    }

    /// The ranges used twice, and their bytes; the addresses outside of the space, and their
    /// number.
    pub(crate) fn errors(&self) -> (Vec<ClaimedRange>, u64, Vec<ClaimedRange>, u64) {
        let faults = self.errors.lock();
        let SpaceErrors {
            double_claims: doubles,
            double_claimed_bytes: double_bytes,
            out_of_range: outside,
            out_of_range_count: outside_count,
        } = &*faults;
        (doubles.clone(), *double_bytes, outside.clone(), *outside_count)
    }
}

impl SpaceErrors {
    fn add_double_claim(&mut self, extent: Extent, bytes: u64) {
        self.double_claimed_bytes += bytes;
        if self.double_claims.len() < MAX_LISTED {
            self.double_claims.push(extent.into());
        }
    }

    fn add_out_of_range(&mut self, extent: Extent) {
        self.out_of_range_count += 1;
        if self.out_of_range.len() < MAX_LISTED {
            self.out_of_range.push(extent.into());
        }
    }
}

impl From<Extent> for ClaimedRange {
    fn from(extent: Extent) -> Self {
        let Extent { vdev, offset, length, zbookmark: place, .. } = extent;
        Self { vdev, range: offset..offset + length, zbookmark: place }
    }
}

impl VdevSectors {
    fn load(pool: &Pool, top: VdevSpace) -> Result<Self, Error> {
        let config = pool.config().tree.as_ref();
        let config = config.and_then(|root| root.children.iter().find(|c| c.id == top.vdev));
        let shift = config.and_then(|config| config.ashift).and_then(Ashift::new);
        let shift = shift.map_or(9, Ashift::get);
        let limit = top.asize >> shift;
        let mut area = Self {
            ashift: shift,
            allocated: SectorSet::new(limit),
            referenced: Mutex::new(SectorSet::new(limit)),
            log_claimable: Mutex::new(SectorSet::new(limit)),
            contradictions: 0,
            vdev_space: top,
        };
        // on a dRAID metaslabs begin with a group of columns
        let draid = config.and_then(|config| Some((config.draid?.data, config.nparity?)));
        let group = draid.map_or(1, |(data, parity)| data.saturating_add(parity) << shift);
        for (index, map) in (0_u64..).zip(area.vdev_space.space_maps.clone()) {
            let Some(map) = map else { continue };
            let start = (index << area.vdev_space.metaslab_shift).next_multiple_of(group);
            space_map_entries(&pool.mos().object(map)?, &mut |entry| {
                let Entry::Range { action, .. } = entry else { return };
                let Some((start, length)) = entry.bytes(shift, start) else { return };
                area.apply_entry(action, start, length);
            })?;
        }
        Ok(area)
    }

    fn apply_entry(&mut self, action: Action, start: u64, length: u64) {
        let sectors = self.sector_range(start, length);
        let already = self.allocated.set_range(sectors, action == Action::Allocated);
        self.contradictions += already << self.ashift;
    }

    fn sector_range(&self, offset: u64, length: u64) -> Range<u64> {
        let end = (offset + length).div_ceil(1 << self.ashift);
        offset >> self.ashift..end
    }

    fn compare(&self) -> SpaceReport {
        let referenced = self.referenced.lock();
        let promised = self.log_claimable.lock();
        let mut report = SpaceReport {
            vdev: self.vdev_space.vdev,
            allocated: self.allocated.total() << self.ashift,
            referenced: referenced.total() << self.ashift,
            contradictions: self.contradictions,
            ..SpaceReport::default()
        };
        let bytes = |run: Range<u64>| run.start << self.ashift..run.end << self.ashift;
        self.allocated.visit_difference(&referenced, &mut |run| {
            let claimed = promised.count(run.clone()) << self.ashift;
            let run = bytes(run);
            report.leaked += (run.end - run.start).minus_or_zero(claimed);
            if report.leaked_ranges.len() < MAX_LISTED && run.end - run.start > claimed {
                report.leaked_ranges.push(run);
            }
        });
        referenced.visit_difference(&self.allocated, &mut |run| {
            let run = bytes(run);
            report.unallocated += run.end - run.start;
            if report.unallocated_ranges.len() < MAX_LISTED {
                report.unallocated_ranges.push(run);
            }
        });
        report
    }
}

/// Where a range of a removed vdev lies now, if the vdev is one.
fn remapped_extents(tree: &VdevTree, extent: Extent) -> Option<Vec<Extent>> {
    let NodeKind::Indirect(removed) = &tree.top(extent.vdev)?.kind else { return None };
    let pieces =
        removed.mapping()?.map_range(extent.offset..extent.offset.checked_add(extent.length)?)?;
    Some(pieces.into_iter().map(|piece| moved_extent(extent, piece)).collect())
}

/// The part of an extent that lies where a segment of a mapping says.
fn moved_extent(extent: Extent, piece: vdev::MappingSegment) -> Extent {
    Extent { vdev: piece.vdev, offset: piece.offset, length: piece.length, ..extent }
}

/// The table of a top-level vdev, if it has one.
fn vdev_table(pool: &Pool, vdev: VdevId) -> Result<Option<Zap>, Error> {
    let config = pool.config().tree.as_ref();
    let config = config.and_then(|root| root.children.iter().find(|c| c.id == vdev));
    let Some(table) = config.and_then(|config| config.top_zap) else { return Ok(None) };
    Ok(Some(Zap::open(pool.mos().object(table)?)?))
}

/// Since when each metaslab of a vdev has changes in the log.
fn unflushed_txgs(pool: &Pool, vdev: VdevId) -> Result<Vec<Txg>, Error> {
    let Some(table) = vdev_table(pool, vdev)? else { return Ok(Vec::new()) };
    let Some(id) = table.lookup_u64(b"com.delphix:ms_unflushed_phys_txgs")? else {
        return Ok(Vec::new());
    };
    read_array(pool.mos(), ObjectId::new(id))
        .map(|(bytes, order)| parse_unflushed_txgs(&bytes, order))
}

fn read_array(mos: &Objset, id: ObjectId) -> Result<(Vec<u8>, ondisk::Order), Error> {
    let object = mos.object(id)?;
    let mut all = Vec::new();
    let mut order = mos_byte_order(mos);
    // an array of metaslabs is short: 2^17 at most
    for number in 0..=object.max_block().get().min(1 << 12) {
        match object.block(BlockId::new(number))? {
            Some(block) => {
                order = block.order();
                all.extend_from_slice(&block);
            }
            None => all.resize(all.len() + object.block_size() as usize, 0),
        }
    }
    Ok((all, order))
}

fn mos_byte_order(mos: &Objset) -> ondisk::Order {
    match mos.root() {
        Blkptr::Regular(root) => root.order,
        _ => ondisk::Order::Little,
    }
}
