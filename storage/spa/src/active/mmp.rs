//! Signs of life: while a pool has multihost protection, its host writes, over and over, an
//! uberblock that says no more than that somebody has the pool.
//!
//! ```text
//! ring of a label    slots 0 to n-2: uberblocks of txgs; slot n-1: the last sign
//! a sign             the last txg's uberblock, with the second in which it is given, a number
//!                    that counts within that second, how often signs are given (ms), and after
//!                    how many that are missing the host itself gives the pool up
//! ```
//!
//! Each sign goes into one label of one leaf, by chance. Whoever wants to take over a pool that
//! another host had looks for longer than that host would go on without a sign.
//!
//! Learnt from: OpenZFS 2.3.2's mmp. Proved by: the engine's
//! `pool_with_heartbeats_is_not_imported`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ondisk::uberblock::{Multihost, Uberblock};
use parking_lot::Mutex;

use super::ActivePool;
use crate::commit::commit_targets;
use crate::{Error, PoolDirectory, TxgCommitter};

/// The host gives the pool up after so many signs that could not be given.
pub const FAIL_INTERVALS: u16 = 10;
/// How often signs are given, if nobody says otherwise.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// Whether signs are given, and which was the last.
pub(crate) struct Heartbeat {
    is_enabled: AtomicBool,
    last: Mutex<LastHeartbeat>,
}

struct LastHeartbeat {
    second: u64,
    sequence: u16,
    interval: Duration,
}

impl Heartbeat {
    /// As the pool's properties have it.
    pub(super) fn load(directory: &PoolDirectory) -> Result<Self, Error> {
        let number = match directory.object("pool_props")? {
            Some(table) => zap::Zap::open(table)?.lookup_u64(b"multihost")?,
            None => None,
        };
        let last = LastHeartbeat { second: 0, sequence: 0, interval: DEFAULT_INTERVAL };
        Ok(Self { is_enabled: AtomicBool::new(number == Some(1)), last: Mutex::new(last) })
    }

    /// What a common uberblock says of them.
    pub(super) fn multihost(&self) -> Multihost {
        let interval = self.last.lock().interval;
        multihost_fields(self.is_enabled.load(Ordering::Acquire).then_some(interval), 0)
    }
}

/// Says that signs come after each interval, or that none will.
fn multihost_fields(interval: Option<Duration>, count: u16) -> Multihost {
    let Some(interval) = interval else {
        return Multihost { delay: 0, interval: None, sequence: None, fail_intervals: None };
    };
    Multihost {
        delay: units::narrow::<u64>(interval.as_nanos()),
        interval: Some(units::narrow::<u32>(interval.as_millis())),
        sequence: Some(count),
        fail_intervals: Some(FAIL_INTERVALS),
    }
}

impl ActivePool {
    /// Whether signs of life are given.
    pub fn has_heartbeat(&self) -> bool {
        self.heartbeat.is_enabled.load(Ordering::Acquire) && !self.is_read_only
    }

    /// Has signs given, or no more, from the next group on.
    pub fn set_heartbeat(&self, wanted: bool) {
        self.heartbeat.is_enabled.store(wanted, Ordering::Release);
        // the labels tell at once
        self.config.lock().is_dirty = true;
    }

    /// Writes nothing any more: another host may have the pool.
    pub fn stop_writes(&self) {
        self.stop_writes_for(&Error::HeartbeatLost);
    }

    /// Gives a sign of life; the next comes after `interval`. False: signs are not wanted. An error
    /// where no drive takes it.
    pub fn write_heartbeat(&self, interval: Duration) -> Result<bool, Error> {
        if !self.has_heartbeat() {
            return Ok(false);
        }
        let second = (self.environment.now)().seconds;
        let count = {
            let mut last = self.heartbeat.last.lock();
            // a number that began anew within its second would look older
            last.sequence = if last.second == second { last.sequence + 1 } else { 1 };
            (last.second, last.interval) = (second, interval);
            last.sequence
        };
        let uberblock = Uberblock {
            timestamp: second,
            multihost: Some(multihost_fields(Some(interval), count)),
            ..self.uberblock.read().clone()
        };
        let leaves = commit_targets(&self.tree, uberblock.txg);
        let first = units::to_usize(self.environment.random_u64()).checked_rem(leaves.len());
        let (before, after) = leaves.split_at(first.unwrap_or(0));
        let label = units::narrow::<u32>(self.environment.random_u64() % 4);
        let given = after.iter().chain(before);
        let mut given = given.map(|leaf| TxgCommitter::write_heartbeat(&uberblock, leaf, label));
        if given.any(|taken| taken) { Ok(true) } else { Err(Error::NoDeviceWritten) }
    }
}
