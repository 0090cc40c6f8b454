//! Examines a pool without trusting the writer: leaks, counts, reachability.
//!
//! A [`PoolCheck`] finds every block that the pool refers to: the pool's own object set, all
//! datasets and snapshots (each block once), their intent logs, the checkpoint, and blocks that
//! wait to be freed. It reads each copy on every drive, and parity. At the end it compares the
//! blocks with the allocations in the space maps.
//!
//! The work is done by whichever threads call [`PoolCheck::run_worker`]; this crate has none of its own:
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

mod damage_names;
mod datasets;
mod error;
mod features;
mod log;
pub mod report;
mod sector_set;
mod shared_blocks;
mod space;
mod tally;
mod verify;
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

pub use damage_names::name_lost_blocks;
pub use error::Error;
pub use report::CheckReport;

use report::{LeafReport, SizeCounts, TypeCounts};
use shared_blocks::RefcountedBlocks;
use space::SpaceMapCheck;
use tally::Tally;
use verify::VerifyBatch;
use walk::ObjsetTask;

/// Batches that may wait.
const MAX_QUEUED_BATCHES: usize = 64;

/// An examination of a pool. Cheap to clone, for the threads that do it.
#[derive(Clone)]
pub struct PoolCheck(Arc<CheckInner>);

pub(crate) struct CheckInner {
    pool: CheckedPool,
    /// Reads dnodes of locked datasets too.
    reader: Reader,
    job: Arc<Job>,
    space: SpaceMapCheck,
    shared: RefcountedBlocks,
    /// The contents of files and volumes are not read.
    metadata_only: bool,
    queue: Queue<VerifyBatch, ObjsetTask>,
    tally: Mutex<Tally>,
    objsets: AtomicU64,
    objsets_done: AtomicU64,
    /// Whether the walk is in the checkpoint, which shares blocks with the present state.
    in_checkpoint: AtomicBool,
    checkpoint_done: AtomicBool,
}

/// The results of the walk.
pub(crate) struct CheckedPool {
    name: String,
    guid: Guid,
    txg: Txg,
    /// The last txg that the space maps know.
    allocated_txg: Txg,
    root: Blkptr,
    mos: Objset,
    tree: Arc<VdevTree>,
    checkpoint: Result<Option<Uberblock>, spa::Error>,
    features: Vec<FeatureState>,
}

impl PoolCheck {
    /// Prepares the examination of a pool: reads its space maps and tables of shared blocks, and
    /// finds its datasets. `job` gets the progress in allocated bytes, and may cancel the work.
    pub fn new(pool: &Pool, job: Arc<Job>) -> Result<Self, Error> {
        Self::with_mode(pool, job, false)
    }

    /// The same without reading the contents of files and volumes: only their addresses are
    /// compared with the space maps.
    pub fn new_metadata_only(pool: &Pool, job: Arc<Job>) -> Result<Self, Error> {
        Self::with_mode(pool, job, true)
    }

    fn with_mode(pool: &Pool, job: Arc<Job>, metadata_only: bool) -> Result<Self, Error> {
        let mut tally = Tally::default();
        let shared = RefcountedBlocks::load(pool).unwrap_or_else(|error| {
            tally.add_note(true, format!("the tables of shared blocks cannot be read: {error}"));
            RefcountedBlocks::default()
        });
        let space = SpaceMapCheck::load(pool)?;
        job.progress.set_bytes_total(space.allocated());
        let inner = CheckInner {
            reader: pool.reader().with_raw_dnodes(),
            pool: CheckedPool {
                name: pool.name().to_owned(),
                guid: pool.guid(),
                txg: pool.txg(),
                allocated_txg: pool.rewound_to().unwrap_or_else(|| pool.txg()),
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
            queue: Queue::new(MAX_QUEUED_BATCHES),
            tally: Mutex::new(tally),
            objsets: AtomicU64::new(0),
            objsets_done: AtomicU64::new(0),
            in_checkpoint: AtomicBool::new(false),
            checkpoint_done: AtomicBool::new(false),
        };
        let check = Self(Arc::new(inner));
        check.0.queue_current_state();
        Ok(check)
    }

    /// Works until nothing is left or the job was cancelled. Any number of threads may call it.
    /// After all have returned, [`PoolCheck::start_next_round`] tells whether another round is
    /// needed.
    pub fn run_worker(&self) {
        CheckInner::run_worker(&self.0);
    }

    /// Whether there is another round of work: the checkpoint comes after all else.
    pub fn start_next_round(&self) -> bool {
        let inner = &*self.0;
        if inner.job.cancel.is_cancelled() || inner.checkpoint_done.swap(true, Relaxed) {
            return false;
        }
        inner.queue_checkpoint()
    }

    /// The report, after all threads have finished. The caller passes `elapsed` and `threads`.
    /// Damaged files are looked up here in `names`: the pool's tree of datasets, with the loaded
    /// keys.
    pub fn report(
        &self,
        names: Option<&dsl::DatasetTree>,
        elapsed: Duration,
        threads: usize,
    ) -> CheckReport {
        let inner = &*self.0;
        let mut tally = std::mem::take(&mut *inner.tally.lock());
        inner.space.add_references(&inner.pool.tree, &mut tally.extents);
        let done = inner.objsets_done.load(Relaxed);
        let mut report = CheckReport {
            pool: inner.pool.name.clone(),
            guid: inner.pool.guid,
            txg: inner.pool.txg,
            is_complete: !inner.job.cancel.is_cancelled(),
            objsets: inner.objsets.load(Relaxed),
            objsets_done: done,
            elapsed,
            threads,
            leaves: inner.leaf_reports(&tally),
            ..CheckReport::default()
        };
        inner.compare_space(&mut report, &mut tally);
        fill_counts(&mut report, &tally);
        report.damaged =
            damage_names::name_damage(&inner.pool.mos, names, std::mem::take(&mut tally.damages));
        report.notes = tally.notes;
        report
    }
}

impl CheckInner {
    fn compare_space(&self, report: &mut CheckReport, tally: &mut Tally) {
        (
            report.double_claims,
            report.double_claimed_bytes,
            report.out_of_range,
            report.out_of_range_count,
        ) = self.space.errors();
        if !report.is_complete {
            return;
        }
        report.space = self.space.compare();
        std::mem::take(&mut tally.feature_usage).report_mismatches(&self.pool.features, tally);
        if let (wrong, Some((vdev, offset, told, found))) = self.shared.mismatches() {
            let what = format!(
                "{wrong} shared blocks are counted wrongly: that at {vdev}:{offset:x}, to give one, is \
                 counted {told} times, and {found} references to it were found"
            );
            tally.add_note(true, what);
        }
    }

    fn leaf_reports(&self, tally: &Tally) -> Vec<LeafReport> {
        let leaves = self.pool.tree.leaves();
        let report = |leaf: &Arc<vdev::Leaf>| {
            let count = |trouble| tally.leaves.get(&(leaf.guid(), trouble)).copied().unwrap_or(0);
            let device = leaf.device().map(|device| device.name().to_owned());
            LeafReport {
                guid: leaf.guid(),
                is_missing: device.is_none(),
                path: device.unwrap_or_else(|| leaf.path().to_owned()),
                checksum_errors: count(DeviceError::Corrupt),
                read_errors: count(DeviceError::ReadFailed),
                missing_blocks: count(DeviceError::Missing),
                stale_blocks: count(DeviceError::Stale),
            }
        };
        leaves.iter().map(report).collect()
    }
}

fn fill_counts(report: &mut CheckReport, tally: &Tally) {
    let Tally {
        embedded,
        redacted,
        gang_blocks: gangs,
        extra_references: shared,
        extra_reference_bytes: shared_bytes,
        pending_frees: waiting,
        ..
    } = *tally;
    let Tally { examined_bytes, degraded, repairable, lost, unlisted_damage: unnamed, .. } = *tally;
    *report = CheckReport {
        embedded,
        redacted,
        gang_blocks: gangs,
        extra_references: shared,
        extra_reference_bytes: shared_bytes,
        pending_frees: waiting,
        examined_bytes,
        degraded,
        repairable,
        lost,
        unlisted_damage: unnamed,
        ..std::mem::take(report)
    };
    for ((kind, level), counts) in &tally.types {
        report.total.add(counts);
        report.types.push(TypeCounts { kind: *kind, level: *level, counts: *counts });
    }
    for (power, counts) in &tally.sizes {
        report.sizes.push(SizeCounts { max_psize: 1 << power, counts: *counts });
    }
}
