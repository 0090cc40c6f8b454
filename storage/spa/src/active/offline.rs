//! Leaves that go out of service and come back: `zpool offline`, `zpool online`, and leaves that had too
//! many errors.
//!
//! ```text
//! offline     configuration: offline=1                            kept over an export
//! offline -f  configuration: faulted=1, aux_state="external"      kept over an export, until a clear
//! -f          configuration: degraded=1, aux_state="err_exceeded" the last replica: it stays in service
//! -t          in memory only
//! ```
//!
//! The leaf loses its device with the txg that records it. From that txg on the leaf misses every txg (its
//! DTL); a resilver writes those when the leaf is back in service.
//!
//! Learnt from: `vdev_offline`, `vdev_fault` and `vdev_alloc` of OpenZFS 2.3.2. Proved by: the engine's
//! `tests/it/offline.rs`.

use ondisk::label::{VdevConfig, VdevKind, VdevState};
use units::{Guid, Txg};
use vdev::{Leaf, OutOfService, VdevTree};

use super::ActivePool;
use super::attach::edit_vdev;
use super::device_change::DeviceChangeError;
use super::reattach::replace_leaf;
use super::spares::request_unspare;
use crate::Error;

/// The reason in the configuration of a leaf that `zpool offline -f` faulted.
const EXTERNAL: &str = "external";
/// The reason in the configuration of a leaf that is degraded. With "external" OpenZFS would fault it at the
/// next import, although it is degraded only.
const ERR_EXCEEDED: &str = "err_exceeded";

/// Why the configuration keeps a leaf out of service, if it does.
fn persistent_reason(config: &VdevConfig) -> Option<OutOfService> {
    let state = &config.state;
    match state.reason.as_deref() {
        _ if state.offline => Some(OutOfService::Offline { temporary: false }),
        Some(EXTERNAL) if state.faulted => Some(OutOfService::Faulted { temporary: false }),
        _ => None,
    }
}

/// The leaves that a configuration keeps out of service.
pub fn out_of_service_leaves(root: &VdevConfig) -> impl Iterator<Item = (Guid, OutOfService)> + '_ {
    let leaves = root.leaves().filter(|leaf| is_physical(leaf));
    leaves.filter_map(|leaf| Some((leaf.guid, persistent_reason(leaf)?)))
}

fn is_physical(leaf: &VdevConfig) -> bool {
    matches!(leaf.kind, VdevKind::Disk | VdevKind::File)
}

/// Takes the devices from the leaves that the configuration keeps out of service. `last` is the newest txg.
pub(super) fn drop_out_of_service_devices(tree: &VdevTree, root: &VdevConfig, last: Txg) {
    for (guid, why) in out_of_service_leaves(root) {
        let Some(leaf) = tree.leaf(guid) else { continue };
        set_leaf(tree, &leaf, leaf.to_out_of_service(Some(why), last));
    }
}

/// Puts a leaf in the place of the one with its identity.
fn set_leaf(tree: &VdevTree, old: &Leaf, new: Leaf) {
    let new = std::sync::Arc::new(new);
    for (id, top) in tree.tops() {
        if top.leaves().iter().any(|leaf| leaf.guid() == old.guid()) {
            let mut node = (*top).clone();
            replace_leaf(&mut node, old.guid(), &new);
            tree.set_top(id, node);
        }
    }
}

/// The outcome of taking a leaf out of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfflineResult {
    /// It is out of service.
    OutOfService,
    /// It was to be faulted, and is the last replica: it is degraded, and stays in service.
    Degraded,
}

impl ActivePool {
    /// Takes a leaf out of service. Refused where its vdev has no valid replicas without it; a leaf that was to
    /// be faulted is then degraded.
    pub fn take_offline(&self, guid: Guid, why: OutOfService) -> Result<OfflineResult, Error> {
        self.drain_log_of(guid)?;
        self.run_sync_task(move |active, _| active.take_offline_sync(guid, why))?
    }

    /// Clears the mark of a leaf that is offline. The leaf stays missing until its device is re-attached.
    pub fn clear_offline(&self, guid: Guid) -> Result<(), Error> {
        self.run_sync_task(move |active, _| active.return_to_service_sync(guid))?
    }

    /// Notes in the configuration that a leaf is degraded: it has too many errors, and stays in service.
    pub fn mark_degraded(&self, guid: Guid) -> Result<(), Error> {
        self.run_sync_task(move |active, _| active.mark_degraded_sync(guid))?
    }

    fn mark_degraded_sync(&self, guid: Guid) -> Result<(), Error> {
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        edit_vdev(root, guid, &mut |entry| {
            entry.state.degraded = true;
            entry.state.reason = Some(ERR_EXCEEDED.to_owned());
        });
        self.set_vdev_tree(root.clone());
        Ok(())
    }

    /// Forgets that a leaf, or any, is degraded.
    pub fn clear_degraded(&self, only: Option<Guid>) -> Result<(), Error> {
        let is_marked =
            |leaf: &VdevConfig| leaf.state.degraded && only.is_none_or(|guid| guid == leaf.guid);
        let config = self.config();
        let marked = config.tree.iter().flat_map(VdevConfig::leaves).filter(|leaf| is_marked(leaf));
        let marked: Vec<Guid> = marked.map(|leaf| leaf.guid).collect();
        if marked.is_empty() {
            return Ok(());
        }
        self.run_sync_task(move |active, _| {
            let mut config = active.config();
            let Some(root) = config.tree.as_mut() else { return };
            for guid in marked {
                edit_vdev(root, guid, &mut |entry| {
                    (entry.state.degraded, entry.state.reason) = (false, None);
                });
            }
            active.set_vdev_tree(root.clone());
        })
    }

    fn take_offline_sync(&self, guid: Guid, why: OutOfService) -> Result<OfflineResult, Error> {
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let top = root.children.iter().find(|top| top.leaves().any(|leaf| leaf.guid == guid));
        let top = top.ok_or(DeviceChangeError::NotInPool)?;
        let (vdev, is_log) = (top.id, top.is_log);
        let node = self.tree.top(vdev).ok_or(DeviceChangeError::NotInPool)?;
        let leaf = self.tree.leaf(guid).ok_or(DeviceChangeError::NotInPool)?;
        let is_required = !node.outage(&|other| other.guid() == guid).is_empty();
        if is_required && !is_log && leaf.out_of_service().is_none() {
            let OutOfService::Faulted { temporary } = why else {
                return Err(DeviceChangeError::NoValidReplicas.into());
            };
            if !temporary {
                self.mark_degraded_sync(guid)?;
            }
            return Ok(OfflineResult::Degraded);
        }
        // Rule L3: the leaf has all up to the last synced txg, and its DTL has each later one. This txg writes both the
        // state and the DTL: after a crash before it, the leaf is in service and has all that is synced.
        let last = self.txgs.synced_txg();
        set_leaf(&self.tree, &leaf, leaf.to_out_of_service(Some(why), last));
        edit_vdev(root, guid, &mut |entry| {
            entry.state.offline = why == OutOfService::Offline { temporary: false };
            entry.state.faulted = why == OutOfService::Faulted { temporary: false };
            entry.state.reason = entry.state.faulted.then(|| EXTERNAL.to_owned());
        });
        if self.tree.top(vdev).is_some_and(|top| top.is_unavailable()) {
            self.space.allocator().set_allocatable(vdev, false)?;
        }
        self.set_vdev_tree(root.clone());
        Ok(OfflineResult::OutOfService)
    }

    fn return_to_service_sync(&self, guid: Guid) -> Result<(), Error> {
        let leaf = self.tree.leaf(guid).ok_or(DeviceChangeError::NotInPool)?;
        if leaf.out_of_service().is_none() {
            return Ok(());
        }
        set_leaf(&self.tree, &leaf, leaf.to_out_of_service(None, self.txgs.synced_txg()));
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        edit_vdev(root, guid, &mut |entry| entry.state = VdevState::default());
        request_unspare(root, guid);
        self.set_vdev_tree(root.clone());
        Ok(())
    }
}
