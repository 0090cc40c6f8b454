//! Holds on open volumes and their snapshots: they are not destroyed, as with OpenZFS.
//!
//! A volume is known by the number of its object set, which it keeps when it is rolled back or renamed.

use std::collections::HashMap;
use std::sync::Arc;

use dsl::write::{self, SyncTaskContext};
use parking_lot::Mutex;
use units::ObjsetId;

use super::{OpenVolume, Pool};
use crate::{Error, Result};

/// The volumes and snapshots that are open, and how often.
#[derive(Clone, Default)]
pub(super) struct VolumeHolds(Arc<Mutex<HashMap<ObjsetId, u64>>>);

/// An open volume or snapshot: it is not destroyed before this is dropped.
pub struct VolumeHold {
    holds: VolumeHolds,
    id: ObjsetId,
}

impl Drop for VolumeHold {
    fn drop(&mut self) {
        let mut used = self.holds.0.lock();
        let left = used.get(&self.id).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            used.remove(&self.id);
        } else {
            used.insert(self.id, left);
        }
    }
}

impl VolumeHolds {
    pub(super) fn hold_volume(&self, id: ObjsetId) -> VolumeHold {
        let mut used = self.0.lock();
        let count = used.entry(id).or_default();
        *count = count.saturating_add(1);
        VolumeHold { holds: self.clone(), id }
    }

    pub(super) fn is_held(&self, id: ObjsetId) -> bool {
        self.0.lock().contains_key(&id)
    }

    /// Refuses to end a head that somebody has open as a volume. Nobody opens one meanwhile, as
    /// that takes what whoever ends heads has locked.
    pub(super) fn check_not_held(
        &self,
        change: &SyncTaskContext<'_>,
        name: &str,
    ) -> dsl::Result<()> {
        self.check_id_not_held(write::head_id(change, name)?, name)
    }

    /// Refuses to destroy a dataset that is open as a block device. The caller has locked the open volumes.
    pub(super) fn check_id_not_held(&self, id: ObjsetId, name: &str) -> dsl::Result<()> {
        if self.is_held(id) {
            let why = "it is busy, as a program has it open";
            return Err(dsl::Error::Busy { name: name.to_owned(), why });
        }
        Ok(())
    }
}

impl Pool {
    /// A volume by its full name, which is not destroyed before what comes with it is dropped.
    pub fn open_volume(&self, name: &str) -> Result<(OpenVolume, VolumeHold)> {
        let mut open = self.0.volumes.lock();
        let volume = self.volume_from(&mut open, name)?;
        let in_use = self.0.volume_holds.hold_volume(volume.objset_id());
        Ok((volume, in_use))
    }

    /// Whether somebody has any of these open as a volume.
    pub fn is_any_volume_held(&self, names: &[String]) -> Result<bool> {
        let mut heads = names.iter().filter(|name| !name.contains(['@', '#'])).peekable();
        if heads.peek().is_none() || self.0.volume_holds.0.lock().is_empty() {
            return Ok(false);
        }
        let _pin = self.pin();
        let tree = self.tree()?;
        for name in heads {
            let found = match tree.find(name) {
                Err(dsl::Error::NoSuchDataset { .. }) => continue,
                found => found.map_err(|error| Error::from_dsl_error(name, &error))?,
            };
            if found.id().is_some_and(|id| self.0.volume_holds.is_held(id)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
