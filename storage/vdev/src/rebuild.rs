//! Sequential rebuild: leaves of a mirror or a dRAID get all that is allocated, in the order of the vdev, without
//! regard to blocks.
//!
//! ```text
//! range     of allocated space, as long as a chunk and within one group of a dRAID
//!  ├ turn   awaited at each leaf (see `queue`)
//!  ├ lock   writers of the range wait (see `reflow_gate`)
//!  ├ read   from a leaf that has it, or from parity; no checksum tells whether it is right
//!  └ write  each new leaf's part of it
//! ```
//!
//! A dRAID makes that possible: blocks take whole rows, and parity covers the rest of a row. A raidz cannot be
//! rebuilt so.
//!
//! The birth of the data is not known, so it is read from leaves that lack nothing only.
//!
//! Learnt from: `vdev_rebuild.c` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/rebuild.rs`.

use std::ops::Range;
use std::sync::Arc;

use device::buffer;
use geometry::Block;
use units::{Guid, Txg, VdevId};

use crate::leaf::UNKNOWN_BIRTH;
use crate::node::NodeAddress;
use crate::queue::{IoClass, with_class};
use crate::repair::repair_locked;
use crate::{BlockWrite, Error, Leaf, LeafError, NodeKind, ReadRequest, VdevNode, VdevTree};

/// Bytes of data that a dRAID is read by, and a mirror.
const MAX_ARRAY_CHUNK: u64 = 4 << 20;
const MAX_MIRROR_CHUNK: u64 = 1 << 20;

/// Why a vdev is not rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildObstacle {
    /// The vdev is no mirror and no dRAID.
    #[error("only mirrors and dRAIDs can be rebuilt sequentially: leave `-s` away")]
    Unsupported,
    /// No leaf lacks all.
    #[error("no device of the vdev needs to be rebuilt")]
    NothingToDo,
}

/// The result of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuiltChunk {
    /// The first byte of the vdev behind it.
    pub end: u64,
    /// Bytes that were read.
    pub read: u64,
    /// Bytes that were written to new leaves.
    pub written: u64,
    /// Whether all of them have it.
    pub is_complete: bool,
}

impl VdevTree {
    /// The leaves of a vdev that have nothing yet of blocks born in `first`, the first txg of the pool.
    ///
    /// # Errors
    /// If the vdev cannot be rebuilt, or no leaf needs it.
    pub fn rebuild_targets(
        &self,
        vdev: VdevId,
        first: Txg,
    ) -> Result<Vec<Arc<Leaf>>, RebuildObstacle> {
        let node = self.top(vdev).ok_or(RebuildObstacle::Unsupported)?;
        if !matches!(
            node.kind,
            NodeKind::Mirror(_) | NodeKind::Replacing(_) | NodeKind::Spare(_) | NodeKind::Draid(..)
        ) {
            return Err(RebuildObstacle::Unsupported);
        }
        let leaves = node.leaves().into_iter().filter(|leaf| leaf.is_writable());
        let mut targets = Vec::new();
        for leaf in leaves.chain(node.distributed_spares()) {
            if leaf.dtl().contains(first) {
                targets.push(Arc::clone(leaf));
            }
        }
        if targets.is_empty() { Err(RebuildObstacle::NothingToDo) } else { Ok(targets) }
    }

    /// Has writers of a vdev take locks, until [`VdevTree::end_rebuild`]. Returns when the I/O that began before
    /// has ended.
    pub fn begin_rebuild(&self, vdev: VdevId) {
        if let Some(gate) = self.with_top(vdev, crate::tree::TopVdev::start_rebuild) {
            gate.wait_for_earlier_io();
        }
    }

    /// Ends the locks of a rebuild.
    pub fn end_rebuild(&self, vdev: VdevId) {
        self.with_top(vdev, |top| top.rebuild = None);
    }

    /// Rebuilds the start of an allocated range, as much as is read in one request. What a leaf failed to take
    /// counts as missed in `first`, the first txg of the pool.
    ///
    /// # Errors
    /// If the range is not aligned to the rows of the dRAID, or no rebuild was begun.
    pub fn rebuild_chunk(
        &self,
        vdev: VdevId,
        range: &Range<u64>,
        first: Txg,
        targets: &[Guid],
    ) -> Result<RebuiltChunk, Error> {
        let top = self.top_vdev(vdev).ok_or(Error::NoVdev(vdev))?;
        let gate = top.rebuild.as_ref().ok_or(Error::NoVdev(vdev))?;
        let (end, size) = chunk_size(&top.node, range);
        // Rule: the rebuild awaits its turn at the leaves before it locks the range. In the other order users would
        // wait for the lock while the rebuild waits for users.
        await_turns(&top.node, Block { offset: range.start, size })?;
        let _lock = gate.lock_exclusive(range.start..end);
        // the leaves may have changed while the lock was waited for
        let node = self.top(vdev).ok_or(Error::NoVdev(vdev))?;
        let request = ReadRequest {
            offset: range.start,
            size,
            birth: UNKNOWN_BIRTH,
            is_valid: &|_| true,
            has_checksum: false,
            must_exist: true,
        };
        let mut bytes = buffer::alloc(size);
        let read = || self.read(vdev, &request, &mut bytes, &mut Vec::new());
        if with_class(IoClass::Rebuild, read).is_err() {
            return Ok(RebuiltChunk { end, read: 0, written: 0, is_complete: false });
        }
        let block = BlockWrite { vdev, offset: range.start, birth: first, data: &bytes };
        let wanted = |leaf: &Leaf, _: Txg| targets.contains(&leaf.guid());
        let mut faults: Vec<LeafError> = Vec::new();
        let repair = || repair_locked(&node, (&[block], first), None, &wanted, &mut faults);
        let written = with_class(IoClass::Rebuild, repair)?;
        buffer::recycle(bytes);
        let is_complete = faults.is_empty();
        Ok(RebuiltChunk { end, read: units::to_u64(size), written, is_complete })
    }
}

/// The end of the first chunk of a range, and the bytes of data in it.
fn chunk_size(node: &VdevNode, range: &Range<u64>) -> (u64, usize) {
    let length = range.end - range.start;
    let NodeKind::Draid(draid, _) = &node.kind else {
        let length = length.min(MAX_MIRROR_CHUNK);
        return (range.start + length, units::to_usize(length));
    };
    let row = draid.row_size();
    let row_data = u64::from(draid.shape().data) << draid.ashift().get();
    let group_left = draid.group_size() - range.start % draid.group_size();
    let rows = (length.min(group_left) / row).min(MAX_ARRAY_CHUNK / row_data).max(1);
    (range.start + rows * row, units::to_usize(rows * row_data))
}

/// Waits for the turn of a chunk at each leaf that has some of it.
fn await_turns(node: &VdevNode, chunk: Block) -> Result<(), Error> {
    let Some((map, draid)) = node.block_column_map(chunk, UNKNOWN_BIRTH, None)? else {
        let share = units::to_u64(chunk.size);
        node.leaves().iter().for_each(|leaf| leaf.await_turn(IoClass::Rebuild, share));
        return Ok(());
    };
    let family = draid.map(|draid| (draid, node.children()));
    for column in map.rows().flat_map(geometry::Row::columns) {
        let Some(child) = node.children().get(column.child) else { continue };
        let spot = NodeAddress::new(column.offset, UNKNOWN_BIRTH);
        for leaf in child.holding_leaves(family, spot) {
            leaf.await_turn(IoClass::Rebuild, units::to_u64(column.size));
        }
    }
    Ok(())
}
