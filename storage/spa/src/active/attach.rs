//! Drives that come into a pool in use and leave it: a side is added to a drive, to stay (a mirror)
//! or until it has all (a replacing), and taken away again.
//!
//! ```text
//! replace    raidz ─ a b c    raidz ─ a ┌ replacing ─ b n ┐ c    resilver    raidz ─ a n c
//! spare      raidz ─ a b c    raidz ─ a ┌ spare ─ b s ┐ c        b is back   raidz ─ a b c
//! attach     a (a top)        mirror ─ a n
//! detach     mirror ─ a n     n, with the identity that the mirror had: what was a top stays one
//! ```
//!
//! Each step is one txg: the configuration in the pool and in all labels, the sum of all identities
//! in the uberblock, the tables of the drives. A new drive is noted to miss all txgs up to those
//! that are open, from before the first block is written to it.
//!
//! Learnt from: `vdev_add_parent`, `vdev_remove_parent`, `spa_vdev_attach` of OpenZFS 2.3.2, and
//! pools that it made. Proved by: the engine's `tests/it/replace.rs`, and `zdb`.

use std::sync::Arc;

use device::Device;
use dsl::write::SyncTaskContext;
use geometry::capacity;
use ondisk::label::{VdevConfig, VdevKind};
use ondisk::rebuild::RebuildPhase;
use units::{Ashift, Guid, ObjectId, Txg, VdevId};
use vdev::{DistributedSpare, Leaf, NodeKind, TxgRanges, VdevNode};
use zap::{NewZap, Zap};

use super::ActivePool;
use super::device_change::DeviceChangeError;
use super::spares::{promoted_spare, request_unspare};
use crate::auxiliary::AuxiliaryEntry;
use crate::create::{INITIAL_TXG, ZAP_METADATA};
use crate::space::free_space_map;
use crate::vdev_layout::{DeviceSpec, leaf_config};
use crate::{Error, PoolDirectory, commit};

/// The table of all tables of vdevs.
const ALL_VDEV_ZAPS: &str = "com.delphix:vdev_zap_map";

/// A drive that is to be part of a pool.
#[derive(Clone, Debug)]
pub struct NewChild {
    /// What it is called, and its size.
    pub spec: DeviceSpec,
    /// The drive itself.
    pub device: Arc<dyn Device>,
}

/// What a new side is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachMode {
    /// To take the other's place.
    Replace,
    /// To stay beside it.
    Attach,
    /// To stand in for it: a hot spare of the pool, with the guid that the list of spares has.
    Spare(Guid),
}

/// How a new side gets its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reconstruction {
    /// By a resilver, block by block, with checksums.
    #[default]
    Healing,
    /// By a rebuild in the order of the space (`zpool replace -s`), and a scrub after it.
    Sequential,
}

impl AttachMode {
    /// The vdev that joins the old leaf and the new one.
    fn parent_kind(self) -> VdevKind {
        match self {
            Self::Replace => VdevKind::Replacing,
            Self::Attach => VdevKind::Mirror,
            Self::Spare(_) => VdevKind::Spare,
        }
    }
}

impl ActivePool {
    /// Attaches a device beside a leaf. Returns when the configuration has it. A resilver then writes what
    /// it lacks, and [`ActivePool::finish_replacements`] detaches the leaf that it replaces.
    pub fn attach_child(
        &self,
        old: Guid,
        new: NewChild,
        mode: AttachMode,
        how: Reconstruction,
    ) -> Result<(), Error> {
        let top = self.check_attach(old, mode, how)?;
        let node = self.tree.top(top.id).ok_or(DeviceChangeError::NotInPool)?;
        check_device_size(&node, &top, new.device.size())?;
        // the label of a spare holds no past, and names the spare until the pool's label replaces it
        if !matches!(mode, AttachMode::Spare(_)) {
            let blank = Leaf::new(old, String::new(), Some(Arc::clone(&new.device)), Txg::ZERO);
            commit::clear_leaf_labels(&blank).map_err(|_| Error::NoDeviceWritten)?;
        }
        let side = NewSide::Device(new);
        let kind = (mode, how);
        self.run_sync_task(move |active, change| active.attach_side_sync(change, old, &side, kind))?
    }

    /// Attaches a distributed spare of a dRAID beside one of its leaves. A resilver then writes to it.
    pub fn attach_distributed_spare(
        &self,
        old: Guid,
        spare: &AuxiliaryEntry,
        how: Reconstruction,
    ) -> Result<(), Error> {
        let mode = AttachMode::Spare(spare.guid);
        let top = self.check_attach(old, mode, how)?;
        if spare.top_guid() != Some(top.guid) {
            return Err(DeviceChangeError::SpareOfOtherDraid.into());
        }
        let side = NewSide::DistributedSpare(Box::new(spare.config()?));
        let kind = (mode, how);
        self.run_sync_task(move |active, change| active.attach_side_sync(change, old, &side, kind))?
    }

    /// Detaches a child of a mirror, a replacing or a spare vdev. A hot spare is available again.
    pub fn detach(&self, leaf: Guid) -> Result<(), Error> {
        self.detach_if(leaf, |_, _| true).map(drop)
    }

    /// Detaches a child if `is_due` says so in the txg of the detach; returns whether it did.
    pub(super) fn detach_if(
        &self,
        leaf: Guid,
        is_due: fn(&Self, Guid) -> bool,
    ) -> Result<bool, Error> {
        let gone = self.tree.leaf(leaf);
        let detached = self.run_sync_task(move |active, change| {
            let is_due = is_due(active, leaf);
            is_due.then(|| active.detach_child_sync(change, leaf)).transpose()
        })??;
        let Some(spare) = detached else { return Ok(false) };
        let released = gone.map_or(Ok(()), |gone| self.release_device(leaf, &gone, spare));
        self.end_spare_return(leaf);
        released.map(|()| true)
    }

    /// Gives the device of a detached leaf the label of a spare, or of a device that left its pool.
    fn release_device(&self, leaf: Guid, gone: &Leaf, is_spare: bool) -> Result<(), Error> {
        if !gone.is_writable() {
            return Ok(());
        }
        if let (true, Some(device)) = (is_spare, gone.device()) {
            return self.return_spare(leaf, device);
        }
        // its labels name the pool still
        let _ = commit::write_removed_labels(gone);
        Ok(())
    }

    /// Returns the top-level vdev of the old leaf.
    fn check_attach(
        &self,
        old: Guid,
        mode: AttachMode,
        how: Reconstruction,
    ) -> Result<VdevConfig, DeviceChangeError> {
        self.check_no_checkpoint()?;
        self.check_no_removal()?;
        if matches!(mode, AttachMode::Spare(spare) if self.tree.leaf(spare).is_some()) {
            return Err(DeviceChangeError::SpareInUse);
        }
        let config = self.config();
        let root = config.tree.as_ref().ok_or(DeviceChangeError::NotInPool)?;
        let top = root.children.iter().find(|top| top.leaves().any(|leaf| leaf.guid == old));
        let top = top.ok_or(DeviceChangeError::NotInPool)?;
        let parent = parent_of(root, old).ok_or(DeviceChangeError::NotInPool)?;
        let is_spare = parent.children.iter().any(|leaf| leaf.guid == old && leaf.is_spare);
        match (mode, &parent.kind) {
            // a drive takes the place of the one that a spare stands in for
            (AttachMode::Replace, VdevKind::Spare) if !is_spare => {}
            (_, VdevKind::Replacing | VdevKind::Spare) => {
                return Err(DeviceChangeError::AlreadyReplacing);
            }
            (AttachMode::Spare(_), _) if top.is_log => return Err(DeviceChangeError::SpareForLog),
            (AttachMode::Attach, VdevKind::Root | VdevKind::Mirror)
            | (AttachMode::Replace | AttachMode::Spare(_), _) => {}
            (AttachMode::Attach, _) => return Err(DeviceChangeError::CannotMirror),
        }
        match how {
            Reconstruction::Sequential => self.check_rebuild(top)?,
            Reconstruction::Healing if self.rebuilding_vdevs().is_empty() => {}
            Reconstruction::Healing => return Err(DeviceChangeError::Rebuilding),
        }
        Ok(top.clone())
    }

    fn attach_side_sync(
        &self,
        change: &SyncTaskContext<'_>,
        old: Guid,
        new: &NewSide,
        (mode, how): (AttachMode, Reconstruction),
    ) -> Result<(), Error> {
        // the vdevs may have changed since the task was queued
        let place = self.check_attach(old, mode, how)?;
        let (vdev, ashift) = (place.id, place.ashift);
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let mut side = new.config();
        side.guid = match mode {
            AttachMode::Spare(guid) => guid,
            AttachMode::Replace | AttachMode::Attach => self.unused_guid(root, Guid::new(0)),
        };
        side.is_spare = matches!(mode, AttachMode::Spare(_));
        side.create_txg = Some(change.tx.txg());
        side.rebuild_txg = (how == Reconstruction::Sequential).then_some(change.tx.txg());
        if config.has_vdev_zaps {
            side.leaf_zap = Some(create_vdev_zap(change)?);
        }
        let node = self.new_node(&side, new, ashift)?;
        let parent = self.unused_guid(root, side.guid);
        let beside = ChildInsertion { old, parent, mode };
        beside.insert_into_config(root, &side);
        let mut top =
            self.tree.top(vdev).map(|top| (*top).clone()).ok_or(DeviceChangeError::NotInPool)?;
        beside.insert_into_tree(&mut top, node);
        self.tree.set_top(vdev, top);
        self.set_vdev_tree(root.clone());
        self.take_spare_device(side.guid);
        if how == Reconstruction::Sequential {
            self.start_rebuild_sync(change, &self.top_config(vdev)?)?;
        }
        Ok(())
    }

    /// An identity that no vdev has, nor `other`.
    pub(super) fn unused_guid(&self, root: &VdevConfig, other: Guid) -> Guid {
        fn has_guid(vdev: &VdevConfig, guid: Guid) -> bool {
            vdev.guid == guid || vdev.children.iter().any(|child| has_guid(child, guid))
        }
        loop {
            let guid = Guid::new(self.environment.random_u64().max(1));
            if guid != other && !has_guid(root, guid) {
                return guid;
            }
        }
    }

    /// A leaf that misses all up to now: whoever writes with the tree as it was writes to groups
    /// that are open at most.
    fn new_node(
        &self,
        config: &VdevConfig,
        new: &NewSide,
        ashift: Option<u64>,
    ) -> Result<VdevNode, DeviceChangeError> {
        // Rule L2: the leaf lacks all txgs up to the open one, whose writers may not know it yet. With a shorter DTL a
        // crash before the resilver ends would leave a leaf that counts as whole and lacks blocks.
        let missed = TxgRanges::new([(INITIAL_TXG, self.txgs.open_txg())]);
        let kind = match new {
            NewSide::Device(new) => {
                let (path, device) = (new.spec.path.clone(), Some(Arc::clone(&new.device)));
                let ashift = ashift.and_then(Ashift::new).unwrap_or(Ashift::MIN);
                let leaf = Leaf::new(config.guid, path, device, Txg::new(u64::MAX));
                let leaf = leaf.with_ashift(ashift);
                leaf.set_dtl(missed);
                NodeKind::Leaf(Arc::new(leaf))
            }
            NewSide::DistributedSpare(_) => {
                let number = config.spare_id.and_then(|id| u32::try_from(id).ok());
                let number = number.ok_or(DeviceChangeError::NotInPool)?;
                let path = config.path.clone().unwrap_or_default();
                let spare = DistributedSpare::new(config.guid, number, path);
                spare.leaf().set_dtl(missed);
                NodeKind::DistributedSpare(spare)
            }
        };
        Ok(VdevNode { guid: config.guid, kind })
    }

    /// The vdevs are others from this group on.
    pub(super) fn set_vdev_tree(&self, root: VdevConfig) {
        let mut config = self.config.lock();
        config.current.tree = Some(root);
        config.is_dirty = true;
    }

    /// Returns whether the leaf was a hot spare, which stays one.
    pub(super) fn detach_child_sync(
        &self,
        change: &SyncTaskContext<'_>,
        gone: Guid,
    ) -> Result<bool, Error> {
        self.check_no_checkpoint().map_err(DeviceChangeError::from)?;
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let parent = parent_of(root, gone).ok_or(DeviceChangeError::NotInPool)?.clone();
        if !matches!(parent.kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare) {
            return Err(DeviceChangeError::OnlyReplica.into());
        }
        if !self.is_expendable(gone) {
            return Err(DeviceChangeError::NoValidReplicas.into());
        }
        let promoted = promoted_spare(&parent, gone);
        let is_top = root.children.iter().any(|top| top.guid == parent.guid);
        let vdev = root.children.iter().find(|top| top.leaves().any(|leaf| leaf.guid == gone));
        let vdev = vdev.map(|top| top.id).ok_or(DeviceChangeError::NotInPool)?;
        if let Some(spare) = promoted {
            self.forget_spare(change, spare)?;
        }
        let removed = remove_child_config(root, &parent, gone, (promoted, is_top));
        if parent.kind == VdevKind::Replacing {
            // the spare that stood in for the old leaf is needed until the new one has all
            for side in &parent.children {
                request_unspare(root, side.guid);
            }
        }
        if let Some(removed) = &removed {
            free_leaf_objects(change, removed)?;
        }
        let mut top =
            self.tree.top(vdev).map(|top| (*top).clone()).ok_or(DeviceChangeError::NotInPool)?;
        let renamed = remove_child(&mut top, gone, is_top.then_some(parent.guid));
        self.tree.set_top(vdev, top);
        let mut noted = self.synced_dtls.lock();
        noted.remove(&gone);
        if let Some(known) = renamed.and_then(|before| noted.remove(&before)) {
            noted.insert(parent.guid, known);
        }
        drop(noted);
        self.set_vdev_tree(root.clone());
        if self.tree.rebuild_targets(vdev, INITIAL_TXG).is_err() {
            self.end_rebuild_sync(change, vdev, RebuildPhase::Canceled)?;
        }
        let is_spare = removed.as_ref().is_some_and(|removed| removed.is_spare);
        if removed.is_some_and(|removed| removed.is_spare && removed.kind != VdevKind::DraidSpare) {
            self.begin_spare_return(gone);
        }
        Ok(is_spare)
    }
}

/// Removes a child from its parent in the configuration, and the parent where only one child is left;
/// returns the child.
fn remove_child_config(
    root: &mut VdevConfig,
    parent: &VdevConfig,
    gone: Guid,
    (promoted, is_top): (Option<Guid>, bool),
) -> Option<VdevConfig> {
    let mut removed = None;
    edit_vdev(root, parent.guid, &mut |vdev| {
        let at = vdev.children.iter().position(|side| side.guid == gone);
        removed = at.map(|at| vdev.children.remove(at));
        for side in &mut vdev.children {
            if promoted == Some(side.guid) {
                side.is_spare = false;
            }
            side.state.unspare = false;
        }
        if vdev.children.len() == 1 {
            let last = vdev.children.remove(0);
            *vdev = if is_top {
                promote_to_top(vdev, last)
            } else {
                VdevConfig { id: vdev.id, ..last }
            };
        }
        renumber_children(vdev);
    });
    removed
}

/// Whether a device of so many bytes is large enough for a place in a top-level vdev.
pub(super) fn check_device_size(
    node: &VdevNode,
    top: &VdevConfig,
    has: u64,
) -> Result<(), DeviceChangeError> {
    let (layout, wanted) = (node.layout(), vdev::min_asize(top));
    let fits = |size| {
        let space = capacity::leaf_space(size).unwrap_or(0);
        space > 0 && capacity::vdev_space(&layout, space) >= wanted
    };
    if fits(has) {
        Ok(())
    } else {
        Err(DeviceChangeError::TooSmall { has, needs: min_device_size(wanted, &fits) })
    }
}

/// The least bytes of a device that fit.
fn min_device_size(wanted: u64, fits: &dyn Fn(u64) -> bool) -> u64 {
    let (mut fails, mut enough) = (0, wanted + (16 << 20));
    while enough - fails > 1 << 18 {
        let middle = fails + (enough - fails) / 2;
        if fits(middle) { enough = middle } else { fails = middle }
    }
    enough.next_multiple_of(1 << 18)
}

pub(super) fn parent_of(vdev: &VdevConfig, leaf: Guid) -> Option<&VdevConfig> {
    let is = |child: &VdevConfig| child.guid == leaf && child.children.is_empty();
    if vdev.children.iter().any(is) {
        return Some(vdev);
    }
    vdev.children.iter().find_map(|child| parent_of(child, leaf))
}

/// Changes the vdev of that identity.
pub(super) fn edit_vdev(
    vdev: &mut VdevConfig,
    guid: Guid,
    change: &mut dyn FnMut(&mut VdevConfig),
) {
    if vdev.guid == guid {
        return change(vdev);
    }
    vdev.children.iter_mut().for_each(|child| edit_vdev(child, guid, change));
}

/// Numbers what is below a vdev by its order.
fn renumber_children(vdev: &mut VdevConfig) {
    for (index, child) in vdev.children.iter_mut().enumerate() {
        child.id = VdevId::new(units::narrow::<u32>(index));
    }
}

/// `below` takes the place of a top-level vdev, with what only those have, and its identity.
fn promote_to_top(top: &VdevConfig, below: VdevConfig) -> VdevConfig {
    VdevConfig { guid: top.guid, create_txg: top.create_txg, ..with_top_fields(below, top) }
}

/// A vdev with what only top-level vdevs have.
fn with_top_fields(vdev: VdevConfig, top: &VdevConfig) -> VdevConfig {
    VdevConfig {
        id: top.id,
        asize: top.asize,
        ashift: top.ashift,
        metaslab_array: top.metaslab_array,
        metaslab_shift: top.metaslab_shift,
        is_log: top.is_log,
        non_allocating: top.non_allocating,
        removing: top.removing,
        indirect: top.indirect,
        bias: top.bias.clone(),
        expansion_time: top.expansion_time,
        top_zap: top.top_zap,
        ..vdev
    }
}

/// A device, or a distributed spare, that is attached beside a leaf.
enum NewSide {
    Device(NewChild),
    /// The configuration that the list of spares has.
    DistributedSpare(Box<VdevConfig>),
}

impl NewSide {
    fn config(&self) -> VdevConfig {
        match self {
            Self::Device(new) => leaf_config(&new.spec),
            // as OpenZFS, only top-level vdevs have an ashift in a label
            Self::DistributedSpare(config) => VdevConfig { ashift: None, ..(**config).clone() },
        }
    }
}

/// A new side beside an old one.
struct ChildInsertion {
    old: Guid,
    /// What both are below, if there is nothing yet.
    parent: Guid,
    mode: AttachMode,
}

impl ChildInsertion {
    fn insert_into_config(&self, root: &mut VdevConfig, side: &VdevConfig) {
        let parent = parent_of(root, self.old).map(|parent| (parent.guid, parent.kind.clone()));
        if let (AttachMode::Attach, Some((mirror, VdevKind::Mirror))) = (self.mode, parent) {
            edit_vdev(root, mirror, &mut |mirror| {
                mirror.children.push(side.clone());
                renumber_children(mirror);
            });
            return;
        }
        let is_top = root.children.iter().any(|top| top.guid == self.old);
        edit_vdev(root, self.old, &mut |vdev| {
            let mut pair = VdevConfig::new(self.mode.parent_kind());
            (pair.id, pair.guid, pair.create_txg) = (vdev.id, self.parent, vdev.create_txg);
            let mut old = vdev.clone();
            if is_top {
                pair = with_top_fields(pair, vdev);
                old = with_top_fields(old, &VdevConfig::new(VdevKind::Missing));
            }
            pair.children = vec![old, side.clone()];
            renumber_children(&mut pair);
            *vdev = pair;
        });
    }

    fn insert_into_tree(&self, node: &mut VdevNode, side: VdevNode) {
        let mut side = Some(side);
        self.insert_into_node(node, &mut side);
    }

    fn insert_into_node(&self, node: &mut VdevNode, side: &mut Option<VdevNode>) {
        let is_old = |node: &VdevNode| {
            matches!(node.kind, NodeKind::Leaf(_) | NodeKind::DistributedSpare(_))
                && node.guid == self.old
        };
        if let (AttachMode::Attach, NodeKind::Mirror(sides)) = (self.mode, &mut node.kind)
            && sides.iter().any(is_old)
        {
            sides.extend(side.take());
        }
        if is_old(node) {
            let Some(side) = side.take() else { return };
            let pair = vec![node.clone(), side];
            let kind = match self.mode {
                AttachMode::Replace => NodeKind::Replacing(pair),
                AttachMode::Attach => NodeKind::Mirror(pair),
                AttachMode::Spare(_) => NodeKind::Spare(pair),
            };
            *node = VdevNode { guid: self.parent, kind };
            return;
        }
        node.children_mut().iter_mut().for_each(|child| self.insert_into_node(child, side));
    }
}

/// Takes a side out of a node; where only one is left below `top`, or below anything else, that
/// takes its place: as a top-level vdev with its identity. Gives what that one was before.
fn remove_child(node: &mut VdevNode, gone: Guid, top: Option<Guid>) -> Option<Guid> {
    if let NodeKind::Mirror(sides) | NodeKind::Replacing(sides) | NodeKind::Spare(sides) =
        &mut node.kind
        && sides.iter().any(|side| side.guid == gone)
    {
        sides.retain(|side| side.guid != gone);
        let [last] = &mut sides[..] else { return None };
        let mut last = last.clone();
        let before = last.guid;
        if let Some(guid) = top {
            last.guid = guid;
            if let NodeKind::Leaf(leaf) = &last.kind {
                leaf.set_guid(guid);
            }
        }
        *node = last;
        return top.map(|_| before);
    }
    node.children_mut().iter_mut().find_map(|child| remove_child(child, gone, top))
}

/// Makes a table for a vdev.
pub(super) fn create_vdev_zap(change: &SyncTaskContext<'_>) -> Result<ObjectId, Error> {
    let new = NewZap { salt: (change.random)(), ..NewZap::default() };
    let table = Zap::create(change.mos, change.tx, ZAP_METADATA, &new)?.object().id();
    if let Some(all) = PoolDirectory::open(change.mos.clone())?.object(ALL_VDEV_ZAPS)? {
        let name = format!("{:x}", table.get());
        Zap::open(all)?.insert_u64(change.tx, name.as_bytes(), table.get())?;
    }
    Ok(table)
}

/// Frees what the pool keeps of a leaf that left it.
pub(super) fn free_leaf_objects(
    change: &SyncTaskContext<'_>,
    gone: &VdevConfig,
) -> Result<(), Error> {
    if let Some(map) = gone.dtl {
        free_space_map(change.mos, change.tx, map)?;
    }
    free_vdev_zap(change, gone.leaf_zap)
}

/// Frees the table of a vdev.
pub(super) fn free_vdev_zap(
    change: &SyncTaskContext<'_>,
    table: Option<ObjectId>,
) -> Result<(), Error> {
    if let Some(table) = table {
        if let Some(all) = PoolDirectory::open(change.mos.clone())?.object(ALL_VDEV_ZAPS)? {
            let name = format!("{:x}", table.get());
            Zap::open(all)?.remove(change.tx, name.as_bytes())?;
        }
        change.mos.free(change.tx, table)?;
    }
    Ok(())
}
