//! The guid and the version of a pool: `zpool reguid`, and `zpool upgrade` of pools with legacy versions.
//!
//! The new guid is that of the root vdev and stands in the labels of all leaves, which are written as with
//! each change of the configuration: a power cut leaves the old guid or the new one. A leaf that is not
//! there would keep the old one and be part of the pool no more, so all must be there.
//!
//! Learnt from: `spa_change_guid` and `spa_sync_version` of OpenZFS 2.3.2. Proved by: the engine's
//! `tests/it/identity.rs`, and `zdb`.

use std::sync::atomic::Ordering;

use dsl::write::SyncTaskContext;
use ondisk::history::Entry;
use ondisk::version;
use units::Guid;

use super::{ActivePool, DeviceChangeError};
use crate::Error;

/// The first version that counts features in place of versions.
pub const FEATURES_VERSION: u64 = 5000;

impl ActivePool {
    /// Gives the pool another guid: this one, or a random one.
    pub fn set_pool_guid(&self, wanted: Option<Guid>) -> Result<Guid, Error> {
        self.run_sync_task(move |active, change| active.set_pool_guid_sync(change, wanted))?
    }

    pub(super) fn set_pool_guid_sync(
        &self,
        change: &SyncTaskContext<'_>,
        wanted: Option<Guid>,
    ) -> Result<Guid, Error> {
        self.check_no_checkpoint()?;
        let all_there =
            self.tree.leaves().iter().all(|leaf| leaf.is_writable() && !leaf.is_failing());
        if !all_there {
            return Err(DeviceChangeError::DeviceMissing.into());
        }
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let old = self.guid();
        let new = wanted.unwrap_or_else(|| self.unused_guid(root, old));
        root.guid = new;
        let root = root.clone();
        self.config.lock().current.pool_guid = Some(new);
        self.guid.store(new.get(), Ordering::Release);
        self.set_vdev_tree(root);
        let detail = format!("old={old} new={new}");
        let entry = Entry::Event { name: "guid change", detail: &detail, dataset: None };
        self.log_history(change, &entry);
        Ok(new)
    }

    /// Gives a pool of a legacy version a newer one. Up to version 26 the structures of datasets differ:
    /// such a pool is left as it is.
    pub fn set_version(&self, change: &SyncTaskContext<'_>, new: u64) -> Result<(), Error> {
        let old = self.version();
        if old < version::DEADLISTS {
            return Err(Error::OldVersion { version: old });
        }
        if new >= FEATURES_VERSION {
            dsl::write::features::create_feature_zaps(change)?;
        }
        self.uberblock.write().version = new;
        let mut config = self.config.lock();
        config.current.version = new;
        config.is_dirty = true;
        drop(config);
        let detail = format!("version={new}");
        self.log_history(change, &Entry::Event { name: "set", detail: &detail, dataset: None });
        Ok(())
    }

    /// The pool's version: 1 to 28, or 5000 with feature flags.
    pub fn version(&self) -> u64 {
        self.uberblock.read().version
    }
}
