//! Long work one can watch, slow, stop and resume.
//!
//! A worker and its observers share a [`Job`]. The worker calls [`Job::step`] after every piece of
//! work and stops when that returns so. The observers read [`Progress`] and may cancel with the
//! [`CancelToken`]. This crate has no clock: the worker passes one, and sleeps as [`RateLimit`]
//! demands.
#![forbid(unsafe_code)]

mod queue;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use queue::{Queue, Work};

/// How far the work has come. The counters are independent: a reader may see one updated before
/// another.
#[derive(Debug, Default)]
pub struct Progress {
    bytes_done: AtomicU64,
    bytes_total: AtomicU64,
    items_done: AtomicU64,
    message: Mutex<String>,
}

impl Progress {
    /// Adds finished work, in bytes and in the items that the job counts.
    pub fn add(&self, bytes: u64, items: u64) {
        self.bytes_done.fetch_add(bytes, Relaxed);
        self.items_done.fetch_add(items, Relaxed);
    }

    /// Bytes finished so far.
    pub fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Relaxed)
    }

    /// Bytes there are in all, as far as is known; 0 if it is not.
    pub fn bytes_total(&self) -> u64 {
        self.bytes_total.load(Relaxed)
    }

    /// Sets the total bytes; it may change during the work.
    pub fn set_bytes_total(&self, bytes: u64) {
        self.bytes_total.store(bytes, Relaxed);
    }

    /// Items finished so far.
    pub fn items_done(&self) -> u64 {
        self.items_done.load(Relaxed)
    }

    /// The present step of the work, as text for a user; empty at first.
    pub fn message(&self) -> String {
        self.message.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the present step.
    pub fn set_message(&self, message: impl Into<String>) {
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = message.into();
    }
}

/// The wish that work should stop; once uttered it stays.
#[derive(Debug, Default)]
pub struct CancelToken(AtomicBool);

impl CancelToken {
    /// Requests that the work stops.
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether it should.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The work was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the work was stopped on request")]
pub struct Cancelled;

/// A limit on bytes per second, kept on average since the last time the work fell behind it:
/// time that was not used for work cannot be caught up later by a burst.
#[derive(Debug, Default)]
pub struct RateLimit {
    bytes_per_second: AtomicU64,
    /// When, by the worker's clock, all work so far will have been paid for.
    next_allowed: Mutex<Duration>,
}

impl RateLimit {
    /// Sets the limit; 0 is none. It may change during the work.
    pub fn set_rate(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Relaxed);
    }

    /// How long to wait, at the time `now` of the worker's clock, after `bytes` of work.
    pub fn delay_after(&self, bytes: u64, now: Duration) -> Duration {
        let rate = self.bytes_per_second.load(Relaxed);
        let mut paid_until = self.next_allowed.lock().unwrap_or_else(PoisonError::into_inner);
        if rate == 0 {
            *paid_until = now;
            return Duration::ZERO;
        }
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let price = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        *paid_until = (*paid_until).max(now).saturating_add(price);
        paid_until.saturating_sub(now)
    }
}

/// A long-running work: its progress, its cancellation and its rate limit.
#[derive(Debug, Default)]
pub struct Job {
    /// How far it has come.
    pub progress: Progress,
    /// Whether it should stop.
    pub cancel: CancelToken,
    /// How fast it may go.
    pub rate_limit: RateLimit,
}

impl Job {
    /// Accounts for a piece of work, then reads `clock` and calls `sleep` for as long as the rate
    /// limit demands.
    ///
    /// # Errors
    /// [`Cancelled`] if the work should stop; the piece is counted all the same.
    pub fn step(
        &self,
        bytes: u64,
        items: u64,
        clock: impl FnOnce() -> Duration,
        sleep: impl FnOnce(Duration),
    ) -> Result<(), Cancelled> {
        self.progress.add(bytes, items);
        if self.cancel.is_cancelled() {
            return Err(Cancelled);
        }
        let wait = self.rate_limit.delay_after(bytes, clock());
        if !wait.is_zero() {
            sleep(wait);
        }
        if self.cancel.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
