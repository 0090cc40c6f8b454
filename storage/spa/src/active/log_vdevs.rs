//! Log vdevs that give up their blocks: before the last leaf of one goes offline, and before one is
//! removed.
//!
//! The intent logs move to other vdevs: nothing new is allocated on the log vdev, commits wait for their
//! txgs, and each chain is freed with the next txg.

use std::sync::Arc;

use units::{Guid, VdevId};

use super::attach::DeviceChangeError;
use super::{ActivePool, OpenDataset};
use crate::Error;

/// A freed block can be used again after some txgs: until then its space counts as allocated.
const MAX_DRAIN_TXGS: usize = 8;

impl ActivePool {
    /// Moves the intent logs off the log vdev of a leaf, if the vdev has no valid replicas without it.
    pub(super) fn drain_log_of(&self, leaf: Guid) -> Result<(), Error> {
        let config = self.config();
        let tops = config.tree.iter().flat_map(|root| &root.children);
        let mut logs = tops.filter(|top| top.is_log);
        let Some(top) = logs.find(|top| top.leaves().any(|entry| entry.guid == leaf)) else {
            return Ok(());
        };
        let node = self.tree.top(top.id).ok_or(DeviceChangeError::NotInPool)?;
        if node.outage(&|other| other.guid() == leaf).is_empty() {
            return Ok(());
        }
        self.drain_log(top.id)
    }

    /// Moves the intent logs off a log vdev. Nothing is allocated on it afterwards. Refused while a log on
    /// it cannot be freed: the vdev is then used as before.
    pub(super) fn drain_log(&self, vdev: VdevId) -> Result<(), Error> {
        let allocator = self.space.allocator();
        allocator.set_allocatable(vdev, false)?;
        let drained = self.free_log_chains(vdev);
        if !matches!(drained, Ok(true)) {
            allocator.set_allocatable(vdev, true)?;
        }
        if drained? { Ok(()) } else { Err(DeviceChangeError::LogInUse.into()) }
    }

    /// Returns whether a log vdev is empty.
    fn free_log_chains(&self, vdev: VdevId) -> Result<bool, Error> {
        let sets: Vec<Arc<OpenDataset>> = self.open_datasets.lock().values().cloned().collect();
        let logs = || sets.iter().filter_map(|set| set.log.get());
        logs().for_each(|log| log.set_paused(true));
        let drained = (0..MAX_DRAIN_TXGS).try_fold(false, |empty, _| {
            if empty {
                return Ok(true);
            }
            logs().for_each(|log| log.close());
            let tx = self.begin_tx()?;
            sets.iter().for_each(|set| set.edit_header(&tx, |_| {}));
            drop(tx);
            self.sync()?;
            Ok(self.space.allocator().vdev_usage(vdev)?.allocated == 0)
        });
        logs().for_each(|log| log.set_paused(false));
        drained
    }
}
