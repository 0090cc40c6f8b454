//! Which txgs a vdev could not read if some of its leaves were away: the check before a leaf goes
//! offline or is detached (OpenZFS's `vdev_dtl_required`).
//!
//! Proved by: the tests below, and the engine's `tests/it/offline.rs`.

use units::{MinusOrZero, Txg};

use crate::{Leaf, NodeKind, TxgRanges, VdevNode};

impl VdevNode {
    /// The txgs of which blocks could not be read if the leaves that `is_away` names were away. A leaf
    /// that fails or is missing counts as away. Empty: the vdev has sufficient replicas.
    pub fn outage(&self, is_away: &dyn Fn(&Leaf) -> bool) -> TxgRanges {
        let below = || -> Vec<TxgRanges> {
            self.children().iter().map(|child| child.outage(is_away)).collect()
        };
        match &self.kind {
            NodeKind::Leaf(leaf) if is_away(leaf) || !leaf.is_writable() || leaf.is_failing() => {
                every_txg()
            }
            NodeKind::Leaf(leaf) => leaf.stale_txgs(),
            NodeKind::Mirror(sides) | NodeKind::Replacing(sides) | NodeKind::Spare(sides) => {
                TxgRanges::in_more_than(sides.len().minus_or_zero(1), &below())
            }
            NodeKind::Raidz(raidz, _) => {
                let parity = units::to_usize(raidz.current().parity());
                TxgRanges::in_more_than(parity, &below())
            }
            NodeKind::Draid(draid, _) => {
                let parity = units::to_usize(draid.shape().parity);
                TxgRanges::in_more_than(parity, &below())
            }
            // its space lies on the other children, which are counted
            NodeKind::DistributedSpare(spare) if !is_away(spare.leaf()) => spare.leaf().dtl(),
            NodeKind::Indirect(_) | NodeKind::Hole => TxgRanges::default(),
            NodeKind::DistributedSpare(_) | NodeKind::Missing => every_txg(),
        }
    }
}

fn every_txg() -> TxgRanges {
    TxgRanges::new([(Txg::ZERO, Txg::new(u64::MAX))])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::MemoryDevice;
    use units::{Guid, Txg};

    use crate::{Leaf, NodeKind, TxgRanges, VdevNode};

    fn leaf(guid: u64, missed: &[(u64, u64)]) -> VdevNode {
        let device = Arc::new(MemoryDevice::zeroed("drive", 64 << 20));
        let leaf = Leaf::new(Guid::new(guid), String::new(), Some(device), Txg::new(u64::MAX));
        let txgs = missed.iter().map(|(first, last)| (Txg::new(*first), Txg::new(*last)));
        leaf.set_dtl(TxgRanges::new(txgs));
        VdevNode { guid: Guid::new(guid), kind: NodeKind::Leaf(Arc::new(leaf)) }
    }

    fn mirror(sides: Vec<VdevNode>) -> VdevNode {
        VdevNode { guid: Guid::new(99), kind: NodeKind::Mirror(sides) }
    }

    fn is_required(node: &VdevNode, guid: u64) -> bool {
        !node.outage(&|leaf| leaf.guid() == Guid::new(guid)).is_empty()
    }

    #[test]
    fn leaf_is_required_when_its_siblings_lack_txgs() {
        assert!(is_required(&leaf(1, &[]), 1));
        let whole = mirror(vec![leaf(1, &[]), leaf(2, &[])]);
        assert!(!is_required(&whole, 1) && !is_required(&whole, 2));
        let stale = mirror(vec![leaf(1, &[]), leaf(2, &[(5, 7)])]);
        assert!(is_required(&stale, 1) && !is_required(&stale, 2));
        // two of three lack something, and never the same txg
        let three = mirror(vec![leaf(1, &[]), leaf(2, &[(5, 7)]), leaf(3, &[(8, 9)])]);
        assert!(!is_required(&three, 1));
        let three = mirror(vec![leaf(1, &[]), leaf(2, &[(5, 7)]), leaf(3, &[(7, 9)])]);
        assert!(is_required(&three, 1));
    }
}
