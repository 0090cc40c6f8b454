//! Transactions that clone blocks of another dataset, a head or a snapshot.
//!
//! A clone in txg T is safe while no earlier txg frees the blocks of its source: the sync of T counts the
//! new references before it frees anything. So the transaction also waits at the gate of its source.
//!
//! ```text
//! source is    gate                        closed by a sync task that
//! a head       the head's own              destroys, rolls back or exchanges the head
//! a snapshot   one for all snapshots       may destroy snapshots
//! ```
//!
//! A task that closed a gate runs in the open txg or a later one, hence not before a clone that began
//! earlier. A clone that begins later finds in the MOS whether its snapshot is still there.

use dmu::Objset;
use ondisk::dsl::Dataset as DatasetPhys;
use txg::{ClosedGate, Tx, TxGate};
use units::ObjectId;

use super::{ActivePool, OpenDataset};
use crate::Error;

impl ActivePool {
    /// Holds back clones from snapshots until the guard is dropped. A sync task that may destroy
    /// snapshots owns the guard.
    pub fn close_snapshot_gate(&self) -> ClosedGate {
        self.txgs.close_gate(&self.snapshot_gate)
    }

    /// A hold on the open txg for clones of blocks of `source` into `target`. `None` if the source was
    /// destroyed or rolled back, or is neither an open head nor a snapshot: its blocks must be copied.
    pub fn begin_clone_tx(
        &self,
        target: &OpenDataset,
        source: &Objset,
    ) -> Result<Option<Tx>, Error> {
        if source.is_same(&target.objset) {
            return self.begin_dataset_tx(target).map(Some);
        }
        if source.is_writable() {
            let head = self.dataset(source.id()).filter(|head| head.objset.is_same(source));
            return match head {
                Some(head) => self.begin_tx_from(target, &head.gate),
                None => Ok(None),
            };
        }
        let tx = self.begin_tx_from(target, &self.snapshot_gate)?;
        Ok(tx.filter(|_| self.is_snapshot(source)))
    }

    fn begin_tx_from(&self, target: &OpenDataset, source: &TxGate) -> Result<Option<Tx>, Error> {
        match self.txgs.begin_tx_behind(&[&target.gate, source]) {
            Some(tx) => Ok(Some(tx)),
            None if source.is_retired() => Ok(None),
            None => Err(self.suspend_error().unwrap_or(Error::Closed)),
        }
    }

    /// Whether an object set is the content of a snapshot, by the MOS with all changes of the txg that
    /// is being written. A number may have been used again, so the root block is compared. If the record
    /// cannot be read, the blocks are copied.
    fn is_snapshot(&self, source: &Objset) -> bool {
        let Ok(record) = self.mos.object(ObjectId::new(source.id().get())) else { return false };
        let record = DatasetPhys::parse(record.bonus(), record.bonus_order());
        record.is_ok_and(|record| record.is_snapshot() && record.root == *source.root())
    }
}
