//! `poolhouse zpool wait`, and the waiting of other commands.

use std::thread;
use std::time::Duration;

use engine::pool::{PoolStatus, ScanKind};

use super::query_reports;
use crate::daemon::DaemonArgs;
use crate::outcome::Failure;

/// How often it is looked whether an activity has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An activity of a pool that ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Discard,
    Scrub,
    Resilver,
}

impl Activity {
    /// Whether the activity goes on.
    pub(super) fn is_active(self, pool: &PoolStatus) -> bool {
        let is_scanning = |kind| {
            pool.scan.as_ref().is_some_and(|scan| scan.scan == kind && scan.state == "scanning")
        };
        match self {
            Self::Discard => {
                pool.checkpoint.as_ref().is_some_and(|kept| kept.state == "discarding")
            }
            Self::Scrub => is_scanning(ScanKind::Scrub),
            Self::Resilver => is_scanning(ScanKind::Resilver),
        }
    }
}

/// Waits until none of these activities goes on. A pool that is exported meanwhile is an error.
pub(super) fn wait_until_idle(
    asking: &DaemonArgs,
    pool: &str,
    activities: &[Activity],
) -> Result<(), Failure> {
    let names = [pool.to_owned()];
    loop {
        let found = query_reports(asking, &names)?;
        let is_active =
            |activity: &Activity| found.iter().any(|pool| activity.is_active(&pool.status));
        if !activities.iter().any(is_active) {
            return Ok(());
        }
        thread::sleep(POLL_INTERVAL);
    }
}
