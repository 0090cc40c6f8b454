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

use super::Owned;
use super::drives::{Refusal, edit, judge_size};
use crate::space::is_closed;
use crate::{Error, read_labels};

impl Owned {
    /// Takes a drive back that was missing. Refused if it is another, or was written elsewhere since.
    pub fn bring_back(&self, guid: Guid, device: Arc<dyn Device>) -> Result<(), Error> {
        self.perform(move |owned, _| owned.bring_back_now(guid, &device))?
    }

    /// Says where drives are now, if that is not where the pool's configuration has them.
    pub fn set_places(&self, places: Vec<(Guid, String)>) -> Result<(), Error> {
        self.perform(move |owned, _| {
            let mut config = owned.config();
            let Some(root) = config.tree.as_mut() else { return };
            for (guid, path) in places {
                edit(root, guid, &mut |entry| entry.path = Some(path.clone()));
            }
            owned.rearranged(root.clone());
        })
    }

    fn bring_back_now(&self, guid: Guid, device: &Arc<dyn Device>) -> Result<(), Error> {
        let missing = self.tree.leaf(guid).filter(|leaf| leaf.device().is_none());
        let missing = missing.ok_or(Refusal::Unknown)?;
        let synced = self.judge_returned(&missing, device)?;
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(Refusal::Unknown)?;
        let place = root.children.iter().find(|top| top.leaves().any(|leaf| leaf.guid == guid));
        let place = place.ok_or(Refusal::Unknown)?;
        let (vdev, place) = (place.id, place.clone());
        let mut top = self.tree.top(vdev).map(|top| (*top).clone()).ok_or(Refusal::Unknown)?;
        judge_size(&top, &place, device.size())?;
        let ashift = place.ashift.and_then(Ashift::new).unwrap_or(Ashift::MIN);
        let path = device.name().to_owned();
        let leaf = Leaf::new(guid, path.clone(), Some(Arc::clone(device)), Txg::new(u64::MAX));
        let leaf = leaf.with_ashift(ashift);
        let mut away = missing.dtl();
        away.add(Txg::new(synced.get().saturating_add(1)), self.groups.open_txg());
        leaf.set_dtl(away);
        leaf.record_label_txg(synced);
        edit(root, guid, &mut |entry| {
            entry.path = Some(path.clone());
            // whatever was wrong with it when it was away
            entry.state = VdevState::default();
        });
        put(&mut top, guid, &Arc::new(leaf));
        if !is_closed(&place, &top) {
            self.space.allocator().set_allocatable(vdev, true)?;
        }
        self.tree.set_top(vdev, top);
        self.rearranged(root.clone());
        Ok(())
    }

    /// The newest txg that a device knows, if its labels say that it is that drive of this pool.
    pub fn known_by(&self, drive: Guid, device: &Arc<dyn Device>) -> Option<Txg> {
        let (labelled, _) = read_labels(device);
        let labelled = labelled.filter(|found| found.guid() == drive)?;
        (labelled.config.pool.pool_guid == Some(self.guid())).then(|| labelled.synced())
    }

    /// The newest txg that a drive knows which came back, if it is the one that is missing.
    fn judge_returned(&self, missing: &Leaf, device: &Arc<dyn Device>) -> Result<Txg, Refusal> {
        let synced = self.known_by(missing.guid(), device).ok_or(Refusal::Unknown)?;
        if missing.can_know_txg(synced) { Ok(synced) } else { Err(Refusal::Elsewhere) }
    }
}

/// Puts a leaf in the place of the one with its identity.
fn put(node: &mut VdevNode, guid: Guid, leaf: &Arc<Leaf>) {
    if matches!(node.kind, NodeKind::Leaf(_)) && node.guid == guid {
        node.kind = NodeKind::Leaf(Arc::clone(leaf));
        return;
    }
    node.children_mut().iter_mut().for_each(|child| put(child, guid, leaf));
}
