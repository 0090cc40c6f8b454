//! The tree's nodes, and reading one side of whatever a node is.

use std::sync::Arc;

use geometry::{Draid, Expandable};
use units::{Ashift, Guid, Txg};

use crate::indirect::Indirect;
use crate::leaf::{FRONT, Leaf};
use crate::mend::lender;
use crate::write::Family;
use crate::{LeafFault, Trouble};

/// What a node is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A disk or a file.
    Leaf(Arc<Leaf>),
    /// All children hold the same.
    Mirror(Vec<Node>),
    /// A child is being replaced by another: a mirror for the time.
    Replacing(Vec<Node>),
    /// A spare stands in for a child: a mirror for the time.
    Spare(Vec<Node>),
    /// Parity over rows.
    Raidz(Box<Expandable>, Vec<Node>),
    /// Parity over rows with spare space spread over all children.
    Draid(Box<Draid>, Vec<Node>),
    /// A spare of a dRAID: space on its other children.
    DistributedSpare(u32),
    /// A vdev that was removed; what it held is elsewhere.
    Indirect(Indirect),
    /// A log vdev that was removed: nothing is there.
    Hole,
    /// Nothing is known of it.
    Missing,
}

/// A vdev.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its identity.
    pub guid: Guid,
    /// What it is.
    pub kind: Kind,
}

/// Where in a node bytes are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// Bytes from the end of the front labels; where `boot`, from the device's first byte.
    pub(crate) offset: u64,
    /// Whether the offset counts from the device's first byte.
    pub(crate) boot: bool,
    /// When the bytes were written.
    pub(crate) birth: Txg,
    /// Whether a device that was away at that time may be asked all the same.
    pub(crate) stale_too: bool,
    /// How many distributed spares may still stand in for one another.
    pub(crate) depth: u8,
}

impl Spot {
    /// At `offset` of the allocatable space.
    pub(crate) const fn new(offset: u64, birth: Txg) -> Self {
        Self { offset, boot: false, birth, stale_too: false, depth: 8 }
    }
}

/// Whether all leaves that could have a block of `birth` were asked for it at last, going by the
/// faults that were met. Where one that is missing might have it, nobody can say that it is nowhere.
pub(crate) fn all_were_asked(nodes: &[Node], birth: Txg, faults: &[LeafFault]) -> bool {
    let leaves: Vec<_> = nodes.iter().flat_map(Node::leaves).collect();
    let cannot = |guid| leaves.iter().any(|leaf| leaf.guid() == guid && leaf.cannot_have(birth));
    faults.iter().all(|fault| match fault.trouble {
        Trouble::Stale | Trouble::Wrong => true,
        Trouble::Missing => cannot(fault.leaf),
        Trouble::Unreadable | Trouble::Unwritten => false,
    })
}

impl Node {
    /// The leaves below and at this node.
    pub fn leaves(&self) -> Vec<&Arc<Leaf>> {
        match &self.kind {
            Kind::Leaf(leaf) => vec![leaf],
            _ => self.children().iter().flat_map(Self::leaves).collect(),
        }
    }

    /// The leaves that are there on which lies what this child of an array holds at a spot: for a
    /// distributed spare that is the drive which lends its space there.
    pub(crate) fn holders<'a>(&'a self, family: Family<'a>, spot: Spot) -> Vec<&'a Arc<Leaf>> {
        match &self.kind {
            Kind::Leaf(leaf) => {
                Some(leaf).filter(|leaf| leaf.device().is_some()).into_iter().collect()
            }
            Kind::DistributedSpare(spare) => lender(*spare, family, spot)
                .map_or_else(Vec::new, |(target, spot)| target.holders(family, spot)),
            _ => self.children().iter().flat_map(|side| side.holders(family, spot)).collect(),
        }
    }

    /// The nodes right below.
    pub fn children(&self) -> &[Self] {
        match &self.kind {
            Kind::Mirror(children)
            | Kind::Replacing(children)
            | Kind::Spare(children)
            | Kind::Raidz(_, children)
            | Kind::Draid(_, children) => children,
            _ => &[],
        }
    }

    /// The nodes right below, to be changed.
    pub fn children_mut(&mut self) -> &mut [Self] {
        match &mut self.kind {
            Kind::Mirror(children)
            | Kind::Replacing(children)
            | Kind::Spare(children)
            | Kind::Raidz(_, children)
            | Kind::Draid(_, children) => children,
            _ => &mut [],
        }
    }

    /// Fills `into` with what one child of an array holds: the first of its sides that can be
    /// read. `family` are the array's children, among which a distributed spare lies.
    /// Faults of sides that failed are added to `faults`.
    pub(crate) fn read_side(
        &self,
        family: Option<(&Draid, &[Self])>,
        spot: Spot,
        into: &mut [u8],
        faults: &mut Vec<LeafFault>,
    ) -> Result<(), Trouble> {
        match &self.kind {
            Kind::Leaf(leaf) => {
                let position =
                    if spot.boot { spot.offset } else { spot.offset.saturating_add(FRONT) };
                let known = leaf.state(spot.birth);
                let usable = known.is_ok() || (spot.stale_too && known == Err(Trouble::Stale));
                let result = if usable { leaf.read(position, into) } else { known };
                result.inspect_err(|trouble| {
                    faults.push(LeafFault { leaf: leaf.guid(), trouble: *trouble });
                })
            }
            Kind::Mirror(sides) | Kind::Replacing(sides) | Kind::Spare(sides) => {
                let mut worst = Trouble::Missing;
                for side in sides {
                    match side.read_side(family, spot, into, faults) {
                        Ok(()) => return Ok(()),
                        Err(trouble) => worst = worst.max(trouble),
                    }
                }
                Err(worst)
            }
            Kind::DistributedSpare(spare) => {
                let (draid, children) = family.ok_or(Trouble::Missing)?;
                let child = draid.spare_child(*spare, spot.offset).ok_or(Trouble::Missing)?;
                let target = children.get(child).ok_or(Trouble::Missing)?;
                // the drive that lends its space may itself be replaced by a spare, and so on
                let depth = spot.depth.checked_sub(1).ok_or(Trouble::Missing)?;
                target.read_side(family, Spot { depth, ..spot }, into, faults)
            }
            _ => Err(Trouble::Missing),
        }
    }

    /// Writes parts one behind the other to one child of an array, on all of its sides; whether
    /// at least one side has them now. Sides that failed are added to `faults`.
    pub(crate) fn write_side(
        &self,
        family: Option<(&Draid, &[Self])>,
        spot: Spot,
        parts: &[&[u8]],
        faults: &mut Vec<LeafFault>,
    ) -> bool {
        match &self.kind {
            Kind::Leaf(leaf) => {
                let result = leaf.write_parts(spot.birth, spot.offset, parts);
                if let Err(trouble) = result {
                    let fault = LeafFault { leaf: leaf.guid(), trouble };
                    if !faults.contains(&fault) {
                        faults.push(fault);
                    }
                }
                result.is_ok()
            }
            Kind::Mirror(sides) | Kind::Replacing(sides) | Kind::Spare(sides) => {
                let write = |side: &Self| side.write_side(family, spot, parts, faults);
                sides.iter().map(write).fold(false, |any, good| any | good)
            }
            Kind::DistributedSpare(spare) => {
                let Some((draid, children)) = family else { return false };
                let target = draid.spare_child(*spare, spot.offset);
                let target = target.and_then(|index| children.get(index));
                let (Some(target), Some(depth)) = (target, spot.depth.checked_sub(1)) else {
                    return false;
                };
                target.write_side(family, Spot { depth, ..spot }, parts, faults)
            }
            _ => false,
        }
    }

    /// Whether somebody is writing to its device just now, if it is one.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(&self.kind, Kind::Leaf(leaf) if leaf.is_busy())
    }

    /// log2 of the sector.
    pub fn ashift(&self) -> Ashift {
        match &self.kind {
            Kind::Raidz(raidz, _) => raidz.now().ashift(),
            Kind::Draid(draid, _) => draid.ashift(),
            _ => self.leaves().first().map_or(Ashift::MIN, |leaf| leaf.ashift()),
        }
    }

    /// Whether more devices are missing than it can do without: what is on it cannot be read.
    pub fn is_gone(&self) -> bool {
        let gone = || self.children().iter().filter(|child| child.is_gone()).count();
        match &self.kind {
            Kind::Leaf(leaf) => leaf.device().is_none(),
            Kind::Mirror(sides) | Kind::Replacing(sides) | Kind::Spare(sides) => {
                gone() == sides.len()
            }
            Kind::Raidz(raidz, _) => gone() > usize::try_from(raidz.now().parity()).unwrap_or(0),
            Kind::Draid(draid, _) => gone() > usize::try_from(draid.shape().parity).unwrap_or(0),
            Kind::DistributedSpare(_) | Kind::Indirect(_) | Kind::Hole => false,
            Kind::Missing => true,
        }
    }

    /// How many sides this node has that could each hold the whole of what it holds.
    pub(crate) fn sides(&self) -> usize {
        match &self.kind {
            Kind::Mirror(sides) | Kind::Replacing(sides) | Kind::Spare(sides) => {
                sides.iter().map(Self::sides).sum()
            }
            _ => 1,
        }
    }

    /// The `index`-th of those sides.
    pub(crate) fn side(&self, mut index: usize) -> Option<&Self> {
        let (Kind::Mirror(sides) | Kind::Replacing(sides) | Kind::Spare(sides)) = &self.kind else {
            return (index == 0).then_some(self);
        };
        for side in sides {
            let count = side.sides();
            if index < count {
                return side.side(index);
            }
            index -= count;
        }
        None
    }
}
