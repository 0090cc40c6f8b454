//! Writing anew what some leaves lack of blocks that are there.
//!
//! The caller has a block's bytes, which its checksum has proved; what each leaf should hold of it
//! follows from where the block's columns lie, as in writing. It goes to those leaves only that
//! the caller names, and to no place but the block's own.
//!
//! Proved by: `tests/it/mend.rs`.

use std::sync::Arc;

use device::buffer;
use geometry::{Block, ReflowPosition};
use units::{Txg, VdevId};

use crate::node::NodeAddress;
use crate::write::{
    DraidChildren, PieceBatch, WriteLayout, WritePiece, batch_length, column_children,
};
use crate::{BlockWrite, Error, Leaf, LeafError, NodeKind, VdevNode, VdevTree, indirect};

/// Says whether a leaf is to get its part of a block that was written in a txg.
pub type RepairFilter<'a> = &'a dyn Fn(&Leaf, Txg) -> bool;

impl VdevTree {
    /// Whether any leaf that is to get its part holds some of a block.
    pub fn needs_repair(
        &self,
        vdev: VdevId,
        block: Block,
        birth: Txg,
        wanting: RepairFilter<'_>,
    ) -> bool {
        let Some(top) = self.top_vdev(vdev) else { return false };
        let node = Arc::clone(&top.node);
        if let NodeKind::Indirect(_) = node.kind {
            let length = units::to_u64(block.size);
            let pieces =
                indirect::resolve_range(self, vdev, block.offset, length).unwrap_or_default();
            let below = |piece: &indirect::MappingSegment| {
                self.top(piece.vdev)
                    .is_some_and(|node| any_leaf_needs(&node, None, birth, 0, wanting))
            };
            return pieces.iter().any(below);
        }
        let spares = node.distributed_spares().into_iter();
        if !node.leaves().into_iter().chain(spares).any(|leaf| wanting(leaf, birth)) {
            return false;
        }
        if top.reflow.is_some() {
            // its sectors may have a second place, and where they are may change at any time
            return true;
        }
        let Ok(map) = node.block_column_map(block, birth, None) else { return false };
        let Some((map, draid)) = map else {
            return any_leaf_needs(&node, None, birth, block.offset, wanting);
        };
        let family = draid.map(|draid| (draid, node.children()));
        let padding = if map.zero_padding() { map.padding() } else { &[] };
        let columns = map.rows().flat_map(geometry::Row::columns).chain(padding);
        columns.filter(|column| column.size > 0).any(|column| {
            let child = node.children().get(column.child);
            child.is_some_and(|child| any_leaf_needs(child, family, birth, column.offset, wanting))
        })
    }

    /// Writes to each leaf that is to get it its part of blocks, neighbours in one request. Gives
    /// how many bytes were written; leaves that failed are added to `faults`, and remember it.
    pub fn repair_blocks(
        &self,
        blocks: &[BlockWrite<'_>],
        wanting: RepairFilter<'_>,
        faults: &mut Vec<LeafError>,
    ) -> Result<u64, Error> {
        let direct = self.resolve_indirect(blocks)?;
        let mut order: Vec<usize> = (0..direct.len()).collect();
        order.sort_unstable_by_key(|index| {
            let block = &direct[*index];
            (block.vdev, block.birth, block.offset)
        });
        let (mut written, mut rest) = (0, &order[..]);
        while !rest.is_empty() {
            let (indices, later) = rest.split_at(batch_length(&direct, rest));
            rest = later;
            let group: Vec<BlockWrite<'_>> = indices.iter().map(|index| direct[*index]).collect();
            written += self.repair_batch(&group, wanting, faults)?;
        }
        Ok(written)
    }

    /// The same blocks, those on removed vdevs as the pieces that they were moved in.
    fn resolve_indirect<'a>(
        &self,
        blocks: &[BlockWrite<'a>],
    ) -> Result<Vec<BlockWrite<'a>>, Error> {
        let mut direct = Vec::with_capacity(blocks.len());
        for block in blocks {
            let node = self.top(block.vdev);
            let Some(NodeKind::Indirect(_)) = node.as_deref().map(|node| &node.kind) else {
                direct.push(*block);
                continue;
            };
            let mut data = block.data;
            let length = units::to_u64(data.len());
            for piece in indirect::resolve_range(self, block.vdev, block.offset, length)? {
                let count = units::to_usize(piece.length).min(data.len());
                let (now, later) = data.split_at(count);
                data = later;
                let (vdev, offset) = (piece.vdev, piece.offset);
                direct.push(BlockWrite { vdev, offset, data: now, ..*block });
            }
            assert!(data.is_empty(), "the pieces of a moved block are the whole block");
        }
        Ok(direct)
    }

    fn repair_batch(
        &self,
        blocks: &[BlockWrite<'_>],
        wanting: RepairFilter<'_>,
        faults: &mut Vec<LeafError>,
    ) -> Result<u64, Error> {
        let Some(BlockWrite { vdev, birth, .. }) = blocks.first().copied() else { return Ok(0) };
        let top = self.top_vdev(vdev).ok_or(Error::NoVdev(vdev))?;
        let lock = top.lock_blocks(blocks.iter().map(BlockWrite::block));
        let position = lock.as_ref().map(|lock| lock.position);
        let _rebuild = top.lock_rebuild(blocks.iter().map(BlockWrite::block));
        repair_locked(&top.node, (blocks, birth), position, wanting, faults)
    }
}

/// Writes to each leaf of a vdev that is to get it its part of blocks. The caller holds the locks of the vdev's
/// gates.
pub(crate) fn repair_locked(
    node: &VdevNode,
    (blocks, birth): (&[BlockWrite<'_>], Txg),
    position: Option<ReflowPosition>,
    wanting: RepairFilter<'_>,
    faults: &mut Vec<LeafError>,
) -> Result<u64, Error> {
    let layouts = blocks.iter().map(|block| WriteLayout::new(node, block, position));
    let layouts = layouts.collect::<Result<Vec<_>, _>>()?;
    let sizes = blocks.iter().zip(&layouts).map(|(block, layout)| layout.scratch_size(block.data));
    let mut scratch = buffer::alloc(sizes.sum());
    let mut batch = PieceBatch::new(node);
    let mut rest = &mut scratch[..];
    for (block, layout) in blocks.iter().zip(&layouts) {
        rest = batch.add_block(layout, block.data, rest);
    }
    assert!(rest.is_empty(), "parity uses the memory that was counted for it");
    let (children, family) = column_children(node);
    let child = |piece: &WritePiece<'_>| children.get(piece.child);
    batch.pieces.retain(|piece| {
        child(piece)
            .is_some_and(|child| any_leaf_needs(child, family, birth, piece.offset, wanting))
    });
    let mut written = 0;
    batch.write_all(&|_| false, &mut |first, parts| {
        let Some(child) = child(&first) else { return false };
        let spot = first.address(birth);
        let (count, good) = child.repair_child(family, spot, parts, wanting, faults);
        written += count;
        good
    });
    drop(batch);
    buffer::recycle(scratch);
    Ok(written)
}

/// Whether a leaf that is to get its part lies where a child has an offset.
fn any_leaf_needs(
    node: &VdevNode,
    family: DraidChildren<'_>,
    birth: Txg,
    offset: u64,
    wanting: RepairFilter<'_>,
) -> bool {
    any_leaf_needs_at(node, family, NodeAddress::new(offset, birth), wanting)
}

fn any_leaf_needs_at(
    node: &VdevNode,
    family: DraidChildren<'_>,
    spot: NodeAddress,
    wanting: RepairFilter<'_>,
) -> bool {
    match &node.kind {
        NodeKind::Leaf(leaf) => wanting(leaf, spot.birth),
        NodeKind::Mirror(sides) | NodeKind::Replacing(sides) | NodeKind::Spare(sides) => {
            sides.iter().any(|side| any_leaf_needs_at(side, family, spot, wanting))
        }
        NodeKind::DistributedSpare(spare) => {
            wanting(spare.leaf(), spot.birth)
                || spare
                    .target(family, spot, 0)
                    .is_some_and(|(target, spot)| any_leaf_needs_at(target, family, spot, wanting))
        }
        _ => false,
    }
}

impl VdevNode {
    /// Writes parts one behind the other to those leaves of a child that are to get them. Gives how
    /// many bytes were written, and whether none of them failed.
    fn repair_child(
        &self,
        family: DraidChildren<'_>,
        spot: NodeAddress,
        parts: &[&[u8]],
        wanting: RepairFilter<'_>,
        faults: &mut Vec<LeafError>,
    ) -> (u64, bool) {
        match &self.kind {
            NodeKind::Leaf(leaf) if wanting(leaf, spot.birth) => {
                let length: usize = parts.iter().map(|part| part.len()).sum();
                match leaf.write_at(spot, parts) {
                    Ok(()) => (units::to_u64(length), true),
                    Err(trouble) => {
                        let fault = LeafError { leaf: leaf.guid(), error: trouble };
                        if !faults.contains(&fault) {
                            faults.push(fault);
                        }
                        (0, false)
                    }
                }
            }
            NodeKind::Mirror(sides) | NodeKind::Replacing(sides) | NodeKind::Spare(sides) => {
                let each = |side: &Self| side.repair_child(family, spot, parts, wanting, faults);
                let both = |(sum, all), (count, good)| (sum + count, all && good);
                sides.iter().map(each).fold((0, true), both)
            }
            NodeKind::DistributedSpare(spare) => {
                let length = parts.iter().map(|part| part.len()).sum();
                let Some((target, spot)) = spare.target(family, spot, length) else {
                    return (0, true);
                };
                // a drive that is away notes in its DTL that it missed this
                let every_leaf: RepairFilter<'_> = &|_, _| true;
                let is_wanted = wanting(spare.leaf(), spot.birth);
                let wanting = if is_wanted { every_leaf } else { wanting };
                target.repair_child(family, spot, parts, wanting, faults)
            }
            _ => (0, true),
        }
    }
}
