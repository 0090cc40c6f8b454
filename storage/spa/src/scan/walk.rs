//! Walking in the order of datasets: each block that the scan covers goes to a batch.

use std::sync::Arc;

use dmu::{BlockVisit, Objset, WalkControl, WalkOptions};
use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use ondisk::scan::DESTROYED_OBJSET;
use units::{ObjsetId, Txg, Zbookmark};
use vdev::IoClass;
use zio::Source;

use super::position::{ScanPosition, start_of};
use super::round::{Round, ScanBatch, ScanBlock};
use super::sort::SortedBlocks;
use super::targets::ScanTarget;

/// Bytes of blocks that are sorted together at most: the position advances when all of them are read.
const MAX_SORTED_BYTES: u64 = 16 << 30;
/// Objects from here on are accounting tables, which no bookmark names.
const FIRST_SPECIAL_OBJECT: u64 = 1 << 63;

/// Which blocks of a walk the scan covers.
#[derive(Clone, Copy)]
enum Coverage {
    /// Those born up to a txg.
    UpTo(Txg),
    /// Those that were written up to a txg, and got a new reference since: clones, and blocks of dedup.
    ReferencedSince(Txg),
}

impl Coverage {
    fn includes(self, block: &Regular) -> bool {
        match self {
            Self::UpTo(last) => block.birth <= last,
            Self::ReferencedSince(txg) => block.birth > txg && block.birth_physical <= txg,
        }
    }
}

/// Blocks that are gathered, to be read in the order of the drives.
pub(super) struct BlockBatch {
    blocks: Vec<ScanBlock>,
    bytes: u64,
    coverage: Coverage,
    /// Where the walk is; none if the pool does not keep that.
    position: Option<ScanPosition>,
}

impl BlockBatch {
    const fn new(coverage: Coverage, position: Option<ScanPosition>) -> Self {
        Self { blocks: Vec::new(), bytes: 0, coverage, position }
    }
}

/// The round is to end.
pub(super) struct Stopped;

impl Round<'_> {
    /// Walks from a position to the end, as far as the round goes.
    pub(super) fn walk_in_order(&self, position: ScanPosition) {
        let max_txg = self.scan.max_txg;
        let mut gathered = BlockBatch::new(Coverage::UpTo(max_txg), Some(position));
        let walked = self.walk_positions(&mut gathered);
        self.issue_blocks(&mut gathered);
        if walked.is_err() {
            return;
        }
        let coverage = Coverage::ReferencedSince(max_txg);
        let mut gathered = BlockBatch::new(coverage, None);
        for (id, dataset) in self.datasets.iter() {
            let since_txg = dataset.previous_txg.max(max_txg);
            let target = ScanTarget { has_log: false, ..dataset.target(id, since_txg) };
            if self.walk_target(&target, &mut gathered).is_err() {
                break;
            }
        }
        self.issue_blocks(&mut gathered);
    }

    fn walk_positions(&self, gathered: &mut BlockBatch) -> Result<(), Stopped> {
        loop {
            let Some(position) = gathered.position.clone() else { return Ok(()) };
            let current = position.bookmark.objset;
            if current != DESTROYED_OBJSET {
                self.walk_current(&position, gathered)?;
            }
            let Some(position) = &mut gathered.position else { return Ok(()) };
            self.enqueue_next(position);
            let Some((next, min_txg)) = position.dequeue() else {
                position.bookmark = start_of(DESTROYED_OBJSET);
                return Ok(());
            };
            let max_txg = self.scan.max_txg;
            let dataset = self.datasets.get(next);
            let own = dataset.map_or(Txg::ZERO, |dataset| dataset.previous_txg);
            let min_txg = if min_txg.is_zero() { own } else { min_txg };
            position.bookmark = start_of(next);
            position.min_txg = min_txg.max(self.scan.min_txg);
            let taken = dataset.and_then(|dataset| dataset.snapshot_txg);
            position.max_txg = taken.map_or(max_txg, |taken| taken.min(max_txg));
        }
    }

    /// Walks the object set of the bookmark.
    fn walk_current(
        &self,
        position: &ScanPosition,
        gathered: &mut BlockBatch,
    ) -> Result<(), Stopped> {
        let id = position.bookmark.objset;
        let target = if id == ObjsetId::MOS {
            let root = self.mos.root().clone();
            gathered.coverage = Coverage::UpTo(self.scan.max_txg);
            let since_txg = self.scan.min_txg;
            ScanTarget { id, root, since_txg, start: None, has_log: false }
        } else {
            // a dataset taken after the scan began has no blocks of its own that it covers
            let is_due = position.min_txg < self.scan.max_txg;
            let Some(dataset) = self.datasets.get(id).filter(|_| is_due) else { return Ok(()) };
            gathered.coverage = Coverage::UpTo(position.max_txg);
            dataset.target(id, position.min_txg)
        };
        let is_resumed = position.bookmark != start_of(id);
        let start = is_resumed.then_some(position.bookmark);
        self.walk_target(&ScanTarget { start, ..target }, gathered)
    }

    /// Queues the datasets that follow the one that was walked.
    fn enqueue_next(&self, position: &mut ScanPosition) {
        let walked = position.bookmark.objset;
        if walked == DESTROYED_OBJSET {
            return;
        }
        if std::mem::take(&mut position.visit_again) {
            let max_txg = position.max_txg;
            return position.enqueue(walked, max_txg);
        }
        let snapshot_txg = match self.datasets.get(walked) {
            None if walked == ObjsetId::MOS => Some(Txg::ZERO),
            Some(dataset) if position.min_txg < self.scan.max_txg => dataset.snapshot_txg,
            _ => None,
        };
        if let Some(min_txg) = snapshot_txg {
            for next in self.datasets.children(walked) {
                position.enqueue(*next, min_txg);
            }
        }
    }

    /// Walks a tree of which the txg sync thread reads blocks to free them.
    pub(super) fn walk_destroyed(&self, target: &ScanTarget) {
        let mut gathered = BlockBatch::new(Coverage::UpTo(self.scan.max_txg), None);
        let _ = self.walk_target(target, &mut gathered);
        self.issue_blocks(&mut gathered);
    }

    fn walk_target(&self, target: &ScanTarget, gathered: &mut BlockBatch) -> Result<(), Stopped> {
        let is_born = target.root.birth() > target.since_txg.max(self.scan.policy.since_txg());
        if target.root.is_hole() || !(is_born || target.has_log) {
            return Ok(());
        }
        let source = Arc::clone(&self.scan.reader) as Arc<dyn Source>;
        let objset = match Objset::open(source, target.id, &target.root, None) {
            Ok(objset) => objset,
            Err(error) => {
                self.record_subtree_error(Zbookmark::root(target.id), &error);
                return Ok(());
            }
        };
        if target.has_log {
            self.scan_log(target.id, &objset.header().log, gathered);
        }
        let plan = WalkOptions {
            born_after: target.since_txg.max(self.scan.policy.since_txg()),
            start: target.start,
            ..WalkOptions::default()
        };
        let mut stopped = Ok(());
        let mut visit = |zbookmark, found: BlockVisit<'_>| {
            if self.is_stopping() {
                stopped = Err(Stopped);
                return WalkControl::Stop;
            }
            self.visit_block(zbookmark, &found, gathered)
        };
        let _ = vdev::with_class(IoClass::Scan, || objset.walk(&plan, &mut visit));
        stopped
    }

    fn visit_block(
        &self,
        place: Zbookmark,
        found: &BlockVisit<'_>,
        gathered: &mut BlockBatch,
    ) -> WalkControl {
        if let Some(position) = &mut gathered.position
            && is_resumable(place)
        {
            position.bookmark = place;
        }
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

    /// Adds a block to the batch, and hands a full batch over.
    pub(super) fn queue_block(&self, item: ScanBlock, gathered: &mut BlockBatch) {
        if !gathered.coverage.includes(&item.block) {
            return;
        }
        self.scan.progress.job().progress.add(item.allocated_bytes(), 1);
        if !self.scan.policy.includes(&item.block) {
            return;
        }
        gathered.bytes += u64::from(item.block.psize);
        gathered.blocks.push(item);
        let is_full = gathered.blocks.len() >= self.scan.sort_limit();
        if is_full || gathered.bytes >= MAX_SORTED_BYTES {
            self.issue_blocks(gathered);
        }
    }

    /// Sorts the gathered blocks and hands them over in batches; examines the oldest batch here if enough
    /// batches wait.
    fn issue_blocks(&self, gathered: &mut BlockBatch) {
        let blocks = std::mem::take(&mut gathered.blocks);
        gathered.bytes = 0;
        let ticket = gathered.position.as_mut().map(|position| {
            position.examined = self.scan.progress.job().progress.bytes_done();
            self.scan.pool.scan_state().publish(position)
        });
        let (group, ranges) = SortedBlocks::new(blocks, ticket);
        let group = Arc::new(group);
        for range in ranges {
            let batch = ScanBatch { group: Arc::clone(&group), range };
            if let Some(batch) = self.queue.push_batch(batch) {
                self.repair_batch(&batch);
            }
            self.scan.sync_if_due();
            if self.is_stopping() {
                // the rest of the blocks is not read, and the position stays before them
                return;
            }
        }
    }

    /// Nothing below a place can be walked: anything there may be lost.
    fn record_subtree_error(&self, zbookmark: Zbookmark, error: &dmu::Error) {
        self.scan.record_error(zbookmark, error, Txg::ZERO, (Txg::ZERO, self.txg));
    }
}

/// Whether a walk can begin at a place: OpenZFS's bookmarks are of data blocks and blocks of dnodes.
fn is_resumable(place: Zbookmark) -> bool {
    let is_plain = place.block != dmu::SPILL_BLOCK && place.object.get() < FIRST_SPECIAL_OBJECT;
    place.level.get() == 0 && is_plain
}
