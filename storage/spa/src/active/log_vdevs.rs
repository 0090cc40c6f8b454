//! Log vdevs that give up their blocks: before the last leaf of one goes offline, and before one is
//! removed. A removed vdev leaves a hole, so that the ids of the others stay.
//!
//! The intent logs move to other vdevs: nothing new is allocated on the log vdev, commits wait for their
//! txgs, and each chain is freed with the next txg.

use dsl::write::SyncTaskContext;
use ondisk::label::{VdevConfig, VdevKind};
use units::{Guid, VdevId};
use vdev::{NodeKind, VdevNode};

use super::ActivePool;
use super::attach::{free_leaf_objects, free_vdev_zap};
use super::device_change::DeviceChangeError;
use crate::{Error, commit};

/// A freed block can be used again after some txgs: until then its space counts as allocated.
const MAX_DRAIN_TXGS: usize = 8;
/// Chains are freed, and blocks that were allocated early are written or freed, by so many txgs.
const EMPTYING_TXGS: usize = 3;

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
        let sets = self.open_datasets.all();
        let logs = || sets.iter().filter_map(|set| set.log());
        logs().for_each(|log| log.set_paused(true));
        let drained = (0..MAX_DRAIN_TXGS).try_fold(false, |empty, _| {
            if empty {
                return Ok(true);
            }
            logs().for_each(|log| log.close());
            let tx = self.begin_tx()?;
            for set in &sets {
                set.edit_header(&tx, |_| {});
            }
            drop(tx);
            self.sync()?;
            let usage = self.space.allocator().vdev_usage(vdev)?;
            Ok(usage.allocated == 0 && usage.deferred == 0)
        });
        logs().for_each(|log| log.set_paused(false));
        drained
    }

    /// Empties the intent logs, and runs `work` before they are used again. What was allocated before this
    /// call is then written or freed.
    pub(super) fn with_emptied_logs<T>(
        &self,
        work: &dyn Fn() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let sets = self.open_datasets.all();
        let logs = || sets.iter().filter_map(|set| set.log());
        if logs().any(|log| log.unreplayed_header().is_some()) {
            return Err(DeviceChangeError::LogInUse.into());
        }
        logs().for_each(|log| log.set_paused(true));
        let emptied = (0..EMPTYING_TXGS).try_for_each(|_| {
            logs().for_each(|log| log.close());
            let tx = self.begin_tx()?;
            for set in &sets {
                set.edit_header(&tx, |_| {});
            }
            drop(tx);
            self.sync()
        });
        let done = emptied.and_then(|()| work());
        logs().for_each(|log| log.set_paused(false));
        done
    }

    /// Removes a log vdev. Returns when the configuration is without it; its devices are then unused.
    pub fn remove_log(&self, vdev: VdevId) -> Result<(), Error> {
        let top = self.tree.top(vdev).ok_or(DeviceChangeError::NotInPool)?;
        let config = self.config();
        let mut tops = config.tree.iter().flat_map(|root| &root.children);
        if !tops.any(|top| top.id == vdev && top.is_log) {
            return Err(DeviceChangeError::NotRemovable.into());
        }
        self.check_no_checkpoint().map_err(DeviceChangeError::from)?;
        self.drain_log(vdev)?;
        self.run_sync_task(move |active, change| active.remove_log_sync(change, vdev))??;
        for leaf in top.leaves().into_iter().filter(|leaf| leaf.is_writable()) {
            // its labels name the pool still
            let _ = commit::write_removed_labels(leaf);
        }
        self.refresh_space_limits()
    }

    pub(super) fn remove_log_sync(
        &self,
        change: &SyncTaskContext<'_>,
        vdev: VdevId,
    ) -> Result<(), Error> {
        self.check_no_checkpoint().map_err(DeviceChangeError::from)?;
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let top = root.children.iter_mut().find(|top| top.id == vdev);
        let top = top.ok_or(DeviceChangeError::NotInPool)?;
        let removed = std::mem::replace(top, hole(vdev));
        self.space.remove_vdev(change.tx, vdev)?;
        for leaf in removed.leaves() {
            free_leaf_objects(change, leaf)?;
        }
        free_vdev_zap(change, removed.top_zap)?;
        self.tree.set_top(vdev, VdevNode { guid: Guid::new(0), kind: NodeKind::Hole });
        let root = root.clone();
        let holes = root.children.iter().filter(|top| top.kind == VdevKind::Hole);
        self.config.lock().current.holes = holes.map(|top| top.id.get().into()).collect();
        self.set_vdev_tree(root);
        Ok(())
    }
}

/// The place of a removed log vdev.
fn hole(id: VdevId) -> VdevConfig {
    let mut hole = VdevConfig::new(VdevKind::Hole);
    (hole.id, hole.is_hole, hole.whole_disk) = (id, true, Some(false));
    (hole.metaslab_shift, hole.ashift, hole.asize) = (Some(0), Some(0), Some(0));
    hole
}
