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

use super::damage::Losses;
use super::datasets::{Done, Task, tasks};
use super::{Mended, Watch};
use crate::{Error, Owned};

/// Batches that may wait.
const MOST_WAITING: usize = 8;
/// Bytes that are read before they are written.
const AT_ONCE: u64 = 4 << 20;

/// What a walk is for.
pub(super) trait Aim: Sync {
    /// Only what was born after that txg matters, and what is above it.
    fn since(&self) -> Txg;

    /// Whether a block is to be looked at.
    fn concerns(&self, block: &Regular) -> bool;

    /// Whether a leaf is to get its part of a block of that txg.
    fn wants(&self, leaf: &Leaf, birth: Txg) -> bool;

    /// Whether there is nothing left to win.
    fn is_lost(&self) -> bool;

    /// Whether blocks are examined, and those get something who turn out to lack it.
    fn examines(&self) -> bool {
        false
    }
}

/// A block to be mended.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) place: Zbookmark,
    pub(super) block: Regular,
}

/// A walk over a pool.
pub(super) struct Scan<'a> {
    pub(super) owned: &'a Owned,
    pub(super) aim: &'a dyn Aim,
    pub(super) watch: &'a Watch,
    /// Reads dnodes of locked datasets too.
    pub(super) reader: Arc<Reader>,
    pub(super) losses: Mutex<Losses>,
    pub(super) done: Mutex<Done>,
    rounds: AtomicU64,
}

/// A round of it.
pub(super) struct Round<'a> {
    pub(super) scan: &'a Scan<'a>,
    pub(super) queue: Queue<Vec<Item>, Task>,
    /// The txg whose state is walked.
    pub(super) txg: Txg,
    pin: Pin,
}

/// How a round ended.
enum End {
    Done,
    Short,
    Stopped,
}

impl<'a> Scan<'a> {
    pub(super) fn new(owned: &'a Owned, aim: &'a dyn Aim, watch: &'a Watch) -> Self {
        let reader = Arc::new(owned.reader.with_raw_dnodes());
        let (losses, done) = (Mutex::default(), Mutex::default());
        Self { owned, aim, watch, reader, losses, done, rounds: AtomicU64::new(0) }
    }

    /// Walks over everything, in as many rounds as it takes; whether it came to the end.
    pub(super) fn run(&self) -> Result<bool, Error> {
        let used = self.owned.fullness().1;
        self.watch.job.progress.set_bytes_total(used);
        loop {
            self.rounds.fetch_add(1, Relaxed);
            match self.round()? {
                End::Done => return Ok(true),
                End::Stopped => return Ok(false),
                // what was kept can be used when one more is on the drives
                End::Short => self.owned.sync()?,
            }
        }
    }

    fn round(&self) -> Result<End, Error> {
        let source = Arc::clone(&self.reader) as Arc<dyn Source>;
        let (pin, txg, mos) = self.owned.pinned(&source)?;
        let queue = Queue::new(MOST_WAITING);
        let mut lose = |why: Error| {
            self.lose(Zbookmark::root(ObjsetId::MOS), &why, (Txg::ZERO, txg));
        };
        queue.add(tasks(&mos, &self.done.lock(), &mut lose));
        let round = Round { scan: self, queue, txg, pin };
        std::thread::scope(|scope| {
            for _ in 1..self.owned.world.workers {
                // where the system has no more threads to give, there are fewer
                let _ = Builder::new().spawn_scoped(scope, || round.work());
            }
            round.work();
        });
        Ok(if self.is_stopped() {
            End::Stopped
        } else if round.pin.is_release_requested() {
            End::Short
        } else {
            End::Done
        })
    }

    fn is_stopped(&self) -> bool {
        let wished = self.watch.job.cancel.is_cancelled();
        wished || self.owned.groups.is_stopped() || self.aim.is_lost()
    }

    /// Something of these txgs could not be mended.
    pub(super) fn lose(&self, place: Zbookmark, why: &dyn std::fmt::Display, births: (Txg, Txg)) {
        self.losses.lock().add(place, why.to_string(), births);
        self.watch.errors.fetch_add(1, Relaxed);
    }

    pub(super) fn report(&self, complete: bool) -> Mended {
        let losses = self.losses.lock();
        Mended {
            complete,
            rounds: self.rounds.load(Relaxed),
            blocks: self.watch.job.progress.items_done(),
            read: self.watch.read(),
            written: self.watch.written(),
            errors: losses.count,
            damage: losses.named.clone(),
        }
    }
}

impl Round<'_> {
    /// Whether nothing new is to be begun.
    pub(super) fn is_over(&self) -> bool {
        self.pin.is_release_requested() || self.scan.is_stopped()
    }

    fn work(&self) {
        while let Some(work) = self.queue.take() {
            match work {
                Work::Batch(batch) => self.batch(batch),
                Work::Task(task) => {
                    if !self.is_over() {
                        self.walk(&task);
                    }
                    self.queue.done();
                }
            }
        }
    }

    /// Mends the blocks of a batch, in the order in which they lie on the drives.
    pub(super) fn batch(&self, mut batch: Vec<Item>) {
        batch.sort_unstable_by_key(|item| item.block.dvas[0].map(|dva| (dva.vdev, dva.offset)));
        if self.scan.aim.examines() {
            let left = batch.iter().take_while(|_| !self.scan.is_stopped());
            return left.for_each(|item| self.examine(item));
        }
        let wants = |leaf: &Leaf, birth: Txg| self.scan.aim.wants(leaf, birth);
        let mut mending = BlockRepair::new(&self.scan.reader, &wants);
        let mut read = 0;
        for (index, item) in batch.iter().enumerate() {
            if self.scan.is_stopped() {
                return;
            }
            read += self.read(&mut mending, item);
            if read >= AT_ONCE || index + 1 == batch.len() {
                self.write(&mut mending, &batch);
                self.scan.watch.read.fetch_add(std::mem::take(&mut read), Relaxed);
            }
        }
    }

    fn read(&self, mending: &mut BlockRepair<'_>, item: &Item) -> u64 {
        let Item { place, block } = item;
        match mending.add(block, *place) {
            Ok(read) => read,
            Err(error) => {
                self.scan.lose(*place, &error, (block.birth_physical, block.birth_physical));
                0
            }
        }
    }

    pub(super) fn write(&self, mending: &mut BlockRepair<'_>, batch: &[Item]) {
        // a leaf that fails remembers it, and is not taken for whole
        match mending.write_repairs(&mut Vec::new()) {
            Ok(written) => drop(self.scan.watch.written.fetch_add(written, Relaxed)),
            Err(error) => {
                for Item { place, block } in batch {
                    self.scan.lose(*place, &error, (block.birth_physical, block.birth_physical));
                }
            }
        }
    }
}
