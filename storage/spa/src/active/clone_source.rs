//! Transactions that clone blocks of another dataset, a head or a snapshot; and whether a block is shared.
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
use ondisk::Blkptr;
use ondisk::dsl::Dataset as DatasetPhys;
use txg::{ClosedGate, Tx, TxGate};
use units::{ObjectId, ObjsetId, Txg};

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
        if source.is_same(target.objset()) {
            return self.begin_dataset_tx(target).map(Some);
        }
        if source.is_writable() {
            let head = self.dataset(source.id()).filter(|head| head.objset().is_same(source));
            return match head {
                Some(head) => self.begin_tx_from(target, head.gate()),
                None => Ok(None),
            };
        }
        let tx = self.begin_tx_from(target, &self.snapshot_gate)?;
        Ok(tx.filter(|_| self.is_snapshot(source)))
    }

    fn begin_tx_from(&self, target: &OpenDataset, source: &TxGate) -> Result<Option<Tx>, Error> {
        match self.txgs.begin_tx_behind(&[target.gate(), source]) {
            Some(tx) => Ok(Some(tx)),
            None if source.is_retired() => Ok(None),
            None => Err(self.suspend_error().unwrap_or(Error::Closed)),
        }
    }

    /// Whether an object set is the content of a snapshot, by the MOS with all changes of the txg that
    /// is being written. A number may have been used again, so the root block is compared. If the record
    /// cannot be read, the blocks are copied.
    fn is_snapshot(&self, source: &Objset) -> bool {
        let record = self.dataset_record(source.id());
        record.is_ok_and(|record| record.is_snapshot() && record.root == *source.root())
    }

    /// The record of a dataset, by the MOS with all changes of the txg that is being written.
    fn dataset_record(&self, id: ObjsetId) -> Result<DatasetPhys, Error> {
        let record = self.mos.object(ObjectId::new(id.get()))?;
        Ok(DatasetPhys::parse(record.bonus(), record.bonus_order())?)
    }

    /// The txg of the newest snapshot of a head, or of the snapshot that it is a clone of: that snapshot
    /// shares the blocks that are not younger. 0 if there is none.
    pub fn newest_snapshot_txg(&self, head: ObjsetId) -> Result<Txg, Error> {
        Ok(self.dataset_record(head)?.previous_txg)
    }

    /// Whether the table of clones counts further references to a block.
    pub fn is_cloned(&self, pointer: &Blkptr) -> Result<bool, Error> {
        match pointer {
            Blkptr::Regular(block) => self.block_refs.is_cloned(block),
            _ => Ok(false),
        }
    }
}
