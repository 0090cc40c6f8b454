//! Removal of top-level vdevs with data, copied as an activity
//! ([`Background::run_activities`](crate::pool::Background::run_activities)). The same
//! activity condenses the mappings of removed vdevs.

use std::sync::Arc;

use job::Job;
use ondisk::indirect::Removing;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
pub use spa::CondenseLimits;
use spa::{RemovalEnd, RemovalError};
use units::{Txg, VdevId};

use super::Pool;
use super::activity::{Activity, Step, Work};
use super::activity_status::{ActivityStatus, LongWork, refuse};
use crate::pool::handles::{Activities, Vdevs};
use crate::{Error, Result};

/// How far the removal of a vdev has come, or how the last went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalStatus {
    /// The vdev: a path, "mirror-1", or "indirect-1" when it is removed.
    pub vdev: String,
    /// Its index in the pool.
    pub id: u32,
    /// "evacuating", "paused", "finished" or "canceled".
    pub state: String,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended; now, if it has not.
    pub ended: u64,
    /// Bytes that are copied, or were freed before.
    pub copied: u64,
    /// Bytes to copy.
    pub total: u64,
    /// Bytes of memory for the mappings of removed vdevs.
    pub mapping_memory: u64,
    /// Why it is paused, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<String>,
}

/// Memory for the mapping of a vdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalMemory {
    /// The vdev, as it was named.
    pub vdev: String,
    /// Bytes.
    pub bytes: u64,
}

/// Removals of vdevs, and the condensing of their mappings, as an activity.
#[derive(Default)]
pub(super) struct Removals {
    limits: CondenseLimits,
    /// The last txg of which the mappings were looked at.
    checked: Mutex<Txg>,
}

impl Activity for Removals {
    fn work(&self) -> Work {
        Work::Removal
    }

    fn is_due(&self, pool: &Pool) -> bool {
        let spa = &pool.0.spa;
        let is_condensable = || {
            let synced = spa.txgs().synced_txg();
            let is_new = std::mem::replace(&mut *self.checked.lock(), synced) != synced;
            is_new && spa.find_condensable(&self.limits).is_ok_and(|vdev| vdev.is_some())
        };
        !pool.is_read_only()
            && (spa.removing_vdev().is_some() || spa.is_condensing() || is_condensable())
    }

    fn step(&self, pool: &Pool, job: &Arc<Job>) -> Result<Step> {
        match pool.0.spa.removing_vdev() {
            Some(_) => pool.activities().continue_removal(job).map(drop)?,
            None => pool.activities().condense_mapping(&self.limits, job).map(drop)?,
        }
        Ok(Step::Rest)
    }

    fn describe(&self, pool: &Pool) -> Vec<ActivityStatus> {
        let removal = pool.activities().removal_status().and_then(|status| status.progress());
        let condenses = pool.activities().is_condensing();
        let condensing = condenses.then(|| ActivityStatus::new(LongWork::Condensing, 0, 0));
        removal.into_iter().chain(condensing).collect()
    }

    fn cancel(&self, pool: &Pool, work: LongWork) -> Result<()> {
        match work {
            LongWork::Removal => pool.activities().cancel_removal(),
            _ => Err(refuse(pool, "cancel", work)),
        }
    }
}

impl Pool {
    /// Begins to remove a vdev with data.
    /// [`Background::run_activities`](crate::pool::Background::run_activities) then copies.
    pub(super) fn start_removal(&self, vdev: VdevId) -> std::result::Result<(), spa::Error> {
        self.0.spa.start_removal(vdev)?;
        self.0.scheduler.wake(Work::Removal);
        Ok(())
    }
}

impl Vdevs<'_> {
    /// Checks whether vdevs and devices can be removed. Returns the memory that the mapping of each vdev with
    /// data would take.
    pub fn check_removal(self, names: &[String]) -> Result<Vec<RemovalMemory>> {
        let mut memory = Vec::new();
        for (name, vdev) in self.pool.find_data_removals(names)? {
            let bytes = self.pool.check_vdev_removal(vdev);
            let bytes = bytes.and_then(|()| self.pool.0.spa.removal_memory(vdev));
            let bytes = bytes.map_err(|error| self.pool.removal_error(&name, &error))?;
            memory.push(RemovalMemory { vdev: name, bytes });
        }
        Ok(memory)
    }
}

impl Pool {
    /// The same of one vdev. Datasets must fit what is left, with their reservations.
    fn check_vdev_removal(&self, vdev: VdevId) -> std::result::Result<(), spa::Error> {
        self.0.spa.check_removal(vdev)?;
        let needed = self.0.spa.space_lost_by_removal(vdev)?;
        let available = self.datasets().space(self.name()).available;
        if available < needed {
            return Err(RemovalError::NoSpace { needed, available }.into());
        }
        Ok(())
    }
}

impl Activities<'_> {
    /// Cancels the removal that goes on; the vdev is used again as before.
    pub fn cancel_removal(self) -> Result<()> {
        self.pool.check_writable()?;
        self.pool.0.scheduler.interrupt(Work::Removal, self.pool);
        self.pool.0.spa.cancel_removal().map_err(|error| match error {
            spa::Error::Removal(why) => {
                Error::Refused { what: format!("cannot cancel removal: {why}") }
            }
            other => self.pool.explain_error(&other),
        })
    }

    /// Copies for the removal of a vdev, if one goes on, until it is complete, cannot go on for now, or the job
    /// is cancelled. Returns its state then, or none. To be called by one thread at a time.
    pub fn continue_removal(self, job: &Job) -> Result<Option<RemovalStatus>> {
        let gate = self.pool.0.background_gates.lock().removal.clone();
        let end = self
            .pool
            .0
            .spa
            .run_removal(job, &gate)
            .map_err(|error| self.pool.explain_error(&error))?;
        Ok(if end == RemovalEnd::NotRemoving {
            None
        } else {
            self.pool.activities().removal_status()
        })
    }

    /// Condenses the mapping of a removed vdev, if that is worth it or was begun; returns whether it came to the
    /// end. To be called by one thread at a time.
    pub fn condense_mapping(self, limits: &CondenseLimits, job: &Job) -> Result<bool> {
        let done = self.pool.0.spa.condense_mapping(limits, job);
        done.map_err(|error| self.pool.explain_error(&error))
    }

    /// Whether the mapping of a removed vdev is being condensed.
    pub fn is_condensing(self) -> bool {
        self.pool.0.spa.is_condensing()
    }

    /// The removal that goes on, or the last one.
    pub fn removal_status(self) -> Option<RemovalStatus> {
        let found = self.pool.0.spa.removal_status()?;
        let config = self.pool.0.spa.config();
        let tops = config.tree.iter().flat_map(|root| &root.children);
        let top = tops.into_iter().find(|top| top.id == found.vdev);
        let name =
            top.map(|top| top.path.clone().unwrap_or_else(|| crate::summary::vdev_name(top)));
        let is_copying = found.state == Removing::COPYING;
        let pause = found.pause.map(|pause| pause.to_string());
        let pause = pause
            .or_else(|| self.pool.0.scheduler.last_error(Work::Removal))
            .filter(|_| is_copying);
        let word = match (found.state, &pause) {
            (Removing::COPYING, None) => "evacuating",
            (Removing::COPYING, Some(_)) => "paused",
            (Removing::CANCELED, _) => "canceled",
            _ => "finished",
        };
        Some(RemovalStatus {
            vdev: name.unwrap_or_default(),
            id: found.vdev.get(),
            state: word.to_owned(),
            started: found.started,
            ended: if is_copying { (self.pool.0.environment.now)().0 } else { found.ended },
            copied: found.copied,
            total: found.total,
            mapping_memory: found.mapping_memory,
            pause,
        })
    }
}

impl Pool {
    /// The sentence for a vdev or device that is not removed.
    pub(super) fn removal_error(&self, name: &str, error: &spa::Error) -> Error {
        match error {
            spa::Error::DeviceChange(why) => {
                Error::Refused { what: format!("cannot remove {name}: {why}") }
            }
            spa::Error::Removal(why) => {
                Error::Refused { what: format!("cannot remove {name}: {why}") }
            }
            other => self.explain_error(other),
        }
    }
}
