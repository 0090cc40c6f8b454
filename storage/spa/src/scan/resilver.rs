//! Resilvers: leaves get what they missed.
//!
//! A resilver that was interrupted goes on if it covers all that leaves lack: one leaf lacks something, and
//! only of the txgs of the scan. Otherwise it begins anew, as a leaf may lack blocks before the bookmark. For
//! the same reason no position is kept while a leaf lacks something that the scan does not give it.

use std::collections::HashMap;

use std::sync::Arc;

use ondisk::blkptr::Regular;
use ondisk::scan::ScanFunction;
use units::{Guid, MinusOrZero, Txg};
use vdev::{Leaf, NodeKind, TxgRanges, VdevTree};

use super::round::{Scan, ScanPolicy};
use super::{ScanProgress, ScanResult};
use crate::{ActivePool, Error};

/// What one drive is to get.
struct MissedTxgs {
    leaf: Arc<Leaf>,
    txgs: TxgRanges,
    /// How often it had missed something when this was noted.
    miss_count: u64,
}

/// What drives are to get.
struct Resilver {
    missed: HashMap<Guid, MissedTxgs>,
    /// All that any of them missed.
    all_txgs: TxgRanges,
    /// Blocks were moved from vdevs that were removed: when, their pointers do not say.
    has_removed_vdevs: bool,
}

impl Resilver {
    /// What the drives lack that are there.
    fn from_tree(tree: &VdevTree) -> Self {
        let mut missed = HashMap::new();
        let mut all_txgs = TxgRanges::default();
        for leaf in tree.writable_leaves().into_iter().chain(tree.distributed_spares()) {
            // what it misses from here on makes more lapses
            let lapses = leaf.miss_count();
            let txgs = leaf.dtl();
            if !txgs.is_empty() {
                txgs.iter().for_each(|(first, last)| all_txgs.add(first, last));
                missed.insert(leaf.guid(), MissedTxgs { leaf, txgs, miss_count: lapses });
            }
        }
        let has_removed_vdevs =
            tree.tops().iter().any(|(_, top)| matches!(top.kind, NodeKind::Indirect(_)));
        Self { missed, all_txgs, has_removed_vdevs }
    }

    /// The drives that got all that they were written.
    fn without_new_misses(&self) -> impl Iterator<Item = &MissedTxgs> {
        self.missed.values().filter(|missed| missed.leaf.miss_count() == missed.miss_count)
    }
}

impl ScanPolicy for Resilver {
    fn since_txg(&self) -> Txg {
        let first = self.all_txgs.first().filter(|_| !self.has_removed_vdevs).unwrap_or(Txg::ZERO);
        Txg::new(first.get().minus_or_zero(1))
    }

    fn includes(&self, block: &Regular) -> bool {
        self.has_removed_vdevs || self.all_txgs.contains(block.birth_physical)
    }

    fn needs_write(&self, leaf: &Leaf, birth: Txg) -> bool {
        let missed = self.missed.get(&leaf.guid());
        missed.is_some_and(|missed| self.has_removed_vdevs || missed.txgs.contains(birth))
    }

    fn is_hopeless(&self) -> bool {
        self.without_new_misses().next().is_none()
    }

    fn covers(&self, pool: &ActivePool) -> bool {
        let mut leaves = pool.tree().leaves().into_iter().chain(pool.tree().distributed_spares());
        leaves.all(|leaf| leaf.dtl().is_empty() || self.missed.contains_key(&leaf.guid()))
    }
}

impl ActivePool {
    /// Whether a drive that is there lacks what it missed, or was replaced and is still there.
    pub fn needs_resilver(&self) -> bool {
        let leaves = self.tree().leaves();
        let lacks = |leaf: &Arc<Leaf>| leaf.is_writable() && !leaf.dtl().is_empty();
        let spares = self.tree().distributed_spares();
        !self.is_read_only()
            && (leaves.iter().any(lacks)
                || spares.iter().any(|spare| !spare.dtl().is_empty())
                || !self.completed_replacements().is_empty())
    }

    /// Whether a leaf that works, or a distributed spare, lacks what it missed.
    pub fn has_outdated_leaves(&self) -> bool {
        let leaves = self.tree().writable_leaves().into_iter().filter(|leaf| !leaf.is_failing());
        leaves.chain(self.tree().distributed_spares()).any(|leaf| !leaf.dtl().is_empty())
    }

    /// Writes to all present leaves what they missed, then clears their DTLs; blocks that could not be
    /// repaired stay in the DTLs and the error log. A resilver that was interrupted goes on. To be called by
    /// one thread at a time; txgs are written meanwhile.
    pub fn resilver(&self, watch: &ScanProgress) -> Result<ScanResult, Error> {
        let aim = Resilver::from_tree(self.tree());
        if aim.missed.is_empty() {
            if self.scan_record().function == ScanFunction::Resilver {
                self.end_scan(true)?;
            }
            return Ok(ScanResult { is_complete: true, ..ScanResult::default() });
        }
        if !self.can_continue_resilver(&aim) {
            // what leaves missed of open txgs must be on the other leaves
            self.sync()?;
            self.set_up_scan(ScanFunction::Resilver, aim.since_txg())?;
        }
        self.error_log().begin_scan();
        let scan = Scan::new(self, &aim, watch);
        let complete = scan.run()?;
        if complete {
            self.clear_dtls(&aim, &scan.errors.lock().births)?;
            self.end_scan(true)?;
        }
        Ok(scan.result(complete && !aim.is_hopeless()))
    }

    /// Whether the pool's resilver covers all that leaves lack.
    fn can_continue_resilver(&self, aim: &Resilver) -> bool {
        let record = self.scan_record();
        let is_running = record.function == ScanFunction::Resilver && record.is_running();
        let leaves = self.tree().leaves().into_iter().chain(self.tree().distributed_spares());
        let lacking = leaves.filter(|leaf| !leaf.dtl().is_empty()).count();
        let is_within = aim.since_txg() >= record.min_txg
            && aim.all_txgs.last().is_some_and(|last| last <= record.max_txg);
        is_running && record.errors == 0 && lacking == 1 && is_within
    }

    /// Takes drives for whole, but for what was lost, as soon as what they got will last.
    fn clear_dtls(&self, aim: &Resilver, lost: &TxgRanges) -> Result<(), Error> {
        for MissedTxgs { leaf, txgs, miss_count: lapses } in aim.without_new_misses() {
            // the columns of a distributed spare are on other drives: what one of those loses is in its own DTL
            let is_flushed = match leaf.device() {
                Some(_) => leaf.flush().is_ok(),
                None => self.tree().flush(&mut Vec::new()).is_ok(),
            };
            if is_flushed {
                leaf.shrink_dtl(txgs, &txgs.intersection(lost), *lapses);
            }
        }
        self.sync()
    }
}
