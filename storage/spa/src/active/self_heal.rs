//! Repairs wrong data of a drive that a reader found, and logs blocks that no reader can get any more.
//!
//! The reader gets the block from the other drives, records the block and the leaves with wrong
//! parts here, and continues. Later the sync thread checks whether the last synced txg still refers
//! to the block. If so, and while a pin protects its space from reuse, it rewrites the block's
//! parts on those drives in place. A block of which no copy can be read is recorded as well: the sync thread
//! tries it again, and adds it to the error log of the next txg.
//!
//! Proved by: the engine's `tests/it/healing.rs`.

use std::sync::Arc;

use dmu::{Objset, SpecialObject};
use lock::{Mutex, rank};
use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use units::{Guid, ObjectId, ObjsetId, Txg, Zbookmark};
use vdev::Leaf;
use zio::{BlockRepair, Reader, Source};

use crate::{ActivePool, Error, scan};

/// The limits of the queue: a block that is left out is found again by the next reader,
/// or a scrub.
const MAX_QUEUED_BYTES: usize = 16 << 20;
const MAX_QUEUED_BLOCKS: usize = 1024;

/// Blocks of which some drives have their part wrong, and blocks that could not be read.
#[derive(Debug, Default)]
pub(super) struct RepairQueue {
    reports: parking_lot::Mutex<Reports>,
    /// Held while reports are worked off: when a caller has it, all that was reported before is done.
    work: Mutex<(), { rank::REPAIR_WORK }>,
}

#[derive(Debug, Default)]
struct Reports {
    repairs: Vec<PendingRepair>,
    unreadable: Vec<(Regular, Zbookmark)>,
}

#[derive(Debug)]
struct PendingRepair {
    block: Regular,
    zbookmark: Zbookmark,
    /// The stored bytes; of a gang block none: it is read again, piece by piece.
    data: Vec<u8>,
    bad_leaves: Vec<Guid>,
}

impl zio::SelfHealer for RepairQueue {
    fn report_damage(&self, block: &Regular, place: Zbookmark, stored: &[u8], guilty: &[Guid]) {
        let all = &mut self.reports.lock().repairs;
        if let Some(known) = all.iter_mut().find(|known| known.block == *block) {
            known.bad_leaves.extend(guilty);
            return;
        }
        let stored = if block.is_gang() { &[] } else { stored };
        let waiting: usize = all.iter().map(|wrong| wrong.data.len()).sum();
        if waiting + stored.len() <= MAX_QUEUED_BYTES && all.len() < MAX_QUEUED_BLOCKS {
            let (stored, guilty) = (stored.to_vec(), guilty.to_vec());
            all.push(PendingRepair {
                block: *block,
                zbookmark: place,
                data: stored,
                bad_leaves: guilty,
            });
            assert!(all.len() <= MAX_QUEUED_BLOCKS, "the queue of repairs is bounded");
        }
    }

    fn report_unreadable(&self, block: &Regular, zbookmark: Zbookmark) {
        let all = &mut self.reports.lock().unreadable;
        let is_known = all.iter().any(|(_, known)| *known == zbookmark);
        if !is_known && all.len() < MAX_QUEUED_BLOCKS {
            all.push((*block, zbookmark));
        }
    }
}

impl ActivePool {
    /// Rewrites the recorded blocks that still exist; returns the bytes. A block that cannot be
    /// repaired is left to a scrub, which reports it. Blocks that no drive gives are added to the error log.
    pub fn repair_blocks(&self) -> Result<u64, Error> {
        if self.txgs.is_stopped() || self.is_suspended() {
            return Ok(0);
        }
        let _work = self.repair_queue.work.lock();
        let reports = std::mem::take(&mut *self.repair_queue.reports.lock());
        if reports.repairs.is_empty() && reports.unreadable.is_empty() {
            return Ok(0);
        }
        let reader = Arc::new(self.reader.with_raw_dnodes());
        let source = Arc::clone(&reader) as Arc<dyn Source>;
        let (pin, _, mos) = self.open_pinned_mos(&source)?;
        self.log_unreadable(&reports.unreadable, &mos, &reader);
        let mut written = 0;
        for repair in reports.repairs {
            let PendingRepair { block, zbookmark: place, data: stored, bad_leaves: guilty } =
                repair;
            if !is_block_referenced(&mos, &source, &block, place).unwrap_or(false) {
                continue;
            }
            let wants = |leaf: &Leaf, _: Txg| {
                leaf.is_writable() && leaf.write_errors() == 0 && guilty.contains(&leaf.guid())
            };
            let mut mending = BlockRepair::new(&reader, &wants);
            if !block.is_gang() {
                mending.add_with_data(&block, stored);
            } else if mending.add(&block, place).is_err() {
                continue;
            }
            written += mending.write_repairs(&mut Vec::new())?;
        }
        // repaired data must be durable like that of a txg
        self.tree.flush(&mut Vec::new())?;
        drop(pin);
        Ok(written)
    }

    /// Writes a block again to all its places, because no copy of it can be read. `stored` has its checksum. The caller
    /// ensures that a snapshot refers to the block until the end. A block in pieces (gang) is left as it is: its headers
    /// cannot be made again. Returns whether the block can be read afterwards.
    pub fn rewrite_block(
        &self,
        block: &Regular,
        place: Zbookmark,
        stored: Vec<u8>,
    ) -> Result<bool, Error> {
        if block.is_gang() || !self.reader.is_stored_form(block, &stored) {
            return Ok(false);
        }
        let wants = |leaf: &Leaf, _: Txg| leaf.is_writable();
        let mut repair = BlockRepair::new(&self.reader, &wants);
        repair.add_with_data(block, stored);
        repair.write_repairs(&mut Vec::new())?;
        self.tree.flush(&mut Vec::new())?;
        Ok(self.reader.read_stored(block, place).map(Reader::recycle).is_ok())
    }

    /// Adds those blocks to the error log that the last synced txg refers to, and that cannot be read still.
    fn log_unreadable(&self, blocks: &[(Regular, Zbookmark)], mos: &Objset, reader: &Arc<Reader>) {
        let source = Arc::clone(reader) as Arc<dyn Source>;
        let mut any = false;
        for (block, place) in blocks {
            let is_there = is_block_referenced(mos, &source, block, *place).unwrap_or(false);
            if is_there && reader.read_stored(block, *place).map(Reader::recycle).is_err() {
                self.error_log.record(*place, block.birth);
                any = true;
            }
        }
        if any {
            // the next txg writes the log
            self.queue_sync_task(|_, _| ());
        }
    }
}

/// Whether that is the block at a place.
fn is_block_referenced(
    mos: &Objset,
    source: &Arc<dyn Source>,
    block: &Regular,
    zbookmark: Zbookmark,
) -> Result<bool, Error> {
    let set = if zbookmark.objset == ObjsetId::MOS {
        mos.clone()
    } else {
        let Some(root) = scan::dataset_root(mos, zbookmark.objset)? else { return Ok(false) };
        Objset::open(Arc::clone(source), zbookmark.objset, &root, None)?
    };
    let is_it = |found: &Blkptr| matches!(found, Blkptr::Regular(found) if **found == *block);
    let object = if zbookmark.object == ObjectId::META {
        if is_it(set.root()) {
            return Ok(true);
        }
        set.special_object(SpecialObject::Meta)
    } else {
        Some(set.object(zbookmark.object)?)
    };
    let Some(object) = object else { return Ok(false) };
    if zbookmark.block == dmu::SPILL_BLOCK {
        return Ok(object.dnode().spill.as_ref().is_some_and(is_it));
    }
    Ok(is_it(&object.pointer(zbookmark.level, zbookmark.block)?))
}
