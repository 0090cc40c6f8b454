//! raidz expansion: one more drive for a raidz, copied as an activity
//! ([`Background::run_activities`](crate::pool::Background::run_activities)).

use std::path::Path;
use std::sync::Arc;

use job::Job;
use ondisk::label::{VdevConfig, VdevKind};
use serde::{Deserialize, Serialize};
use spa::{NewChild, ReflowEnd};

use super::activity::{Activity, Step, Work};
use super::activity_status::ActivityStatus;
use super::create::describe_drive;
use super::drive::Drive;
use super::{Pool, ScanKind};
use crate::pool::handles::{Activities, Vdevs};
use crate::{Error, Result};

/// How far a raidz expansion has come, or how the last went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpansionStatus {
    /// The vdev: "raidz1-0".
    pub vdev: String,
    /// "expanding", "paused" or "finished".
    pub state: String,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended; now, if it has not.
    pub ended: u64,
    /// Bytes that are copied.
    pub copied: u64,
    /// Bytes allocated on the vdev: about as many are to be copied.
    pub total: u64,
    /// Why it is paused, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<String>,
}

/// Raidz expansions, as an activity.
pub(super) struct Expansion;

impl Activity for Expansion {
    fn work(&self) -> Work {
        Work::Expansion
    }

    fn is_due(&self, pool: &Pool) -> bool {
        !pool.is_read_only() && pool.0.spa.expanding_vdev().is_some()
    }

    fn step(&self, pool: &Pool, job: &Arc<Job>) -> Result<Step> {
        pool.activities().continue_raidz_expansion(job).map(|_| Step::Rest)
    }

    fn describe(&self, pool: &Pool) -> Vec<ActivityStatus> {
        // where its record cannot be read, it cannot go on either, and the next step says why
        let status = pool.activities().expansion_status().ok().flatten();
        status.and_then(|status| status.progress()).into_iter().collect()
    }
}

impl Pool {
    /// The raidz of that name ("raidz1-0") or guid.
    pub(super) fn find_raidz(&self, wanted: &str) -> Option<VdevConfig> {
        let config = self.0.spa.config();
        let tops = config.tree.map(|root| root.children).unwrap_or_default();
        let is_named = |top: &VdevConfig| {
            crate::summary::vdev_name(top) == wanted || top.guid.to_string() == wanted
        };
        tops.into_iter().find(|top| top.kind == VdevKind::Raidz && is_named(top))
    }
}

impl Vdevs<'_> {
    /// Whether a name or guid is that of a raidz.
    pub fn is_raidz(self, name: &str) -> bool {
        self.pool.find_raidz(name).is_some()
    }

    /// Attaches a drive to a raidz, by its name in `zpool status`. The drive's content is lost.
    /// [`Background::run_activities`](crate::pool::Background::run_activities) then copies.
    pub fn attach_to_raidz(self, raidz: &str, new: &Path, device: &Drive) -> Result<()> {
        let found = self.pool.find_raidz(raidz).ok_or_else(|| Error::Usage {
            what: format!("'{raidz}' is not a raidz of pool '{}'", self.pool.name()),
        })?;
        let spec = describe_drive((&new.to_owned(), device));
        let new = NewChild { spec, device: Arc::clone(device) };
        let done = self.pool.0.spa.attach_to_raidz(found.guid, new);
        done.map_err(|error| match error {
            spa::Error::Expand(why) => {
                Error::Usage { what: format!("cannot attach a device to {raidz}: {why}") }
            }
            other => self.pool.drive_error(&other),
        })?;
        self.pool.0.scheduler.wake(Work::Expansion);
        Ok(())
    }
}

impl Activities<'_> {
    /// Copies for a raidz expansion, if there is one, until it is complete, cannot continue for now, or the job
    /// is cancelled. Returns its state then, or none. To be called by one thread at a time.
    pub fn continue_raidz_expansion(self, job: &Job) -> Result<Option<ExpansionStatus>> {
        let end =
            self.pool.0.spa.run_reflow(job).map_err(|error| self.pool.explain_error(&error))?;
        match end {
            ReflowEnd::NotExpanding => return Ok(None),
            // the copied data was not compared with checksums
            ReflowEnd::Finished => self.pool.start_scrub_if_idle(),
            ReflowEnd::Stopped | ReflowEnd::Paused(_) => {}
        }
        self.pool.activities().expansion_status()
    }

    /// The raidz expansion that runs, or the last one that finished.
    pub fn expansion_status(self) -> Result<Option<ExpansionStatus>> {
        let found =
            self.pool.0.spa.expansion_status().map_err(|error| self.pool.explain_error(&error))?;
        let Some(found) = found else { return Ok(None) };
        let config = self.pool.0.spa.config();
        let tops = config.tree.iter().flat_map(|root| &root.children);
        let name = tops.into_iter().find(|top| top.id == found.vdev).map(crate::summary::vdev_name);
        let error = self.pool.0.scheduler.last_error(Work::Expansion);
        let pause = found.pause.map(|pause| pause.to_string()).or(error);
        let word = match (found.is_finished, &pause) {
            (true, _) => "finished",
            (false, Some(_)) => "paused",
            (false, None) => "expanding",
        };
        Ok(Some(ExpansionStatus {
            vdev: name.unwrap_or_default(),
            state: word.to_owned(),
            started: found.started,
            ended: if found.is_finished { found.ended } else { (self.pool.0.environment.now)().0 },
            copied: found.copied,
            total: found.allocated,
            pause: pause.filter(|_| !found.is_finished),
        }))
    }
}

impl Pool {
    /// Starts a scrub, unless the pool is scanned already.
    fn start_scrub_if_idle(&self) {
        if self.scans().status().is_none_or(|scan| !scan.is_active()) {
            self.request_scan(ScanKind::Scrub);
        }
    }
}
