//! A gate for the transactions of one dataset.
//!
//! While a rollback or a receive exchanges the head of a dataset, the gate is closed: no
//! transaction of the dataset begins. Every change is then either part of the old head, where the
//! sync task sees it, or it fails. None is lost between a check and the exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{Tx, Txgs};

/// The gate of a dataset.
#[derive(Debug, Default)]
pub struct TxGate {
    /// The number of guards that keep it closed.
    closers: AtomicUsize,
    is_retired: AtomicBool,
}

/// A closed gate, which opens when the last of these is dropped.
#[derive(Debug)]
pub struct ClosedGate {
    pub(crate) gate: Arc<TxGate>,
    pub(crate) txgs: Txgs,
}

impl TxGate {
    pub(crate) fn close(&self) {
        self.closers.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether transactions wait.
    pub(crate) fn is_closed(&self) -> bool {
        self.closers.load(Ordering::Acquire) > 0
    }

    /// Refuses every transaction from now on.
    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    /// Whether every transaction is refused.
    pub fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }
}

/// Begins the transactions of one dataset. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GatedTxgs {
    txgs: Txgs,
    gate: Arc<TxGate>,
}

impl GatedTxgs {
    /// The txgs of a pool behind the gate of a dataset.
    pub const fn new(txgs: Txgs, gate: Arc<TxGate>) -> Self {
        Self { txgs, gate }
    }

    /// The txgs of the pool.
    pub const fn txgs(&self) -> &Txgs {
        &self.txgs
    }

    /// A hold on the open txg, as [`Txgs::begin_gated_tx`] gives it.
    pub fn begin_tx(&self) -> Option<Tx> {
        self.txgs.begin_gated_tx(&self.gate)
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        let before = self.gate.closers.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0 || std::thread::panicking(), "a gate opens as often as it was closed");
        self.txgs.wake_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::Txg;

    use super::TxGate;
    use crate::{TxgLimits, Txgs};

    #[test]
    fn closed_gate_holds_transactions_back() {
        let txgs = Txgs::new(Txg::new(1), TxgLimits::default());
        let gate = Arc::new(TxGate::default());
        let before = txgs.begin_gated_tx(&gate).unwrap();
        let closed = txgs.close_gate(&gate);
        let waiter = {
            let (txgs, gate) = (txgs.clone(), Arc::clone(&gate));
            std::thread::spawn(move || txgs.begin_gated_tx(&gate).map(|tx| tx.txg()))
        };
        // other datasets continue
        assert_eq!(txgs.begin_tx().unwrap().txg(), before.txg());
        drop(before);
        let written = txgs.quiesce();
        drop(closed);
        assert!(waiter.join().unwrap() > Some(written));
        gate.retire();
        assert!(txgs.begin_gated_tx(&gate).is_none());
    }

    #[test]
    fn gate_opens_with_its_last_guard() {
        let txgs = Txgs::new(Txg::new(1), TxgLimits::default());
        let gates = [Arc::new(TxGate::default()), Arc::new(TxGate::default())];
        let guards = [txgs.close_gate(&gates[1]), txgs.close_gate(&gates[1])];
        let [first, second] = guards;
        drop(first);
        assert!(gates[1].is_closed());
        drop(second);
        assert!(txgs.begin_tx_behind(&[&gates[0], &gates[1]]).is_some());
        gates[0].retire();
        assert!(txgs.begin_tx_behind(&[&gates[0], &gates[1]]).is_none());
    }
}
