//! One round of a scan: tasks and batches, and the worker threads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::Builder;

use dmu::Objset;
use job::{Queue, Work};
use metaslab::Pin;
use ondisk::blkptr::Regular;
use parking_lot::Mutex;
use units::{ObjsetId, Txg, Zbookmark};
use vdev::{IoClass, Leaf};
use zio::{BlockRepair, Reader, Source};

use super::position::ScanPosition;
use super::result::ScanErrors;
use super::sort::SortedBlocks;
use super::targets::{ScanDatasets, ScanTarget, destroyed_targets};
use super::{ScanProgress, ScanResult};
use crate::{ActivePool, Error};

/// Batches that may wait.
pub(super) const MAX_QUEUED_BATCHES: usize = 8;
/// Bytes that are read before they are written.
const MAX_PENDING_BYTES: u64 = 4 << 20;
/// The least number of blocks that are sorted together.
const MIN_SORTED_BLOCKS: usize = 128;
/// After so many short rounds the memory is used no less.
const MAX_SORT_SHIFT: u64 = 16;
/// Seconds after which the position of a running scan is written to the pool.
const POSITION_INTERVAL: u64 = 15;

/// The kind of scan.
pub(super) trait ScanPolicy: Sync {
    /// Only blocks born after that txg are scanned, and the blocks above them.
    fn since_txg(&self) -> Txg;

    /// Whether a block is scanned.
    fn includes(&self, block: &Regular) -> bool;

    /// Whether a leaf gets its part of a block of that txg.
    fn needs_write(&self, leaf: &Leaf, birth: Txg) -> bool;

    /// Whether no leaf gains anything any more.
    fn is_hopeless(&self) -> bool;

    /// Whether blocks are verified, and repaired on the leaves that turn out to have them wrong.
    fn verifies_all(&self) -> bool {
        false
    }

    /// Whether a position may be kept: the scan covers every leaf that lacks something.
    fn covers(&self, _pool: &ActivePool) -> bool {
        true
    }
}

/// A block to examine.
#[derive(Clone, Copy)]
pub(super) struct ScanBlock {
    pub(super) zbookmark: Zbookmark,
    pub(super) block: Regular,
}

impl ScanBlock {
    /// Bytes that its copies take, with parity.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.block.copies().map(|dva| dva.asize).sum()
    }
}

/// Blocks next to each other on a vdev: a part of those that were sorted together.
pub(super) struct ScanBatch {
    pub(super) group: Arc<SortedBlocks>,
    pub(super) range: Range<usize>,
}

/// A walk that a worker does.
pub(super) enum WalkTask {
    /// All datasets, from a position on.
    InOrder(ScanPosition),
    /// A tree whose blocks are freed by and by.
    Destroyed(ScanTarget),
}

/// A scan of a pool.
pub(super) struct Scan<'a> {
    pub(super) pool: &'a ActivePool,
    pub(super) policy: &'a dyn ScanPolicy,
    pub(super) progress: &'a ScanProgress,
    /// Reads dnodes of locked datasets too.
    pub(super) reader: Arc<Reader>,
    pub(super) errors: Mutex<ScanErrors>,
    /// Blocks born after the first and up to the second txg are scanned.
    pub(super) min_txg: Txg,
    pub(super) max_txg: Txg,
    rounds: AtomicU64,
    /// Rounds in succession after which the position was where it was before.
    short_rounds: AtomicU64,
    /// Bytes written and errors that the record has.
    counted: Mutex<(u64, u64)>,
    /// When the position was last written to the pool, seconds since 1970.
    synced: AtomicU64,
}

/// A round of a scan, over the pool as one txg has it.
pub(super) struct Round<'a> {
    pub(super) scan: &'a Scan<'a>,
    pub(super) queue: Queue<ScanBatch, WalkTask>,
    pub(super) mos: Objset,
    pub(super) datasets: ScanDatasets,
    /// The txg whose state is walked.
    pub(super) txg: Txg,
    pub(super) pin: Pin,
}

/// How a round ended.
enum RoundEnd {
    Complete,
    OutOfSpace,
    Stopped,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        pool: &'a ActivePool,
        policy: &'a dyn ScanPolicy,
        progress: &'a ScanProgress,
    ) -> Self {
        let record = pool.scan_record();
        Self {
            pool,
            policy,
            progress,
            reader: Arc::new(pool.reader().with_raw_dnodes()),
            errors: Mutex::default(),
            min_txg: record.min_txg,
            max_txg: record.max_txg,
            rounds: AtomicU64::new(0),
            short_rounds: AtomicU64::new(0),
            counted: Mutex::default(),
            synced: AtomicU64::new((pool.environment().now)().seconds),
        }
    }

    /// Scans the rest, in as many rounds as it takes. Returns whether it reached the end.
    pub(super) fn run(&self) -> Result<bool, Error> {
        let record = self.pool.scan_record();
        self.progress.job().progress.add(record.examined, 0);
        self.progress.job().progress.set_bytes_total(record.to_examine);
        loop {
            self.rounds.fetch_add(1, Relaxed);
            let end = self.run_round()?;
            self.update_counts();
            match end {
                RoundEnd::Complete => return Ok(true),
                RoundEnd::Stopped => return Ok(false),
                // the space that the pin kept can be used after one more txg
                RoundEnd::OutOfSpace => self.pool.sync()?,
            }
        }
    }

    fn run_round(&self) -> Result<RoundEnd, Error> {
        let source = Arc::clone(&self.reader) as Arc<dyn Source>;
        let ((pin, txg, mos), position) = self.pool.between_txgs(|| {
            let pinned = self.pool.open_pinned_mos(&source)?;
            Ok::<_, Error>((pinned, self.pool.scan_state().begin_round()))
        })?;
        let queue = Queue::new(MAX_QUEUED_BATCHES);
        let mut lose = |error: Error| {
            let place = Zbookmark::root(ObjsetId::MOS);
            self.record_error(place, &error, Txg::ZERO, (Txg::ZERO, txg));
        };
        let datasets = ScanDatasets::read(&mos, &mut lose);
        queue.push_tasks([WalkTask::InOrder(position.clone())]);
        match destroyed_targets(&mos) {
            Ok(targets) => queue.push_tasks(targets.into_iter().map(WalkTask::Destroyed)),
            Err(error) => lose(error),
        }
        let round = Round { scan: self, queue, mos, datasets, txg, pin };
        round.run_workers();
        if self.pool.scan_state().durable_position() == position {
            self.short_rounds.fetch_add(1, Relaxed);
        } else {
            self.short_rounds.store(0, Relaxed);
        }
        Ok(if self.is_stopped() {
            RoundEnd::Stopped
        } else if round.pin.is_release_requested() {
            RoundEnd::OutOfSpace
        } else {
            RoundEnd::Complete
        })
    }

    /// How many blocks are sorted together: fewer after rounds that gave up their pin before they came to the
    /// end of their blocks.
    pub(super) fn sort_limit(&self) -> usize {
        let shift = self.short_rounds.load(Relaxed).min(MAX_SORT_SHIFT);
        (self.pool.scan_memory().blocks() >> shift).max(MIN_SORTED_BLOCKS)
    }

    pub(super) fn is_stopped(&self) -> bool {
        let is_ended = || {
            let is_cancelled = self.progress.job().cancel.is_cancelled();
            is_cancelled || self.pool.txgs().is_stopped() || self.policy.is_hopeless()
        };
        self.progress.wait_at_gate(&is_ended);
        is_ended()
    }

    /// Writes the position to the pool, if that is due: an idle pool writes no txg by itself.
    pub(super) fn sync_if_due(&self) {
        let now = (self.pool.environment().now)().seconds;
        if now.abs_diff(self.synced.load(Relaxed)) < POSITION_INTERVAL || self.is_stopped() {
            return;
        }
        self.synced.store(now, Relaxed);
        self.update_counts();
        // a pool that cannot be written ends the scan by itself
        let _ = vdev::with_class(IoClass::User, || self.pool.sync());
    }

    /// Brings the counts of the record up to date.
    fn update_counts(&self) {
        let now = (self.progress.bytes_written(), self.progress.errors());
        let mut counted = self.counted.lock();
        self.pool.scan_state().count(now.0 - counted.0, now.1 - counted.1);
        *counted = now;
    }

    /// A block born in the logical txg `birth` could not be repaired; what was written in `births` may be
    /// lost with it.
    pub(super) fn record_error(
        &self,
        zbookmark: Zbookmark,
        why: &dyn std::fmt::Display,
        birth: Txg,
        births: (Txg, Txg),
    ) {
        self.pool.error_log().record(zbookmark, birth);
        self.errors.lock().add(zbookmark, why.to_string(), births);
        self.progress.errors.fetch_add(1, Relaxed);
    }

    /// The same of a block that is known.
    pub(super) fn record_block_error(&self, item: &ScanBlock, why: &dyn std::fmt::Display) {
        let ScanBlock { zbookmark, block } = item;
        let births = (block.birth_physical, block.birth_physical);
        self.record_error(*zbookmark, why, block.birth, births);
    }

    pub(super) fn result(&self, complete: bool) -> ScanResult {
        let losses = self.errors.lock();
        ScanResult {
            is_complete: complete,
            rounds: self.rounds.load(Relaxed),
            blocks: self.progress.job().progress.items_done(),
            bytes_read: self.progress.bytes_read(),
            bytes_written: self.progress.bytes_written(),
            errors: losses.count,
            damaged_blocks: losses.listed.clone(),
        }
    }
}

impl Round<'_> {
    /// Whether nothing new is to be begun.
    pub(super) fn is_stopping(&self) -> bool {
        self.pin.is_release_requested() || self.scan.is_stopped()
    }

    fn run_workers(&self) {
        std::thread::scope(|scope| {
            for _ in 1..self.scan.pool.environment().workers {
                // where the system has no more threads to give, there are fewer
                let _ = Builder::new().spawn_scoped(scope, || self.run_worker());
            }
            self.run_worker();
        });
    }

    fn run_worker(&self) {
        while let Some(work) = self.queue.pop() {
            match work {
                Work::Batch(batch) => self.repair_batch(&batch),
                Work::Task(task) => {
                    match task {
                        WalkTask::InOrder(position) => self.walk_in_order(position),
                        WalkTask::Destroyed(target) => self.walk_destroyed(&target),
                    }
                    self.queue.finish_task();
                }
            }
        }
    }

    /// Examines the blocks of a batch, in the order in which they lie on the drives.
    pub(super) fn repair_batch(&self, batch: &ScanBatch) {
        let blocks = batch.group.blocks(&batch.range);
        let verifies_all = self.scan.policy.verifies_all();
        let is_complete = vdev::with_class(IoClass::Scan, || {
            if verifies_all { self.verify_blocks(blocks) } else { self.resilver_blocks(blocks) }
        });
        let bytes = blocks.iter().map(ScanBlock::allocated_bytes).sum();
        self.scan.progress.bytes_issued.fetch_add(bytes, Relaxed);
        if let Some(ticket) = batch.group.finish_batch(is_complete) {
            if self.scan.policy.covers(self.scan.pool) {
                self.scan.pool.scan_state().complete(ticket);
            } else {
                self.scan.pool.scan_state().restart();
            }
        }
    }

    /// Verifies blocks. Returns whether it reached the end.
    fn verify_blocks(&self, blocks: &[ScanBlock]) -> bool {
        for item in blocks {
            if self.scan.is_stopped() {
                return false;
            }
            self.verify_block(item);
        }
        true
    }

    /// Writes blocks to the leaves that lack them. Returns whether it reached the end.
    fn resilver_blocks(&self, blocks: &[ScanBlock]) -> bool {
        let wants = |leaf: &Leaf, birth: Txg| self.scan.policy.needs_write(leaf, birth);
        let mut mending = BlockRepair::new(&self.scan.reader, &wants);
        let mut read = 0;
        for (index, item) in blocks.iter().enumerate() {
            if self.scan.is_stopped() {
                return false;
            }
            read += self.read_block(&mut mending, item);
            if read >= MAX_PENDING_BYTES || index + 1 == blocks.len() {
                self.write_repairs(&mut mending, blocks);
                self.scan.progress.count_read(std::mem::take(&mut read));
            }
        }
        true
    }

    fn read_block(&self, mending: &mut BlockRepair<'_>, item: &ScanBlock) -> u64 {
        mending.add(&item.block, item.zbookmark).unwrap_or_else(|error| {
            self.scan.record_block_error(item, &error);
            0
        })
    }

    pub(super) fn write_repairs(&self, mending: &mut BlockRepair<'_>, blocks: &[ScanBlock]) {
        // a leaf that fails notes what it misses, so the scan does not clear that from its DTL
        match mending.write_repairs(&mut Vec::new()) {
            Ok(written) => self.scan.progress.count_written(written),
            Err(error) => {
                for item in blocks {
                    self.scan.record_block_error(item, &error);
                }
            }
        }
    }
}
