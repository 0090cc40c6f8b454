//! Top-level vdevs that are added to a pool in use, and grow in it: `zpool add`, `zpool online -e`.
//!
//! ```text
//! 1  labels of the new devices are cleared
//! 2  one txg: tables, metaslab array, configuration; its labels name the vdev   (nothing lies on it yet)
//! 3  space limits; then blocks of the next txgs are allocated on it
//! ```
//!
//! After a power cut before the end of step 2, the pool is as it was. The labels of the new devices may
//! then name a txg that no uberblock has: they are not believed.
//!
//! Learnt from: `spa_vdev_add` of OpenZFS 2.3.2, and pools to which it added vdevs. Proved by: the engine's
//! `tests/it/add.rs`, and `zdb`.

use std::sync::Arc;

use device::Device;
use dsl::write::SyncTaskContext;
use geometry::{Reflow, capacity};
use ondisk::label::{VdevConfig, VdevKind};
use units::{Guid, MinusOrZero as _, Txg, VdevId};
use vdev::{BuildContext, Leaf, LeafDevice, VdevNode};

use super::attach::create_vdev_zap;
use super::device_change::DeviceChangeError;
use super::{ActivePool, ExpandError};
use crate::create::{create_top_objects, write_metaslab_array};
use crate::space::vdev_spec;
use crate::{Error, auxiliary, commit};

/// A top-level vdev that is to be added.
#[derive(Clone, Debug)]
pub struct NewTop {
    /// Its description, without guids: with `asize`, `ashift` and `metaslab_shift`.
    pub config: VdevConfig,
    /// The devices of its leaves, in order.
    pub devices: Vec<Arc<dyn Device>>,
}

impl ActivePool {
    /// Adds top-level vdevs; whatever their devices hold is lost. Returns when the configuration has them.
    pub fn add_tops(&self, new: Vec<NewTop>) -> Result<(), Error> {
        for device in new.iter().flat_map(|top| &top.devices) {
            let blank = Leaf::new(Guid::new(0), String::new(), Some(Arc::clone(device)), Txg::ZERO);
            commit::clear_leaf_labels(&blank).map_err(|_| Error::NoDeviceWritten)?;
        }
        let added = self.run_sync_task(move |active, change| {
            new.into_iter()
                .map(|top| active.add_top_sync(change, top))
                .collect::<Result<Vec<VdevId>, Error>>()
        })??;
        self.refresh_space_limits()?;
        // Rule L4: the vdev is allocated from once the configuration with it is synced. After a crash before that,
        // blocks of a txg would lie on a vdev that the pool does not have.
        for vdev in added {
            self.space.allocator().set_allocatable(vdev, true)?;
        }
        Ok(())
    }

    fn add_top_sync(&self, change: &SyncTaskContext<'_>, new: NewTop) -> Result<VdevId, Error> {
        let mut config = self.config();
        let has_zaps = config.has_vdev_zaps;
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let mut top = new.config;
        self.check_added_to_removed(&top)?;
        top.id = VdevId::new(units::narrow::<u32>(self.tree.tops().len()));
        self.assign_new_guids(root, &mut top, change.tx.txg());
        if has_zaps {
            create_top_objects(change, &mut top, &|| create_vdev_zap(change))?;
        }
        let id = self.tree.add_top(build_node(&top, &new.devices)?);
        let asize = top.asize.unwrap_or(0);
        let shift = units::narrow::<u32>(top.metaslab_shift.unwrap_or(0));
        let spec = vdev_spec(&self.tree, (&top, top.bias.clone()), (asize, shift))?;
        let array = self.space.add_vdev(change.tx, spec, top.top_zap)?;
        write_metaslab_array(change.mos, change.tx, array, &top)?;
        top.metaslab_array = Some(array);
        if top.draid.is_some_and(|draid| draid.spares > 0) {
            let spares: Vec<_> =
                auxiliary::distributed_spare_entries(&top, &self.environment).collect();
            self.update_auxiliary(change, |known| known.extend(spares))?;
        }
        root.children.push(top);
        let root = root.clone();
        let mut state = self.config.lock();
        state.current.vdev_children = u64::try_from(root.children.len()).ok();
        drop(state);
        self.set_vdev_tree(root);
        Ok(id)
    }

    /// Grows top-level vdevs whose devices are all larger than when the vdev was made; returns how many
    /// grew. `only`: the vdev of this leaf.
    pub fn expand_tops(&self, only: Option<Guid>) -> Result<usize, Error> {
        self.check_no_checkpoint().map_err(DeviceChangeError::from)?;
        let config = self.config();
        let tops = config.tree.iter().flat_map(|root| &root.children);
        let chosen =
            tops.filter(|top| only.is_none_or(|guid| top.leaves().any(|leaf| leaf.guid == guid)));
        let mut grown = 0;
        for top in chosen.filter(|top| !top.removing) {
            self.adopt_device_sizes(top.id)?;
            let Some(asize) = self.possible_asize(top, &|device| device.size()) else {
                if only.is_some() && self.expanding_vdev() == Some(top.id) {
                    return Err(ExpandError::InProgress.into());
                }
                if only.is_some() {
                    return Err(DeviceChangeError::CannotExpand.into());
                }
                continue;
            };
            let shift = top.metaslab_shift.unwrap_or(0).min(63);
            if asize >> shift > top.asize.unwrap_or(0) >> shift {
                let vdev = top.id;
                self.run_sync_task(move |active, change| {
                    active.expand_top_sync(change, vdev, asize)
                })??;
                grown += 1;
            }
        }
        if grown > 0 {
            self.refresh_space_limits()?;
        }
        Ok(grown)
    }

    /// Bytes by which a top-level vdev can grow, as its devices have grown: whole metaslabs.
    pub fn expandable_space(&self, top: &VdevConfig) -> u64 {
        let Some(asize) = self.possible_asize(top, &|device| device.current_size()) else {
            return 0;
        };
        let shift = top.metaslab_shift.unwrap_or(0).min(63);
        let more = asize.minus_or_zero(top.asize.unwrap_or(0));
        more >> shift << shift
    }

    /// Has the devices of a top-level vdev adopt the sizes that they have now: between two writes of labels.
    fn adopt_device_sizes(&self, vdev: VdevId) -> Result<(), Error> {
        let devices = move |active: &Self| -> Vec<Arc<dyn Device>> {
            let node = active.tree.top(vdev);
            let leaves = node.iter().flat_map(|node| node.leaves());
            leaves.filter_map(|leaf| leaf.device().cloned()).collect()
        };
        if devices(self).iter().all(|device| device.current_size() == device.size()) {
            return Ok(());
        }
        self.run_sync_task(move |active, _| {
            for device in devices(active) {
                device.adopt_size();
            }
        })
    }

    /// The asize that a top-level vdev could have, by the sizes of its devices; none while a device of it is
    /// missing or a raidz expansion runs, whose new drive has no space yet, or where it has no metaslabs.
    pub(super) fn possible_asize(
        &self,
        top: &VdevConfig,
        size_of: &dyn Fn(&dyn Device) -> u64,
    ) -> Option<u64> {
        let layout = self.tree.hold_layout(top.id)?;
        let node = layout.node();
        let leaves = node.leaves();
        let sizes = leaves.iter().map(|leaf| capacity::leaf_space(size_of(&**leaf.device()?)));
        let smallest = sizes.collect::<Option<Vec<u64>>>()?.into_iter().min()?;
        top.metaslab_array?;
        Some(capacity::vdev_space(&node.layout(), smallest))
    }

    fn expand_top_sync(
        &self,
        change: &SyncTaskContext<'_>,
        vdev: VdevId,
        asize: u64,
    ) -> Result<(), Error> {
        self.check_no_checkpoint().map_err(DeviceChangeError::from)?;
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let top = root.children.iter_mut().find(|top| top.id == vdev);
        let top = top.ok_or(DeviceChangeError::NotInPool)?;
        self.space.grow_vdev(change.tx, vdev, asize)?;
        top.asize = Some(asize);
        top.expansion_time = Some(change.now.seconds);
        self.set_vdev_tree(root.clone());
        Ok(())
    }

    /// Gives a new vdev and all below it guids and their place.
    fn assign_new_guids(&self, root: &VdevConfig, vdev: &mut VdevConfig, txg: Txg) {
        vdev.guid = self.unused_guid(root, Guid::new(0));
        vdev.create_txg = Some(txg);
        for (index, child) in vdev.children.iter_mut().enumerate() {
            child.id = VdevId::new(units::narrow::<u32>(index));
            self.assign_new_guids(root, child, txg);
        }
    }
}

/// The node of a new top-level vdev with these devices.
fn build_node(top: &VdevConfig, devices: &[Arc<dyn Device>]) -> Result<VdevNode, Error> {
    let is_physical = |leaf: &&VdevConfig| matches!(leaf.kind, VdevKind::Disk | VdevKind::File);
    let guids: Vec<Guid> = top.leaves().filter(is_physical).map(|leaf| leaf.guid).collect();
    let find = |guid: Guid| {
        let at = guids.iter().position(|known| *known == guid)?;
        Some(LeafDevice { device: Arc::clone(devices.get(at)?), label_txg: Txg::new(u64::MAX) })
    };
    let reflow = Reflow { offset: 0, scratch: false };
    Ok(VdevNode::build(top, &BuildContext { find_device: &find, reflow })?)
}
