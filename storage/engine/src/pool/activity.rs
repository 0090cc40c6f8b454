//! Long work on a pool: what there is, and the scheduler that runs it.
//!
//! ```text
//! activity      due while                                                       does not run beside
//! scan          a scrub, resilver or rebuild is requested, or was interrupted   another scan
//! expansion     a raidz gets one more drive                                     removal
//! removal       a vdev is being removed, a mapping is worth condensing          expansion
//! sweep         a leaf is initialized or trimmed, and its vdev is not being
//!               expanded; autotrim is on, and 32 txgs were written
//! discard       space that only a discarded checkpoint used is to be freed
//! ```
//!
//! An activity that is due gets a thread of its own, and does step after step there. Its I/O waits in the queues of
//! the drives for that of users (`vdev::queue`). The pool keeps how far each has come, so that an interruption costs
//! a step at most, and the next import goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

use job::Job;
use parking_lot::{Condvar, Mutex};
use units::{MinusOrZero as _, Txg};

use super::Pool;
use super::activity_status::{ActivityStatus, LongWork, refuse};
use super::checkpoint::Discard;
use super::leaf_activity::Sweeps;
use super::raidz_expand::Expansion;
use super::scan::ScanActivity;
use super::vdev_removal::Removals;
use crate::Result;
use crate::pool::handles::Background;

/// How often the scheduler looks for work, and whether it is to end.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// For how many polls work rests that cannot go on for now.
const REST_POLLS: u32 = 10;

/// Which activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Scan,
    Expansion,
    Removal,
    Sweep,
    Discard,
}

/// The number of activities.
const COUNT: usize = 5;

impl Work {
    /// Whether the other one does not run beside it.
    const fn excludes(self, other: Self) -> bool {
        matches!((self, other), (Self::Expansion, Self::Removal) | (Self::Removal, Self::Expansion))
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to do.
    More,
    /// There is nothing left for now, or it cannot go on.
    Rest,
    /// It is done, and something else may be due at once.
    Done,
}

/// Long work on a pool, in steps that are as long as they must be.
pub(super) trait Activity: Sync {
    /// Which one.
    fn work(&self) -> Work;

    /// Whether there is something to do. Called while it does not run.
    fn is_due(&self, pool: &Pool) -> bool;

    /// Does a step. It ends early when the job is cancelled.
    fn step(&self, pool: &Pool, job: &Arc<Job>) -> Result<Step>;

    /// How far the work has come that goes on, or is paused. It may be called while a step runs.
    fn describe(&self, pool: &Pool) -> Vec<ActivityStatus>;

    /// Pauses the work until a command starts it again; the pool keeps that.
    fn pause(&self, pool: &Pool, work: LongWork) -> Result<()> {
        Err(refuse(pool, "pause", work))
    }

    /// Ends the work before it is done.
    fn cancel(&self, pool: &Pool, work: LongWork) -> Result<()> {
        Err(refuse(pool, "cancel", work))
    }
}

/// The activities of a pool.
pub(super) struct ActivitySet {
    scan: ScanActivity,
    expansion: Expansion,
    removals: Removals,
    sweeps: Sweeps,
    discard: Discard,
}

impl ActivitySet {
    /// Of a pool whose last txg on the drives is `synced`.
    pub(super) fn new(synced: Txg) -> Self {
        Self {
            scan: ScanActivity::default(),
            expansion: Expansion,
            removals: Removals::default(),
            sweeps: Sweeps::new(synced),
            discard: Discard::default(),
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> [&dyn Activity; COUNT] {
        [&self.scan, &self.expansion, &self.removals, &self.sweeps, &self.discard]
    }

    /// The one that does that work.
    pub(super) fn of(&self, work: Work) -> &dyn Activity {
        let found: &dyn Activity = match work {
            Work::Scan => &self.scan,
            Work::Expansion => &self.expansion,
            Work::Removal => &self.removals,
            Work::Sweep => &self.sweeps,
            Work::Discard => &self.discard,
        };
        assert_eq!(found.work(), work, "an activity does its own work");
        found
    }
}

/// The scheduler of a pool.
#[derive(Default)]
pub(super) struct Scheduler {
    state: Mutex<SchedulerState>,
    changed: Condvar,
}

#[derive(Default)]
struct SchedulerState {
    is_closed: bool,
    /// Something may be due, and the scheduler looks before it waits.
    is_woken: bool,
    slots: [Slot; COUNT],
}

/// The state of an activity.
#[derive(Default)]
struct Slot {
    running: Option<Arc<Job>>,
    /// Why the last run failed, if it did.
    error: Option<String>,
    /// Polls until it is looked at again.
    rest: u32,
}

impl SchedulerState {
    /// Whether an activity may begin, apart from its being due.
    fn may_begin(&self, work: Work, activities: &[&dyn Activity]) -> bool {
        let is_running = |other: Work| self.slots[other as usize].running.is_some();
        let is_excluded = |other: Work| work.excludes(other) && is_running(other);
        let slot = &self.slots[work as usize];
        slot.running.is_none()
            && slot.rest == 0
            && !activities.iter().any(|other| is_excluded(other.work()))
    }
}

impl Scheduler {
    /// Runs activities that are due until told to stop, or closed.
    fn run(&self, pool: &Pool, activities: &[&dyn Activity], stop: &AtomicBool) {
        let is_stopped = || stop.load(Ordering::Acquire) || pool.0.spa.txgs().is_stopped();
        std::thread::scope(|scope| {
            while !is_stopped() && !self.state.lock().is_closed {
                for activity in activities {
                    let work = activity.work();
                    // this thread alone begins activities: none begins between the look and the start
                    let may_begin = self.state.lock().may_begin(work, activities);
                    if !may_begin || !activity.is_due(pool) {
                        continue;
                    }
                    let Some(job) = self.begin(work) else { break };
                    let run = move || self.run_activity(pool, *activity, &job, stop);
                    let name = format!("{work:?} {}", pool.name()).to_lowercase();
                    if Builder::new().name(name).spawn_scoped(scope, run).is_err() {
                        // the system has no more threads to give: later, perhaps
                        self.end(work, Step::Rest, None);
                    }
                }
                let mut state = self.state.lock();
                let is_woken = std::mem::take(&mut state.is_woken) || state.is_closed;
                if !is_woken && self.changed.wait_for(&mut state, POLL_INTERVAL).timed_out() {
                    for slot in &mut state.slots {
                        slot.rest = slot.rest.minus_or_zero(1);
                    }
                }
            }
            self.cancel_all();
        });
    }

    /// Does steps until there is nothing left for now.
    fn run_activity(
        &self,
        pool: &Pool,
        activity: &dyn Activity,
        job: &Arc<Job>,
        stop: &AtomicBool,
    ) {
        let is_stopped = || job.cancel.is_cancelled() || stop.load(Ordering::Acquire);
        let end = loop {
            match activity.step(pool, job) {
                Ok(Step::More) if !is_stopped() => {}
                end => break end,
            }
        };
        let error = end.as_ref().err().map(ToString::to_string);
        self.end(activity.work(), end.unwrap_or(Step::Rest), error);
    }

    /// The job of an activity that begins; none after the scheduler was closed.
    fn begin(&self, work: Work) -> Option<Arc<Job>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        let job = Arc::new(Job::default());
        let running = state.slots[work as usize].running.replace(Arc::clone(&job));
        assert!(running.is_none(), "{work:?} runs once at a time");
        Some(job)
    }

    fn end(&self, work: Work, last: Step, error: Option<String>) {
        let rest = if last == Step::Rest { REST_POLLS } else { 0 };
        let mut state = self.state.lock();
        let before =
            std::mem::replace(&mut state.slots[work as usize], Slot { running: None, error, rest });
        assert!(before.running.is_some(), "{work:?} ends that began");
        // another one may have waited for this one
        state.is_woken = true;
        drop(state);
        self.changed.notify_all();
    }

    fn cancel_all(&self) {
        let state = self.state.lock();
        let running = state.slots.iter().filter_map(|slot| slot.running.as_ref());
        running.for_each(|job| job.cancel.cancel());
    }

    /// Looks at once whether an activity is due.
    pub(super) fn wake(&self, work: Work) {
        let mut state = self.state.lock();
        state.slots[work as usize].rest = 0;
        state.is_woken = true;
        drop(state);
        self.changed.notify_all();
    }

    /// Has an activity end for now, and waits for that; unless the pool is suspended, and it cannot.
    pub(super) fn interrupt(&self, work: Work, pool: &Pool) {
        self.wait_for_end(pool, |state| {
            let job = state.slots[work as usize].running.as_ref();
            job.inspect(|job| job.cancel.cancel()).is_some()
        });
    }

    /// Ends all activities for good; those of a suspended pool end when it is closed.
    fn close(&self, pool: &Pool) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
        self.wait_for_end(pool, |state| {
            let running = state.slots.iter().filter_map(|slot| slot.running.as_ref());
            running.inspect(|job| job.cancel.cancel()).count() > 0
        });
    }

    /// Waits while something runs, which the function cancels.
    fn wait_for_end(&self, pool: &Pool, is_running: impl Fn(&SchedulerState) -> bool) {
        let mut state = self.state.lock();
        while is_running(&state) {
            let timed_out = self.changed.wait_for(&mut state, POLL_INTERVAL).timed_out();
            if timed_out && pool.is_suspended() {
                return;
            }
        }
    }

    /// Why the last run of an activity failed, if it did.
    pub(super) fn last_error(&self, work: Work) -> Option<String> {
        self.state.lock().slots[work as usize].error.clone()
    }
}

impl Background<'_> {
    /// Runs scans, expansions, removals, initialize, trim, autotrim and the discard of a checkpoint whenever there is
    /// something to do, several at once, until told to stop. For a thread of its own.
    pub fn run_activities(self, stop: &AtomicBool) {
        self.pool.apply_scan_share();
        self.pool.apply_autotrim();
        self.pool.request_interrupted_scan();
        self.pool.0.scheduler.run(self.pool, &self.pool.0.activities.all(), stop);
    }
}

impl Pool {
    /// Ends all activities: they go on with the next import.
    pub(super) fn stop_activities(&self) {
        self.0.scheduler.close(self);
    }
}

#[cfg(test)]
mod tests;
