//! Examining blocks: in batches, and where a walk reads them anyway, right then.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use job::Work;
use ondisk::blkptr::Regular;
use ondisk::{Blkptr, ObjectType};
use parking_lot::Mutex;
use units::Place;
use vdev::LeafError;
use zio::{Block, Error, Key, Reader, Source};

use crate::Inner;
use crate::features::FeatureSet;
use crate::tally::{Tally, allocated};

/// So many extents are gathered before they are put into the sets.
const MOST_EXTENTS: usize = 4096;

/// Blocks that are examined together.
pub(crate) type Batch = Vec<Item>;

/// A block to be examined.
#[derive(Clone, Copy)]
pub(crate) struct Item {
    pub(crate) place: Place,
    pub(crate) block: Regular,
    /// Whether others may own its space too.
    pub(crate) shared: bool,
}

impl Inner {
    /// What each thread does.
    pub(crate) fn work(self: &Arc<Self>) {
        let mut tally = Tally::default();
        while let Some(work) = self.queue.take() {
            match work {
                Work::Batch(batch) => self.batch(batch, &mut tally),
                Work::Task(task) => {
                    if !self.job.cancel.is_cancelled() {
                        self.task(&task);
                    }
                    self.queue.done();
                }
            }
        }
        self.settle(&mut tally);
    }

    /// Examines the blocks of a batch.
    pub(crate) fn batch(&self, batch: Batch, tally: &mut Tally) {
        for item in batch {
            if self.job.cancel.is_cancelled() {
                return;
            }
            if let Some(bytes) = self.inspect(&item, tally) {
                Reader::recycle(bytes);
            }
        }
    }

    /// Adds what a thread has found to what all have.
    pub(crate) fn settle(&self, tally: &mut Tally) {
        self.space.refer(&self.pool.tree, &mut tally.extents);
        self.tally.lock().merge(std::mem::take(tally));
    }

    /// Notes a reference to a block; `None` if the block was examined for another reference, and is to
    /// be [counted again](Tally::count_again) only.
    pub(crate) fn first_reference(&self, block: &Regular, place: Place) -> Option<Item> {
        let item = |shared| Item { place, block: *block, shared };
        let Some(dva) = block.dvas[0] else { return Some(item(false)) };
        if self.checkpoint.load(Relaxed) {
            // dedup and clones of that time are not in the present tables
            return Some(item(true));
        }
        match self.shared.refer(dva) {
            None | Some(0) => Some(item(false)),
            Some(_) => None,
        }
    }

    /// Examines a block, counts it, notes its space and what is wrong; gives its stored bytes.
    pub(crate) fn inspect(&self, item: &Item, tally: &mut Tally) -> Option<Vec<u8>> {
        let Item { place, block, shared } = item;
        tally.count(block);
        let examined = match self.reader.verify_block(block, *place) {
            Ok(examined) => examined,
            Err(error) => {
                self.own(item, &[], tally);
                tally.note(true, format!("not examined: {error}"));
                return None;
            }
        };
        self.own(item, &examined.pieces, tally);
        let faults: Vec<LeafError> = examined.faults().collect();
        let failed = examined.copies.iter().find_map(|copy| copy.2.as_ref().err());
        let lost = failed.filter(|_| examined.bytes.is_none()).map(ToString::to_string);
        tally.judge(block, *place, faults, lost);
        let bytes = if *shared { 0 } else { allocated(block) };
        tally.examined_bytes = tally.examined_bytes.saturating_add(allocated(block));
        self.job.progress.add(bytes, 1);
        examined.bytes
    }

    /// Counts a block and notes its space, and reads nothing.
    pub(crate) fn pass_over(&self, item: &Item, tally: &mut Tally) {
        tally.count(&item.block);
        self.own(item, &[], tally);
        self.job.progress.add(if item.shared { 0 } else { allocated(&item.block) }, 1);
    }

    /// Notes the space that a block takes.
    fn own(&self, item: &Item, pieces: &[ondisk::Dva], tally: &mut Tally) {
        let Item { place, block, shared } = item;
        let tree = &self.pool.tree;
        for dva in block.copies().chain(pieces.iter().copied()) {
            let mut extent = self.space.extent(tree, dva, block.birth_physical, *place);
            extent.shared = *shared;
            tally.extents.push(extent);
        }
        if tally.extents.len() >= MOST_EXTENTS {
            self.space.refer(tree, &mut tally.extents);
        }
    }
}

/// Where a walk reads from: examines each block as it is read.
pub(crate) struct Examiner {
    pub(crate) inner: Arc<Inner>,
    pub(crate) tally: Mutex<Tally>,
}

impl Examiner {
    pub(crate) fn new(inner: &Arc<Inner>) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(inner), tally: Mutex::default() })
    }

    /// Notes a reference to a block; `None` if the block was examined for another reference.
    pub(crate) fn first_reference(&self, block: &Regular, place: Place) -> Option<Item> {
        let first = self.inner.first_reference(block, place);
        if first.is_none() {
            self.tally.lock().count_again(block);
        }
        first
    }
}

impl Source for Examiner {
    fn read(&self, pointer: &Blkptr, place: Place, key: Option<&Key>) -> Result<Block, Error> {
        let Blkptr::Regular(block) = pointer else {
            return self.inner.reader.read(pointer, place, key);
        };
        let Some(item) = self.first_reference(block, place) else {
            return self.inner.reader.read(pointer, place, key);
        };
        let bytes = self.inner.inspect(&item, &mut self.tally.lock());
        let bytes = bytes.ok_or(Error::Unreadable { zbookmark: place, faults: Vec::new() })?;
        let content = self.inner.reader.decode(block, bytes, place, key)?;
        if block.kind == ObjectType::DNODE && place.level.get() == 0 {
            let used = FeatureSet::of_dnodes(&content);
            self.tally.lock().features.use_in(place.objset, used);
        }
        Ok(Block::new(content, block.order))
    }
}
