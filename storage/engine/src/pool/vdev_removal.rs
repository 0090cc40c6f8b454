//! Removal of top-level vdevs with data, copied on a thread that the caller lends ([`Pool::run_removals`]). The
//! same thread condenses the mappings of removed vdevs.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use job::Job;
use ondisk::indirect::Removing;
use serde::{Deserialize, Serialize};
pub use spa::CondenseLimits;
use spa::{RemovalEnd, RemovalError};
use units::{Txg, VdevId};

use super::Pool;
use crate::{Error, Result};

/// How long the copying leaves the drives to others after each batch, if they change the pool.
const YIELD_INTERVAL: Duration = Duration::from_millis(20);

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

impl Pool {
    /// Begins to remove a vdev with data. The thread of [`Pool::run_removals`] then copies.
    pub(super) fn start_removal(&self, vdev: VdevId) -> std::result::Result<(), spa::Error> {
        self.0.spa.start_removal(vdev)?;
        self.0.removal_control.wake();
        Ok(())
    }

    /// Checks whether vdevs and devices can be removed. Returns the memory that the mapping of each vdev with
    /// data would take.
    pub fn check_removal(&self, names: &[String]) -> Result<Vec<RemovalMemory>> {
        let mut memory = Vec::new();
        for (name, vdev) in self.find_data_removals(names)? {
            let bytes = self.check_vdev_removal(vdev);
            let bytes = bytes.and_then(|()| self.0.spa.removal_memory(vdev));
            let bytes = bytes.map_err(|error| self.removal_error(&name, &error))?;
            memory.push(RemovalMemory { vdev: name, bytes });
        }
        Ok(memory)
    }

    /// The same of one vdev. Datasets must fit what is left, with their reservations.
    fn check_vdev_removal(&self, vdev: VdevId) -> std::result::Result<(), spa::Error> {
        self.0.spa.check_removal(vdev)?;
        let needed = self.0.spa.space_lost_by_removal(vdev)?;
        let available = self.space(self.name()).available;
        if available < needed {
            return Err(RemovalError::NoSpace { needed, available }.into());
        }
        Ok(())
    }

    /// Cancels the removal that goes on; the vdev is used again as before.
    pub fn cancel_removal(&self) -> Result<()> {
        self.check_writable()?;
        self.0.removal_control.interrupt(&|| self.is_suspended());
        self.0.spa.cancel_removal().map_err(|error| match error {
            spa::Error::Removal(why) => {
                Error::Refused { what: format!("cannot cancel removal: {why}") }
            }
            other => self.explain_error(&other),
        })
    }

    /// Copies for the removal of a vdev, if one goes on, until it is complete, cannot go on for now, or the job
    /// is cancelled. Returns its state then, or none. To be called by one thread at a time.
    pub fn continue_removal(&self, job: &Job) -> Result<Option<RemovalStatus>> {
        let gate = self.0.background_gates.lock().removal.clone();
        let is_ended = || job.cancel.is_cancelled() || self.0.spa.txgs().is_stopped();
        gate.wait(&is_ended);
        let pace = |is_pool_in_use: bool| {
            if is_pool_in_use {
                std::thread::sleep(YIELD_INTERVAL);
            }
            gate.wait(&is_ended);
        };
        let end = self.0.spa.run_removal(job, &pace).map_err(|error| self.explain_error(&error))?;
        Ok(if end == RemovalEnd::NotRemoving { None } else { self.removal_status() })
    }

    /// Condenses the mapping of a removed vdev, if that is worth it or was begun; returns whether it came to the
    /// end. To be called by one thread at a time.
    pub fn condense_mapping(&self, limits: &CondenseLimits, job: &Job) -> Result<bool> {
        let done = self.0.spa.condense_mapping(limits, job);
        done.map_err(|error| self.explain_error(&error))
    }

    /// Whether the mapping of a removed vdev is being condensed.
    pub fn is_condensing(&self) -> bool {
        self.0.spa.is_condensing()
    }

    /// Copies for removals whenever there is one, and condenses the mappings of removed vdevs, until told to
    /// stop. For a thread of its own.
    pub fn run_removals(&self, stop: &AtomicBool) {
        let spa = &self.0.spa;
        let limits = CondenseLimits::default();
        let checked = Cell::new(Txg::ZERO);
        let is_condensable = || {
            let synced = spa.txgs().synced_txg();
            let found = || spa.find_condensable(&limits);
            checked.replace(synced) != synced && found().is_ok_and(|vdev| vdev.is_some())
        };
        let is_needed = || {
            let is_due =
                || spa.removing_vdev().is_some() || spa.is_condensing() || is_condensable();
            !spa.txgs().is_stopped() && !self.is_read_only() && is_due()
        };
        let work = |job: &Job| match spa.removing_vdev() {
            Some(_) => self.continue_removal(job).map(drop),
            None => self.condense_mapping(&limits, job).map(drop),
        };
        self.0.removal_control.run(stop, &is_needed, &work);
    }

    /// Ends the work of the thread that copies; the removal goes on with the next import.
    pub(super) fn stop_removal(&self) {
        // work whose pool is suspended ends when the pool is closed
        self.0.removal_control.close(&|| self.is_suspended());
    }

    /// The removal that goes on, or the last one.
    pub fn removal_status(&self) -> Option<RemovalStatus> {
        let found = self.0.spa.removal_status()?;
        let config = self.0.spa.config();
        let tops = config.tree.iter().flat_map(|root| &root.children);
        let top = tops.into_iter().find(|top| top.id == found.vdev);
        let name =
            top.map(|top| top.path.clone().unwrap_or_else(|| crate::summary::vdev_name(top)));
        let is_copying = found.state == Removing::COPYING;
        let pause = found.pause.map(|pause| pause.to_string());
        let pause = pause.or_else(|| self.0.removal_control.last_error()).filter(|_| is_copying);
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
            ended: if is_copying { (self.0.environment.now)().0 } else { found.ended },
            copied: found.copied,
            total: found.total,
            mapping_memory: found.mapping_memory,
            pause,
        })
    }

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
