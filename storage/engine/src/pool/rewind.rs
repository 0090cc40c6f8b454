//! Taking a pool over as it was some groups ago, where its newest state is damaged.
//!
//! Each txg leaves an uberblock behind, and its freed space is not allocated again before two more
//! are on the drives. So two txgs back everything should still be there; farther back it is luck.
//! The import rewinds to a state only if all metadata can be read and none of its blocks counts as
//! free. The next txg is after all that the drives know, so that no later import takes the
//! discarded states for newer ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use check::PoolCheck;
use job::Job;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use spa::{Candidate, ImportPoint};
use units::{MinusOrZero, Txg};

use crate::search::explain_error;
use crate::{Error, Result};

/// How far back a pool may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rewind {
    /// Not at all.
    #[default]
    No,
    /// As little as is needed, two groups at most, of which everything should still be there.
    #[serde(alias = "near")]
    Recent,
    /// As little as is needed.
    #[serde(alias = "far")]
    Extreme,
    /// To that transaction group.
    #[serde(alias = "to")]
    Txg(u64),
    /// To its checkpoint.
    Checkpoint,
}

/// The state to which a pool was rewound, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewindTarget {
    /// The transaction group.
    pub txg: u64,
    /// When that was written, in seconds since 1970.
    pub time: u64,
    /// The seconds of discarded changes.
    pub lost_seconds: u64,
    /// Whether that is its checkpoint.
    pub checkpoint: bool,
}

impl RewindTarget {
    /// The vdevs by which it was opened.
    pub const fn as_rewind(&self) -> Rewind {
        if self.checkpoint { Rewind::Checkpoint } else { Rewind::Txg(self.txg) }
    }
}

/// The progress and cancellation of the rewind probe.
#[derive(Debug, Default)]
pub struct RewindProbe {
    current_job: Mutex<Option<(Txg, Arc<Job>)>>,
    is_stopped: AtomicBool,
}

/// How far the reading of one state has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewindProgress {
    /// The state's transaction group.
    pub txg: u64,
    /// Bytes that are read, or of which it is known that they need not be.
    pub bytes_done: u64,
    /// Bytes that are allocated in all.
    pub bytes_total: u64,
}

impl RewindProbe {
    /// How far it has come; none while nothing is read.
    pub fn progress(&self) -> Option<RewindProgress> {
        let now = self.current_job.lock();
        let (txg, job) = now.as_ref()?;
        let (bytes, of) = (job.progress.bytes_done(), job.progress.bytes_total());
        Some(RewindProgress { txg: txg.get(), bytes_done: bytes, bytes_total: of })
    }

    /// Cancels it: the pool is left unchanged.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some((_, job)) = &*self.current_job.lock() {
            job.cancel.cancel();
        }
    }

    fn begin_state(&self, txg: Txg) -> Arc<Job> {
        let job = Arc::<Job>::default();
        let mut now = self.current_job.lock();
        *now = Some((txg, Arc::clone(&job)));
        if self.is_stopped() {
            job.cancel.cancel();
        }
        job
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }
}

/// The number of txgs whose blocks are surely not overwritten.
const RECENT_TXGS: u64 = 2;

/// A pool as of some state.
pub(super) struct OpenedState {
    pub(super) pool: spa::Pool,
    /// None: that is its newest state.
    pub(super) target: Option<RewindTarget>,
}

/// Opens a pool, as far back as is allowed and needed.
pub(super) fn open_with_rewind(
    candidate: &Candidate,
    (rewind, judging): (Rewind, &RewindProbe),
    (cache, workers): (&arc::MemoryBudget, usize),
) -> Result<OpenedState> {
    let open = |choice| {
        let options = spa::PoolOpenOptions { cache: cache.clone(), import_point: choice };
        candidate.open(&options).map_err(|error| explain_error(candidate, error))
    };
    let judged = |choice| {
        let pool = open(choice)?;
        let sound = validate_state(&pool, judging, workers);
        *judging.current_job.lock() = None;
        sound.map(|()| pool)
    };
    let pool = match rewind {
        Rewind::No => open(ImportPoint::Newest)?,
        // its blocks are protected by the checkpoint
        Rewind::Checkpoint => open(ImportPoint::Checkpoint)?,
        Rewind::Txg(txg) => judged(ImportPoint::Txg(Txg::new(txg)))?,
        Rewind::Recent => open_newest_valid(candidate, Some(RECENT_TXGS), &judged)?,
        Rewind::Extreme => open_newest_valid(candidate, None, &judged)?,
    };
    let rewound = rewind_target(candidate, &pool);
    Ok(OpenedState { pool, target: rewound })
}

/// The newest state with which the pool can continue.
fn open_newest_valid(
    candidate: &Candidate,
    most: Option<u64>,
    judged: &dyn Fn(ImportPoint) -> Result<spa::Pool>,
) -> Result<spa::Pool> {
    let standing: Vec<Txg> = candidate.uberblocks().iter().map(|found| found.txg).collect();
    let newest = standing.first().copied().unwrap_or(Txg::ZERO);
    let least = most.map_or(0, |most| newest.get().minus_or_zero(most));
    let mut first = None;
    let mut tried = 0_usize;
    for txg in standing.iter().filter(|txg| txg.get() >= least) {
        tried += 1;
        match judged(ImportPoint::Txg(*txg)) {
            Ok(pool) => return Ok(pool),
            // an older state has the same drives and features, or fewer
            Err(error) if !matches!(error, Error::DamagedPool { .. }) => return Err(error),
            Err(error) => first = first.or(Some(error)),
        }
    }
    let pool = candidate.name().to_owned();
    let why = match first {
        Some(Error::DamagedPool { why, .. }) => why,
        _ => "no uberblock of it stands".to_owned(),
    };
    Err(Error::RewindFailed {
        pool,
        states_tried: tried,
        has_older_states: tried < standing.len(),
        why,
    })
}

/// To where a pool was opened, if that is not its newest state.
fn rewind_target(candidate: &Candidate, pool: &spa::Pool) -> Option<RewindTarget> {
    let newest = candidate.newest_uberblock()?;
    let then = pool.uberblock();
    (then.txg < newest.txg).then(|| RewindTarget {
        txg: then.txg.get(),
        time: then.timestamp,
        lost_seconds: newest.timestamp.minus_or_zero(then.timestamp),
        checkpoint: then.is_checkpoint(),
    })
}

/// Whether a pool can continue from a state: all metadata can be read, of the datasets too, and nothing
/// counts as free that it leads to.
fn validate_state(pool: &spa::Pool, judging: &RewindProbe, workers: usize) -> Result<()> {
    let damaged = |why: String| Error::DamagedPool { pool: pool.name().to_owned(), why };
    let check = PoolCheck::new_metadata_only(pool, judging.begin_state(pool.txg()));
    let check = check.map_err(|error| damaged(error.to_string()))?;
    loop {
        std::thread::scope(|scope| {
            (0..workers.max(1)).for_each(|_| drop(scope.spawn(|| check.run_worker())));
        });
        if !check.start_next_round() {
            break;
        }
    }
    if judging.is_stopped() {
        return Err(Error::RewindInterrupted { pool: pool.name().to_owned() });
    }
    let report = check.report(None, std::time::Duration::ZERO, workers);
    let (lost, free) = (report.lost, report.unallocated_bytes());
    let twice = report.space.iter().map(|space| space.contradictions).sum::<u64>();
    match (lost, free, report.double_claimed_bytes, report.out_of_range_count + twice) {
        (0, 0, 0, 0) => Ok(()),
        (0, 0, 0, _) => Err(damaged("its space maps contradict each other".to_owned())),
        (0, 0, double, _) => {
            Err(damaged(format!("{double} bytes are allocated to two blocks each")))
        }
        (0, free, ..) => Err(damaged(format!("{free} bytes that are in use count as free"))),
        (lost, ..) => Err(damaged(format!("{lost} blocks of metadata cannot be read"))),
    }
}
