//! Drives that failed for a while although they were connected all the time, and answer again.
//!
//! Such a drive lacks the txgs in which it failed. The scan activity looks every few seconds: a failing drive
//! gets the labels of a txg as a test, and a drive that takes writes again is resilvered. Each failed test
//! counts as a write error, so that a drive that keeps failing is soon faulted for too many errors.

use std::collections::HashMap;

use units::Guid;
use vdev::Leaf;

use super::Pool;

/// Seconds between two tests.
const TEST_INTERVAL: u64 = 10;

/// The drives that the last resilver began with.
#[derive(Debug, Default)]
pub(super) struct DriveRecovery {
    /// When drives were last tested, in seconds since 1970.
    tested: u64,
    /// How many times each drive had missed something when a resilver last began.
    resilvered: HashMap<Guid, u64>,
}

impl DriveRecovery {
    /// Notes which misses a resilver that begins now covers.
    pub(super) fn begin_resilver(&mut self, pool: &Pool) {
        let leaves = pool.0.spa.tree().leaves();
        self.resilvered = leaves.iter().map(|leaf| (leaf.guid(), leaf.miss_count())).collect();
    }

    /// Whether a drive works that missed something since the last resilver began. To be called often; drives
    /// are tested from time to time only.
    pub(super) fn find_recovered(&mut self, pool: &Pool) -> bool {
        let now = (pool.0.environment.now)().0;
        let is_due = now.abs_diff(self.tested) >= TEST_INTERVAL;
        if !is_due || pool.is_read_only() || pool.is_suspended() {
            return false;
        }
        self.tested = now;
        let leaves = || pool.0.spa.tree().leaves().into_iter().filter(|leaf| is_in_service(leaf));
        if leaves().any(|leaf| leaf.is_failing()) {
            // a txg writes to the labels of failing drives too
            let _ = pool.0.spa.run_sync_task(|_, _| ());
        }
        leaves().any(|leaf| {
            let misses = leaf.miss_count();
            !leaf.is_failing()
                && !leaf.dtl().is_empty()
                && misses > self.resilvered.get(&leaf.guid()).copied().unwrap_or(0)
        })
    }
}

/// Whether a leaf takes part in its vdev, and its device is still where it was.
fn is_in_service(leaf: &Leaf) -> bool {
    leaf.is_writable() && leaf.out_of_service().is_none() && !leaf.is_device_gone()
}
