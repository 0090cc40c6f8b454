//! Whether another host has a pool right now, which it did not export: then its drives change.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ondisk::uberblock::{Multihost, Uberblock};
use spa::Candidate;

use super::Held;
use crate::{Error, Result};

/// How often it is looked at a pool's drives.
const LOOK: Duration = Duration::from_secs(1);
/// How long it is looked at the drives of a pool whose host knew nothing of signs of life: it
/// would have written within that time, as pools do every few seconds that are in use.
const UNKNOWN: Duration = Duration::from_secs(20);
/// Signs after which a host gives up, if the pool does not say how many: never, so be patient.
const MANY: u32 = 20;
/// A thread that waits looks so often whether it is to stop.
const STEP: Duration = Duration::from_millis(50);

/// How long no sign of life means that no host has the pool; none: it gives none.
fn patience(uberblock: &Uberblock) -> Option<Duration> {
    let Some(Multihost { delay, interval, fail_intervals, .. }) = uberblock.multihost else {
        return Some(UNKNOWN);
    };
    if delay == 0 {
        return None;
    }
    let interval = interval.map_or(LOOK, |interval| Duration::from_millis(interval.into()));
    // its host gives up after that time; twice as long is safe
    match fail_intervals.filter(|count| *count > 0) {
        Some(count) => Some(interval.saturating_mul(u32::from(count) * 2)),
        None => Some(
            UNKNOWN.max(interval.saturating_add(Duration::from_nanos(delay)).saturating_mul(MANY)),
        ),
    }
}

/// What changes as long as a host has the pool.
fn pulse(uberblock: &Uberblock) -> (u64, u64, Option<u16>) {
    let count = uberblock.multihost.and_then(|multihost| multihost.sequence);
    (uberblock.txg.get(), uberblock.timestamp, count)
}

/// Watches a pool that another host had. Gives whether that host, or any, is seen to have it.
fn lives(
    first: &Uberblock,
    look: &mut dyn FnMut() -> Option<Uberblock>,
    wait: &mut dyn FnMut(Duration),
) -> bool {
    let Some(mut left) = patience(first) else { return false };
    let step = LOOK.min(left.checked_div(8).unwrap_or(LOOK));
    while !left.is_zero() {
        wait(step);
        left = left.saturating_sub(step);
        if look().is_some_and(|now| pulse(&now) != pulse(first)) {
            return true;
        }
    }
    false
}

/// Refuses a pool that another host has right now, after having watched its drives.
pub(super) fn check(candidate: &Candidate, host: &str) -> Result<()> {
    let paths: Vec<PathBuf> =
        candidate.devices.iter().map(|device| Path::new(device.device.name()).to_owned()).collect();
    let newest = |candidate: &Candidate| candidate.newest().cloned();
    let Some(first) = newest(candidate) else { return Ok(()) };
    let guid = candidate.guid.get().to_string();
    let mut look = || newest(crate::search(&paths).choose(&guid).ok()?);
    if lives(&first, &mut look, &mut std::thread::sleep) {
        let pool = candidate.name().to_owned();
        return Err(Error::LivesElsewhere { pool, host: host.to_owned() });
    }
    Ok(())
}

impl Held {
    /// Gives signs of life while the pool has multihost protection, until told to stop. When none
    /// could be given for so long that another host may have taken the pool, nothing is written to
    /// it any more. For a thread of its own.
    pub fn give_signs(&self, interval: Duration, stop: &AtomicBool) {
        let owned = &self.0.owned;
        let mut last = Instant::now();
        while !stop.load(Ordering::Acquire) && !owned.groups().is_stopped() {
            let wanted = owned.gives_signs();
            if wanted && last.elapsed() > interval.saturating_mul(spa::SIGNS_MISSED.into()) {
                return owned.give_up();
            }
            if !wanted || owned.give_sign(interval).is_ok() {
                last = Instant::now();
            }
            let begun = Instant::now();
            while begun.elapsed() < interval && !stop.load(Ordering::Acquire) {
                std::thread::sleep(STEP.min(interval));
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

    use super::{UNKNOWN, lives, patience};

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

    fn sign(delay: u64, count: u16) -> Multihost {
        Multihost { delay, interval: Some(100), sequence: Some(count), fail_intervals: Some(10) }
    }

    #[test]
    fn who_gives_signs_is_waited_for_twice_as_long_as_it_goes_on_without() {
        assert_eq!(patience(&uberblock(Some(sign(100_000_000, 1)))), Some(Duration::from_secs(2)));
        assert_eq!(patience(&uberblock(Some(sign(0, 0)))), None, "it said that it gives none");
        assert_eq!(patience(&uberblock(None)), Some(UNKNOWN));
    }

    #[test]
    fn a_host_that_writes_is_seen() {
        let first = uberblock(Some(sign(100_000_000, 1)));
        let mut waited = Duration::ZERO;
        let mut wait = |time| waited += time;
        assert!(!lives(&first, &mut || Some(first.clone()), &mut wait), "nothing changes");
        assert!(waited >= Duration::from_secs(2));
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            Some(uberblock(Some(sign(100_000_000, if looks < 3 { 1 } else { 2 }))))
        };
        assert!(lives(&first, &mut look, &mut |_| ()));
        let written = Uberblock { timestamp: first.timestamp + 1, ..first.clone() };
        assert!(lives(&first, &mut || Some(written.clone()), &mut |_| ()));
        let quiet = uberblock(Some(sign(0, 0)));
        assert!(!lives(&quiet, &mut || panic!("nobody looks"), &mut |_| ()));
    }
}
