//! Sides that each hold the whole block.

use crate::node::{Spot, all_were_asked};
use crate::{Error, Leaf, LeafFault, Node, Request, Trouble};

/// Blocks that lie near one another are read from the same side, for the sake of the drives' own
/// read-ahead; others from the next.
const REGION_SHIFT: u32 = 21;

/// Reads from one side after the other until the judge accepts.
pub(crate) fn read(
    node: &Node,
    request: &Request<'_>,
    into: &mut [u8],
    faults: &mut Vec<LeafFault>,
) -> Result<(), Error> {
    let before = faults.len();
    let (mut wrong, mut stale_wrong) = (false, false);
    // a device that was away is asked last, and only where the judge can tell
    let passes: &[bool] = if request.strict { &[false, true] } else { &[false] };
    for stale_too in passes {
        if *stale_too && !faults[before..].iter().any(|f| f.trouble == Trouble::Stale) {
            break;
        }
        for index in order(node.sides(), request.offset) {
            let Some(side) = node.side(index) else { continue };
            let stale_too = *stale_too;
            let spot = Spot { stale_too, ..Spot::new(request.offset, request.birth) };
            if side.read_side(None, spot, into, faults).is_err() {
                continue;
            }
            if (request.judge)(into) {
                return Ok(());
            }
            *(if stale_too { &mut stale_wrong } else { &mut wrong }) = true;
            if request.expected {
                accuse(side, faults);
            }
        }
    }
    // one that was away cannot speak for one that is missing
    let all_were_asked =
        || all_were_asked(std::slice::from_ref(node), request.birth, &faults[before..]);
    Err(verdict(node, wrong || stale_wrong && all_were_asked()))
}

/// Notes that a side's bytes were wrong.
pub(crate) fn accuse(side: &Node, faults: &mut Vec<LeafFault>) {
    side.leaves().into_iter().for_each(|leaf| accuse_leaf(leaf, faults));
}

/// Notes that a leaf's bytes were wrong.
pub(crate) fn accuse_leaf(leaf: &Leaf, faults: &mut Vec<LeafFault>) {
    leaf.count_wrong();
    faults.push(LeafFault { leaf: leaf.guid(), trouble: Trouble::Wrong });
}

fn verdict(node: &Node, is_wrong: bool) -> Error {
    let sides = node.sides();
    if is_wrong {
        return Error::Mismatch;
    }
    Error::Unavailable { missing: sides, spare: sides.saturating_sub(1) }
}

/// All sides, the one that this region is read from first.
fn order(sides: usize, offset: u64) -> impl Iterator<Item = usize> {
    let region = usize::try_from(offset >> REGION_SHIFT).unwrap_or(0);
    (0..sides).map(move |index| (index + region) % sides)
}
