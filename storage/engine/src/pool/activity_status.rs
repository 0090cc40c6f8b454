//! How far long work on a pool has come: bytes, rate, time left, and whether it is paused. One place says it for
//! `zpool status`, the dashboard and the API.

use serde::{Deserialize, Serialize};
use units::MinusOrZero as _;

use super::activity::Work;
use super::{ExpansionStatus, Pool, RemovalStatus, ScanKind, ScanStatus};
use crate::pool::handles::Activities;
use crate::{Error, Result};

/// Long work on a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LongWork {
    /// Everything is read and verified.
    Scrub,
    /// The blocks of the error log are read again.
    ErrorScrub,
    /// Leaves get what they missed.
    Resilver,
    /// A vdev gets its redundancy back sequentially.
    Rebuild,
    /// A raidz gets one more drive.
    Expansion,
    /// A vdev with data is removed.
    Removal,
    /// The mapping of a removed vdev becomes smaller.
    Condensing,
    /// The free space of a drive is written.
    Initialize,
    /// Discard requests tell a drive which space is free.
    Trim,
    /// Space that only a discarded checkpoint used is freed.
    CheckpointDiscard,
}

/// How far long work has come that goes on, or is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityStatus {
    /// The work.
    pub activity: LongWork,
    /// The vdev or drive that it works on; empty: all of the pool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Whether it is paused.
    pub is_paused: bool,
    /// Why it is paused, if no command did that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<String>,
    /// Bytes that are done; blocks of an error scrub.
    pub done: u64,
    /// Bytes in all, as far as that is known; 0 if it is not.
    pub total: u64,
    /// Bytes a second since it was begun or resumed; 0 if it is paused, or that is not known.
    pub rate: u64,
    /// Seconds until it is done at this rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
}

impl LongWork {
    /// The activity that does it.
    const fn work(self) -> Work {
        match self {
            Self::Scrub | Self::ErrorScrub | Self::Resilver | Self::Rebuild => Work::Scan,
            Self::Expansion => Work::Expansion,
            Self::Removal | Self::Condensing => Work::Removal,
            Self::Initialize | Self::Trim => Work::Sweep,
            Self::CheckpointDiscard => Work::Discard,
        }
    }

    /// Its name in a sentence.
    const fn name(self) -> &'static str {
        match self {
            Self::Scrub => "the scrub",
            Self::ErrorScrub => "the error scrub",
            Self::Resilver => "the resilver",
            Self::Rebuild => "the sequential rebuild",
            Self::Expansion => "the raidz expansion",
            Self::Removal => "the removal",
            Self::Condensing => "the condensing of a mapping",
            Self::Initialize => "initializing",
            Self::Trim => "the trim",
            Self::CheckpointDiscard => "the discard of the checkpoint",
        }
    }
}

impl ActivityStatus {
    /// Work that goes on, at an unknown rate.
    pub(super) const fn new(activity: LongWork, done: u64, total: u64) -> Self {
        Self {
            activity,
            subject: String::new(),
            is_paused: false,
            pause: None,
            done,
            total,
            rate: 0,
            seconds_left: None,
        }
    }

    /// The same with its rate. Paused work has none.
    pub(super) fn at_rate(self, rate: u64) -> Self {
        let rate = if self.is_paused { 0 } else { rate };
        let seconds_left = self.total.minus_or_zero(self.done).checked_div(rate);
        Self { rate, seconds_left, ..self }
    }

    /// The same of a vdev or drive.
    pub(super) fn of(self, subject: &str) -> Self {
        Self { subject: subject.to_owned(), ..self }
    }

    /// The same, paused or not.
    pub(super) fn paused(self, is_paused: bool, pause: Option<&String>) -> Self {
        Self { is_paused, pause: pause.cloned(), ..self }
    }
}

impl ScanStatus {
    /// How far it has come, if it goes on or is paused.
    pub fn progress(&self) -> Option<ActivityStatus> {
        let activity = match self.scan {
            _ if self.rebuild.is_some() => LongWork::Rebuild,
            ScanKind::Scrub => LongWork::Scrub,
            ScanKind::ErrorScrub => LongWork::ErrorScrub,
            ScanKind::Resilver => LongWork::Resilver,
        };
        let status = ActivityStatus::new(activity, self.issued, self.total)
            .of(self.rebuild.as_deref().unwrap_or_default())
            .paused(!self.is_scanning(), None)
            .at_rate(self.issue_rate);
        self.is_active().then_some(status)
    }
}

impl ExpansionStatus {
    /// How far it has come, if it goes on or is paused.
    pub fn progress(&self) -> Option<ActivityStatus> {
        let seconds = self.ended.minus_or_zero(self.started).max(1);
        let status = ActivityStatus::new(LongWork::Expansion, self.copied, self.total)
            .of(&self.vdev)
            .paused(self.pause.is_some(), self.pause.as_ref())
            .at_rate(self.copied / seconds);
        (self.state != "finished").then_some(status)
    }
}

impl RemovalStatus {
    /// How far it has come, if it goes on or is paused.
    pub fn progress(&self) -> Option<ActivityStatus> {
        let seconds = self.ended.minus_or_zero(self.started).max(1);
        let status = ActivityStatus::new(LongWork::Removal, self.copied, self.total)
            .of(&self.vdev)
            .paused(self.pause.is_some(), self.pause.as_ref())
            .at_rate(self.copied / seconds);
        matches!(self.state.as_str(), "evacuating" | "paused").then_some(status)
    }
}

impl Activities<'_> {
    /// All long work that goes on or is paused.
    pub fn list(self) -> Vec<ActivityStatus> {
        let activities = self.pool.0.activities.all();
        activities.into_iter().flat_map(|activity| activity.describe(self.pool)).collect()
    }

    /// Pauses work until it is started again. Refused where the pool has no state for that.
    pub fn pause(self, work: LongWork) -> Result<()> {
        self.pool.check_writable()?;
        self.pool.0.activities.of(work.work()).pause(self.pool, work)
    }

    /// Ends work before it is done. Refused where the pool could not go back.
    pub fn cancel(self, work: LongWork) -> Result<()> {
        self.pool.check_writable()?;
        self.pool.0.activities.of(work.work()).cancel(self.pool, work)
    }
}

/// The error for work that goes on until its end.
pub(super) fn refuse(pool: &Pool, verb: &str, work: LongWork) -> Error {
    let what = format!(
        "cannot {verb} {} of '{}': it goes on until it is done. `zpool wait {}` waits for that",
        work.name(),
        pool.name(),
        pool.name()
    );
    Error::Refused { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_from_rate() {
        let status = ActivityStatus::new(LongWork::Scrub, 100, 400);
        assert_eq!(status.clone().at_rate(10).seconds_left, Some(30));
        assert_eq!(status.clone().at_rate(0).seconds_left, None);
        let paused = status.paused(true, None).at_rate(10);
        assert_eq!((paused.rate, paused.seconds_left), (0, None));
        // space that is freed meanwhile is not scanned
        let ahead = ActivityStatus::new(LongWork::Scrub, 500, 400).at_rate(10);
        assert_eq!(ahead.seconds_left, Some(0));
    }

    #[test]
    fn finished_work_has_no_progress() {
        let removal = |state: &str| RemovalStatus {
            vdev: "mirror-1".to_owned(),
            id: 1,
            state: state.to_owned(),
            started: 100,
            ended: 110,
            copied: 1000,
            total: 3000,
            mapping_memory: 0,
            pause: (state == "paused").then(|| "a drive is missing".to_owned()),
        };
        let running = removal("evacuating").progress().unwrap();
        assert_eq!((running.rate, running.seconds_left), (100, Some(20)));
        let paused = removal("paused").progress().unwrap();
        assert!(paused.is_paused && paused.pause.is_some() && paused.seconds_left.is_none());
        assert_eq!(removal("finished").progress(), None);
        assert_eq!(removal("canceled").progress(), None);
    }
}
