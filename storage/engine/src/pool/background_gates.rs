//! Gates that suspend scans and removals, so that tests of scripts see them in progress.

use std::sync::Arc;

use spa::BackgroundGate;

use crate::pool::handles::Activities;

/// Background work that a gate can suspend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatedWork {
    /// Scrubs, error scrubs, resilvers and rebuilds (`zfs_scan_suspend_progress`).
    Scan,
    /// Removals of vdevs (`zfs_removal_suspend_progress`).
    Removal,
}

/// The gates of a pool: open, unless the caller gave others.
#[derive(Default)]
pub(super) struct BackgroundGates {
    pub(super) scan: BackgroundGate,
    pub(super) removal: BackgroundGate,
}

impl Activities<'_> {
    /// Suspends scans and removals that begin from now on, whenever `is_held` says so of them.
    pub fn set_gates(self, is_held: Arc<dyn Fn(GatedWork) -> bool + Send + Sync>) {
        let of_removal = Arc::clone(&is_held);
        let scan = BackgroundGate::new(Arc::new(move || is_held(GatedWork::Scan)));
        let removal = BackgroundGate::new(Arc::new(move || of_removal(GatedWork::Removal)));
        *self.pool.0.background_gates.lock() = BackgroundGates { scan, removal };
    }
}
