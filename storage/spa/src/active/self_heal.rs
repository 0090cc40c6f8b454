//! Repairs wrong data of a drive that a reader found.
//!
//! The reader gets the block from the other drives, records the block and the leaves with wrong
//! parts here, and continues. Later the sync thread checks whether the last synced txg still refers
//! to the block. If so, and while a pin protects its space from reuse, it rewrites the block's
//! parts on those drives in place.
//!
//! A block that no copy gives goes to the error log, with the next txg: `zpool status -v` then names its file.
//!
//! Proved by: the engine's `tests/it/self_heal.rs`.

use std::sync::Arc;

use dmu::{Objset, SpecialObject};
use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use parking_lot::Mutex;
use units::{Guid, ObjectId, ObjsetId, Txg, Zbookmark};
use vdev::Leaf;
use zio::{BlockRepair, Source};

use crate::scan::ErrorLog;
use crate::{ActivePool, Error, scan};

/// The limits of the queue: a block that is left out is found again by the next reader,
/// or a scrub.
const MAX_QUEUED_BYTES: usize = 16 << 20;
const MAX_QUEUED_BLOCKS: usize = 1024;

/// Blocks of which some drives have their part wrong, and the error log for those that are lost.
pub(super) struct RepairQueue {
    pending: Mutex<Vec<PendingRepair>>,
    error_log: Arc<ErrorLog>,
}

impl RepairQueue {
    pub(super) fn new(error_log: &Arc<ErrorLog>) -> Self {
        Self { pending: Mutex::default(), error_log: Arc::clone(error_log) }
    }
}

impl std::fmt::Debug for RepairQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RepairQueue({} blocks)", self.pending.lock().len())
    }
}

#[derive(Debug)]
struct PendingRepair {
    block: Regular,
    zbookmark: Zbookmark,
    data: Vec<u8>,
    bad_leaves: Vec<Guid>,
}

impl zio::SelfHealer for RepairQueue {
    fn report_damage(&self, block: &Regular, place: Zbookmark, stored: &[u8], guilty: &[Guid]) {
        let mut all = self.pending.lock();
        if let Some(known) = all.iter_mut().find(|known| known.block == *block) {
            known.bad_leaves.extend(guilty);
            return;
        }
        let waiting: usize = all.iter().map(|wrong| wrong.data.len()).sum();
        if waiting + stored.len() <= MAX_QUEUED_BYTES && all.len() < MAX_QUEUED_BLOCKS {
            let (stored, guilty) = (stored.to_vec(), guilty.to_vec());
            all.push(PendingRepair {
                block: *block,
                zbookmark: place,
                data: stored,
                bad_leaves: guilty,
            });
        }
    }

    fn report_lost_block(&self, block: &Regular, place: Zbookmark) {
        self.error_log.record(place, block.birth);
    }
}

impl ActivePool {
    /// Rewrites the recorded blocks that still exist; returns the bytes. A block that cannot be
    /// repaired is left to a scrub, which reports it.
    pub fn repair_blocks(&self) -> Result<u64, Error> {
        if self.txgs.is_stopped() || self.is_suspended() {
            return Ok(0);
        }
        let wrongs = std::mem::take(&mut *self.repair_queue.pending.lock());
        if wrongs.is_empty() {
            return Ok(0);
        }
        let reader = Arc::new(self.reader.with_raw_dnodes());
        let source = Arc::clone(&reader) as Arc<dyn Source>;
        let (pin, _, mos) = self.open_pinned_mos(&source)?;
        let mut written = 0;
        for PendingRepair { block, zbookmark: place, data: stored, bad_leaves: guilty } in wrongs {
            if !is_block_referenced(&mos, &source, &block, place).unwrap_or(false) {
                continue;
            }
            let wants = |leaf: &Leaf, _: Txg| {
                leaf.is_writable() && leaf.write_errors() == 0 && guilty.contains(&leaf.guid())
            };
            let mut mending = BlockRepair::new(&reader, &wants);
            mending.add_with_data(&block, stored);
            written += mending.write_repairs(&mut Vec::new())?;
        }
        // repaired data must be durable like that of a txg
        self.tree.flush(&mut Vec::new())?;
        drop(pin);
        Ok(written)
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
