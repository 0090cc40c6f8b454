//! A thread that copies in the background whenever there is something to copy, one job at a time: raidz
//! expansions and vdev removals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use job::Job;
use parking_lot::{Condvar, Mutex};
use units::MinusOrZero as _;

/// How often the thread looks for work, and whether it is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long work that paused waits before it is tried again.
const RETRY_POLLS: u32 = 10;

/// The control of one such thread.
#[derive(Default)]
pub(super) struct BackgroundCopy {
    state: Mutex<CopyState>,
    changed: Condvar,
}

#[derive(Default)]
struct CopyState {
    is_closed: bool,
    running: Option<Arc<Job>>,
    /// Why the last run failed, if it did.
    error: Option<String>,
}

impl BackgroundCopy {
    /// Runs `work` whenever `is_needed` says so, until told to stop. For a thread of its own.
    pub(super) fn run(
        &self,
        stop: &AtomicBool,
        is_needed: &dyn Fn() -> bool,
        work: &dyn Fn(&Job) -> Result<(), crate::Error>,
    ) {
        let mut polls_left = 0;
        while !stop.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            if state.is_closed {
                break;
            }
            if polls_left > 0 || !is_needed() {
                polls_left = polls_left.minus_or_zero(1);
                self.changed.wait_for(&mut state, POLL_INTERVAL);
                continue;
            }
            let job = Arc::new(Job::default());
            state.running = Some(Arc::clone(&job));
            drop(state);
            let done = work(&job);
            let mut state = self.state.lock();
            state.running = None;
            state.error = done.err().map(|error| error.to_string());
            polls_left = RETRY_POLLS;
            self.changed.notify_all();
        }
    }

    /// Has the thread look for work at once.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Ends the work that runs, for now; `false` if `gives_up` says that it is not to be waited for.
    pub(super) fn interrupt(&self, gives_up: &dyn Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        while let Some(job) = &state.running {
            job.cancel.cancel();
            if self.changed.wait_for(&mut state, POLL_INTERVAL).timed_out() && gives_up() {
                return false;
            }
        }
        true
    }

    /// Ends the work for good.
    pub(super) fn close(&self, gives_up: &dyn Fn() -> bool) {
        self.state.lock().is_closed = true;
        self.interrupt(gives_up);
    }

    /// Why the last run failed, if it did.
    pub(super) fn last_error(&self) -> Option<String> {
        self.state.lock().error.clone()
    }
}
