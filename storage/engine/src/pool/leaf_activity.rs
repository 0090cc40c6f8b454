//! `zpool initialize`, `zpool trim` and autotrim.

use std::sync::Arc;
use std::time::{Duration, Instant};

use job::Job;
use ondisk::label::{VdevConfig, VdevKind};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use spa::ActivityStep;
use units::Txg;

use super::Pool;
use super::activity::{Activity, Step, Work};
use super::activity_status::{ActivityStatus, LongWork};
use crate::pool::handles::Activities;
use crate::{Error, Result};

/// How often it is written down how far the work has come.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);

/// Freed space is trimmed every so many txgs (autotrim=on).
const AUTOTRIM_TXGS: u64 = 32;

/// Work that goes over the free space of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivityKind {
    /// Initialize: writes all free space, so that thin storage allocates it and bad sectors are
    /// found.
    Initialize,
    /// Trim: tells the drive which space is free.
    Trim,
}

/// The options of the activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivityCommand {
    /// Start it, or continue.
    Start,
    /// Stop it, to continue later.
    Suspend,
    /// End it.
    Cancel,
    /// Forget that it was done.
    Reset,
}

impl From<ActivityKind> for spa::ActivityKind {
    fn from(kind: ActivityKind) -> Self {
        match kind {
            ActivityKind::Initialize => Self::Initialize,
            ActivityKind::Trim => Self::Trim,
        }
    }
}

impl Activities<'_> {
    /// Starts, stops or ends work over the free space of drives (paths or guids; none: all of the pool).
    /// `rate`: bytes a second of each drive at most; 0 for no limit. All drives are tried; the first error is
    /// returned.
    pub fn command(
        self,
        drives: &[String],
        kind: ActivityKind,
        command: ActivityCommand,
        rate: u64,
    ) -> Result<()> {
        self.pool.check_writable()?;
        let command = match command {
            ActivityCommand::Start => spa::ActivityCommand::Start(rate),
            ActivityCommand::Suspend => spa::ActivityCommand::Suspend,
            ActivityCommand::Cancel => spa::ActivityCommand::Cancel,
            ActivityCommand::Reset => spa::ActivityCommand::Reset,
        };
        let chosen = if drives.is_empty() {
            self.pool.data_drives()
        } else {
            drives.iter().map(|drive| self.pool.find_drive(drive)).collect::<Result<_>>()?
        };
        let mut first = Ok(());
        for drive in chosen {
            let done = self.pool.0.spa.command_activity(drive.guid, kind.into(), command);
            let done = done.map_err(|error| self.pool.activity_error(kind, &drive, &error));
            first = first.and(done);
        }
        first
    }
}

impl Pool {
    /// The drives of its vdevs that are not missing.
    fn data_drives(&self) -> Vec<VdevConfig> {
        let config = self.0.spa.config();
        let leaves = config.tree.iter().flat_map(VdevConfig::leaves);
        let is_there = |leaf: &&VdevConfig| {
            let found = self.0.spa.tree().leaf(leaf.guid);
            matches!(leaf.kind, VdevKind::Disk | VdevKind::File)
                && found.is_some_and(|leaf| leaf.is_writable())
        };
        leaves.filter(is_there).cloned().collect()
    }

    fn activity_error(&self, kind: ActivityKind, drive: &VdevConfig, error: &spa::Error) -> Error {
        let verb = if kind == ActivityKind::Trim { "trim" } else { "initialize" };
        match error {
            spa::Error::DeviceChange(error) => {
                let path = drive.path.clone().unwrap_or_else(|| drive.guid.to_string());
                Error::Refused { what: format!("cannot {verb} '{path}': {error}") }
            }
            other => self.explain_error(other),
        }
    }
}

impl Activities<'_> {
    /// Does one step of each running activity; returns whether there was any. An error is returned
    /// if none could be done.
    pub fn step(self) -> Result<bool> {
        let (mut has_worked, mut failed) = (false, None);
        for (leaf, kind) in self.pool.0.spa.running_activities() {
            let begun = Instant::now();
            match self.pool.0.spa.step_activity(leaf, kind) {
                Ok(step) => {
                    std::thread::sleep(pause_after(step, begun.elapsed()));
                    has_worked = true;
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed.filter(|_| !has_worked) {
            Some(error) => Err(self.pool.explain_error(&error)),
            None => Ok(has_worked),
        }
    }
}

impl Pool {
    /// Has freed space be trimmed without a command, or not, as the property autotrim says.
    pub(super) fn apply_autotrim(&self) {
        let is_on = self.is_property_on("autotrim").unwrap_or(false) && !self.is_read_only();
        self.0.spa.set_autotrim(is_on);
    }
}

impl Activities<'_> {
    /// Trims what was freed since the last call (autotrim=on). Returns the bytes of vdevs that were trimmed.
    pub fn trim_freed_space(self) -> Result<u64> {
        self.pool.0.spa.trim_freed().map_err(|error| self.pool.explain_error(&error))
    }
}

/// Work over the free space of all leaves, as an activity: initialize, trim and autotrim. They take turns on one
/// thread, as each would pass over free space that another has lent.
pub(super) struct Sweeps {
    /// When it was last written down how far the work has come.
    saved: Mutex<Instant>,
    /// The last txg before freed space was last trimmed.
    trimmed: Mutex<Txg>,
}

impl Sweeps {
    /// `synced`: the last txg that is on the drives.
    pub(super) fn new(synced: Txg) -> Self {
        Self { saved: Mutex::new(Instant::now()), trimmed: Mutex::new(synced) }
    }

    /// The last txg, if freed space is to be trimmed now.
    fn autotrim_txg(&self, pool: &Pool) -> Option<Txg> {
        let synced = pool.0.spa.txgs().synced_txg();
        let is_due = synced.get() >= self.trimmed.lock().get() + AUTOTRIM_TXGS;
        (is_due && pool.0.spa.has_autotrim()).then_some(synced)
    }
}

impl Activity for Sweeps {
    fn work(&self) -> Work {
        Work::Sweep
    }

    fn is_due(&self, pool: &Pool) -> bool {
        let has_work = || !pool.0.spa.running_activities().is_empty();
        !pool.is_read_only()
            && !pool.is_suspended()
            && (self.autotrim_txg(pool).is_some() || has_work())
    }

    fn step(&self, pool: &Pool, _job: &Arc<Job>) -> Result<Step> {
        if pool.is_suspended() {
            return Ok(Step::Rest);
        }
        if let Some(synced) = self.autotrim_txg(pool) {
            *self.trimmed.lock() = synced;
            // a device that fails is left alone, and its freed space waits for `zpool trim`
            let _ = pool.activities().trim_freed_space();
        }
        // a drive that fails is left alone until it is in service again
        let has_worked = pool.activities().step()?;
        let mut saved = self.saved.lock();
        if saved.elapsed() > SAVE_INTERVAL {
            pool.0.spa.save_activities();
            *saved = Instant::now();
        }
        Ok(if has_worked { Step::More } else { Step::Done })
    }

    fn describe(&self, pool: &Pool) -> Vec<ActivityStatus> {
        let describe = |progress: spa::LeafProgress| {
            let config = pool.find_drive(&progress.leaf.to_string()).ok()?;
            let total = config.asize.or_else(|| pool.0.spa.leaf_space(progress.leaf)).unwrap_or(0);
            let status = ActivityStatus::new(long_work(progress.kind), progress.done, total);
            let path = config.path.unwrap_or_else(|| progress.leaf.to_string());
            Some(status.of(&path).paused(progress.is_suspended, None))
        };
        pool.0.spa.leaf_progress().into_iter().filter_map(describe).collect()
    }

    fn pause(&self, pool: &Pool, work: LongWork) -> Result<()> {
        command_all(pool, work, ActivityCommand::Suspend)
    }

    fn cancel(&self, pool: &Pool, work: LongWork) -> Result<()> {
        command_all(pool, work, ActivityCommand::Cancel)
    }
}

const fn long_work(kind: spa::ActivityKind) -> LongWork {
    match kind {
        spa::ActivityKind::Initialize => LongWork::Initialize,
        spa::ActivityKind::Trim => LongWork::Trim,
    }
}

/// A command for the work of all drives on which it goes on; a cancel also where it is suspended.
fn command_all(pool: &Pool, work: LongWork, command: ActivityCommand) -> Result<()> {
    let is_meant = |progress: &spa::LeafProgress| {
        long_work(progress.kind) == work
            && !(progress.is_suspended && command == ActivityCommand::Suspend)
    };
    let found = pool.0.spa.leaf_progress().into_iter().filter(is_meant);
    let drives: Vec<String> = found.map(|progress| progress.leaf.to_string()).collect();
    let kind = if work == LongWork::Trim { ActivityKind::Trim } else { ActivityKind::Initialize };
    if drives.is_empty() {
        return Ok(());
    }
    pool.activities().command(&drives, kind, command, 0)
}

/// How long to wait after a step, so that it keeps its rate; at most a second, so that the
/// thread can be stopped.
fn pause_after(step: ActivityStep, took: Duration) -> Duration {
    let microseconds = u128::from(step.bytes) * 1_000_000;
    let Some(due) = microseconds.checked_div(u128::from(step.rate)) else { return Duration::ZERO };
    let due = Duration::from_micros(u64::try_from(due).unwrap_or(u64::MAX));
    due.saturating_sub(took).min(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_to_their_rate() {
        let pause =
            |bytes, rate| pause_after(ActivityStep { bytes, rate }, Duration::from_millis(100));
        assert_eq!(pause(1 << 20, 0), Duration::ZERO);
        assert_eq!(pause(1 << 20, 2 << 20), Duration::from_millis(400));
        assert_eq!(pause(1 << 20, 1 << 40), Duration::ZERO);
    }
}
