//! `zpool split`: one device of each mirror becomes a pool of its own.
//!
//! ```text
//! 1  the pool     the intent logs are emptied, all is written: txg n
//! 2  the pool     txg n+1: the devices are detached. They are written no more; their labels and uberblocks
//!                 say that they are part of the pool, as of txg n
//! 3  the devices  opened as of txg n, and one txg written to them: another guid and name, without the
//!                 other children of the mirrors, log vdevs, spares and cache devices
//! ```
//!
//! After a power cut between the end of step 2 and that of step 3 the devices are detached, and are no pool.
//! After one before the end of step 2 nothing has changed.
//!
//! Learnt from: `spa_vdev_split_mirror` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/split.rs`, `zdb`.

use std::sync::Arc;

use device::Device;
use dsl::write::SyncTaskContext;
use ondisk::history::Entry;
use ondisk::label::{VdevConfig, VdevKind};
use units::Guid;

use super::device_change::DeviceChangeError;
use super::{ActivePool, RemovalError};
use crate::Error;

/// Why a pool cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// A vdev is no mirror.
    #[error("Source pool must be composed only of mirrors")]
    NotMirrors,
    /// A device that was named is part of no mirror, or of one of which another device was named.
    #[error("'{0}' is no device of a mirror of the pool, or two devices of one mirror are named")]
    NoSuchDevice(Guid),
    /// A device is missing, or lacks data.
    #[error(
        "device '{path}' is unavailable or being resilvered: all devices of the new pool must have all data"
    )]
    NotHealthy {
        /// Where the device is.
        path: String,
    },
}

/// A device that is to be part of the new pool.
#[derive(Clone, Debug)]
pub struct SplitDevice {
    /// Its guid in the pool that is split.
    pub guid: Guid,
    /// The device.
    pub device: Arc<dyn Device>,
}

impl ActivePool {
    /// The devices that a split takes: of each mirror that which is among `chosen`, else the last.
    pub fn plan_split(&self, chosen: &[Guid]) -> Result<Vec<SplitDevice>, Error> {
        self.check_no_checkpoint().map_err(DeviceChangeError::from)?;
        self.check_no_removal()?;
        if self.expanding_vdev().is_some() {
            return Err(RemovalError::Busy.into());
        }
        let config = self.config();
        let mut plan = Vec::new();
        for top in config.tree.iter().flat_map(|root| &root.children) {
            if top.is_log || matches!(top.kind, VdevKind::Hole | VdevKind::Indirect) {
                continue;
            }
            if top.kind != VdevKind::Mirror {
                return Err(SplitError::NotMirrors.into());
            }
            plan.push(self.plan_mirror_split(top, chosen)?);
        }
        let is_planned = |guid: &&Guid| plan.iter().any(|device| device.guid == **guid);
        match chosen.iter().find(|guid| !is_planned(guid)) {
            Some(other) => Err(SplitError::NoSuchDevice(*other).into()),
            None => Ok(plan),
        }
    }

    fn plan_mirror_split(
        &self,
        mirror: &VdevConfig,
        chosen: &[Guid],
    ) -> Result<SplitDevice, Error> {
        let named = mirror.children.iter().find(|child| chosen.contains(&child.guid));
        let child = named.or(mirror.children.last()).ok_or(SplitError::NotMirrors)?;
        if !child.kind.is_leaf() {
            return Err(DeviceChangeError::AlreadyReplacing.into());
        }
        let path = child.path.clone().unwrap_or_default();
        let unhealthy = SplitError::NotHealthy { path };
        let leaf = self.tree.leaf(child.guid).ok_or_else(|| unhealthy.clone())?;
        let device = leaf
            .device()
            .filter(|_| leaf.is_writable() && !leaf.is_failing() && leaf.dtl().is_empty());
        let device = Arc::clone(device.ok_or(unhealthy)?);
        if !self.is_expendable(child.guid) {
            return Err(DeviceChangeError::NoValidReplicas.into());
        }
        Ok(SplitDevice { guid: child.guid, device })
    }

    /// Detaches the devices of a split in one txg. The state that they then have is that of the txg before:
    /// all that was changed before this call, with empty intent logs.
    pub fn detach_split(&self, devices: &[SplitDevice]) -> Result<(), Error> {
        let guids: Vec<Guid> = devices.iter().map(|device| device.guid).collect();
        // Rule L7: all devices leave in one txg, and the intent logs are empty before it. A crash between two
        // detaches would leave neither pool whole; a log would have records that only one of them has.
        self.with_emptied_logs(&|| {
            let guids = guids.clone();
            self.run_sync_task(move |active, change| {
                active.plan_split(&guids)?;
                for guid in guids {
                    active.detach_child_sync(change, guid)?;
                }
                Ok(())
            })?
        })
    }

    /// Makes a pool that was opened on the devices of a split a pool of its own, with its first txg.
    pub fn complete_split(&self, devices: &[Guid], source: &str) -> Result<(), Error> {
        let (devices, source) = (devices.to_vec(), source.to_owned());
        self.run_sync_task(move |active, change| {
            active.complete_split_sync(change, &devices, &source)
        })?
    }

    fn complete_split_sync(
        &self,
        change: &SyncTaskContext<'_>,
        devices: &[Guid],
        source: &str,
    ) -> Result<(), Error> {
        let config = self.config();
        let tops = config.tree.map(|root| root.children).unwrap_or_default();
        let (logs, data): (Vec<_>, Vec<_>) = tops.into_iter().partition(|top| top.is_log);
        for leaf in data.iter().flat_map(VdevConfig::leaves) {
            if !devices.contains(&leaf.guid) {
                self.detach_child_sync(change, leaf.guid)?;
            }
        }
        for log in logs {
            self.remove_log_sync(change, log.id)?;
        }
        self.update_auxiliary(change, Vec::clear)?;
        self.set_pool_guid_sync(change, None)?;
        let detail = format!("from pool {source}");
        let entry = Entry::Event { name: "split", detail: &detail, dataset: None };
        self.log_history(change, &entry);
        Ok(())
    }
}
