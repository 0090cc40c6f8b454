//! Drives that commands take out of service and bring back: `zpool offline`, `zpool online`.

use ondisk::label::VdevConfig;
use spa::{DeviceChangeError, OfflineResult};
use units::Guid;
use vdev::OutOfService;

use super::Pool;
use crate::pool::handles::Drives;
use crate::{Error, Result};

/// How a drive is taken out of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfflineOptions {
    /// Only until the pool is exported (`-t`).
    pub temporary: bool,
    /// Fault it, until `zpool clear` (`-f`).
    pub fault: bool,
}

/// The reason of commands that name a device which the pool does not have.
pub(super) const NOT_IN_POOL: &str = "no such device in pool";

impl Drives<'_> {
    /// Takes a drive (its path or guid) out of service. Refused if no valid replicas are left; a drive that was
    /// to be faulted is then DEGRADED, and stays in service. A resilver writes the missed data to it when it is
    /// back.
    pub fn offline(self, drive: &str, options: OfflineOptions) -> Result<()> {
        let found = self.pool.find_leaf_in_use(drive)?;
        let temporary = options.temporary;
        let why = if options.fault {
            OutOfService::Faulted { temporary }
        } else {
            OutOfService::Offline { temporary }
        };
        let done = self.pool.0.spa.take_offline(found.guid, why);
        let done = done.map_err(|error| self.pool.offline_error("offline", drive, &error))?;
        if done == OfflineResult::Degraded {
            self.pool.0.diagnosis.lock().degrade(found.guid);
        }
        self.pool.record_drive_event("offline", &found);
        Ok(())
    }

    /// Brings a drive (its path or guid) back that is offline or missing. An error if its device cannot be
    /// used: the drive is then missing, and no longer offline.
    pub fn online(self, drive: &str) -> Result<()> {
        let found = self.pool.find_leaf_in_use(drive)?;
        let leaf = self.pool.0.spa.tree().leaf(found.guid);
        let Some(leaf) = leaf else { return Err(Error::Usage { what: NOT_IN_POOL.to_owned() }) };
        match leaf.out_of_service() {
            Some(OutOfService::Offline { .. }) => {
                let done = self.pool.0.spa.clear_offline(found.guid);
                done.map_err(|error| self.pool.offline_error("online", drive, &error))?;
            }
            Some(OutOfService::Faulted { .. } | OutOfService::TooManyErrors) => {
                let error = spa::Error::DeviceChange(DeviceChangeError::Faulted);
                return Err(self.pool.offline_error("online", drive, &error));
            }
            None if leaf.device().is_some() => {
                self.pool.drives().reopen();
                return Ok(());
            }
            None => {}
        }
        let path = found.path.clone().unwrap_or_default();
        let reopened = self.pool.reopen_missing(found.guid.get(), path.as_ref());
        reopened.map(drop).map_err(|error| Error::Refused {
            what: format!(
                "device '{drive}' is onlined, but remains unavailable: {error}. Connect the drive, and it \
                 is used again, or replace it with `zpool replace`"
            ),
        })
    }

    /// With autoexpand=on: has vdevs use the space of drives that have grown; returns how many vdevs grew.
    pub fn expand_grown(self) -> Result<usize> {
        if self.pool.is_read_only()
            || self.pool.is_suspended()
            || !self.pool.is_property_on("autoexpand")?
        {
            return Ok(0);
        }
        let config = self.pool.0.spa.config();
        let mut tops = config.tree.iter().flat_map(|root| &root.children);
        if !tops.any(|top| self.pool.0.spa.expandable_space(top) > 0) {
            return Ok(0);
        }
        self.pool.0.spa.expand_tops(None).map_err(|error| self.pool.drive_error(&error))
    }

    /// Has the vdev of a drive use all of its drives' space, if all are larger than when it was made; returns
    /// whether it grew.
    pub fn expand(self, drive: &str) -> Result<bool> {
        let found = self.pool.find_leaf_in_use(drive)?;
        let grown = self.pool.0.spa.expand_tops(Some(found.guid));
        let grown = grown.map_err(|error| self.pool.offline_error("expand", drive, &error))?;
        Ok(grown > 0)
    }
}

impl Pool {
    /// Brings drives back that are faulted; `only`: this one.
    pub(super) fn clear_faulted(&self, only: Option<Guid>) -> Result<()> {
        self.0.spa.clear_degraded(only).map_err(|error| self.explain_error(&error))?;
        for leaf in self.0.spa.tree().leaves() {
            let is_faulted = matches!(
                leaf.out_of_service(),
                Some(OutOfService::Faulted { .. } | OutOfService::TooManyErrors)
            );
            if is_faulted && only.is_none_or(|guid| guid == leaf.guid()) {
                let done = self.0.spa.clear_offline(leaf.guid());
                done.map_err(|error| self.explain_error(&error))?;
            }
        }
        Ok(())
    }

    /// The leaf of a path or guid. Refuses spares that are not in use.
    fn find_leaf_in_use(&self, drive: &str) -> Result<VdevConfig> {
        self.check_writable()?;
        let found = self.find_drive(drive);
        found.map_err(|error| match self.find_auxiliary_drive(drive) {
            Some(_) => Error::Refused {
                what: format!("'{drive}' is reserved as a hot spare, or is a cache device"),
            },
            None => error,
        })
    }

    fn offline_error(&self, verb: &str, drive: &str, error: &spa::Error) -> Error {
        match error {
            spa::Error::DeviceChange(error) => {
                Error::Refused { what: format!("cannot {verb} {drive}: {error}") }
            }
            other => self.explain_error(other),
        }
    }
}
