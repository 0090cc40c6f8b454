//! The vdev property `allocating`: whether new blocks go to a top-level vdev.
//!
//! With `allocating=off` a vdev keeps its blocks, and its free space does not count. It is a step towards a removal, and
//! survives one that is cancelled.

use dsl::write::SyncTaskContext;
use metaslab::Class;
use ondisk::history::Entry;
use units::VdevId;
use zap::{Zap, ZapValue};

use super::super::device_change::DeviceChangeError;
use super::{ALLOCATING_ENTRY, ActivePool, RemovalError};
use crate::Error;

impl ActivePool {
    /// Has new blocks go to a top-level vdev for data, or to the others only.
    pub fn set_allocating(&self, vdev: VdevId, is_on: bool) -> Result<(), Error> {
        self.check_allocating(vdev, is_on)?;
        if self.is_allocating(vdev) == is_on {
            return Ok(());
        }
        self.run_sync_task(move |active, change| active.set_allocating_sync(change, vdev, is_on))??;
        self.refresh_space_limits()
    }

    fn set_allocating_sync(
        &self,
        change: &SyncTaskContext<'_>,
        vdev: VdevId,
        is_on: bool,
    ) -> Result<(), Error> {
        self.check_allocating(vdev, is_on)?;
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let top = root.children.iter_mut().find(|top| top.id == vdev);
        let top = top.ok_or(DeviceChangeError::NotInPool)?;
        if let Some(table) = top.top_zap {
            let value = ZapValue::from_u64(is_on.into());
            Zap::open(change.mos.object(table)?)?.update(change.tx, ALLOCATING_ENTRY, &value)?;
        }
        top.non_allocating = !is_on;
        let detail = format!("vdev_guid={}: allocating={}", top.guid.get(), u8::from(is_on));
        self.set_vdev_tree(root.clone());
        self.space.allocator().set_allocatable(vdev, is_on)?;
        let entry = Entry::Event { name: "vdev set", detail: &detail, dataset: None };
        self.log_history(change, &entry);
        Ok(())
    }

    /// Refuses to close the only vdev for data, one that is being removed, and one whose blocks a checkpoint holds.
    fn check_allocating(&self, vdev: VdevId, is_on: bool) -> Result<(), Error> {
        self.check_no_checkpoint().map_err(DeviceChangeError::from)?;
        if self.removing_vdev() == Some(vdev) {
            return Err(RemovalError::AlreadyRemoving.into());
        }
        let data = self.space.allocator().vdevs_in_class(Class::Normal);
        if !data.contains(&vdev) {
            return Err(DeviceChangeError::NotInPool.into());
        }
        let is_other = |other: &VdevId| *other != vdev && self.is_allocating(*other);
        if !is_on && !data.iter().any(is_other) {
            return Err(RemovalError::OnlyVdev.into());
        }
        Ok(())
    }
}
