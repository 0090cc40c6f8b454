//! Examining blocks: in batches, and where a walk reads them anyway, right then.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use job::Work;
use ondisk::blkptr::Regular;
use ondisk::{Blkptr, ObjectType};
use parking_lot::Mutex;
use units::Zbookmark;
use vdev::LeafError;
use zio::{Block, Error, Key, Reader, Source};

use crate::CheckInner;
use crate::features::FeatureSet;
use crate::tally::{Tally, allocated_bytes};

/// The most extents that a thread collects before it adds them to the sets.
const MAX_EXTENTS: usize = 4096;

/// Blocks that are examined together.
pub(crate) type VerifyBatch = Vec<CheckBlock>;

/// A block to be examined.
#[derive(Clone, Copy)]
pub(crate) struct CheckBlock {
    pub(crate) zbookmark: Zbookmark,
    pub(crate) block: Regular,
    /// Whether others may own its space too.
    pub(crate) may_be_shared: bool,
}

impl CheckInner {
    /// The state of each thread.
    pub(crate) fn run_worker(self: &Arc<Self>) {
        let mut tally = Tally::default();
        while let Some(work) = self.queue.pop() {
            match work {
                Work::Batch(batch) => self.check_batch(batch, &mut tally),
                Work::Task(task) => {
                    if !self.job.cancel.is_cancelled() {
                        self.run_task(&task);
                    }
                    self.queue.finish_task();
                }
            }
        }
        self.merge_tally(&mut tally);
    }

    /// Examines the blocks of a batch.
    pub(crate) fn check_batch(&self, batch: VerifyBatch, tally: &mut Tally) {
        for item in batch {
            if self.job.cancel.is_cancelled() {
                return;
            }
            if let Some(bytes) = self.check_block(&item, tally) {
                Reader::recycle(bytes);
            }
        }
    }

    /// Adds the findings of a thread to the common ones.
    pub(crate) fn merge_tally(&self, tally: &mut Tally) {
        self.space.add_references(&self.pool.tree, &mut tally.extents);
        self.tally.lock().merge(std::mem::take(tally));
    }

    /// Notes a reference to a block; `None` if the block was examined for another reference, and is to
    /// be [counted again](Tally::count_again) only.
    pub(crate) fn register_reference(
        &self,
        block: &Regular,
        place: Zbookmark,
    ) -> Option<CheckBlock> {
        let item = |shared| CheckBlock { zbookmark: place, block: *block, may_be_shared: shared };
        let Some(dva) = block.dvas[0] else { return Some(item(false)) };
        if self.in_checkpoint.load(Relaxed) {
            // dedup and clones of that time are not in the present tables
            return Some(item(true));
        }
        match self.shared.add_reference(dva) {
            None | Some(0) => Some(item(false)),
            Some(_) => None,
        }
    }

    /// Examines a block, counts it, and records its space and its damage; returns its stored bytes.
    pub(crate) fn check_block(&self, item: &CheckBlock, tally: &mut Tally) -> Option<Vec<u8>> {
        let CheckBlock { zbookmark: place, block, may_be_shared: shared } = item;
        tally.count(block);
        let examined = match self.reader.verify_block(block, *place) {
            Ok(examined) => examined,
            Err(error) => {
                self.record_extents(item, &[], tally);
                tally.add_note(true, format!("not examined: {error}"));
                return None;
            }
        };
        self.record_extents(item, &examined.pieces, tally);
        let faults: Vec<LeafError> = examined.faults().collect();
        let failed = examined.copies.iter().find_map(|copy| copy.2.as_ref().err());
        let lost = failed.filter(|_| examined.bytes.is_none()).map(ToString::to_string);
        tally.record_block_errors(block, *place, faults, lost);
        let bytes = if *shared { 0 } else { allocated_bytes(block) };
        tally.examined_bytes += allocated_bytes(block);
        self.job.progress.add(bytes, 1);
        examined.bytes
    }

    /// Counts a block and notes its space, and reads nothing.
    pub(crate) fn count_without_reading(&self, item: &CheckBlock, tally: &mut Tally) {
        tally.count(&item.block);
        self.record_extents(item, &[], tally);
        self.job.progress.add(if item.may_be_shared { 0 } else { allocated_bytes(&item.block) }, 1);
    }

    /// Notes the space that a block takes.
    fn record_extents(&self, item: &CheckBlock, pieces: &[ondisk::Dva], tally: &mut Tally) {
        let CheckBlock { zbookmark: place, block, may_be_shared: shared } = item;
        let tree = &self.pool.tree;
        for dva in block.copies().chain(pieces.iter().copied()) {
            let mut extent = self.space.extent(tree, dva, block.birth_physical, *place);
            extent.may_be_shared = *shared;
            tally.extents.push(extent);
        }
        if tally.extents.len() >= MAX_EXTENTS {
            self.space.add_references(tree, &mut tally.extents);
        }
    }
}

/// Where a walk reads from: examines each block as it is read.
pub(crate) struct VerifyingSource {
    pub(crate) inner: Arc<CheckInner>,
    pub(crate) tally: Mutex<Tally>,
}

impl VerifyingSource {
    pub(crate) fn new(inner: &Arc<CheckInner>) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(inner), tally: Mutex::default() })
    }

    /// Notes a reference to a block; `None` if the block was examined for another reference.
    pub(crate) fn register_reference(
        &self,
        block: &Regular,
        zbookmark: Zbookmark,
    ) -> Option<CheckBlock> {
        let first = self.inner.register_reference(block, zbookmark);
        if first.is_none() {
            self.tally.lock().count_extra_reference(block);
        }
        first
    }
}

impl Source for VerifyingSource {
    fn read(&self, pointer: &Blkptr, place: Zbookmark, key: Option<&Key>) -> Result<Block, Error> {
        let Blkptr::Regular(block) = pointer else {
            return self.inner.reader.read(pointer, place, key);
        };
        let Some(item) = self.register_reference(block, place) else {
            return self.inner.reader.read(pointer, place, key);
        };
        let bytes = self.inner.check_block(&item, &mut self.tally.lock());
        let bytes = bytes.ok_or(Error::Unreadable { zbookmark: place, faults: Vec::new() })?;
        let content = self.inner.reader.decode(block, bytes, place, key)?;
        if block.kind == ObjectType::DNODE && place.level.get() == 0 {
            let used = FeatureSet::from_dnodes(&content);
            self.tally.lock().feature_usage.add_used(place.objset, used);
        }
        Ok(Block::new(content, block.order))
    }
}
