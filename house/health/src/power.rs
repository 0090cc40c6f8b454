//! Spin-down of idle drives, and an estimate of the watts that drives take.
//!
//! ```text
//! active    the pool's requests are compared with those of the last look
//!   |       no request for the idle time: STANDBY IMMEDIATE to all drives of the pool
//! standby   the first request wakes one drive; all others of the pool are woken at the same time
//! ```
//!
//! The timers see the requests of the pool only. smartctl reads no sleeping drive, and an idle pool writes nothing.

use std::time::Duration;

/// The requests of all drives of a pool at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolRequests {
    /// Requests that ended, since the pool was imported.
    pub ended: u64,
    /// Requests that run.
    pub in_flight: u64,
}

/// The next step for the drives of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerStep {
    /// None.
    Nothing,
    /// Send all drives to standby.
    Sleep,
    /// Wake all drives.
    Wake,
}

/// The idle timer of a pool. Times are spans since any fixed moment, of a clock that is never set.
#[derive(Clone, Debug)]
pub struct IdleTimer {
    last: PoolRequests,
    /// When the last request was seen.
    active_at: Duration,
    is_asleep: bool,
}

impl IdleTimer {
    /// The timer of a pool that is awake.
    pub fn new(now: Duration, requests: PoolRequests) -> Self {
        Self { last: requests, active_at: now, is_asleep: false }
    }

    /// Whether the drives were sent to standby and not woken since.
    pub fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    /// Compares the requests with those of the last look.
    pub fn step(&mut self, now: Duration, requests: PoolRequests, idle: Duration) -> PowerStep {
        let is_active = requests.in_flight > 0 || requests.ended != self.last.ended;
        self.last = requests;
        if is_active {
            self.active_at = now;
            return if std::mem::take(&mut self.is_asleep) {
                PowerStep::Wake
            } else {
                PowerStep::Nothing
            };
        }
        if self.is_asleep || now < self.active_at + idle {
            return PowerStep::Nothing;
        }
        self.is_asleep = true;
        PowerStep::Sleep
    }
}

/// The power that a drive takes, in milliwatts, by its kind ("HDD", "SSD", "NVMe"). These are usual values of drives of
/// that kind; a single one may differ by half.
pub fn estimated_milliwatts(kind: &str, is_asleep: bool) -> u64 {
    match (kind, is_asleep) {
        ("HDD", true) => 700,
        ("HDD", false) => 5500,
        ("NVMe", _) => 1500,
        _ => 800,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{IdleTimer, PoolRequests, PowerStep, estimated_milliwatts};

    #[test]
    fn idle_pools_sleep_once_and_wake() {
        let at = Duration::from_secs;
        let idle = at(600);
        let requests = |ended, in_flight| PoolRequests { ended, in_flight };
        let mut timer = IdleTimer::new(at(0), requests(5, 0));
        assert_eq!(timer.step(at(599), requests(5, 0), idle), PowerStep::Nothing);
        // a request that takes long keeps the drives awake
        assert_eq!(timer.step(at(601), requests(5, 1), idle), PowerStep::Nothing);
        assert_eq!(timer.step(at(1200), requests(6, 0), idle), PowerStep::Nothing);
        assert_eq!(timer.step(at(1799), requests(6, 0), idle), PowerStep::Nothing);
        assert_eq!(timer.step(at(1800), requests(6, 0), idle), PowerStep::Sleep);
        assert!(timer.is_asleep());
        assert_eq!(timer.step(at(9000), requests(6, 0), idle), PowerStep::Nothing);
        assert_eq!(timer.step(at(9001), requests(6, 1), idle), PowerStep::Wake);
        assert_eq!(timer.step(at(9002), requests(7, 0), idle), PowerStep::Nothing);
        assert_eq!(timer.step(at(9602), requests(7, 0), idle), PowerStep::Sleep);
    }

    #[test]
    fn sleeping_disks_take_less() {
        assert!(estimated_milliwatts("HDD", true) < estimated_milliwatts("HDD", false));
    }
}
