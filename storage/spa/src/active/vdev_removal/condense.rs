//! Condensing of the mapping of a removed vdev: entries of which all bytes are obsolete leave it.
//!
//! ```text
//! 1  start     one txg: the vdev's map of obsolete ranges leaves its table, and an empty new mapping is made;
//!              the pool directory's entry names both (`ondisk::indirect::Condensing`)
//! 2  append    many txgs: entries with bytes in use go to the new mapping, with the obsolete bytes of each
//! 3  complete  one txg: the configuration names the new mapping; the old one, the map of obsolete ranges and
//!              the entry are freed
//! ```
//!
//! Until step 3 blocks are read by the old mapping. What becomes obsolete meanwhile goes to a new map in the
//! vdev's table. After a power cut or an import step 2 goes on at the end of the new mapping, here or with
//! OpenZFS. A pool with a checkpoint starts none: the checkpoint may have blocks that are obsolete by now.
//!
//! Learnt from: `vdev_indirect.c` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/condensing.rs`, `zdb`.

use std::sync::Arc;

use dmu::Object;
use dsl::write::SyncTaskContext;
use job::Job;
use lock::{Mutex, rank};
use ondisk::Reader;
use ondisk::indirect::{Condensing, MappingHeader};
use ondisk::label::{VdevConfig, VdevKind};
use ondisk::spacemap::{Action, Entry, SpaceMapHeader};
use units::{BlockId, ObjectId, VdevId};
use vdev::{IndirectMapping, MappingSegment, NodeKind};
use zap::{Zap, ZapValue};

use super::copy::{mapping_header, to_entry};
use super::{ActivePool, RemovalError, U64_METADATA};
use crate::directory::POOL_DIRECTORY;
use crate::features::{self, RefcountChange};
use crate::space::{
    OBSOLETE_COUNTS, OBSOLETE_MAP_ENTRY, free_space_map, read_header, space_map_entries,
};
use crate::{Error, PoolDirectory};

/// The entry of the pool directory.
const CONDENSING_ENTRY: &str = "com.delphix:condensing_indirect";
/// Entries that a txg appends to the new mapping.
const STEP_ENTRIES: usize = 16 << 10;

/// When a mapping is worth condensing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CondenseLimits {
    /// Mappings of at most this many bytes are left alone, unless their map of obsolete ranges is long.
    pub min_mapping_bytes: u64,
    /// The least share of the mapped bytes that is obsolete, in percent.
    pub min_obsolete_percent: u64,
    /// A map of obsolete ranges of this many bytes is long.
    pub max_obsolete_map_bytes: u64,
}

/// The limits of OpenZFS.
impl Default for CondenseLimits {
    fn default() -> Self {
        Self {
            min_mapping_bytes: 128 << 10,
            min_obsolete_percent: 25,
            max_obsolete_map_bytes: 1 << 30,
        }
    }
}

impl CondenseLimits {
    fn are_met(&self, mapping: &MappingHeader, obsolete: &SpaceMapHeader) -> bool {
        let Ok(bytes) = u64::try_from(obsolete.allocated) else { return false };
        let wanted = u128::from(mapping.bytes_mapped) * u128::from(self.min_obsolete_percent);
        let has_many = bytes > 0 && u128::from(bytes) * 100 >= wanted;
        (has_many && mapping.size() > self.min_mapping_bytes)
            || obsolete.length >= self.max_obsolete_map_bytes
    }
}

/// The mapping that is being condensed.
#[derive(Default)]
pub(super) struct CondensingState(Mutex<Option<Condensing>, { rank::CONDENSING }>);

impl CondensingState {
    pub(super) fn load(directory: &PoolDirectory) -> Result<Self, Error> {
        let words = directory.lookup_u64s(CONDENSING_ENTRY)?;
        Ok(Self(Mutex::new(words.and_then(|words| Condensing::from_words(&words)))))
    }
}

/// The entries of the new mapping, with the obsolete bytes of each.
type CondensedEntries = Arc<Vec<(MappingSegment, u32)>>;

impl ActivePool {
    /// Whether a mapping is being condensed.
    pub fn is_condensing(&self) -> bool {
        self.removal.condensing.0.lock().is_some()
    }

    /// A removed vdev whose mapping is worth condensing.
    pub fn find_condensable(&self, limits: &CondenseLimits) -> Result<Option<VdevId>, Error> {
        if self.is_condensing() || self.check_no_checkpoint().is_err() {
            return Ok(None);
        }
        let _pin = self.pin();
        let (config, mos) = (self.config(), self.synced_mos());
        let tops = config.tree.iter().flat_map(|root| &root.children);
        for top in tops.filter(|top| top.kind == VdevKind::Indirect) {
            let (Some(indirect), Some(table)) = (top.indirect, top.top_zap) else { continue };
            let table = Zap::open(mos.object(table)?)?;
            let Some(map) = table.lookup_u64(OBSOLETE_MAP_ENTRY)? else { continue };
            let obsolete = read_header(&mos.object(ObjectId::new(map))?)?;
            let mapping = mapping_header(&mos.object(indirect.mapping)?)?;
            if limits.are_met(&mapping, &obsolete) {
                return Ok(Some(top.id));
            }
        }
        Ok(None)
    }

    /// Condenses a mapping that is worth it, or goes on with the one that is being condensed. Returns whether it
    /// came to the end of one. To be called by one thread at a time; txgs are written meanwhile.
    pub fn condense_mapping(&self, limits: &CondenseLimits, job: &Job) -> Result<bool, Error> {
        if let Some(vdev) = self.find_condensable(limits)? {
            self.run_sync_task(move |active, change| active.start_condensing_sync(change, vdev))??;
        }
        let Some(entry) = *self.removal.condensing.0.lock() else { return Ok(false) };
        let entries = Arc::new(self.condensed_entries(&entry)?);
        loop {
            if job.cancel.is_cancelled() || self.txgs.is_stopped() {
                return Ok(false);
            }
            let entries = Arc::clone(&entries);
            let more =
                self.run_sync_task(move |_, change| append_condensed(change, &entry, &entries))??;
            if !more {
                break;
            }
        }
        // a walk over an earlier state may read blocks that were freed since
        self.space.allocator().wait_for_pins();
        self.run_sync_task(move |active, change| {
            active.complete_condensing_sync(change, &entry, &entries)
        })??;
        Ok(true)
    }

    fn start_condensing_sync(
        &self,
        change: &SyncTaskContext<'_>,
        vdev: VdevId,
    ) -> Result<(), Error> {
        let (mos, tx) = (change.mos, change.tx);
        let top = self.top_config(vdev)?;
        let table = top.top_zap.filter(|_| top.kind == VdevKind::Indirect);
        let table = Zap::open(mos.object(table.ok_or(RemovalError::NotRemoving)?)?)?;
        let Some(map) = table.lookup_u64(OBSOLETE_MAP_ENTRY)? else { return Ok(()) };
        if self.is_condensing() || self.check_no_checkpoint().is_err() {
            return Ok(());
        }
        let next = super::create_mapping_object(change, true)?;
        table.remove(tx, OBSOLETE_MAP_ENTRY)?;
        let entry = Condensing { vdev, obsolete: ObjectId::new(map), next };
        let words = entry.to_words().into_iter().flat_map(u64::to_be_bytes).collect();
        let directory = Zap::open(mos.object(POOL_DIRECTORY)?)?;
        directory.update(tx, CONDENSING_ENTRY.as_bytes(), &ZapValue::new(8, words))?;
        *self.removal.condensing.0.lock() = Some(entry);
        Ok(())
    }

    /// The entries of the old mapping that have bytes in use. The old mapping and its obsolete bytes do not
    /// change any more.
    fn condensed_entries(&self, entry: &Condensing) -> Result<Vec<(MappingSegment, u32)>, Error> {
        let _pin = self.pin();
        let mos = self.synced_mos();
        let top = self.top_config(entry.vdev)?;
        let indirect = top.indirect.ok_or(RemovalError::NotRemoving)?;
        let mapping = self.indirect_mapping(entry.vdev)?;
        let segments = mapping.segments();
        let mut obsolete = vec![0_u64; segments.len()];
        if let Some(counts) = mapping_header(&mos.object(indirect.mapping)?)?.counts {
            read_counts(&mos.object(counts)?, &mut obsolete)?;
        }
        space_map_entries(&mos.object(entry.obsolete)?, &mut |range| {
            let is_allocated = matches!(range, Entry::Range { action: Action::Allocated, .. });
            if let Some((start, length)) = range.bytes(0, 0).filter(|_| is_allocated) {
                add_obsolete(segments, &mut obsolete, start, length);
            }
        })?;
        let counted = segments.iter().zip(obsolete);
        let kept = counted.filter(|(segment, obsolete)| *obsolete < segment.length);
        let too_many = |bytes| Error::ObsoleteBytes { vdev: entry.vdev, bytes };
        kept.map(|(segment, bytes)| {
            Ok((*segment, u32::try_from(bytes).map_err(|_| too_many(bytes))?))
        })
        .collect()
    }

    fn indirect_mapping(&self, vdev: VdevId) -> Result<Arc<IndirectMapping>, Error> {
        let top = self.tree.top(vdev);
        let mapping = top.as_deref().and_then(|top| match &top.kind {
            NodeKind::Indirect(indirect) => indirect.mapping(),
            _ => None,
        });
        Ok(mapping.ok_or(RemovalError::NotRemoving)?)
    }

    fn complete_condensing_sync(
        &self,
        change: &SyncTaskContext<'_>,
        entry: &Condensing,
        entries: &CondensedEntries,
    ) -> Result<(), Error> {
        let (mos, tx) = (change.mos, change.tx);
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(RemovalError::NotRemoving)?;
        let is_it = |top: &&mut VdevConfig| top.id == entry.vdev && top.kind == VdevKind::Indirect;
        let top = root.children.iter_mut().find(is_it).ok_or(RemovalError::NotRemoving)?;
        let indirect = top.indirect.as_mut().ok_or(RemovalError::NotRemoving)?;
        let header = mapping_header(&mos.object(entry.next)?)?;
        check_entry_count(entry.vdev, &header, entries.len())?;
        let old = std::mem::replace(&mut indirect.mapping, entry.next);
        if let Some(counts) = mapping_header(&mos.object(old)?)?.counts {
            mos.free(tx, counts)?;
            features::update_refcount(mos, tx, OBSOLETE_COUNTS, RefcountChange::Delta(-1))?;
        }
        mos.free(tx, old)?;
        free_space_map(mos, tx, entry.obsolete)?;
        features::update_refcount(mos, tx, OBSOLETE_COUNTS, RefcountChange::Delta(-1))?;
        Zap::open(mos.object(POOL_DIRECTORY)?)?.remove(tx, CONDENSING_ENTRY.as_bytes())?;
        let segments = entries.iter().map(|(segment, _)| *segment).collect();
        self.tree.set_mapping(entry.vdev, Arc::new(IndirectMapping::new(segments)));
        self.set_vdev_tree(root.clone());
        *self.removal.condensing.0.lock() = None;
        Ok(())
    }
}

/// The header of the new mapping comes from the drives, after a power cut or OpenZFS's work also its content.
fn check_entry_count(vdev: VdevId, header: &MappingHeader, wanted: usize) -> Result<(), Error> {
    let (found, expected) = (header.entries, units::to_u64(wanted));
    if found == expected { Ok(()) } else { Err(Error::CondensedMapping { vdev, found, expected }) }
}

/// Appends entries to the new mapping, from its end on; returns whether there are more.
fn append_condensed(
    change: &SyncTaskContext<'_>,
    entry: &Condensing,
    entries: &[(MappingSegment, u32)],
) -> Result<bool, Error> {
    let (mos, tx) = (change.mos, change.tx);
    let object = mos.object(entry.next)?;
    let mut header = mapping_header(&object)?;
    let start = entries.partition_point(|(segment, _)| segment.source < header.max_offset);
    check_entry_count(entry.vdev, &header, start)?;
    let rest = &entries[start..];
    let batch = &rest[..rest.len().min(STEP_ENTRIES)];
    let Some((last, _)) = batch.last() else { return Ok(false) };
    let bytes: Vec<u8> = batch.iter().flat_map(|(segment, _)| to_entry(segment).encode()).collect();
    object.write(tx, header.size(), &bytes)?;
    if let Some(counts) = header.counts {
        let bytes: Vec<u8> = batch.iter().flat_map(|(_, bytes)| bytes.to_le_bytes()).collect();
        mos.object(counts)?.write(tx, header.entries * 4, &bytes)?;
    }
    header.entries += units::to_u64(batch.len());
    header.bytes_mapped += batch.iter().map(|(segment, _)| segment.length).sum::<u64>();
    header.max_offset = last.source + last.length;
    object.set_bonus(tx, U64_METADATA, &header.encode())?;
    Ok(batch.len() < rest.len())
}

/// Reads how many bytes of each entry were obsolete when the mapping was written.
fn read_counts(object: &Object, obsolete: &mut [u64]) -> Result<(), Error> {
    let per_block = units::to_usize(u64::from(object.block_size() / 4)).max(1);
    for (number, counts) in obsolete.chunks_mut(per_block).enumerate() {
        // a hole is a block of zeros
        let Some(block) = object.block(BlockId::new(units::to_u64(number)))? else { continue };
        let mut words = Reader::new("obsolete counts", &block, block.order());
        for count in counts {
            *count = u64::from(words.u32()?);
        }
    }
    Ok(())
}

/// Adds an obsolete range to the counts of the segments that it covers.
fn add_obsolete(segments: &[MappingSegment], obsolete: &mut [u64], start: u64, length: u64) {
    let Some(end) = start.checked_add(length) else { return };
    let first = segments.partition_point(|segment| segment.source + segment.length <= start);
    for (segment, count) in segments.iter().zip(obsolete).skip(first) {
        if segment.source >= end {
            return;
        }
        let overlap = end.min(segment.source + segment.length) - start.max(segment.source);
        // what a drive says of a range twice is not obsolete twice
        *count = (*count + overlap).min(segment.length);
    }
}

#[cfg(test)]
mod tests {
    use crate::Error;
    use ondisk::indirect::MappingHeader;
    use ondisk::spacemap::SpaceMapHeader;
    use units::VdevId;
    use vdev::MappingSegment;

    use super::{CondenseLimits, add_obsolete, check_entry_count};

    #[test]
    fn obsolete_bytes_are_counted_per_segment() {
        let segment = |source, length| MappingSegment {
            source,
            length,
            vdev: VdevId::new(0),
            offset: source,
        };
        let segments = [segment(0, 4096), segment(8192, 8192), segment(16_384, 4096)];
        let mut obsolete = [0; 3];
        add_obsolete(&segments, &mut obsolete, 2048, 2048);
        add_obsolete(&segments, &mut obsolete, 12_288, 6144);
        assert_eq!(obsolete, [2048, 4096, 2048]);
        add_obsolete(&segments, &mut obsolete, 0, 4096);
        add_obsolete(&segments, &mut obsolete, 40_960, 4096);
        assert_eq!(obsolete, [4096, 4096, 2048]);
    }

    #[test]
    fn wrong_entry_count_is_an_error() {
        let header =
            MappingHeader { max_offset: 8192, bytes_mapped: 8192, entries: 2, counts: None };
        let vdev = VdevId::new(1);
        assert!(check_entry_count(vdev, &header, 2).is_ok());
        let error = check_entry_count(vdev, &header, 3).unwrap_err();
        assert!(matches!(error, Error::CondensedMapping { found: 2, expected: 3, .. }), "{error}");
    }

    #[test]
    fn quarter_of_a_long_mapping_is_worth_condensing() {
        let limits = CondenseLimits::default();
        let mapping = |entries| MappingHeader {
            max_offset: 1 << 30,
            bytes_mapped: 1 << 30,
            entries,
            counts: None,
        };
        let obsolete = |allocated| SpaceMapHeader { allocated, ..SpaceMapHeader::empty(false) };
        assert!(limits.are_met(&mapping(6000), &obsolete(1 << 28)));
        assert!(!limits.are_met(&mapping(6000), &obsolete((1 << 28) - 1)));
        assert!(!limits.are_met(&mapping(5000), &obsolete(1 << 29)), "the mapping is short");
        let long = SpaceMapHeader { length: 1 << 30, ..SpaceMapHeader::empty(false) };
        assert!(limits.are_met(&mapping(10), &long));
    }
}
