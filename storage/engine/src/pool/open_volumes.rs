//! Datasets in use: volumes that a program has open, snapshots that are sent, and datasets that are
//! received into. They are not destroyed, as with OpenZFS.
//!
//! A dataset is known by its object number, which a rollback and a rename do not change.

use std::collections::HashMap;
use std::sync::Arc;

use dsl::write::{self, SyncTaskContext};
use parking_lot::Mutex;
use units::ObjsetId;

use super::OpenVolume;
use crate::pool::handles::Volumes;
use crate::{Error, Result};

/// The datasets in use, and how often each is.
#[derive(Clone, Default)]
pub(super) struct DatasetHolds(Arc<Mutex<HashMap<ObjsetId, u64>>>);

/// A dataset in use: it is not destroyed before this is dropped.
pub struct DatasetHold {
    holds: DatasetHolds,
    id: ObjsetId,
}

impl Drop for DatasetHold {
    fn drop(&mut self) {
        let mut used = self.holds.0.lock();
        let count = used.get(&self.id).copied().unwrap_or(0);
        assert!(
            count > 0 || std::thread::panicking(),
            "dataset {} is released as often as held",
            self.id
        );
        if count > 1 {
            used.insert(self.id, count - 1);
        } else {
            used.remove(&self.id);
        }
    }
}

impl DatasetHolds {
    /// Keeps a dataset from being destroyed.
    pub(super) fn hold(&self, id: ObjsetId) -> DatasetHold {
        let mut used = self.0.lock();
        let count = used.entry(id).or_default();
        *count += 1;
        DatasetHold { holds: self.clone(), id }
    }

    /// The same for one user alone; `None` if the dataset is in use.
    pub(super) fn hold_exclusive(&self, id: ObjsetId) -> Option<DatasetHold> {
        let mut used = self.0.lock();
        if used.contains_key(&id) {
            return None;
        }
        used.insert(id, 1);
        Some(DatasetHold { holds: self.clone(), id })
    }

    pub(super) fn is_held(&self, id: ObjsetId) -> bool {
        self.0.lock().contains_key(&id)
    }

    /// Refuses to destroy a head that is in use. No volume is opened meanwhile, as that takes locks
    /// that the caller has.
    pub(super) fn check_not_held(
        &self,
        change: &SyncTaskContext<'_>,
        name: &str,
    ) -> dsl::Result<()> {
        self.check_id_not_held(write::head_id(change, name)?, name)
    }

    /// Refuses to destroy a dataset in use. The caller has locked the holds.
    pub(super) fn check_id_not_held(&self, id: ObjsetId, name: &str) -> dsl::Result<()> {
        if self.is_held(id) {
            let why = "it is busy: a program has it open, or a stream uses it";
            return Err(dsl::Error::Busy { name: name.to_owned(), why });
        }
        Ok(())
    }
}

impl Volumes<'_> {
    /// A volume by its full name, which cannot be destroyed before the guard is dropped.
    pub fn open(self, name: &str) -> Result<(OpenVolume, DatasetHold)> {
        let mut open = self.pool.0.volumes.lock();
        let volume = self.pool.volume_from(&mut open, name)?;
        let in_use = self.pool.0.dataset_holds.hold(volume.objset_id());
        Ok((volume, in_use))
    }

    /// Whether any of these is open as a volume.
    pub fn is_any_held(self, names: &[String]) -> Result<bool> {
        let mut heads = names.iter().filter(|name| !name.contains(['@', '#'])).peekable();
        if heads.peek().is_none() || self.pool.0.dataset_holds.0.lock().is_empty() {
            return Ok(false);
        }
        let _pin = self.pool.pin();
        let tree = self.pool.tree()?;
        for name in heads {
            let found = match tree.find(name) {
                Err(dsl::Error::NoSuchDataset { .. }) => continue,
                found => found.map_err(|error| Error::from_dsl_error(name, &error))?,
            };
            if found.id().is_some_and(|id| self.pool.0.dataset_holds.is_held(id)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
