//! Examines a pool without trusting the writer: leaks, counts, reachability.
//!
//! A [`Check`] finds every block that anything in the pool refers to: the pool's own object set,
//! all datasets and snapshots (each block once), their intent logs, the checkpoint, and what waits
//! to be freed. It reads each copy on every drive, and parity; and at the end holds what it found
//! against what the space maps have as allocated.
//!
//! The work is done by whichever threads call [`Check::work`]; this crate has none of its own:
//!
//! ```text
//! walkers: object set -> indirect blocks, dnodes (examined as they are read)
//!              |  batches of pointers
//! workers:     v  each copy, parity -> counts, faults, extents -> sets of sectors
//! ```
//!
//! Memory is bounded by the sets of sectors (`bits`: 64 MiB a TiB at most), the blocks that are
//! shared (`shared`: 64 bytes each), and the damage that is named (100,000 blocks).
#![forbid(unsafe_code)]

mod bits;
mod datasets;
mod error;
mod examine;
mod features;
mod files;
mod log;
pub mod report;
mod shared;
mod space;
mod tally;
mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dmu::Objset;
use job::{Job, Queue};
use ondisk::Blkptr;
use ondisk::uberblock::Uberblock;
use parking_lot::Mutex;
use spa::{FeatureState, Pool};
use units::{Guid, Txg};
use vdev::{DeviceError, VdevTree};
use zio::Reader;

pub use error::Error;
pub use files::name_lost;
pub use report::Report;

use examine::Batch;
use report::{KindCounts, LeafReport, SizeCounts};
use shared::Shared;
use space::Space;
use tally::Tally;
use walk::Task;

/// Batches that may wait.
const MOST_WAITING: usize = 64;

/// An examination of a pool. Cheap to clone, for the threads that do it.
#[derive(Clone)]
pub struct Check(Arc<Inner>);

pub(crate) struct Inner {
    pool: Facts,
    /// Reads dnodes of locked datasets too.
    reader: Reader,
    job: Arc<Job>,
    space: Space,
    shared: Shared,
    /// The contents of files and volumes are not read.
    metadata_only: bool,
    queue: Queue<Batch, Task>,
    tally: Mutex<Tally>,
    objsets: AtomicU64,
    objsets_done: AtomicU64,
    /// Whether what is walked now is the checkpoint, which shares blocks with the present state.
    checkpoint: AtomicBool,
    checkpoint_done: AtomicBool,
}

/// What is kept of the pool.
pub(crate) struct Facts {
    name: String,
    guid: Guid,
    txg: Txg,
    /// The last txg that the space maps know.
    allocated: Txg,
    root: Blkptr,
    mos: Objset,
    tree: Arc<VdevTree>,
    checkpoint: Result<Option<Uberblock>, spa::Error>,
    features: Vec<FeatureState>,
}

impl Check {
    /// Prepares the examination of a pool: reads its space maps and tables of shared blocks, and
    /// finds its datasets. `job` is told of progress in bytes allocated, and may stop the work.
    pub fn new(pool: &Pool, job: Arc<Job>) -> Result<Self, Error> {
        Self::prepare(pool, job, false)
    }

    /// The same, but the contents of files and volumes are not read: only where they are is held against
    /// the space maps.
    pub fn of_metadata(pool: &Pool, job: Arc<Job>) -> Result<Self, Error> {
        Self::prepare(pool, job, true)
    }

    fn prepare(pool: &Pool, job: Arc<Job>, metadata_only: bool) -> Result<Self, Error> {
        let mut tally = Tally::default();
        let shared = Shared::load(pool).unwrap_or_else(|error| {
            tally.note(true, format!("the tables of shared blocks cannot be read: {error}"));
            Shared::default()
        });
        let space = Space::load(pool)?;
        job.progress.set_bytes_total(space.allocated());
        let inner = Inner {
            reader: pool.reader().with_raw_dnodes(),
            pool: Facts {
                name: pool.name().to_owned(),
                guid: pool.guid(),
                txg: pool.txg(),
                allocated: pool.taken_back().unwrap_or_else(|| pool.txg()),
                root: pool.uberblock().root.clone(),
                mos: pool.mos().clone(),
                tree: Arc::clone(pool.tree()),
                checkpoint: pool.checkpoint(),
                features: pool.features().to_vec(),
            },
            job,
            space,
            shared,
            metadata_only,
            queue: Queue::new(MOST_WAITING),
            tally: Mutex::new(tally),
            objsets: AtomicU64::new(0),
            objsets_done: AtomicU64::new(0),
            checkpoint: AtomicBool::new(false),
            checkpoint_done: AtomicBool::new(false),
        };
        let check = Self(Arc::new(inner));
        check.0.begin();
        Ok(check)
    }

    /// Works until nothing is left to do or the job was cancelled. To be called by as many threads
    /// as are wanted; when all have come back, [`Check::next_round`] says if it is to be done again.
    pub fn work(&self) {
        Inner::work(&self.0);
    }

    /// Whether there is another round of work: the checkpoint comes after all else.
    pub fn next_round(&self) -> bool {
        let inner = &*self.0;
        if inner.job.cancel.is_cancelled() || inner.checkpoint_done.swap(true, Relaxed) {
            return false;
        }
        inner.begin_checkpoint()
    }

    /// What was found, once all threads have come back for good. `elapsed` and `threads` are the
    /// caller's own knowledge. Files with damage are looked up by name here, in `names`: the pool's
    /// tree of datasets, with such keys as there are.
    pub fn report(&self, names: Option<&dsl::Tree>, elapsed: Duration, threads: usize) -> Report {
        let inner = &*self.0;
        let mut tally = std::mem::take(&mut *inner.tally.lock());
        inner.space.refer(&inner.pool.tree, &mut tally.extents);
        let done = inner.objsets_done.load(Relaxed);
        let mut report = Report {
            pool: inner.pool.name.clone(),
            guid: inner.pool.guid,
            txg: inner.pool.txg,
            complete: !inner.job.cancel.is_cancelled(),
            objsets: inner.objsets.load(Relaxed),
            objsets_done: done,
            elapsed,
            threads,
            leaves: inner.leaves(&tally),
            ..Report::default()
        };
        inner.compare(&mut report, &mut tally);
        counts(&mut report, &tally);
        report.damaged = files::name(&inner.pool.mos, names, std::mem::take(&mut tally.damages));
        report.notes = tally.notes;
        report
    }
}

impl Inner {
    fn compare(&self, report: &mut Report, tally: &mut Tally) {
        (report.doubles, report.double_bytes, report.outside, report.outside_count) =
            self.space.faults();
        if !report.complete {
            return;
        }
        report.space = self.space.compare();
        std::mem::take(&mut tally.features).compare(&self.pool.features, tally);
        if let (wrong, Some((vdev, offset, told, found))) = self.shared.differences() {
            let what = format!(
                "{wrong} shared blocks are counted wrongly: that at {vdev}:{offset:x}, to give one, is \
                 counted {told} times, and {found} references to it were found"
            );
            tally.note(true, what);
        }
    }

    fn leaves(&self, tally: &Tally) -> Vec<LeafReport> {
        let leaves = self.pool.tree.leaves();
        let report = |leaf: &Arc<vdev::Leaf>| {
            let count = |trouble| tally.leaves.get(&(leaf.guid(), trouble)).copied().unwrap_or(0);
            let device = leaf.device().map(|device| device.name().to_owned());
            LeafReport {
                guid: leaf.guid(),
                missing: device.is_none(),
                path: device.unwrap_or_else(|| leaf.path().to_owned()),
                wrong: count(DeviceError::Corrupt),
                unreadable: count(DeviceError::ReadFailed),
                absent: count(DeviceError::Missing),
                stale: count(DeviceError::Stale),
            }
        };
        leaves.iter().map(report).collect()
    }
}

fn counts(report: &mut Report, tally: &Tally) {
    let Tally { embedded, redacted, gangs, shared, shared_bytes, waiting, .. } = *tally;
    let Tally { examined_bytes, degraded, repairable, lost, unnamed, .. } = *tally;
    *report = Report {
        embedded,
        redacted,
        gangs,
        shared,
        shared_bytes,
        waiting,
        examined_bytes,
        degraded,
        repairable,
        lost,
        unnamed,
        ..std::mem::take(report)
    };
    for ((kind, level), counts) in &tally.kinds {
        report.total.add(counts);
        report.kinds.push(KindCounts { kind: *kind, level: *level, counts: *counts });
    }
    for (power, counts) in &tally.sizes {
        report.sizes.push(SizeCounts { up_to: 1 << power, counts: *counts });
    }
}
