//! Making what was written last.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::Builder;

use units::{MinusOrZero, Txg};

use crate::{DeviceError, Error, Leaf, LeafError, NodeKind, TxgRanges, VdevNode, VdevTree};

impl VdevTree {
    /// Returns when all that was written before outlasts a power cut. Ok while redundancy lasts;
    /// leaves that failed are added to `faults`, and remember what they may have lost.
    ///
    /// What another flush failed to keep is not told here again: who needs to know what became of
    /// what it wrote asks [`VdevTree::check_txgs_durable`] afterwards.
    pub fn flush(&self, faults: &mut Vec<LeafError>) -> Result<(), Error> {
        self.flush_vdevs(&|_| true, faults)
    }

    /// The same of those top-level vdevs that count: what others fail to keep is no error.
    pub fn flush_vdevs(
        &self,
        counts: &dyn Fn(&VdevNode) -> bool,
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        let failed = self.flush_leaves();
        for leaf in &failed {
            faults.push(LeafError { leaf: leaf.guid(), error: DeviceError::WriteFailed });
        }
        let hit = |leaf: &Leaf| failed.iter().any(|bad| bad.guid() == leaf.guid());
        self.tops()
            .iter()
            .filter(|(_, top)| counts(top))
            .try_for_each(|(_, top)| check_redundancy(top, &hit))
    }

    /// An error if blocks of these txgs may be lost for good, since drives failed to keep what they had
    /// taken; of those top-level vdevs that count.
    pub fn check_txgs_durable(
        &self,
        txgs: RangeInclusive<Txg>,
        counts: &dyn Fn(&VdevNode) -> bool,
    ) -> Result<(), Error> {
        // Rule W2: each thread asks for the txgs of its own blocks after its flush. A flush of another thread may
        // have failed and lost them; this flush then succeeds, and nothing of them is on the drive.
        let asked = TxgRanges::new([txgs.into_inner()]);
        self.tops().iter().filter(|(_, top)| counts(top)).try_for_each(|(_, top)| {
            let lost: Vec<TxgRanges> =
                top.leaves().iter().map(|leaf| leaf.txgs_lost_by_flush(&asked)).collect();
            // who never took what another failed to keep cannot stand in for it
            let hit = |leaf: &Leaf| lost.iter().any(|lost| leaf.has_missed_any(lost));
            check_redundancy(top, &hit)
        })
    }

    /// Flushes all leaves that can be written; gives those that failed.
    pub fn flush_leaves(&self) -> Vec<Arc<Leaf>> {
        let leaves = self.leaves();
        let writable = leaves.iter().filter(|leaf| leaf.is_writable());
        flush_in_parallel(&writable.collect::<Vec<_>>())
    }
}

/// Flushes leaves, those that must wait for hardware at the same time: one after the other, the
/// drives of a wide array would take as many times as long. Gives those that failed.
pub(crate) fn flush_in_parallel(leaves: &[&Arc<Leaf>]) -> Vec<Arc<Leaf>> {
    let wanting = leaves.iter().copied().filter(|leaf| leaf.needs_flush());
    let (slow, fast): (Vec<&Arc<Leaf>>, Vec<_>) = wanting.partition(|leaf| leaf.may_block());
    let failing = fast.into_iter().filter(|leaf| leaf.flush().is_err());
    let mut failed: Vec<Arc<Leaf>> = failing.cloned().collect();
    let Some((own, others)) = slow.split_first() else { return failed };
    std::thread::scope(|scope| {
        let run = |leaf: &&Arc<Leaf>| {
            let (leaf, flushed) = (Arc::clone(leaf), Arc::clone(leaf));
            let flush = move || flushed.flush().is_ok();
            (leaf, Builder::new().spawn_scoped(scope, flush))
        };
        let running: Vec<_> = others.iter().map(run).collect();
        failed.extend(own.flush().is_err().then(|| Arc::clone(own)));
        for (leaf, thread) in running {
            let kept = match thread {
                Ok(thread) => thread.join().unwrap_or(false),
                // the system has no more threads to give
                Err(_) => leaf.flush().is_ok(),
            };
            if !kept {
                failed.push(leaf);
            }
        }
    });
    failed
}

/// Whether a top-level vdev has all in spite of the leaves that were hit.
fn check_redundancy(top: &VdevNode, hit: &dyn Fn(&Leaf) -> bool) -> Result<(), Error> {
    if !top.leaves().into_iter().any(|leaf| hit(leaf)) || is_recoverable(top, hit) {
        return Ok(());
    }
    let missing = top.leaves().iter().filter(|leaf| !is_leaf_intact(leaf, hit)).count();
    Err(Error::Unavailable { missing, redundancy: redundancy(top) })
}

fn is_leaf_intact(leaf: &Leaf, hit: &dyn Fn(&Leaf) -> bool) -> bool {
    leaf.is_writable() && !hit(leaf)
}

/// Whether the node has all that was written to it, in spite of the leaves that were hit.
fn is_recoverable(node: &VdevNode, hit: &dyn Fn(&Leaf) -> bool) -> bool {
    let lost = || node.children().iter().filter(|child| !is_recoverable(child, hit)).count();
    match &node.kind {
        NodeKind::Leaf(leaf) => is_leaf_intact(leaf, hit),
        NodeKind::Mirror(sides) | NodeKind::Replacing(sides) | NodeKind::Spare(sides) => {
            lost() < sides.len()
        }
        NodeKind::Raidz(..) | NodeKind::Draid(..) => lost() <= redundancy(node),
        // where its space lies on a drive that was hit, no other column of the row lies there: so
        // counting that drive counts both
        NodeKind::DistributedSpare(_) => true,
        NodeKind::Indirect(_) | NodeKind::Hole | NodeKind::Missing => false,
    }
}

/// How many children a node can do without.
fn redundancy(node: &VdevNode) -> usize {
    let parity = match &node.kind {
        NodeKind::Raidz(raidz, _) => raidz.current().parity(),
        NodeKind::Draid(draid, _) => draid.shape().parity,
        _ => return node.replica_count().minus_or_zero(1),
    };
    units::to_usize(parity)
}
