//! Walking an object set: each block that it refers to, and that matters, goes to be mended.

use std::sync::Arc;

use dmu::{BlockVisit, Objset, WalkControl, WalkOptions};
use ondisk::Blkptr;
use units::{Txg, Zbookmark};
use zio::Source;

use super::round::{Round, ScanBlock};
use super::targets::ScanTarget;

/// Blocks in a batch.
const BATCH_BLOCKS: usize = 128;
/// A batch is full, too, when its blocks have so many bytes.
const BATCH_BYTES: u64 = 8 << 20;

/// Blocks on their way to a batch.
#[derive(Default)]
pub(super) struct BlockBatch {
    blocks: Vec<ScanBlock>,
    bytes: u64,
}

impl Round<'_> {
    /// Walks what is left of an object set, as far as it comes.
    pub(super) fn walk_target(&self, task: &ScanTarget) {
        let born = task.root.birth() > task.since_txg.max(self.scan.policy.since_txg());
        if task.root.is_hole() || !(born || task.has_log) {
            return self.scan.coverage.lock().record(task, None, self.txg);
        }
        let source = Arc::clone(&self.scan.reader) as Arc<dyn Source>;
        let objset = match Objset::open(source, task.id, &task.root, None) {
            Ok(objset) => objset,
            Err(error) => {
                self.record_subtree_error(Zbookmark::root(task.id), &error);
                return self.scan.coverage.lock().record(task, None, self.txg);
            }
        };
        let mut gathered = BlockBatch::default();
        if task.has_log && !task.is_walked {
            self.scan_log(task.id, &objset.header().log, &mut gathered);
        }
        // what was walked before may have got pointers to old blocks since: clones
        if let Some(seen) = task.walked_txg {
            let plan = self.walk_plan(task.since_txg.max(seen), None);
            if self.walk_range(&objset, &plan, &mut gathered).is_err() {
                return self.flush_batch(&mut gathered);
            }
        }
        let mut upto = None;
        if !task.is_walked {
            let plan = self.walk_plan(task.since_txg, task.start);
            if let Err(zbookmark) = self.walk_range(&objset, &plan, &mut gathered) {
                upto = Some(zbookmark);
            }
        }
        // before anybody reads what was done: it is done when the round's batches are
        self.flush_batch(&mut gathered);
        self.scan.coverage.lock().record(task, upto, self.txg);
    }

    fn walk_plan(&self, since: Txg, from: Option<Zbookmark>) -> WalkOptions {
        WalkOptions {
            born_after: since.max(self.scan.policy.since_txg()),
            start: from,
            ..WalkOptions::default()
        }
    }

    /// Walks; an error says where it was stopped.
    fn walk_range(
        &self,
        objset: &Objset,
        plan: &WalkOptions,
        gathered: &mut BlockBatch,
    ) -> Result<(), Zbookmark> {
        let mut stopped = Ok(());
        let _ = objset.walk(plan, &mut |zbookmark, found| {
            if self.is_stopping() {
                stopped = Err(zbookmark);
                return WalkControl::Stop;
            }
            self.visit_block(zbookmark, &found, gathered)
        });
        stopped
    }

    fn visit_block(
        &self,
        place: Zbookmark,
        found: &BlockVisit<'_>,
        gathered: &mut BlockBatch,
    ) -> WalkControl {
        match found {
            BlockVisit::Error(error) => {
                self.record_subtree_error(place, error);
                WalkControl::Descend
            }
            BlockVisit::Pointer(Blkptr::Regular(block)) => {
                self.queue_block(ScanBlock { zbookmark: place, block: **block }, gathered);
                WalkControl::Descend
            }
            BlockVisit::Pointer(Blkptr::Embedded(_)) => WalkControl::Descend,
            BlockVisit::Pointer(Blkptr::Hole(_) | Blkptr::Redacted(_)) => WalkControl::SkipChildren,
        }
    }

    /// Takes a block in, and hands over what was gathered when that is enough.
    pub(super) fn queue_block(&self, item: ScanBlock, gathered: &mut BlockBatch) {
        let taken = item.block.copies().map(|dva| dva.asize).sum();
        self.scan.progress.job.progress.add(taken, 1);
        if !self.scan.policy.includes(&item.block) {
            return;
        }
        gathered.bytes += u64::from(item.block.psize);
        gathered.blocks.push(item);
        if gathered.blocks.len() >= BATCH_BLOCKS || gathered.bytes >= BATCH_BYTES {
            self.flush_batch(gathered);
        }
    }

    /// Hands over what was gathered, or mends it here where enough is waiting.
    fn flush_batch(&self, gathered: &mut BlockBatch) {
        let BlockBatch { blocks: batch, .. } = std::mem::take(gathered);
        if !batch.is_empty()
            && let Some(batch) = self.queue.try_push_batch(batch)
        {
            self.repair_batch(batch);
        }
    }

    /// What is below a place cannot be walked: anything may be lost there.
    fn record_subtree_error(&self, zbookmark: Zbookmark, error: &dmu::Error) {
        self.scan.record_error(zbookmark, error, (Txg::ZERO, self.txg));
    }
}
