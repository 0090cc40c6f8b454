//! Counts of the requests of a device: how many, how many bytes, how long, and histograms of both.
//!
//! A request costs a handful of relaxed additions. Counts never go back, so two readings give rates.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of latencies: bucket n counts requests of 2^n to 2^(n+1) nanoseconds; the last also longer ones.
const LATENCY_BUCKETS: usize = 37;
/// Buckets of sizes: bucket n counts requests of 2^(n+9) to 2^(n+10) bytes; the first also smaller ones, the
/// last also larger ones.
const SIZE_BUCKETS: usize = 16;
/// log2 of the least size of the second bucket is one more.
const MIN_SIZE_SHIFT: u32 = 9;

/// How many requests took how many nanoseconds.
pub type LatencyHistogram = Histogram<LATENCY_BUCKETS, 0>;
/// How many requests had how many bytes.
pub type SizeHistogram = Histogram<SIZE_BUCKETS, MIN_SIZE_SHIFT>;
/// The recent latency moves by one part in this many towards the latency of each request.
const RECENT_WEIGHT: u64 = 64;

/// Counts of values by their log2; the first of the buckets is for values below `2^(SHIFT + 1)`.
#[derive(Debug)]
pub struct Histogram<const BUCKETS: usize, const SHIFT: u32>([AtomicU64; BUCKETS]);

impl<const BUCKETS: usize, const SHIFT: u32> Default for Histogram<BUCKETS, SHIFT> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const BUCKETS: usize, const SHIFT: u32> Histogram<BUCKETS, SHIFT> {
    /// Counts a value.
    pub fn add(&self, value: u64) {
        self.0[bucket(value, SHIFT, BUCKETS)].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of all buckets.
    pub fn counts(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// TRIM: the space is not in use.
    Trim,
    /// Flush: the device makes written data stable.
    Flush,
}

impl IoKind {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Trim, Self::Flush];
}

/// The counts of a device, which many threads add to.
#[derive(Debug, Default)]
pub struct IoStats {
    kinds: [KindStats; 4],
}

#[derive(Debug, Default)]
struct KindStats {
    requests: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
    recent_nanoseconds: AtomicU64,
    in_flight: AtomicU64,
    latencies: LatencyHistogram,
    sizes: SizeHistogram,
}

/// The counts of one kind of requests at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Requests that ended.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nanoseconds that they took, added up.
    pub nanoseconds: u64,
    /// Nanoseconds that requests took of late: a moving mean.
    pub recent_nanoseconds: u64,
    /// Requests that have begun and not ended.
    pub in_flight: u64,
    /// How many took 2^n nanoseconds, by n.
    pub latencies: Vec<u64>,
    /// How many had 2^(n+9) bytes, by n.
    pub sizes: Vec<u64>,
}

impl IoStats {
    /// Notes that a request begins.
    pub fn begin(&self, kind: IoKind) {
        self.kinds[kind as usize].in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a request ended which took so long.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn end(&self, kind: IoKind, bytes: u64, took: Duration) {
        let stats = &self.kinds[kind as usize];
        let nanoseconds = units::narrow::<u64>(took.as_nanos());
        let before = stats.in_flight.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a request ends that began");
        stats.requests.fetch_add(1, Ordering::Relaxed);
        stats.bytes.fetch_add(bytes, Ordering::Relaxed);
        stats.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        // a mean that loses a sample to another thread is as good
        let recent = stats.recent_nanoseconds.load(Ordering::Relaxed);
        let moved = moving_mean(recent, nanoseconds);
        stats.recent_nanoseconds.store(moved, Ordering::Relaxed);
        stats.latencies.add(nanoseconds);
        stats.sizes.add(bytes);
    }

    /// The counts of a kind as they are now.
    pub fn counts(&self, kind: IoKind) -> IoCounts {
        let stats = &self.kinds[kind as usize];
        IoCounts {
            requests: stats.requests.load(Ordering::Relaxed),
            bytes: stats.bytes.load(Ordering::Relaxed),
            nanoseconds: stats.nanoseconds.load(Ordering::Relaxed),
            recent_nanoseconds: stats.recent_nanoseconds.load(Ordering::Relaxed),
            in_flight: stats.in_flight.load(Ordering::Relaxed),
            latencies: stats.latencies.counts(),
            sizes: stats.sizes.counts(),
        }
    }
}

/// The mean after one more sample; the first sample is the mean.
const fn moving_mean(mean: u64, sample: u64) -> u64 {
    if mean == 0 {
        return sample;
    }
    mean - mean / RECENT_WEIGHT + sample / RECENT_WEIGHT
}

/// The bucket of a value; the first is for values below `2^(shift + 1)`.
fn bucket(value: u64, shift: u32, count: usize) -> usize {
    let log = value.max(1).ilog2();
    let at = usize::try_from(log.max(shift) - shift).unwrap_or(count);
    at.min(count - 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{IoKind, IoStats, moving_mean};

    #[test]
    fn requests_are_counted_by_kind_and_bucket() {
        let stats = IoStats::default();
        stats.begin(IoKind::Read);
        stats.begin(IoKind::Read);
        stats.end(IoKind::Read, 4096, Duration::from_nanos(1500));
        let read = stats.counts(IoKind::Read);
        assert_eq!((read.requests, read.bytes, read.in_flight), (1, 4096, 1));
        assert_eq!((read.latencies[10], read.sizes[3], read.recent_nanoseconds), (1, 1, 1500));
        stats.end(IoKind::Read, 1 << 40, Duration::from_secs(1 << 20));
        let read = stats.counts(IoKind::Read);
        assert_eq!((read.latencies[36], read.sizes[15]), (1, 1));
        assert_eq!(stats.counts(IoKind::Write).requests, 0);
    }

    #[test]
    fn recent_latency_follows_the_samples() {
        let mean = (0..1000).fold(0, |mean, _| moving_mean(mean, 6400));
        assert_eq!(mean, 6400);
        let mean = (0..1000).fold(mean, |mean, _| moving_mean(mean, 640_000));
        assert!((600_000..=640_000).contains(&mean), "{mean}");
    }
}
