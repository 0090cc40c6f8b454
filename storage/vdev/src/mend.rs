//! Writing anew what some leaves lack of blocks that are there.
//!
//! The caller has a block's bytes, which its checksum has proved; what each leaf should hold of it
//! follows from where the block's columns lie, as in writing. It goes to those leaves only that
//! the caller names, and to no place but the block's own.
//!
//! Proved by: `tests/it/mend.rs`.

use device::buffer;
use geometry::Block;
use units::{Txg, VdevId};

use crate::node::Spot;
use crate::write::{Batch, Family, Layout, Piece, at_once, columns};
use crate::{Error, Kind, Leaf, LeafFault, Node, Outgoing, Tree, indirect};

/// Says whether a leaf is to get its part of a block that was written in a txg.
pub type Wanting<'a> = &'a dyn Fn(&Leaf, Txg) -> bool;

impl Tree {
    /// Whether any leaf that is to get its part holds some of a block.
    pub fn concerns(&self, vdev: VdevId, block: Block, birth: Txg, wanting: Wanting<'_>) -> bool {
        let Some(node) = self.top(vdev) else { return false };
        if let Kind::Indirect(_) = node.kind {
            let length = u64::try_from(block.size).unwrap_or(u64::MAX);
            let pieces = indirect::pieces(self, vdev, block.offset, length).unwrap_or_default();
            let below = |piece: &indirect::Segment| {
                self.top(piece.vdev).is_some_and(|node| wants(&node, None, birth, 0, wanting))
            };
            return pieces.iter().any(below);
        }
        if !node.leaves().into_iter().any(|leaf| wanting(leaf, birth)) {
            return false;
        }
        let Ok(map) = node.map_of(block, birth) else { return false };
        let Some((map, draid)) = map else {
            return wants(&node, None, birth, block.offset, wanting);
        };
        let family = draid.map(|draid| (draid, node.children()));
        let padding = if map.zero_padding() { map.padding() } else { &[] };
        let columns = map.rows().flat_map(geometry::Row::columns).chain(padding);
        columns.filter(|column| column.size > 0).any(|column| {
            let child = node.children().get(column.child);
            child.is_some_and(|child| wants(child, family, birth, column.offset, wanting))
        })
    }

    /// Writes to each leaf that is to get it its part of blocks, neighbours in one request. Gives
    /// how many bytes were written; leaves that failed are added to `faults`, and remember it.
    pub fn mend(
        &self,
        blocks: &[Outgoing<'_>],
        wanting: Wanting<'_>,
        faults: &mut Vec<LeafFault>,
    ) -> Result<u64, Error> {
        let direct = self.direct(blocks)?;
        let mut order: Vec<usize> = (0..direct.len()).collect();
        order.sort_unstable_by_key(|index| {
            let block = &direct[*index];
            (block.vdev, block.birth, block.offset)
        });
        let (mut written, mut rest) = (0, &order[..]);
        while !rest.is_empty() {
            let (indices, later) = rest.split_at(at_once(&direct, rest));
            rest = later;
            let group: Vec<Outgoing<'_>> = indices.iter().map(|index| direct[*index]).collect();
            written += self.mend_group(&group, wanting, faults)?;
        }
        Ok(written)
    }

    /// The same blocks, those on removed vdevs as the pieces that they were moved in.
    fn direct<'a>(&self, blocks: &[Outgoing<'a>]) -> Result<Vec<Outgoing<'a>>, Error> {
        let mut direct = Vec::with_capacity(blocks.len());
        for block in blocks {
            let node = self.top(block.vdev);
            let Some(Kind::Indirect(_)) = node.as_deref().map(|node| &node.kind) else {
                direct.push(*block);
                continue;
            };
            let mut data = block.data;
            let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
            for piece in indirect::pieces(self, block.vdev, block.offset, length)? {
                let count = usize::try_from(piece.length).unwrap_or(0).min(data.len());
                let (now, later) = data.split_at(count);
                data = later;
                let (vdev, offset) = (piece.vdev, piece.offset);
                direct.push(Outgoing { vdev, offset, data: now, ..*block });
            }
        }
        Ok(direct)
    }

    fn mend_group(
        &self,
        blocks: &[Outgoing<'_>],
        wanting: Wanting<'_>,
        faults: &mut Vec<LeafFault>,
    ) -> Result<u64, Error> {
        let Some(Outgoing { vdev, birth, .. }) = blocks.first().copied() else { return Ok(0) };
        let node = &*self.top(vdev).ok_or(Error::NoVdev(vdev))?;
        let layouts = blocks.iter().map(|block| Layout::of(node, block));
        let layouts = layouts.collect::<Result<Vec<_>, _>>()?;
        let sizes = blocks.iter().zip(&layouts).map(|(block, layout)| layout.scratch(block.data));
        let mut scratch = buffer::take(sizes.sum());
        let mut batch = Batch::default();
        let mut rest = &mut scratch[..];
        for (block, layout) in blocks.iter().zip(&layouts) {
            rest = batch.add(layout, block.data, rest);
        }
        let (children, family) = columns(node);
        let child = |piece: &Piece<'_>| children.get(piece.child);
        batch.pieces.retain(|piece| {
            child(piece).is_some_and(|child| wants(child, family, birth, piece.offset, wanting))
        });
        let mut written = 0;
        batch.send(&|_| false, &mut |first, parts| {
            let Some(child) = child(&first) else { return false };
            let spot = Spot::new(first.offset, birth);
            let (count, good) = child.mend_side(family, spot, parts, wanting, faults);
            written += count;
            good
        });
        drop(batch);
        buffer::give(scratch);
        Ok(written)
    }
}

/// Whether a leaf that is to get its part lies where a child has an offset.
fn wants(node: &Node, family: Family<'_>, birth: Txg, offset: u64, wanting: Wanting<'_>) -> bool {
    wants_deep(node, family, Spot::new(offset, birth), wanting)
}

fn wants_deep(node: &Node, family: Family<'_>, spot: Spot, wanting: Wanting<'_>) -> bool {
    match &node.kind {
        Kind::Leaf(leaf) => wanting(leaf, spot.birth),
        Kind::Mirror(sides) | Kind::Replacing(sides) | Kind::Spare(sides) => {
            sides.iter().any(|side| wants_deep(side, family, spot, wanting))
        }
        Kind::DistributedSpare(spare) => lender(*spare, family, spot)
            .is_some_and(|(target, spot)| wants_deep(target, family, spot, wanting)),
        _ => false,
    }
}

/// The drive that lends its space to a distributed spare at an offset.
pub(crate) fn lender(spare: u32, family: Family<'_>, spot: Spot) -> Option<(&Node, Spot)> {
    let (draid, children) = family?;
    let target = children.get(draid.spare_child(spare, spot.offset)?)?;
    Some((target, Spot { depth: spot.depth.checked_sub(1)?, ..spot }))
}

impl Node {
    /// Writes parts one behind the other to those leaves of a child that are to get them. Gives how
    /// many bytes were written, and whether none of them failed.
    fn mend_side(
        &self,
        family: Family<'_>,
        spot: Spot,
        parts: &[&[u8]],
        wanting: Wanting<'_>,
        faults: &mut Vec<LeafFault>,
    ) -> (u64, bool) {
        match &self.kind {
            Kind::Leaf(leaf) if wanting(leaf, spot.birth) => {
                let length: usize = parts.iter().map(|part| part.len()).sum();
                match leaf.write_parts(spot.birth, spot.offset, parts) {
                    Ok(()) => (u64::try_from(length).unwrap_or(u64::MAX), true),
                    Err(trouble) => {
                        let fault = LeafFault { leaf: leaf.guid(), trouble };
                        if !faults.contains(&fault) {
                            faults.push(fault);
                        }
                        (0, false)
                    }
                }
            }
            Kind::Mirror(sides) | Kind::Replacing(sides) | Kind::Spare(sides) => {
                let each = |side: &Self| side.mend_side(family, spot, parts, wanting, faults);
                let both = |(sum, all), (count, good)| (sum + count, all && good);
                sides.iter().map(each).fold((0, true), both)
            }
            Kind::DistributedSpare(spare) => match lender(*spare, family, spot) {
                Some((target, spot)) => target.mend_side(family, spot, parts, wanting, faults),
                None => (0, true),
            },
            _ => (0, true),
        }
    }
}
