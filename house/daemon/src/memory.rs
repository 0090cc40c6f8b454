//! Free memory that goes back to the system.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::pool::free_buffers;

/// The time from a call that frees memory to the first return.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// The time from the first return to the second: threads of exported pools and ended mounts may
/// still end.
const SECOND_DELAY: Duration = Duration::from_millis(500);

/// Returns memory to the system after calls that free some.
#[derive(Clone)]
pub(crate) struct Heap {
    return_free_memory: fn(),
    /// Whether a return is scheduled.
    is_due: Arc<AtomicBool>,
}

impl Heap {
    /// `return_free_memory` is the allocator's way to give pages that hold nothing back to the system.
    pub(crate) fn new(return_free_memory: fn()) -> Self {
        Self { return_free_memory, is_due: Arc::default() }
    }

    /// Returns free memory in a moment, and once more a little later.
    pub(crate) fn shrink_soon(&self) {
        if self.is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let heap = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(FIRST_DELAY).await;
            heap.is_due.store(false, Ordering::Release);
            heap.shrink().await;
            tokio::time::sleep(SECOND_DELAY).await;
            heap.shrink().await;
        });
    }

    async fn shrink(&self) {
        let return_free_memory = self.return_free_memory;
        let shrink = move || {
            free_buffers();
            return_free_memory();
        };
        // the log has a panic
        let _ = tokio::task::spawn_blocking(shrink).await;
    }
}
