//! Giving drives what they missed while they were away.

use std::collections::HashMap;

use std::sync::Arc;

use ondisk::blkptr::Regular;
use units::{Guid, Txg};
use vdev::{Leaf, NodeKind, TxgRanges, VdevTree};

use super::round::{Aim, Scan};
use super::{Mended, Watch};
use crate::{Error, Owned};

/// What one drive is to get.
struct Missed {
    leaf: Arc<Leaf>,
    txgs: TxgRanges,
    /// How often it had missed something when this was noted.
    lapses: u64,
}

/// What drives are to get.
struct Resilver {
    missed: HashMap<Guid, Missed>,
    /// All that any of them missed.
    any: TxgRanges,
    /// Blocks were moved from vdevs that were removed: when, their pointers do not say.
    moved: bool,
}

impl Resilver {
    /// What the drives lack that are there.
    fn of(tree: &VdevTree) -> Self {
        let mut missed = HashMap::new();
        let mut any = TxgRanges::default();
        for leaf in tree.writable_leaves() {
            // what it misses from here on makes more lapses
            let lapses = leaf.miss_count();
            let txgs = leaf.dtl();
            if !txgs.is_empty() {
                txgs.iter().for_each(|(first, last)| any.add(first, last));
                missed.insert(leaf.guid(), Missed { leaf, txgs, lapses });
            }
        }
        let moved = tree.tops().iter().any(|(_, top)| matches!(top.kind, NodeKind::Indirect(_)));
        Self { missed, any, moved }
    }

    /// The drives that got all that they were written.
    fn sound(&self) -> impl Iterator<Item = &Missed> {
        self.missed.values().filter(|missed| missed.leaf.miss_count() == missed.lapses)
    }
}

impl Aim for Resilver {
    fn since(&self) -> Txg {
        let first = self.any.first().filter(|_| !self.moved).unwrap_or(Txg::ZERO);
        Txg::new(first.get().saturating_sub(1))
    }

    fn concerns(&self, block: &Regular) -> bool {
        self.moved || self.any.contains(block.birth_physical)
    }

    fn wants(&self, leaf: &Leaf, birth: Txg) -> bool {
        let missed = self.missed.get(&leaf.guid());
        missed.is_some_and(|missed| self.moved || missed.txgs.contains(birth))
    }

    fn is_lost(&self) -> bool {
        self.sound().next().is_none()
    }
}

impl Owned {
    /// Whether a drive that is there lacks what it missed, or was replaced and is still there.
    pub fn wants_resilver(&self) -> bool {
        let leaves = self.tree.leaves();
        let lacks = |leaf: &Arc<Leaf>| leaf.is_writable() && !leaf.dtl().is_empty();
        !self.is_still() && (leaves.iter().any(lacks) || !self.replaced().is_empty())
    }

    /// Gives all drives that are there what they missed. When all of it is on them the pool takes
    /// them for whole; what could not be mended is named, and stays noted. To be called by one at
    /// a time, on a thread of its own; groups are written meanwhile.
    pub fn resilver(&self, watch: &Watch) -> Result<Mended, Error> {
        let aim = Resilver::of(&self.tree);
        if aim.missed.is_empty() {
            return Ok(Mended { complete: true, ..Mended::default() });
        }
        // what they missed of groups that are still open is to be on the others
        self.sync()?;
        let scan = Scan::new(self, &aim, watch);
        let complete = scan.run()?;
        if complete {
            self.settle(&aim, &scan.losses.lock().births)?;
        }
        Ok(scan.report(complete && !aim.is_lost()))
    }

    /// Takes drives for whole, but for what was lost, as soon as what they got will last.
    fn settle(&self, aim: &Resilver, lost: &TxgRanges) -> Result<(), Error> {
        for Missed { leaf, txgs, lapses } in aim.sound() {
            if leaf.flush().is_ok() {
                leaf.shrink_dtl(txgs, &txgs.intersection(lost), *lapses);
            }
        }
        self.sync()
    }
}
