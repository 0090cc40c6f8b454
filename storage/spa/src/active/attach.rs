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
use units::{Ashift, Guid, ObjectId, Txg, VdevId};
use vdev::{Leaf, NodeKind, TxgRanges, VdevNode};
use zap::{NewZap, Zap};

use super::spares::{promoted_spare, request_unspare};
use super::{ActivePool, CheckpointError, RemovalError};
use crate::create::{INITIAL_TXG, ZAP_METADATA};
use crate::space::free_space_map;
use crate::vdev_layout::{DeviceSpec, leaf_config};
use crate::{Error, PoolDirectory, commit};

/// The table of all tables of vdevs.
const ALL_VDEV_ZAPS: &str = "com.delphix:vdev_zap_map";

/// Why a drive may not come or go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceChangeError {
    /// No drive of the pool is meant.
    #[error("no such device in pool")]
    NotInPool,
    /// The new drive is too small.
    #[error("the new drive has {has} bytes, and {needs} are needed")]
    TooSmall {
        /// Bytes of it.
        has: u64,
        /// Bytes that it must have.
        needs: u64,
    },
    /// It, or what stands in for it, is being replaced.
    #[error("it is being replaced already")]
    AlreadyReplacing,
    /// Only drives and mirrors can get one more side.
    #[error("can only attach to mirrors and top-level disks")]
    CannotMirror,
    /// Nothing else holds what it holds.
    #[error("only applicable to mirror and replacing vdevs")]
    OnlyReplica,
    /// It came back, and others had it meanwhile.
    #[error(
        "it was written elsewhere while it was away from the pool; if what is on it is not needed, \
         have it take its own place: `zpool replace -f`"
    )]
    WrittenElsewhere,
    /// The others lack something.
    #[error("no valid replicas\nThe drives beside it do not have all that it has.")]
    NoValidReplicas,
    /// It is the last drive of a log vdev whose blocks are still needed.
    #[error("the intent logs of datasets whose keys are not loaded are on it: load the keys first")]
    LogInUse,
    /// Only log vdevs, and devices that are part of no vdev, can be removed.
    #[error("only inactive hot spares, cache and log devices can be removed")]
    NotRemovable,
    /// A device of the vdev is missing.
    #[error("it cannot be expanded while a device of its vdev is missing")]
    CannotExpand,
    /// Spares cannot stand in for log devices.
    #[error(
        "a spare cannot take the place of a log device: use `zpool replace` with another drive"
    )]
    SpareForLog,
    /// The drives must fit the configuration of the pool's checkpoint.
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    /// A vdev is being removed.
    #[error("{0}")]
    Removal(#[from] RemovalError),
    /// The work goes on already.
    #[error("currently {}", if *.0 == "trim" { "trimming" } else { "initializing" })]
    ActivityRuns(&'static str),
    /// The work does not go on.
    #[error("there is no active {}", if *.0 == "trim" { "trim" } else { "initialization" })]
    NoActivity(&'static str),
    /// The free space of the drive is not known in terms of its own bytes.
    #[error(
        "drives of a dRAID, of a raidz that is expanded, and of pools without tables of vdevs are not supported"
    )]
    ActivityUnsupported,
    /// A device of the pool is missing or fails.
    #[error("one or more devices is currently unavailable")]
    DeviceMissing,
    /// A command faulted it, or it had too many errors.
    #[error("it is faulted: `zpool clear` brings it back")]
    Faulted,
}

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
    pub fn attach_child(&self, old: Guid, new: NewChild, mode: AttachMode) -> Result<(), Error> {
        self.check_attach(old, &new, mode)?;
        // the label of a spare holds no past, and names the spare until the pool's label replaces it
        if !matches!(mode, AttachMode::Spare(_)) {
            let blank = Leaf::new(old, String::new(), Some(Arc::clone(&new.device)), Txg::ZERO);
            commit::clear_leaf_labels(&blank).map_err(|_| Error::NoDeviceWritten)?;
        }
        self.run_sync_task(move |active, change| active.attach_child_sync(change, old, &new, mode))?
    }

    /// Detaches a child of a mirror, a replacing or a spare vdev. A hot spare is available again.
    pub fn detach(&self, leaf: Guid) -> Result<(), Error> {
        let gone = self.tree.leaf(leaf);
        let spare =
            self.run_sync_task(move |active, change| active.detach_child_sync(change, leaf))??;
        let Some(gone) = gone.filter(|gone| gone.is_writable()) else { return Ok(()) };
        if let (true, Some(device)) = (spare, gone.device()) {
            return self.return_spare(leaf, device);
        }
        // its labels name the pool still
        let _ = commit::write_removed_labels(&gone);
        Ok(())
    }

    fn check_attach(
        &self,
        old: Guid,
        new: &NewChild,
        mode: AttachMode,
    ) -> Result<(), DeviceChangeError> {
        self.check_no_checkpoint()?;
        self.check_no_removal()?;
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
        let node = self.tree.top(top.id).ok_or(DeviceChangeError::NotInPool)?;
        check_device_size(&node, top, new.device.size())
    }

    fn attach_child_sync(
        &self,
        change: &SyncTaskContext<'_>,
        old: Guid,
        new: &NewChild,
        mode: AttachMode,
    ) -> Result<(), Error> {
        self.check_no_checkpoint().map_err(DeviceChangeError::from)?;
        self.check_no_removal().map_err(DeviceChangeError::from)?;
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let place = root.children.iter().find(|top| top.leaves().any(|leaf| leaf.guid == old));
        let (vdev, ashift) =
            place.map(|top| (top.id, top.ashift)).ok_or(DeviceChangeError::NotInPool)?;
        let mut side = leaf_config(&new.spec);
        side.guid = match mode {
            AttachMode::Spare(guid) => guid,
            AttachMode::Replace | AttachMode::Attach => self.unused_guid(root, Guid::new(0)),
        };
        side.is_spare = matches!(mode, AttachMode::Spare(_));
        side.create_txg = Some(change.tx.txg());
        if config.has_vdev_zaps {
            side.leaf_zap = Some(create_vdev_zap(change)?);
        }
        let node = self.new_leaf(&side, new, ashift);
        let parent = self.unused_guid(root, side.guid);
        let beside = ChildInsertion { old, parent, mode };
        beside.insert_into_config(root, &side);
        let mut top =
            self.tree.top(vdev).map(|top| (*top).clone()).ok_or(DeviceChangeError::NotInPool)?;
        beside.insert_into_tree(&mut top, node);
        self.tree.set_top(vdev, top);
        self.set_vdev_tree(root.clone());
        self.take_spare_device(side.guid);
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
    fn new_leaf(&self, config: &VdevConfig, new: &NewChild, ashift: Option<u64>) -> VdevNode {
        let (path, device) = (new.spec.path.clone(), Some(Arc::clone(&new.device)));
        let ashift = ashift.and_then(Ashift::new).unwrap_or(Ashift::MIN);
        let leaf = Leaf::new(config.guid, path, device, Txg::new(u64::MAX)).with_ashift(ashift);
        leaf.set_dtl(TxgRanges::new([(INITIAL_TXG, self.txgs.open_txg())]));
        VdevNode { guid: config.guid, kind: NodeKind::Leaf(Arc::new(leaf)) }
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
        Ok(removed.is_some_and(|removed| removed.is_spare))
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
        let is_old =
            |node: &VdevNode| matches!(node.kind, NodeKind::Leaf(_)) && node.guid == self.old;
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
