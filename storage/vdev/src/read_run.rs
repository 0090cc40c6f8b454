//! Reading neighbouring blocks of an array in few requests.
//!
//! What was written in one go lies on each drive in one piece. Block by block that is a request for
//! each column; of a run of blocks it is one for each drive. Here is done only what goes well: where
//! a drive is missing or fails, or a block turns out wrong, [`VdevTree::read`] has the whole way of
//! getting at it.

use std::sync::Arc;

use units::VdevId;

use crate::leaf::{LABEL_START_SIZE, Leaf};
use crate::tree::TopVdev;
use crate::{NodeKind, ReadRequest, VdevNode, VdevTree};

/// A block of a run.
pub struct RunBlock<'a> {
    /// On which top-level vdev.
    pub vdev: VdevId,
    /// The read of the block.
    pub request: ReadRequest<'a>,
    /// As long as the block.
    pub into: &'a mut [u8],
    /// Whether the block is there now.
    pub is_done: bool,
}

/// Bytes of one drive.
struct RunPiece<'a> {
    block_index: usize,
    leaf: &'a Arc<Leaf>,
    /// Counted from the drive's first byte.
    position: u64,
    into: &'a mut [u8],
}

impl RunPiece<'_> {
    fn is_adjacent(&self, next: &Self) -> bool {
        let end = self.position.checked_add(self.into.len() as u64);
        Arc::ptr_eq(self.leaf, next.leaf) && end == Some(next.position)
    }
}

impl VdevTree {
    /// Reads of some blocks, best given in the order in which they lie, those that are on arrays of
    /// which all that is needed is there. The memory of those that are not done then holds anything.
    pub fn read_blocks(&self, parts: &mut [RunBlock<'_>]) {
        let tops: Vec<_> = parts.iter().map(|part| self.trusted_array(part.vdev)).collect();
        let mut pieces = Vec::new();
        let mut done = vec![false; parts.len()];
        for (index, (part, top)) in parts.iter_mut().zip(&tops).enumerate() {
            let (request, into) = (&part.request, &mut *part.into);
            done[index] = top
                .as_ref()
                .is_some_and(|top| add_columns(&mut pieces, index, &top.node, request, into));
        }
        pieces.sort_unstable_by_key(|piece| (piece.leaf.guid(), piece.position));
        for run in pieces.chunk_by_mut(RunPiece::is_adjacent) {
            let (leaf, position) = (Arc::clone(run[0].leaf), run[0].position);
            let mut memory: Vec<&mut [u8]> = run.iter_mut().map(|piece| &mut *piece.into).collect();
            if !leaf.read_parts(position, &mut memory) {
                for piece in run.iter() {
                    done[piece.block_index] = false;
                }
            }
        }
        drop(pieces);
        for (part, done) in parts.iter_mut().zip(done) {
            part.is_done = done && (part.request.is_valid)(part.into);
        }
    }

    /// Whether any of its blocks can be read so.
    pub fn can_read_runs(&self, vdev: VdevId) -> bool {
        self.trusted_array(vdev).is_some()
    }

    /// An array of which no drive is known to lie, and which is not being expanded: then the sectors of
    /// blocks are scattered, and their place changes.
    fn trusted_array(&self, vdev: VdevId) -> Option<TopVdev> {
        let top = self.top_vdev(vdev)?;
        let is_array = matches!(top.node.kind, NodeKind::Raidz(..) | NodeKind::Draid(..));
        let is_settled = is_array && top.reflow.is_none();
        (is_settled && top.suspects.lock().is_empty()).then_some(top)
    }
}

/// Adds a block's columns; false: it is to be read alone.
fn add_columns<'a>(
    pieces: &mut Vec<RunPiece<'a>>,
    part: usize,
    node: &'a VdevNode,
    request: &ReadRequest<'_>,
    into: &'a mut [u8],
) -> bool {
    let Ok(Some((map, _))) = node.column_map(request, None) else { return false };
    let is_whole = into.len() == request.size && into.len() == map.size();
    if !is_whole || !request.has_checksum {
        return false;
    }
    let (first, mut at, mut rest) = (pieces.len(), 0, into);
    for column in map.rows().flat_map(geometry::Row::data).filter(|column| column.size > 0) {
        let leaf =
            node.children().get(column.child).and_then(|child| child.present_leaf(request.birth));
        let fits = column.data().start == at && column.size <= rest.len() && !column.scratch;
        let Some(leaf) = leaf.filter(|_| fits) else {
            pieces.truncate(first);
            return false;
        };
        let (into, more) = rest.split_at_mut(column.size);
        (at, rest) = (at + column.size, more);
        pieces.push(RunPiece {
            block_index: part,
            leaf,
            position: column.offset + LABEL_START_SIZE,
            into,
        });
    }
    if !rest.is_empty() {
        pieces.truncate(first);
    }
    rest.is_empty()
}

impl VdevNode {
    /// The drive that this is, if it is there and has what was written in `birth`.
    fn present_leaf(&self, birth: units::Txg) -> Option<&Arc<Leaf>> {
        match &self.kind {
            NodeKind::Leaf(leaf) => leaf.check_has_txg(birth).is_ok().then_some(leaf),
            _ => None,
        }
    }
}
