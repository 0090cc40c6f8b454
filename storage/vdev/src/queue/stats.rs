//! The counts of a queue: how many I/Os of each class, how large, and how long they waited.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use device::{LatencyHistogram, SizeHistogram};

use super::QueueClass;

/// The I/Os of one class at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ClassStats {
    /// Those that wait for their turn.
    pub waiting: u32,
    /// Those that the device has.
    pub active: u32,
    /// Those that ended.
    pub requests: u64,
    /// Nanoseconds that those waited for their turn, added up.
    pub wait_nanoseconds: u64,
    /// How many of them waited 2^n nanoseconds, by n.
    pub waits: Vec<u64>,
    /// How many of them had 2^(n+9) bytes, by n.
    pub sizes: Vec<u64>,
}

/// The reads, or the writes, of all classes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TotalStats {
    /// Nanoseconds that they took, with the wait for their turn, added up.
    pub nanoseconds: u64,
    /// How many of them took 2^n nanoseconds, by n.
    pub latencies: Vec<u64>,
}

/// The counts of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Those of each class, in the order of [`QueueClass::ALL`].
    pub classes: [ClassStats; QueueClass::ALL.len()],
    /// The reads.
    pub reads: TotalStats,
    /// The writes.
    pub writes: TotalStats,
}

/// The I/Os of a class, which many threads count.
#[derive(Debug, Default)]
pub(super) struct ClassCounters {
    pub(super) waiting: AtomicU32,
    pub(super) active: AtomicU32,
    requests: AtomicU64,
    wait_nanoseconds: AtomicU64,
    waits: LatencyHistogram,
    sizes: SizeHistogram,
}

/// The reads, or the writes, of all classes, which many threads count.
#[derive(Debug, Default)]
pub(super) struct TotalCounters {
    nanoseconds: AtomicU64,
    latencies: LatencyHistogram,
}

impl ClassCounters {
    /// Counts an I/O that ended. `waited`: for its turn, if it had to wait.
    pub(super) fn count(&self, bytes: u64, waited: Option<Duration>) {
        self.requests.fetch_add(1, Relaxed);
        self.sizes.add(bytes);
        if let Some(waited) = waited {
            self.count_wait(waited);
        }
    }

    /// Counts a wait for a turn.
    pub(super) fn count_wait(&self, waited: Duration) {
        let nanoseconds = units::narrow::<u64>(waited.as_nanos());
        self.wait_nanoseconds.fetch_add(nanoseconds, Relaxed);
        self.waits.add(nanoseconds);
    }

    pub(super) fn stats(&self) -> ClassStats {
        let (mut waits, requests) = (self.waits.counts(), self.requests.load(Relaxed));
        // those that did not have to wait; one that ends meanwhile may be counted as such
        let counted: u64 = waits.iter().sum();
        if let (Some(none), Some(rest)) = (waits.first_mut(), requests.checked_sub(counted)) {
            *none += rest;
        }
        ClassStats {
            waiting: self.waiting.load(Relaxed),
            active: self.active.load(Relaxed),
            requests,
            wait_nanoseconds: self.wait_nanoseconds.load(Relaxed),
            waits,
            sizes: self.sizes.counts(),
        }
    }
}

impl TotalCounters {
    pub(super) fn count(&self, took: Duration) {
        let nanoseconds = units::narrow::<u64>(took.as_nanos());
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
        self.latencies.add(nanoseconds);
    }

    pub(super) fn stats(&self) -> TotalStats {
        let (nanoseconds, latencies) = (self.nanoseconds.load(Relaxed), self.latencies.counts());
        TotalStats { nanoseconds, latencies }
    }
}
