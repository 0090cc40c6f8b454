//! Requests to a suspended pool.
//!
//! Where the pool has failmode=wait, a change that the pool refuses as suspended is tried again until the
//! pool resumes, the caller is gone, or the deadline has passed. Reads do not wait. A client that can repeat
//! its request has a deadline of its own (`suspend_deadline`), so that its other requests are not held up.

use std::time::{Duration, Instant};

use super::PoolFileSystem;
use crate::{Context, Error, Reason, Result};

/// How often a waiting request looks at the pool and at its caller.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The most retries with a pool that is not suspended.
const MAX_RETRIES: u32 = 5;

impl PoolFileSystem {
    /// Runs work that may run twice, again when the pool resumes.
    pub(super) fn retry<T>(
        &self,
        context: &Context<'_>,
        work: impl Fn() -> Result<T>,
    ) -> Result<T> {
        self.retry_once(context, &work, &work)
    }

    /// Runs work that must not run twice. If the work is done and only its commit failed, `settle` commits
    /// it and returns its result.
    pub(super) fn retry_once<T>(
        &self,
        context: &Context<'_>,
        work: impl Fn() -> Result<T>,
        settle: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let mut result = work();
        let Some(waiter) = context.waiter.filter(|_| self.is_retryable(&result)) else {
            return result;
        };
        waiter.run_blocking(&mut || {
            let mut tries = 0;
            while self.is_retryable(&result)
                && tries < MAX_RETRIES
                && !context.is_over()
                && !is_given_up(context, &result)
            {
                // the pool may have resumed just now
                tries += u32::from(!self.is_suspended());
                std::thread::sleep(RETRY_INTERVAL);
                let is_done =
                    matches!(result, Err(Error::Refused { reason: Reason::NotCommitted }));
                result = if is_done { settle() } else { work() };
            }
        });
        if is_given_up(context, &result) { Err(Error::PoolSuspended) } else { result }
    }

    /// The same for work without a result.
    pub(super) fn retry_change(
        &self,
        context: &Context<'_>,
        work: impl Fn() -> Result<()>,
    ) -> Result<()> {
        self.retry_once(context, work, || self.commit_if_sync_always())
    }

    fn is_retryable<T>(&self, result: &Result<T>) -> bool {
        let Err(Error::Refused { reason }) = result else { return false };
        matches!(reason, Reason::Suspended | Reason::NotCommitted) && self.has_failmode_wait()
    }
}

/// Whether a request that is not carried out has waited long enough.
fn is_given_up<T>(context: &Context<'_>, result: &Result<T>) -> bool {
    matches!(result, Err(Error::Refused { reason: Reason::Suspended }))
        && context.suspend_deadline.is_some_and(|deadline| Instant::now() >= deadline)
}
