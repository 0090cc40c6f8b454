//! Walking over all that is in a held pool while it is changed, to mend it: a resilver gives drives
//! what they missed, a scrub reads everything and mends what is wrong.
//!
//! ```text
//! round:    pin what the last txg leads to, so that none of it is used anew (metaslab::Pin)
//! tasks     its object sets ────────────▶ walkers: their indirect blocks and dnodes
//!                                            |  batches of pointers
//!                                            ▼
//!                                         menders: read whole, proved, written to who lacks it
//! ```
//!
//! When room runs short the round ends, the pin is dropped, and the next one goes on where it was,
//! in what is then the last txg: which object sets are done, and up to where, is kept (`targets::ScanCoverage`).
//! What is written meanwhile goes to all drives that are there, so only what a round leads to
//! matters. A drive's note of what it missed stays in the pool until all of that is mended and
//! flushed; a cut before makes no harm, and the work begins anew.
//!
//! Proved by: the engine's `tests/it/resilver.rs`, and `zdb`.

mod log;
mod resilver;
mod result;
mod round;
mod scrub;
mod targets;
mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use job::Job;

pub use result::{DamagedBlock, ScanResult};
pub(crate) use targets::dataset_root;

/// A walk as others can watch it: scanned bytes and blocks are in the job's progress.
#[derive(Debug, Default)]
pub struct ScanProgress {
    /// Scanned bytes, and the wish that it should stop.
    pub job: Job,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    errors: AtomicU64,
}

impl ScanProgress {
    /// To be watched, and stopped.
    pub fn new() -> Arc<Self> {
        Arc::default()
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
