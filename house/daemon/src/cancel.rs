//! Cancellation of a call whose client hung up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a call is cancelled. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

/// Cancels a call when it is dropped.
pub(crate) struct CancelOnDrop(Cancel);

impl Cancel {
    /// Whether the call is cancelled. Its handler stops where it leaves something whole.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Cancels the call when the returned value is dropped.
    pub(crate) fn on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Release);
    }
}
