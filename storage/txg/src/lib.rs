//! Transaction groups: open, quiescing, syncing.
//!
//! Changes are made within a [`Tx`], a hold on the group that is open. Every so often the open
//! group is closed: a new one opens at once, the closed one waits until its last hold is dropped
//! (it quiesces), and is then written out as a whole (it syncs). So there are three groups at
//! most, and one writer of the pool.
//!
//! Nothing here does I/O or knows the time: it counts, and lets others wait. Who dirties memory
//! says so, and is slowed when too much waits to be written ([`TxgLimits`]).
//!
//! Rule of order: take the lock of what you change first, and begin the [`Tx`] then. Two who
//! change the same thing then do so in groups that never run backwards.
#![forbid(unsafe_code)]

mod gate;
mod throttle;
mod txgs;

pub use gate::{ClosedGate, GatedTxgs, TxGate};
pub use throttle::TxgLimits;
pub use txgs::{SyncThreadGuard, Tx, Txgs};
