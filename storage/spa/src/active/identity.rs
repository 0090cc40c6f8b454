//! The guid and the version of a pool: `zpool reguid`, and `zpool upgrade` of pools with legacy versions.
//!
//! The new guid is that of the root vdev and stands in the labels of all leaves, which are written as with
//! each change of the configuration: a power cut leaves the old guid or the new one. A leaf that is not
//! there would keep the old one and be part of the pool no more, so all must be there.
//!
//! Learnt from: `spa_change_guid`, `spa_sync_version` and `spa_sync_upgrades` of OpenZFS 2.3.2. Proved by: the engine's
//! `tests/it/identity.rs` and `tests/it/old.rs`, and `zdb`.

use std::sync::atomic::Ordering;

use dsl::write::SyncTaskContext;
use ondisk::history::Entry;
use ondisk::label::VdevKind;
use ondisk::version;
use units::Guid;
use zap::Zap;

use super::{ActivePool, DeviceChangeError};
use crate::Error;
use crate::directory::POOL_DIRECTORY;

/// The entry of pools whose space is counted without parity.
const DEFLATE_ENTRY: &[u8] = b"deflate";
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

    /// Gives a pool of a legacy version a newer one, with the structures that it then has. Space of parity stays
    /// counted in pools before version 3 with a raidz, as with OpenZFS.
    pub fn set_version(&self, change: &SyncTaskContext<'_>, new: u64) -> Result<(), Error> {
        let old = self.version();
        if new >= FEATURES_VERSION {
            dsl::write::features::create_feature_zaps(change)?;
        }
        dsl::write::upgrade_structures(change, new)?;
        if old < version::DEFLATE && new >= version::DEFLATE && !self.has_raidz() {
            write_deflate_entry(change)?;
        }
        self.state_parity();
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

    /// States the number of parity columns of each raidz: newer systems refuse a pool of version 3 and later without it.
    fn state_parity(&self) {
        let Some(mut root) = self.config().tree else { return };
        for top in root.children.iter_mut().filter(|top| top.kind == VdevKind::Raidz) {
            top.nparity.get_or_insert(1);
        }
        self.set_vdev_tree(root);
    }

    fn has_raidz(&self) -> bool {
        let config = self.config();
        let mut tops = config.tree.iter().flat_map(|root| &root.children);
        tops.any(|top| top.kind == VdevKind::Raidz)
    }
}

/// Notes that space is counted without parity, which in a pool without parity changes no sum.
fn write_deflate_entry(change: &SyncTaskContext<'_>) -> Result<(), Error> {
    let directory = Zap::open(change.mos.object(POOL_DIRECTORY)?)?;
    if directory.lookup_u64(DEFLATE_ENTRY)?.is_none() {
        directory.insert_u64(change.tx, DEFLATE_ENTRY, 1)?;
    }
    Ok(())
}
