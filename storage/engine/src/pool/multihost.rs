//! Whether another host has a pool right now, which it did not export: then its drives change.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ondisk::uberblock::{Multihost, Uberblock};
use spa::Candidate;

use crate::pool::handles::Background;
use crate::{Error, Result};

/// How often it is looked at a pool's drives.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the drives of a pool without MMP are watched: a host that has it imported
/// would sync within that time, as pools in use do every few seconds.
const NO_MMP_CHECK_TIME: Duration = Duration::from_secs(20);
/// The assumed number of missed heartbeats after which a host suspends, if the pool gives none:
/// never.
const IMPORT_INTERVALS: u32 = 20;
/// A thread that waits looks so often whether it is to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The time without a heartbeat after which no host has the pool; none: its host writes none.
fn activity_check_time(uberblock: &Uberblock) -> Option<Duration> {
    let Some(Multihost { delay, interval, fail_intervals, .. }) = uberblock.multihost else {
        return Some(NO_MMP_CHECK_TIME);
    };
    if delay == 0 {
        return None;
    }
    let interval =
        interval.map_or(POLL_INTERVAL, |interval| Duration::from_millis(interval.into()));
    // its host suspends after that time; twice as long is safe
    match fail_intervals.filter(|count| *count > 0) {
        Some(count) => Some(interval * (u32::from(count) * 2)),
        None => {
            Some(NO_MMP_CHECK_TIME.max((interval + Duration::from_nanos(delay)) * IMPORT_INTERVALS))
        }
    }
}

/// The values that change while a host has the pool imported.
fn activity_marker(uberblock: &Uberblock) -> (u64, u64, Option<u16>) {
    let count = uberblock.multihost.and_then(|multihost| multihost.sequence);
    (uberblock.txg.get(), uberblock.timestamp, count)
}

/// Watches a pool that another host had imported. Returns whether a host is seen to have it.
fn has_activity(
    first: &Uberblock,
    look: &mut dyn FnMut() -> Option<Uberblock>,
    wait: &mut dyn FnMut(Duration),
) -> bool {
    let Some(mut left) = activity_check_time(first) else { return false };
    let step = POLL_INTERVAL.min(left.checked_div(8).unwrap_or(POLL_INTERVAL));
    while !left.is_zero() {
        wait(step);
        left = left.saturating_sub(step);
        if look().is_some_and(|now| activity_marker(&now) != activity_marker(first)) {
            return true;
        }
    }
    false
}

/// Refuses a pool that another host has right now, after having watched its drives.
pub(super) fn check_activity(candidate: &Candidate, host: &str) -> Result<()> {
    let paths: Vec<PathBuf> =
        candidate.devices.iter().map(|device| Path::new(device.device.name()).to_owned()).collect();
    let newest = |candidate: &Candidate| candidate.newest_uberblock().cloned();
    let Some(first) = newest(candidate) else { return Ok(()) };
    let guid = candidate.guid.get().to_string();
    let mut look = || newest(crate::search(&paths).find_candidate(&guid).ok()?);
    if has_activity(&first, &mut look, &mut std::thread::sleep) {
        let pool = candidate.name().to_owned();
        return Err(Error::ActiveOnOtherHost { pool, host: host.to_owned() });
    }
    Ok(())
}

impl Background<'_> {
    /// Writes MMP heartbeats while the pool has multihost protection, until stopped. When no
    /// heartbeat could be written for so long that another host may have imported the pool, nothing
    /// is written to it any more. For a thread of its own.
    pub fn run_mmp_heartbeat(self, interval: Duration, stop: &AtomicBool) {
        let active = &self.pool.0.spa;
        let mut last = Instant::now();
        while !stop.load(Ordering::Acquire) && !active.txgs().is_stopped() {
            let wanted = active.has_heartbeat();
            if wanted && last.elapsed() > interval * u32::from(spa::SIGNS_MISSED) {
                return active.stop_writes();
            }
            if !wanted || active.write_heartbeat(interval).is_ok() {
                last = Instant::now();
            }
            let begun = Instant::now();
            while begun.elapsed() < interval && !stop.load(Ordering::Acquire) {
                std::thread::sleep(STOP_POLL_INTERVAL.min(interval));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ondisk::uberblock::{Multihost, Reflow, Uberblock};
    use ondisk::{Blkptr, Order};
    use units::Txg;

    use super::{NO_MMP_CHECK_TIME, activity_check_time, has_activity};

    fn uberblock(multihost: Option<Multihost>) -> Uberblock {
        Uberblock {
            order: Order::Little,
            version: 5000,
            txg: Txg::new(7),
            guid_sum: 1,
            timestamp: 1_700_000_000,
            root: Blkptr::EMPTY,
            software_version: 5000,
            multihost,
            checkpoint_txg: Txg::ZERO,
            reflow: Reflow::default(),
        }
    }

    fn mmp_fields(delay: u64, count: u16) -> Multihost {
        Multihost { delay, interval: Some(100), sequence: Some(count), fail_intervals: Some(10) }
    }

    #[test]
    fn watch_lasts_twice_the_suspend_time() {
        assert_eq!(
            activity_check_time(&uberblock(Some(mmp_fields(100_000_000, 1)))),
            Some(Duration::from_secs(2))
        );
        assert_eq!(
            activity_check_time(&uberblock(Some(mmp_fields(0, 0)))),
            None,
            "its host writes no heartbeats"
        );
        assert_eq!(activity_check_time(&uberblock(None)), Some(NO_MMP_CHECK_TIME));
    }

    #[test]
    fn a_host_that_writes_is_seen() {
        let first = uberblock(Some(mmp_fields(100_000_000, 1)));
        let mut waited = Duration::ZERO;
        let mut wait = |time| waited += time;
        assert!(!has_activity(&first, &mut || Some(first.clone()), &mut wait), "nothing changes");
        assert!(waited >= Duration::from_secs(2));
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            Some(uberblock(Some(mmp_fields(100_000_000, if looks < 3 { 1 } else { 2 }))))
        };
        assert!(has_activity(&first, &mut look, &mut |_| ()));
        let written = Uberblock { timestamp: first.timestamp + 1, ..first.clone() };
        assert!(has_activity(&first, &mut || Some(written.clone()), &mut |_| ()));
        let quiet = uberblock(Some(mmp_fields(0, 0)));
        assert!(!has_activity(&quiet, &mut || panic!("no watch is needed"), &mut |_| ()));
    }
}
