//! Making what was written last.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::Builder;

use units::Txg;

use crate::{Error, Kind, Leaf, LeafFault, Node, Tree, Trouble, TxgRanges};

impl Tree {
    /// Returns when all that was written before outlasts a power cut. Ok while redundancy lasts;
    /// leaves that failed are added to `faults`, and remember what they may have lost.
    ///
    /// What another flush failed to keep is not told here again: who needs to know what became of
    /// what it wrote asks [`Tree::may_lack`] afterwards.
    pub fn flush(&self, faults: &mut Vec<LeafFault>) -> Result<(), Error> {
        self.flush_of(&|_| true, faults)
    }

    /// The same of those top-level vdevs that count: what others fail to keep is no error.
    pub fn flush_of(
        &self,
        counts: &dyn Fn(&Node) -> bool,
        faults: &mut Vec<LeafFault>,
    ) -> Result<(), Error> {
        let failed = self.flush_each();
        for leaf in &failed {
            faults.push(LeafFault { leaf: leaf.guid(), trouble: Trouble::Unwritten });
        }
        let hit = |leaf: &Leaf| failed.iter().any(|bad| bad.guid() == leaf.guid());
        self.tops().iter().filter(|(_, top)| counts(top)).try_for_each(|(_, top)| judge(top, &hit))
    }

    /// An error if blocks of these txgs may be lost for good, since drives failed to keep what they had
    /// taken; of those top-level vdevs that count.
    pub fn may_lack(
        &self,
        txgs: RangeInclusive<Txg>,
        counts: &dyn Fn(&Node) -> bool,
    ) -> Result<(), Error> {
        let asked = TxgRanges::new([txgs.into_inner()]);
        self.tops().iter().filter(|(_, top)| counts(top)).try_for_each(|(_, top)| {
            let lost: Vec<TxgRanges> =
                top.leaves().iter().map(|leaf| leaf.doubts(&asked)).collect();
            // who never took what another failed to keep cannot stand in for it
            let hit = |leaf: &Leaf| lost.iter().any(|lost| leaf.misses(lost));
            judge(top, &hit)
        })
    }

    /// Flushes all leaves that can be written; gives those that failed.
    pub fn flush_each(&self) -> Vec<Arc<Leaf>> {
        let leaves = self.leaves();
        let writable = leaves.iter().filter(|leaf| leaf.is_writable());
        flush_all(&writable.collect::<Vec<_>>())
    }
}

/// Flushes leaves, those that must wait for hardware at the same time: one after the other, the
/// drives of a wide array would take as many times as long. Gives those that failed.
fn flush_all(leaves: &[&Arc<Leaf>]) -> Vec<Arc<Leaf>> {
    let wanting = leaves.iter().copied().filter(|leaf| leaf.wants_flush());
    let (slow, fast): (Vec<&Arc<Leaf>>, Vec<_>) = wanting.partition(|leaf| leaf.waits());
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
fn judge(top: &Node, hit: &dyn Fn(&Leaf) -> bool) -> Result<(), Error> {
    if !top.leaves().into_iter().any(|leaf| hit(leaf)) || lasts(top, hit) {
        return Ok(());
    }
    let missing = top.leaves().iter().filter(|leaf| !has(leaf, hit)).count();
    Err(Error::Unavailable { missing, spare: spare(top) })
}

fn has(leaf: &Leaf, hit: &dyn Fn(&Leaf) -> bool) -> bool {
    leaf.is_writable() && !hit(leaf)
}

/// Whether the node has all that was written to it, in spite of the leaves that were hit.
fn lasts(node: &Node, hit: &dyn Fn(&Leaf) -> bool) -> bool {
    let lost = || node.children().iter().filter(|child| !lasts(child, hit)).count();
    match &node.kind {
        Kind::Leaf(leaf) => has(leaf, hit),
        Kind::Mirror(sides) | Kind::Replacing(sides) | Kind::Spare(sides) => lost() < sides.len(),
        Kind::Raidz(..) | Kind::Draid(..) => lost() <= spare(node),
        // where its space lies on a drive that was hit, no other column of the row lies there: so
        // counting that drive counts both
        Kind::DistributedSpare(_) => true,
        Kind::Indirect(_) | Kind::Hole | Kind::Missing => false,
    }
}

/// How many children a node can do without.
fn spare(node: &Node) -> usize {
    let parity = match &node.kind {
        Kind::Raidz(raidz, _) => raidz.now().parity(),
        Kind::Draid(draid, _) => draid.shape().parity,
        _ => return node.sides().saturating_sub(1),
    };
    usize::try_from(parity).unwrap_or(0)
}
