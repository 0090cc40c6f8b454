//! Sides that each hold the whole block.

use crate::node::{NodeAddress, all_holders_asked};
use crate::{DeviceError, Error, Leaf, LeafError, ReadRequest, VdevNode};
use units::MinusOrZero as _;

/// Blocks that lie near one another are read from the same side, for the sake of the drives' own
/// read-ahead; others from the next.
const REGION_SHIFT: u32 = 21;

/// Reads from one side after the other until the judge accepts.
pub(crate) fn read_mirror(
    node: &VdevNode,
    request: &ReadRequest<'_>,
    into: &mut [u8],
    faults: &mut Vec<LeafError>,
) -> Result<(), Error> {
    let before = faults.len();
    let (mut wrong, mut stale_wrong) = (false, false);
    // a device that was away is asked last, and only where the judge can tell
    let passes: &[bool] = if request.has_checksum { &[false, true] } else { &[false] };
    for stale_too in passes {
        if *stale_too && !faults[before..].iter().any(|f| f.error == DeviceError::Stale) {
            break;
        }
        for index in read_order(node.replica_count(), request.offset) {
            let Some(side) = node.replica(index) else { continue };
            let stale_too = *stale_too;
            let spot = NodeAddress {
                allow_stale: stale_too,
                ..NodeAddress::new(request.offset, request.birth)
            };
            if side.read_child(None, spot, into, faults).is_err() {
                continue;
            }
            if (request.is_valid)(into) {
                return Ok(());
            }
            *(if stale_too { &mut stale_wrong } else { &mut wrong }) = true;
            if request.must_exist {
                record_checksum_error(side, faults);
            }
        }
    }
    // one that was away cannot speak for one that is missing
    let all_were_asked =
        || all_holders_asked(std::slice::from_ref(node), request.birth, &faults[before..]);
    Err(mirror_error(node, wrong || stale_wrong && all_were_asked()))
}

/// Notes that a side's bytes were wrong.
pub(crate) fn record_checksum_error(side: &VdevNode, faults: &mut Vec<LeafError>) {
    side.leaves().into_iter().for_each(|leaf| record_leaf_checksum_error(leaf, faults));
}

/// Notes that a leaf's bytes were wrong.
pub(crate) fn record_leaf_checksum_error(leaf: &Leaf, faults: &mut Vec<LeafError>) {
    leaf.count_checksum_error();
    faults.push(LeafError { leaf: leaf.guid(), error: DeviceError::Corrupt });
}

fn mirror_error(node: &VdevNode, is_wrong: bool) -> Error {
    let sides = node.replica_count();
    if is_wrong {
        return Error::ChecksumMismatch;
    }
    Error::Unavailable { missing: sides, redundancy: sides.minus_or_zero(1) }
}

/// All sides, the one that this region is read from first.
fn read_order(sides: usize, offset: u64) -> impl Iterator<Item = usize> {
    let region = units::to_usize(offset >> REGION_SHIFT);
    (0..sides).map(move |index| (index + region) % sides)
}
