//! Scans of a pool that is in use: a resilver writes to leaves what they missed, a scrub verifies everything
//! and repairs it.
//!
//! ```text
//! round:    pin the last txg, so that nothing it leads to is reused (metaslab::Pin)
//! walker    datasets in OpenZFS's order ──▶ many blocks, and the position behind them
//!                                            |
//! sort                                       ▼
//!                                         batches of blocks, in the order of the drives
//!                                            |
//! workers                                    ▼
//!                                         read, verify, write to the leaves that lack the block
//!                                            |
//! txg sync                                   ▼
//!                                         the position up to which all batches are complete, into the MOS
//! ```
//!
//! When space runs short the round ends, the pin is dropped, and the next round goes on from the durable
//! position, in what is then the last txg. A scan covers the blocks born up to the txg in which it began:
//! later blocks are written to all leaves that are present. At the end it looks at the references made
//! since, as clones and dedup keep old blocks alive. A DTL is cleared when all of it is written and flushed.
//!
//! Proved by: the engine's `tests/it/resilver.rs` and `tests/it/scan_state.rs`, and `zdb`.

mod error_log;
mod error_scrub;
mod log;
mod position;
mod resilver;
mod result;
mod round;
mod scrub;
mod sort;
mod state;
mod targets;
mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use job::Job;

pub(crate) use error_log::ErrorLog;
pub use error_log::move_logged_errors;
pub use result::{DamagedBlock, ScanResult};
pub(crate) use sort::SortMemory;
pub use state::ScanError;
pub(crate) use state::ScanState;
pub(crate) use targets::dataset_root;

/// The interval at which suspended work polls its gate.
const GATE_POLL: Duration = Duration::from_millis(20);

/// A switch by which the caller suspends background work. Tests of scripts that watch a scan or a removal use it.
#[derive(Clone, Default)]
pub struct BackgroundGate(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl BackgroundGate {
    /// A gate that suspends work as long as `is_closed` returns true.
    pub fn new(is_closed: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self(Some(is_closed))
    }

    /// Waits until the work may go on, or `ends` says that it ends.
    pub fn wait(&self, ends: &dyn Fn() -> bool) {
        let Some(is_closed) = &self.0 else { return };
        while is_closed() && !ends() {
            std::thread::sleep(GATE_POLL);
        }
    }
}

impl std::fmt::Debug for BackgroundGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BackgroundGate")
    }
}

/// A walk as others can watch it: scanned bytes and blocks are in the job's progress.
#[derive(Debug, Default)]
pub struct ScanProgress {
    /// Scanned bytes, and the wish that it should stop.
    job: Arc<Job>,
    /// Whether it is suspended.
    gate: BackgroundGate,
    bytes_issued: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    errors: AtomicU64,
}

impl ScanProgress {
    /// To be watched, and stopped.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// To be watched, and stopped by that job too; `gate` suspends it.
    pub fn of_job(job: &Arc<Job>, gate: BackgroundGate) -> Arc<Self> {
        Arc::new(Self { job: Arc::clone(job), gate, ..Self::default() })
    }

    /// Scanned bytes, and the wish that it should stop.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Waits while it is suspended, until `ends` says that it ends.
    pub(crate) fn wait_at_gate(&self, ends: &dyn Fn() -> bool) {
        self.gate.wait(ends);
    }

    /// Counts bytes of blocks that were read to be mended or examined.
    pub(crate) fn count_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes that were written to drives that lacked them.
    pub(crate) fn count_written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Relaxed);
    }

    /// Counts a block, or a range of a rebuild, that could not be mended.
    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// Bytes of the blocks that were examined, with all copies and parity.
    pub fn bytes_issued(&self) -> u64 {
        self.bytes_issued.load(Relaxed)
    }

    /// Bytes of blocks that were read to be mended or examined.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Relaxed)
    }

    /// Bytes that were written to drives that lacked them.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Relaxed)
    }

    /// Blocks that could not be mended.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }
}
