//! Cancelling a request for whose answer nobody waits any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a request is cancelled. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

/// Cancels a request when it is dropped.
pub(crate) struct CancelOnDrop(Cancel);

impl Cancel {
    /// Whoever works on the request should stop where that leaves something whole.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Cancels the request when the returned value is dropped.
    pub(crate) fn on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Release);
    }
}
