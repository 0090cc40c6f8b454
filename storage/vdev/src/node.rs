//! The tree's nodes, and reading one side of whatever a node is.

use std::sync::Arc;

use geometry::{Draid, Expandable};
use units::{Ashift, Guid, Txg};

use crate::indirect::Indirect;
use crate::leaf::{LABEL_START_SIZE, Leaf};
use crate::write::DraidChildren;
use crate::{DeviceError, DistributedSpare, LeafError};

/// What a node is.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A disk or a file.
    Leaf(Arc<Leaf>),
    /// All children hold the same.
    Mirror(Vec<VdevNode>),
    /// A child is being replaced by another: a mirror for the time.
    Replacing(Vec<VdevNode>),
    /// A spare stands in for a child: a mirror for the time.
    Spare(Vec<VdevNode>),
    /// Parity over rows.
    Raidz(Box<Expandable>, Vec<VdevNode>),
    /// Parity over rows with spare space spread over all children.
    Draid(Box<Draid>, Vec<VdevNode>),
    /// A spare of a dRAID: space on its other children.
    DistributedSpare(DistributedSpare),
    /// A vdev that was removed; what it held is elsewhere.
    Indirect(Indirect),
    /// A log vdev that was removed: nothing is there.
    Hole,
    /// Nothing is known of it.
    Missing,
}

/// A vdev.
#[derive(Clone, Debug)]
pub struct VdevNode {
    /// Its identity.
    pub guid: Guid,
    /// What it is.
    pub kind: NodeKind,
}

/// Where in a node bytes are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeAddress {
    /// Bytes from the end of the front labels; where `boot`, from the device's first byte.
    pub(crate) offset: u64,
    /// Whether the offset counts from the device's first byte.
    pub(crate) is_absolute: bool,
    /// When the bytes were written.
    pub(crate) birth: Txg,
    /// Whether a device that was away at that time may be asked all the same.
    pub(crate) allow_stale: bool,
    /// How many distributed spares may still stand in for one another.
    pub(crate) spare_depth: u8,
}

impl NodeAddress {
    /// At `offset` of the allocatable space.
    pub(crate) const fn new(offset: u64, birth: Txg) -> Self {
        Self { offset, is_absolute: false, birth, allow_stale: false, spare_depth: 8 }
    }
}

/// Whether all leaves that could have a block of `birth` were asked for it at last, going by the
/// faults that were met. Where one that is missing might have it, nobody can say that it is nowhere.
pub(crate) fn all_holders_asked(nodes: &[VdevNode], birth: Txg, faults: &[LeafError]) -> bool {
    let leaves: Vec<_> = nodes.iter().flat_map(VdevNode::leaves).collect();
    let cannot =
        |guid| leaves.iter().any(|leaf| leaf.guid() == guid && leaf.is_known_to_lack(birth));
    faults.iter().all(|fault| match fault.error {
        DeviceError::Stale | DeviceError::Corrupt => true,
        DeviceError::Missing => cannot(fault.leaf),
        DeviceError::ReadFailed | DeviceError::WriteFailed => false,
    })
}

impl VdevNode {
    /// The leaves below and at this node.
    pub fn leaves(&self) -> Vec<&Arc<Leaf>> {
        match &self.kind {
            NodeKind::Leaf(leaf) => vec![leaf],
            _ => self.children().iter().flat_map(Self::leaves).collect(),
        }
    }

    /// The distributed spares that are in use below and at this node.
    pub fn distributed_spares(&self) -> Vec<&Arc<Leaf>> {
        match &self.kind {
            NodeKind::DistributedSpare(spare) => vec![spare.leaf()],
            _ => self.children().iter().flat_map(Self::distributed_spares).collect(),
        }
    }

    /// The leaves that are there on which lies what this child of an array holds at a spot: for a
    /// distributed spare that is the drive which lends its space there.
    pub(crate) fn holding_leaves<'a>(
        &'a self,
        family: DraidChildren<'a>,
        spot: NodeAddress,
    ) -> Vec<&'a Arc<Leaf>> {
        match &self.kind {
            NodeKind::Leaf(leaf) => {
                Some(leaf).filter(|leaf| leaf.device().is_some()).into_iter().collect()
            }
            NodeKind::DistributedSpare(spare) => spare
                .target(family, spot, 0)
                .map_or_else(Vec::new, |(target, spot)| target.holding_leaves(family, spot)),
            _ => {
                self.children().iter().flat_map(|side| side.holding_leaves(family, spot)).collect()
            }
        }
    }

    /// The nodes right below.
    pub fn children(&self) -> &[Self] {
        match &self.kind {
            NodeKind::Mirror(children)
            | NodeKind::Replacing(children)
            | NodeKind::Spare(children)
            | NodeKind::Raidz(_, children)
            | NodeKind::Draid(_, children) => children,
            _ => &[],
        }
    }

    /// The nodes right below, to be changed.
    pub fn children_mut(&mut self) -> &mut [Self] {
        match &mut self.kind {
            NodeKind::Mirror(children)
            | NodeKind::Replacing(children)
            | NodeKind::Spare(children)
            | NodeKind::Raidz(_, children)
            | NodeKind::Draid(_, children) => children,
            _ => &mut [],
        }
    }

    /// Fills `into` with what one child of an array holds: the first of its sides that can be
    /// read. `family` are the array's children, among which a distributed spare lies.
    /// Faults of sides that failed are added to `faults`.
    pub(crate) fn read_child(
        &self,
        family: Option<(&Draid, &[Self])>,
        spot: NodeAddress,
        into: &mut [u8],
        faults: &mut Vec<LeafError>,
    ) -> Result<(), DeviceError> {
        match &self.kind {
            NodeKind::Leaf(leaf) => {
                let position =
                    if spot.is_absolute { spot.offset } else { spot.offset + LABEL_START_SIZE };
                let known = leaf.check_has_txg(spot.birth);
                let usable =
                    known.is_ok() || (spot.allow_stale && known == Err(DeviceError::Stale));
                let result = if usable { leaf.read(position, into) } else { known };
                result.inspect_err(|trouble| {
                    faults.push(LeafError { leaf: leaf.guid(), error: *trouble });
                })
            }
            NodeKind::Mirror(sides) | NodeKind::Replacing(sides) | NodeKind::Spare(sides) => {
                let mut worst = DeviceError::Missing;
                for side in sides {
                    match side.read_child(family, spot, into, faults) {
                        Ok(()) => return Ok(()),
                        Err(trouble) => worst = worst.max(trouble),
                    }
                }
                Err(worst)
            }
            NodeKind::DistributedSpare(spare) => {
                if !spot.allow_stale && !spare.has_txg(spot.birth) {
                    let (leaf, error) = (spare.leaf().guid(), DeviceError::Stale);
                    faults.push(LeafError { leaf, error });
                    return Err(error);
                }
                let (target, spot) =
                    spare.target(family, spot, into.len()).ok_or(DeviceError::Missing)?;
                target.read_child(family, spot, into, faults)
            }
            _ => Err(DeviceError::Missing),
        }
    }

    /// Writes parts one behind the other to one child of an array, on all of its sides; whether
    /// at least one side has them now. Sides that failed are added to `faults`.
    pub(crate) fn write_child(
        &self,
        family: Option<(&Draid, &[Self])>,
        spot: NodeAddress,
        parts: &[&[u8]],
        faults: &mut Vec<LeafError>,
    ) -> bool {
        match &self.kind {
            NodeKind::Leaf(leaf) => {
                let result = leaf.write_at(spot, parts);
                if let Err(trouble) = result {
                    let fault = LeafError { leaf: leaf.guid(), error: trouble };
                    if !faults.contains(&fault) {
                        faults.push(fault);
                    }
                }
                result.is_ok()
            }
            NodeKind::Mirror(sides) | NodeKind::Replacing(sides) | NodeKind::Spare(sides) => {
                let write = |side: &Self| side.write_child(family, spot, parts, faults);
                sides.iter().map(write).fold(false, |any, good| any | good)
            }
            NodeKind::DistributedSpare(spare) => {
                let length = parts.iter().map(|part| part.len()).sum();
                let Some((target, spot)) = spare.target(family, spot, length) else { return false };
                target.write_child(family, spot, parts, faults)
            }
            _ => false,
        }
    }

    /// Whether somebody is writing to its device just now, if it is one.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(&self.kind, NodeKind::Leaf(leaf) if leaf.is_busy())
    }

    /// log2 of the sector.
    pub fn ashift(&self) -> Ashift {
        match &self.kind {
            NodeKind::Raidz(raidz, _) => raidz.current().ashift(),
            NodeKind::Draid(draid, _) => draid.ashift(),
            _ => self.leaves().first().map_or(Ashift::MIN, |leaf| leaf.ashift()),
        }
    }

    /// Whether more devices are missing than it can do without: what is on it cannot be read.
    pub fn is_unavailable(&self) -> bool {
        let gone = || self.children().iter().filter(|child| child.is_unavailable()).count();
        match &self.kind {
            NodeKind::Leaf(leaf) => leaf.device().is_none(),
            NodeKind::Mirror(sides) | NodeKind::Replacing(sides) | NodeKind::Spare(sides) => {
                gone() == sides.len()
            }
            NodeKind::Raidz(raidz, _) => gone() > units::to_usize(raidz.current().parity()),
            NodeKind::Draid(draid, _) => gone() > units::to_usize(draid.shape().parity),
            NodeKind::DistributedSpare(_) | NodeKind::Indirect(_) | NodeKind::Hole => false,
            NodeKind::Missing => true,
        }
    }

    /// How many sides this node has that could each hold the whole of what it holds.
    pub(crate) fn replica_count(&self) -> usize {
        match &self.kind {
            NodeKind::Mirror(sides) | NodeKind::Replacing(sides) | NodeKind::Spare(sides) => {
                sides.iter().map(Self::replica_count).sum()
            }
            _ => 1,
        }
    }

    /// The `index`-th of those sides.
    pub(crate) fn replica(&self, mut index: usize) -> Option<&Self> {
        let (NodeKind::Mirror(sides) | NodeKind::Replacing(sides) | NodeKind::Spare(sides)) =
            &self.kind
        else {
            return (index == 0).then_some(self);
        };
        for side in sides {
            let count = side.replica_count();
            if index < count {
                return side.replica(index);
            }
            index -= count;
        }
        None
    }
}
