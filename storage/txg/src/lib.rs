//! Transaction groups: open, quiescing, syncing.
//!
//! Changes are made within a [`Tx`], a hold on the open txg. At intervals the open txg is closed
//! and a new one opens at once. The closed one waits until its last hold is dropped (it quiesces),
//! and is then written as a whole (it syncs). So at most three txgs are active, and one thread
//! writes the pool.
//!
//! This crate does no I/O and has no clock: it counts, and makes threads wait. A thread that
//! dirties memory reports the bytes, and is delayed when too much is dirty ([`TxgLimits`]).
//!
//! Lock order: lock the object first, then begin the [`Tx`]. Two threads that change the same
//! object then do so in txgs that never decrease.
#![forbid(unsafe_code)]

mod gate;
mod throttle;
mod txgs;

pub use gate::{ClosedGate, GatedTxgs, TxGate};
pub use throttle::TxgLimits;
pub use txgs::{SyncThreadGuard, Tx, Txgs};
