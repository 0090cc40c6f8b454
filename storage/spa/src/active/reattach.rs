//! Drives that were missing when the pool was taken over, and are there now.
//!
//! What such a drive missed is what the pool has noted, and all that came after the newest uberblock
//! of its own labels, up to the groups that are open: as with a new side, from before the first block
//! is written to it. A resilver gives it that.
//!
//! Proved by: the engine's `tests/it/back.rs`.

use std::sync::Arc;

use device::Device;
use ondisk::label::VdevState;
use units::{Ashift, Guid, Txg};
use vdev::{Leaf, NodeKind, VdevNode};

use super::ActivePool;
use super::attach::{check_device_size, edit_vdev};
use super::device_change::DeviceChangeError;
use super::spares::request_unspare;
use crate::space::is_closed_to_allocation;
use crate::{Error, read_labels};

impl ActivePool {
    /// Takes a drive back that was missing. Refused if it is another, or was written elsewhere since.
    pub fn reattach_device(&self, guid: Guid, device: Arc<dyn Device>) -> Result<(), Error> {
        self.run_sync_task(move |active, _| active.reattach_device_sync(guid, &device))?
    }

    /// Says where drives are now, if that is not where the pool's configuration has them.
    pub fn set_device_paths(&self, places: Vec<(Guid, String)>) -> Result<(), Error> {
        self.run_sync_task(move |active, _| {
            let mut config = active.config();
            let Some(root) = config.tree.as_mut() else { return };
            for (guid, path) in places {
                edit_vdev(root, guid, &mut |entry| entry.path = Some(path.clone()));
            }
            active.set_vdev_tree(root.clone());
        })
    }

    fn reattach_device_sync(&self, guid: Guid, device: &Arc<dyn Device>) -> Result<(), Error> {
        let missing = self.tree.leaf(guid).filter(|leaf| leaf.device().is_none());
        let missing = missing.ok_or(DeviceChangeError::NotInPool)?;
        let synced = self.check_returned_device(&missing, device)?;
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let place = root.children.iter().find(|top| top.leaves().any(|leaf| leaf.guid == guid));
        let place = place.ok_or(DeviceChangeError::NotInPool)?;
        let (vdev, place) = (place.id, place.clone());
        let mut top =
            self.tree.top(vdev).map(|top| (*top).clone()).ok_or(DeviceChangeError::NotInPool)?;
        check_device_size(&top, &place, device.size())?;
        let ashift = place.ashift.and_then(Ashift::new).unwrap_or(Ashift::MIN);
        let path = device.name().to_owned();
        let leaf = Leaf::new(guid, path.clone(), Some(Arc::clone(device)), Txg::new(u64::MAX));
        let leaf = leaf.with_ashift(ashift);
        let mut away = missing.dtl();
        away.add(synced.min(self.txgs.open_txg()).next(), self.txgs.open_txg());
        leaf.set_dtl(away);
        leaf.record_label_txg(synced);
        edit_vdev(root, guid, &mut |entry| {
            entry.path = Some(path.clone());
            entry.state = VdevState::default();
        });
        request_unspare(root, guid);
        replace_leaf(&mut top, guid, &Arc::new(leaf));
        if !is_closed_to_allocation(&place, &top) {
            self.space.allocator().set_allocatable(vdev, true)?;
        }
        self.tree.set_top(vdev, top);
        self.set_vdev_tree(root.clone());
        Ok(())
    }

    /// The newest txg that a device knows, if its labels say that it is that drive of this pool.
    pub fn newest_known_txg(&self, drive: Guid, device: &Arc<dyn Device>) -> Option<Txg> {
        let (labelled, _) = read_labels(device);
        let labelled = labelled.filter(|found| found.guid() == drive)?;
        (labelled.config.pool.pool_guid == Some(self.guid())).then(|| labelled.newest_txg())
    }

    /// The newest txg that a drive knows which came back, if it is the one that is missing.
    fn check_returned_device(
        &self,
        missing: &Leaf,
        device: &Arc<dyn Device>,
    ) -> Result<Txg, DeviceChangeError> {
        let synced =
            self.newest_known_txg(missing.guid(), device).ok_or(DeviceChangeError::NotInPool)?;
        if missing.can_know_txg(synced) {
            Ok(synced)
        } else {
            Err(DeviceChangeError::WrittenElsewhere)
        }
    }
}

/// Puts a leaf in the place of the one with its identity.
pub(super) fn replace_leaf(node: &mut VdevNode, guid: Guid, leaf: &Arc<Leaf>) {
    if matches!(node.kind, NodeKind::Leaf(_)) && node.guid == guid {
        node.kind = NodeKind::Leaf(Arc::clone(leaf));
        return;
    }
    node.children_mut().iter_mut().for_each(|child| replace_leaf(child, guid, leaf));
}
