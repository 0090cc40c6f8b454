//! Walking object sets: each block that they refer to goes to be examined.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use dmu::{BlockVisit, Objset, WalkControl, WalkOptions};
use ondisk::objset::LogHeader;
use ondisk::{Blkptr, ObjectType};
use units::{ObjectId, ObjsetId, Txg, Zbookmark};
use zio::Source;

use crate::CheckInner;
use crate::features::FeatureSet;
use crate::tally::{BlockDamage, Tally};
use crate::verify::{VerifyBatch, VerifyingSource};

/// Blocks in a batch.
const BATCH_BLOCKS: usize = 64;
/// A batch is also full when its blocks have this many bytes.
const BATCH_BYTES: u64 = 4 << 20;

/// An object set to be walked.
#[derive(Clone, Debug)]
pub(crate) struct ObjsetTask {
    /// Its dataset's number.
    pub(crate) id: ObjsetId,
    pub(crate) root: Blkptr,
    /// Only blocks born after this belong to it; the others are found elsewhere.
    pub(crate) since_txg: Txg,
    /// Where to begin, if some of it has been freed.
    pub(crate) start: Option<Zbookmark>,
    /// Whether it has an intent log of its own: snapshots have only a remainder of one.
    pub(crate) has_log: bool,
}

/// Blocks on their way to a batch.
#[derive(Default)]
struct PendingBatch {
    blocks: VerifyBatch,
    bytes: u64,
    /// The per-dataset features that blocks met so far use.
    features: FeatureSet,
}

impl CheckInner {
    /// Walks an object set to its end.
    pub(crate) fn run_task(self: &Arc<Self>, task: &ObjsetTask) {
        let examiner = VerifyingSource::new(self);
        let complete = self.walk_objset(task, &examiner);
        self.merge_tally(&mut examiner.tally.lock());
        if complete {
            self.objsets_done.fetch_add(1, Relaxed);
        }
    }

    fn walk_objset(&self, task: &ObjsetTask, examiner: &Arc<VerifyingSource>) -> bool {
        let born = task.since_txg.is_zero() || task.root.birth() > task.since_txg;
        if task.root.is_hole() {
            return true;
        }
        // a head of the checkpoint may share its root block with a snapshot of the present state, whose
        // log is not examined
        if !born || self.is_pointer_checked(&task.root) {
            self.check_log_only(task);
            return true;
        }
        let source = Arc::clone(examiner) as Arc<dyn Source>;
        let objset = match Objset::open(source, task.id, &task.root, None) {
            Ok(objset) => objset,
            Err(error) => {
                record_walk_error(&error, ObjectType::OBJSET, &mut examiner.tally.lock());
                return true;
            }
        };
        let plan =
            WalkOptions { born_after: task.since_txg, start: task.start, ..WalkOptions::default() };
        let mut gathered = PendingBatch::default();
        let mut own = Tally::default();
        let complete = objset.walk(&plan, &mut |zbookmark, found| {
            if self.job.cancel.is_cancelled() {
                return WalkControl::Stop;
            }
            self.visit_block(zbookmark, &found, examiner, &mut gathered, &mut own)
        });
        self.flush_batch(&mut gathered, &mut own);
        if !self.in_checkpoint.load(Relaxed) {
            own.feature_usage.add_used(task.id, gathered.features);
        }
        if task.has_log {
            let header: &LogHeader = &objset.header().log;
            self.check_log(task.id, header, &mut own);
        }
        self.merge_tally(&mut own);
        complete
    }

    /// The log of a head that shares its root block with a snapshot.
    fn check_log_only(&self, task: &ObjsetTask) {
        if !task.has_log {
            return;
        }
        // the root block itself is examined with that snapshot
        let source = Arc::clone(self.pool.mos.source());
        if let Ok(objset) = Objset::open(source, task.id, &task.root, None) {
            let mut own = Tally::default();
            self.check_log(task.id, &objset.header().log, &mut own);
            self.merge_tally(&mut own);
        }
    }

    fn visit_block(
        &self,
        zbookmark: Zbookmark,
        found: &BlockVisit<'_>,
        examiner: &Arc<VerifyingSource>,
        gathered: &mut PendingBatch,
        own: &mut Tally,
    ) -> WalkControl {
        let pointer = match found {
            BlockVisit::Pointer(pointer) => pointer,
            BlockVisit::Error(error) => {
                record_walk_error(error, ObjectType::NONE, own);
                return WalkControl::Descend;
            }
        };
        gathered.features.merge(FeatureSet::from_block(pointer));
        let block = match pointer {
            Blkptr::Regular(block) => block,
            Blkptr::Embedded(_) => {
                own.embedded += 1;
                return WalkControl::Descend;
            }
            Blkptr::Redacted(_) => {
                own.redacted += 1;
                return WalkControl::SkipChildren;
            }
            Blkptr::Hole(_) => return WalkControl::SkipChildren,
        };
        let is_root = block.kind == ObjectType::OBJSET;
        if !is_root && self.is_pointer_checked(pointer) {
            return WalkControl::SkipChildren;
        }
        // blocks that the walk itself reads are examined at once
        if is_root || zbookmark.level.get() > 0 || zbookmark.object == ObjectId::META {
            return WalkControl::Descend;
        }
        if let Some(item) = examiner.register_reference(block, zbookmark) {
            // the pieces of a gang block are known by its header only
            if self.metadata_only && !block.kind.is_metadata() && !block.is_gang() {
                self.count_without_reading(&item, own);
                return WalkControl::Descend;
            }
            gathered.blocks.push(item);
            gathered.bytes += u64::from(block.psize);
            if gathered.blocks.len() >= BATCH_BLOCKS || gathered.bytes >= BATCH_BYTES {
                self.flush_batch(gathered, own);
            }
        }
        WalkControl::Descend
    }

    /// Whether a block of the checkpoint is one of the present state, too.
    fn is_pointer_checked(&self, pointer: &Blkptr) -> bool {
        let Blkptr::Regular(block) = pointer else { return false };
        let first = block.dvas[0].filter(|_| self.in_checkpoint.load(Relaxed));
        first.is_some_and(|dva| self.space.is_referenced(&self.pool.tree, dva))
    }

    /// Hands over the batch, or examines it here if enough batches wait.
    fn flush_batch(&self, gathered: &mut PendingBatch, own: &mut Tally) {
        let batch = std::mem::take(&mut gathered.blocks);
        gathered.bytes = 0;
        if !batch.is_empty()
            && let Some(batch) = self.queue.push_batch(batch)
        {
            self.check_batch(batch, own);
        }
    }
}

/// Notes that the walk could not continue below a place.
fn record_walk_error(error: &dmu::Error, kind: ObjectType, tally: &mut Tally) {
    match error {
        // the examination of the block has reported everything
        dmu::Error::Read { source: zio::Error::Unreadable { .. } } => {}
        dmu::Error::Read { source: zio::Error::KeyNotLoaded { .. } } => {
            tally.add_note(false, format!("{error}: blocks below it were not examined"));
        }
        _ => {
            tally.lost += 1;
            let why = Some(error.to_string());
            let place = error.zbookmark();
            tally.add_damage(BlockDamage {
                zbookmark: place,
                kind,
                is_lost: true,
                leaves: Vec::new(),
                why,
            });
        }
    }
}
