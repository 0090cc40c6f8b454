//! A failed assertion ends the pool, and not the daemon.
//!
//! A failed assertion or an arithmetic overflow means that our own counts do not agree. The next
//! write could then be wrong. So the pool writes nothing more: the last synced txg stays valid, and
//! `zpool clear` imports the pool at it.
//!
//! ```text
//! the sync thread panics         its txg is not committed
//! a thread panics within a Tx    the txg that has half of its change is not committed
//! ```
//!
//! Proved by: `tests/it/assertions.rs`.

use std::any::Any;
use std::sync::{Arc, Weak};

use super::ActivePool;
use crate::Error;

impl ActivePool {
    /// Has the pool stop when a thread panics that holds a transaction.
    pub fn stop_on_panics(self: &Arc<Self>) {
        let pool: Weak<Self> = Arc::downgrade(self);
        self.txgs.set_panic_hook(move || {
            if let Some(pool) = pool.upgrade() {
                pool.stop_writes_for(&Error::AssertionFailed {
                    what: "a change was interrupted, the log has the place".to_owned(),
                });
            }
        });
    }

    /// Stops the pool after a panic of the sync thread; returns the error that it gives from now
    /// on.
    pub(super) fn stop_after_panic(&self, panic: &(dyn Any + Send)) -> Error {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let what = text.unwrap_or("the log has the place").to_owned();
        let error = Error::AssertionFailed { what };
        self.stop_writes_for(&error);
        error
    }

    /// Stops all writes, for this reason or an earlier one.
    pub(super) fn stop_writes_for(&self, error: &Error) {
        self.fatal_error.set(error.clone());
        self.tree.retire();
        self.abort_txgs();
    }
}
