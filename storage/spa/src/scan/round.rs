//! One round: tasks and batches, and the threads that do them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::Builder;

use job::{Queue, Work};
use metaslab::Pin;
use ondisk::blkptr::Regular;
use parking_lot::Mutex;
use units::{ObjsetId, Txg, Zbookmark};
use vdev::Leaf;
use zio::{BlockRepair, Reader, Source};

use super::result::ScanErrors;
use super::targets::{ScanCoverage, ScanTarget, list_targets};
use super::{ScanProgress, ScanResult};
use crate::{ActivePool, Error};

/// Batches that may wait.
const MAX_QUEUED_BATCHES: usize = 8;
/// Bytes that are read before they are written.
const MAX_PENDING_BYTES: u64 = 4 << 20;

/// What a walk is for.
pub(super) trait ScanPolicy: Sync {
    /// Only what was born after that txg matters, and what is above it.
    fn since_txg(&self) -> Txg;

    /// Whether a block is to be looked at.
    fn includes(&self, block: &Regular) -> bool;

    /// Whether a leaf is to get its part of a block of that txg.
    fn needs_write(&self, leaf: &Leaf, birth: Txg) -> bool;

    /// Whether there is nothing left to win.
    fn is_hopeless(&self) -> bool;

    /// Whether blocks are examined, and those get something who turn out to lack it.
    fn verifies_all(&self) -> bool {
        false
    }
}

/// A block to be mended.
#[derive(Clone, Copy)]
pub(super) struct ScanBlock {
    pub(super) zbookmark: Zbookmark,
    pub(super) block: Regular,
}

/// A walk over a pool.
pub(super) struct Scan<'a> {
    pub(super) pool: &'a ActivePool,
    pub(super) policy: &'a dyn ScanPolicy,
    pub(super) progress: &'a ScanProgress,
    /// Reads dnodes of locked datasets too.
    pub(super) reader: Arc<Reader>,
    pub(super) errors: Mutex<ScanErrors>,
    pub(super) coverage: Mutex<ScanCoverage>,
    rounds: AtomicU64,
}

/// A round of it.
pub(super) struct Round<'a> {
    pub(super) scan: &'a Scan<'a>,
    pub(super) queue: Queue<Vec<ScanBlock>, ScanTarget>,
    /// The txg whose state is walked.
    pub(super) txg: Txg,
    pin: Pin,
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
        let reader = Arc::new(pool.reader.with_raw_dnodes());
        let (errors, coverage) = (Mutex::default(), Mutex::default());
        Self { pool, policy, progress, reader, errors, coverage, rounds: AtomicU64::new(0) }
    }

    /// Walks over everything, in as many rounds as it takes; whether it came to the end.
    pub(super) fn run(&self) -> Result<bool, Error> {
        let used = self.pool.space_usage().1;
        self.progress.job.progress.set_bytes_total(used);
        loop {
            self.rounds.fetch_add(1, Relaxed);
            match self.run_round()? {
                RoundEnd::Complete => return Ok(true),
                RoundEnd::Stopped => return Ok(false),
                // what was kept can be used when one more is on the drives
                RoundEnd::OutOfSpace => self.pool.sync()?,
            }
        }
    }

    fn run_round(&self) -> Result<RoundEnd, Error> {
        let source = Arc::clone(&self.reader) as Arc<dyn Source>;
        let (pin, txg, mos) = self.pool.open_pinned_mos(&source)?;
        let queue = Queue::new(MAX_QUEUED_BATCHES);
        let mut lose = |error: Error| {
            self.record_error(Zbookmark::root(ObjsetId::MOS), &error, (Txg::ZERO, txg));
        };
        queue.push_tasks(list_targets(&mos, &self.coverage.lock(), &mut lose));
        let round = Round { scan: self, queue, txg, pin };
        std::thread::scope(|scope| {
            for _ in 1..self.pool.environment.workers {
                // where the system has no more threads to give, there are fewer
                let _ = Builder::new().spawn_scoped(scope, || round.run_worker());
            }
            round.run_worker();
        });
        Ok(if self.is_stopped() {
            RoundEnd::Stopped
        } else if round.pin.is_release_requested() {
            RoundEnd::OutOfSpace
        } else {
            RoundEnd::Complete
        })
    }

    fn is_stopped(&self) -> bool {
        let wished = self.progress.job.cancel.is_cancelled();
        wished || self.pool.txgs.is_stopped() || self.policy.is_hopeless()
    }

    /// Something of these txgs could not be mended.
    pub(super) fn record_error(
        &self,
        zbookmark: Zbookmark,
        why: &dyn std::fmt::Display,
        births: (Txg, Txg),
    ) {
        self.errors.lock().add(zbookmark, why.to_string(), births);
        self.progress.errors.fetch_add(1, Relaxed);
    }

    pub(super) fn result(&self, complete: bool) -> ScanResult {
        let losses = self.errors.lock();
        ScanResult {
            is_complete: complete,
            rounds: self.rounds.load(Relaxed),
            blocks: self.progress.job.progress.items_done(),
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

    fn run_worker(&self) {
        while let Some(work) = self.queue.pop() {
            match work {
                Work::Batch(batch) => self.repair_batch(batch),
                Work::Task(task) => {
                    if !self.is_stopping() {
                        self.walk_target(&task);
                    }
                    self.queue.finish_task();
                }
            }
        }
    }

    /// Mends the blocks of a batch, in the order in which they lie on the drives.
    pub(super) fn repair_batch(&self, mut batch: Vec<ScanBlock>) {
        batch.sort_unstable_by_key(|item| item.block.dvas[0].map(|dva| (dva.vdev, dva.offset)));
        if self.scan.policy.verifies_all() {
            let left = batch.iter().take_while(|_| !self.scan.is_stopped());
            return left.for_each(|item| self.verify_block(item));
        }
        let wants = |leaf: &Leaf, birth: Txg| self.scan.policy.needs_write(leaf, birth);
        let mut mending = BlockRepair::new(&self.scan.reader, &wants);
        let mut read = 0;
        for (index, item) in batch.iter().enumerate() {
            if self.scan.is_stopped() {
                return;
            }
            read += self.read_block(&mut mending, item);
            if read >= MAX_PENDING_BYTES || index + 1 == batch.len() {
                self.write_repairs(&mut mending, &batch);
                self.scan.progress.bytes_read.fetch_add(std::mem::take(&mut read), Relaxed);
            }
        }
    }

    fn read_block(&self, mending: &mut BlockRepair<'_>, item: &ScanBlock) -> u64 {
        let ScanBlock { zbookmark: place, block } = item;
        match mending.add(block, *place) {
            Ok(read) => read,
            Err(error) => {
                self.scan.record_error(
                    *place,
                    &error,
                    (block.birth_physical, block.birth_physical),
                );
                0
            }
        }
    }

    pub(super) fn write_repairs(&self, mending: &mut BlockRepair<'_>, batch: &[ScanBlock]) {
        // a leaf that fails remembers it, and is not taken for whole
        match mending.write_repairs(&mut Vec::new()) {
            Ok(written) => drop(self.scan.progress.bytes_written.fetch_add(written, Relaxed)),
            Err(error) => {
                for ScanBlock { zbookmark: place, block } in batch {
                    self.scan.record_error(
                        *place,
                        &error,
                        (block.birth_physical, block.birth_physical),
                    );
                }
            }
        }
    }
}
