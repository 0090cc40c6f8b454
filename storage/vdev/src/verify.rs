//! Examining a block: every copy on every side, and parity too.
//!
//! Reading is content with one way to the right bytes; an examination wants to know of each leaf
//! whether its part is right.

use std::cell::RefCell;

use geometry::Draid;
use units::VdevId;

use crate::mirror::record_checksum_error;
use crate::node::NodeAddress;
use crate::raidz::{ArrayBlock, ReadColumns};
use crate::tree::TopVdev;
use crate::{DeviceError, Error, LeafError, NodeKind, ReadRequest, VdevNode, VdevTree, indirect};

thread_local! {
    /// Parity as it should be, kept for the next block: fresh memory is slow.
    static SCRATCH: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl VdevTree {
    /// Reads all that belongs to the block, parity included, and judges each leaf's part. The
    /// block itself is left in `into`. Faults are added to `faults`, also where the block could be
    /// read in spite of them.
    pub fn verify_block(
        &self,
        vdev: VdevId,
        request: &ReadRequest<'_>,
        into: &mut Vec<u8>,
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        let top = self.top_vdev(vdev).ok_or(Error::NoVdev(vdev))?;
        let lock = top.lock_blocks(std::iter::once(request.block()));
        let position = lock.as_ref().map(|lock| lock.position);
        if let Some((map, draid)) = top.node.column_map(request, position)? {
            return verify_array(&top, &map, top.node.children(), draid, request, into, faults);
        }
        match &top.node.kind {
            NodeKind::Mirror(_) | NodeKind::Replacing(_) | NodeKind::Spare(_) => {
                verify_mirror(&top.node, request, into, faults)
            }
            NodeKind::Indirect(_) => verify_indirect(self, vdev, request, into, faults),
            _ => {
                into.resize(request.size, 0);
                self.read(vdev, request, into, faults)
            }
        }
    }
}

fn verify_mirror(
    node: &VdevNode,
    request: &ReadRequest<'_>,
    into: &mut Vec<u8>,
    faults: &mut Vec<LeafError>,
) -> Result<(), Error> {
    let mut right: Option<Vec<u8>> = None;
    let mut wrong = false;
    into.clear();
    for index in 0..node.replica_count() {
        let Some(side) = node.replica(index) else { continue };
        into.resize(request.size, 0);
        let spot = NodeAddress::new(request.offset, request.birth);
        if side.read_child(None, spot, into, faults).is_err() {
            continue;
        }
        let accepted = match &right {
            // without a checksum the sides can only be held against each other
            Some(bytes) if !request.has_checksum => bytes == into,
            _ => (request.is_valid)(into),
        };
        if !accepted {
            wrong = true;
            record_checksum_error(side, faults);
        } else if right.is_none() {
            right = Some(std::mem::take(into));
        }
    }
    match right {
        Some(bytes) => *into = bytes,
        None if wrong => return Err(Error::ChecksumMismatch),
        None => {
            // nothing but devices that were away: perhaps they have it all the same
            into.resize(request.size, 0);
            return crate::mirror::read_mirror(node, request, into, &mut Vec::new());
        }
    }
    Ok(())
}

/// A block whose vdev was removed, where it is now. Of one that was moved in several pieces only the
/// whole can be judged; each side is then held against its piece of that.
fn verify_indirect(
    tree: &VdevTree,
    vdev: VdevId,
    request: &ReadRequest<'_>,
    into: &mut Vec<u8>,
    faults: &mut Vec<LeafError>,
) -> Result<(), Error> {
    let length = units::to_u64(request.size);
    let pieces = indirect::resolve_range(tree, vdev, request.offset, length)?;
    if let [whole] = pieces[..] {
        let request = ReadRequest { offset: whole.offset, ..*request };
        return tree.verify_block(whole.vdev, &request, into, faults);
    }
    into.resize(request.size, 0);
    // whoever cannot be read is asked once more below
    tree.read(vdev, request, into, &mut Vec::new())?;
    let mut rest = &into[..];
    for piece in pieces {
        let size = units::to_usize(piece.length).min(rest.len());
        let (right, later) = rest.split_at(size);
        rest = later;
        let node = tree.top(piece.vdev).ok_or(Error::NoVdev(piece.vdev))?;
        let spot = NodeAddress::new(piece.offset, request.birth);
        for side in (0..node.replica_count()).filter_map(|index| node.replica(index)) {
            let mut found = vec![0; size];
            if side.read_child(None, spot, &mut found, faults).is_ok() && found != right {
                record_checksum_error(side, faults);
            }
        }
    }
    Ok(())
}

fn verify_array(
    top: &TopVdev,
    map: &geometry::Map,
    children: &[VdevNode],
    draid: Option<&Draid>,
    request: &ReadRequest<'_>,
    into: &mut Vec<u8>,
    faults: &mut Vec<LeafError>,
) -> Result<(), Error> {
    let array = ArrayBlock { map, children, draid, suspects: &top.suspects };
    into.resize(map.size(), 0);
    let mut lost = Vec::new();
    for (row_index, row) in map.rows().enumerate() {
        for (index, column) in row.data().iter().enumerate() {
            let Some(place) = into.get_mut(column.data()) else {
                return Err(Error::InvalidAddress("a column lies outside of its block".to_owned()));
            };
            if array.read_column(column, request, false, place, faults).is_err() {
                lost.push((row_index, index));
            }
        }
    }
    let columns = array.read_parity(request, false, &lost, faults);
    let at_once = lost.is_empty() && (request.is_valid)(&into[..request.size]);
    if !at_once && let Err(error) = array.reconstruct(request, &columns, into, faults) {
        let stale = faults.iter().any(|fault| fault.error == DeviceError::Stale);
        // with what slept through the writing, the block may still be had
        into.truncate(request.size);
        return if stale { array.read(request, into, &mut Vec::new()) } else { Err(error) };
    }
    verify_padding(&array, &columns, request.size, into, faults);
    verify_parity(&array, &columns, into, faults);
    into.truncate(request.size);
    Ok(())
}

/// Behind the block the last sector has zeros, of which the checksum knows nothing and parity does.
fn verify_padding(
    array: &ArrayBlock<'_>,
    columns: &ReadColumns,
    size: usize,
    data: &mut [u8],
    faults: &mut Vec<LeafError>,
) {
    for (row, good) in array.map.rows().zip(&columns.is_readable) {
        for (column, good) in row.data().iter().zip(&good[row.parity().len()..]) {
            let range = column.data();
            let padding = range.start.max(size)..range.end.min(data.len());
            let Some(padding) = data.get_mut(padding) else { continue };
            if padding.iter().all(|byte| *byte == 0) {
                continue;
            }
            padding.fill(0);
            // what was rebuilt came out wrong because parity is
            if *good {
                array.record_checksum_error(column, faults);
            }
        }
    }
}

/// Holds the parity columns that could be read against what they should be.
fn verify_parity(
    array: &ArrayBlock<'_>,
    columns: &ReadColumns,
    data: &[u8],
    faults: &mut Vec<LeafError>,
) {
    SCRATCH.with_borrow_mut(|scratch| {
        for ((row, good), found) in array.map.rows().zip(&columns.is_readable).zip(&columns.parity)
        {
            let slices: Vec<&[u8]> =
                row.data().iter().map(|c| data.get(c.data()).unwrap_or_default()).collect();
            scratch.resize_with(row.parity().len().max(scratch.len()), Vec::new);
            for right in scratch.iter_mut() {
                right.resize(row.height(), 0);
            }
            let (right, _) = scratch.split_at_mut(row.parity().len());
            let mut outs: Vec<&mut [u8]> = right.iter_mut().map(Vec::as_mut_slice).collect();
            simd::parity::generate(&slices, &mut outs);
            for (index, column) in row.parity().iter().enumerate() {
                let wrong = good[index] && right[index] != found[index];
                if wrong {
                    array.record_checksum_error(column, faults);
                }
            }
        }
    });
}
