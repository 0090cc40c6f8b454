//! How long clients wait for the intent log: COMMIT, stable writes, and changes of names.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::status::LogWaitStatus;

/// Counts the waits for the intent log.
#[derive(Default)]
pub(crate) struct LogWait {
    waiting: AtomicU64,
    waits: AtomicU64,
    nanoseconds: AtomicU64,
    longest: AtomicU64,
}

impl LogWait {
    /// Runs work that waits for the log.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Relaxed);
        let begun = Instant::now();
        let result = work();
        let took = u64::try_from(begun.elapsed().as_nanos()).expect("a wait below 500 years");
        self.waiting.fetch_sub(1, Relaxed);
        self.waits.fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(took, Relaxed);
        self.longest.fetch_max(took, Relaxed);
        result
    }

    pub(crate) fn status(&self) -> LogWaitStatus {
        LogWaitStatus {
            waiting: self.waiting.load(Relaxed),
            waits: self.waits.load(Relaxed),
            total: Duration::from_nanos(self.nanoseconds.load(Relaxed)),
            longest: Duration::from_nanos(self.longest.load(Relaxed)),
        }
    }
}
