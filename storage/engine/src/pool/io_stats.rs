//! The data of `zpool iostat`: the requests of each drive, and drives that are far slower than
//! their siblings.

use std::time::Duration;

use device::{IoCounts, IoKind, IoStats};
use serde::{Deserialize, Serialize};
use vdev::{ClassStats, Leaf, QueueClass, QueueStats, TotalStats, VdevNode};

use crate::pool::handles::Drives;

/// A drive is slow if its requests take this many times as long as those of its siblings,
const STANDOUT_FACTOR: u64 = 4;
/// and longer by this at least,
const STANDOUT_MARGIN: Duration = Duration::from_millis(5);
/// once it had this many of them.
const STANDOUT_MIN_REQUESTS: u64 = 200;

/// The requests of all drives of a pool at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolIoStats {
    /// The pool.
    pub name: String,
    /// Milliseconds since the pool was imported.
    pub milliseconds: u64,
    /// Each drive that is open.
    pub drives: Vec<DriveIoStats>,
}

/// The requests of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveIoStats {
    /// Its guid.
    pub guid: u64,
    /// Requests that read.
    pub read: RequestStats,
    /// Requests that write.
    pub write: RequestStats,
    /// TRIM requests.
    pub trim: RequestStats,
    /// Flush requests.
    pub flush: RequestStats,
    /// All requests by class, with the wait in the queue of the drive.
    #[serde(default)]
    pub queue: DriveQueueStats,
}

/// The queue of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriveQueueStats {
    /// Reads for which a program waits.
    pub sync_read: ClassIoStats,
    /// Writes for which a program waits: log blocks and labels.
    pub sync_write: ClassIoStats,
    /// Reads ahead of their use.
    pub async_read: ClassIoStats,
    /// Writes of txgs.
    pub async_write: ClassIoStats,
    /// Scrub and resilver.
    pub scrub: ClassIoStats,
    /// Trim.
    pub trim: ClassIoStats,
    /// Sequential rebuild.
    pub rebuild: ClassIoStats,
    /// Removal of vdevs and raidz expansion.
    pub removal: ClassIoStats,
    /// Initialize.
    pub initialize: ClassIoStats,
    /// Reads of all classes, from when they were made until they ended.
    pub total_read: LatencyStats,
    /// Writes of all classes.
    pub total_write: LatencyStats,
}

/// The requests of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassIoStats {
    /// Those that wait for their turn now.
    pub waiting: u64,
    /// Those that the drive has now.
    pub active: u64,
    /// Those that ended.
    pub requests: u64,
    /// Nanoseconds that those waited for their turn, added up.
    pub wait_nanoseconds: u64,
    /// How many of them waited 2^n nanoseconds, by n.
    pub waits: Vec<u64>,
    /// How many of them had 2^(n+9) bytes, by n.
    pub sizes: Vec<u64>,
}

/// How long requests took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyStats {
    /// Nanoseconds, added up.
    pub nanoseconds: u64,
    /// How many took 2^n nanoseconds, by n.
    pub latencies: Vec<u64>,
}

/// The requests of one kind, since the drive was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestStats {
    /// Requests that ended.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nanoseconds that they took, added up.
    pub nanoseconds: u64,
    /// Requests that have begun and not ended.
    pub in_flight: u64,
    /// How many took 2^n nanoseconds, by n.
    pub latencies: Vec<u64>,
    /// How many had 2^(n+9) bytes, by n.
    pub sizes: Vec<u64>,
}

/// A drive whose requests take far longer than those of its siblings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowDrive {
    /// Its path.
    pub device: String,
    /// "reads" or "writes".
    pub requests: String,
    /// Microseconds that one of them takes of late.
    pub microseconds: u64,
    /// The same of the middle one of its siblings.
    pub sibling_microseconds: u64,
}

impl RequestStats {
    fn new(counts: IoCounts) -> Self {
        let IoCounts { requests, bytes, nanoseconds, in_flight, latencies, sizes, .. } = counts;
        Self { requests, bytes, nanoseconds, in_flight, latencies, sizes }
    }
}

impl From<ClassStats> for ClassIoStats {
    fn from(stats: ClassStats) -> Self {
        let ClassStats { waiting, active, requests, wait_nanoseconds, waits, sizes } = stats;
        let (waiting, active) = (waiting.into(), active.into());
        Self { waiting, active, requests, wait_nanoseconds, waits, sizes }
    }
}

impl From<TotalStats> for LatencyStats {
    fn from(TotalStats { nanoseconds, latencies }: TotalStats) -> Self {
        Self { nanoseconds, latencies }
    }
}

impl From<QueueStats> for DriveQueueStats {
    fn from(stats: QueueStats) -> Self {
        let mut all = Self {
            total_read: stats.reads.into(),
            total_write: stats.writes.into(),
            ..Self::default()
        };
        for (class, stats) in QueueClass::ALL.into_iter().zip(stats.classes) {
            let field = match class {
                QueueClass::SyncRead => &mut all.sync_read,
                QueueClass::SyncWrite => &mut all.sync_write,
                QueueClass::AsyncRead => &mut all.async_read,
                QueueClass::AsyncWrite => &mut all.async_write,
                QueueClass::Scan => &mut all.scrub,
                QueueClass::Trim => &mut all.trim,
                QueueClass::Rebuild => &mut all.rebuild,
                QueueClass::Removal => &mut all.removal,
                QueueClass::Initialize => &mut all.initialize,
            };
            *field = stats.into();
        }
        all
    }
}

impl Drives<'_> {
    /// The requests of all its drives, those of the cache included.
    pub fn io_stats(self) -> PoolIoStats {
        let leaves = self.pool.0.spa.tree().leaves().into_iter();
        let own = leaves.filter_map(|leaf| {
            Some((leaf.guid(), leaf.device()?.clone(), leaf.queue_stats().into()))
        });
        let caches = self.pool.0.spa.l2arc().devices().into_iter();
        let caches = caches.map(|(guid, device)| {
            let queue = device.io_stats().map(unqueued).unwrap_or_default();
            (guid, device, queue)
        });
        let drives = own.chain(caches).filter_map(|(guid, device, queue)| {
            let stats = device.io_stats()?;
            let of = |kind| RequestStats::new(stats.counts(kind));
            Some(DriveIoStats {
                guid: guid.get(),
                read: of(IoKind::Read),
                write: of(IoKind::Write),
                trim: of(IoKind::Trim),
                flush: of(IoKind::Flush),
                queue,
            })
        });
        let milliseconds = u64::try_from(self.pool.0.imported_at.elapsed().as_millis());
        PoolIoStats {
            name: self.pool.name().to_owned(),
            milliseconds: milliseconds.unwrap_or(u64::MAX),
            drives: drives.collect(),
        }
    }

    /// Drives whose recent requests take far longer than those of their siblings.
    pub fn slow(self) -> Vec<SlowDrive> {
        let tops = self.pool.0.spa.tree().tops();
        tops.iter().flat_map(|(_, top)| slow_drives_of(top)).collect()
    }
}

/// The queue of a drive whose requests never wait.
fn unqueued(stats: &IoStats) -> DriveQueueStats {
    let total = |kind| {
        let IoCounts { nanoseconds, latencies, .. } = stats.counts(kind);
        LatencyStats { nanoseconds, latencies }
    };
    let (total_read, total_write) = (total(IoKind::Read), total(IoKind::Write));
    DriveQueueStats { total_read, total_write, ..DriveQueueStats::default() }
}

/// The drives of a top-level vdev that stand out from the others.
fn slow_drives_of(top: &VdevNode) -> Vec<SlowDrive> {
    let mut found = Vec::new();
    for (kind, word) in [(IoKind::Read, "reads"), (IoKind::Write, "writes")] {
        let recent = |leaf: &Leaf| {
            let counts = leaf.device()?.io_stats()?.counts(kind);
            let is_known = counts.requests >= STANDOUT_MIN_REQUESTS;
            is_known.then(|| (leaf.path().to_owned(), counts.recent_nanoseconds))
        };
        let all: Vec<(String, u64)> = top.leaves().iter().filter_map(|leaf| recent(leaf)).collect();
        for (at, (device, own)) in all.iter().enumerate() {
            let others = all.iter().enumerate().filter(|(other, _)| *other != at);
            let Some(middle) = median(others.map(|(_, (_, time))| *time).collect()) else {
                continue;
            };
            if stands_out(*own, middle) {
                found.push(SlowDrive {
                    device: device.clone(),
                    requests: word.to_owned(),
                    microseconds: own / 1000,
                    sibling_microseconds: middle / 1000,
                });
            }
        }
    }
    found
}

/// The middle of some figures; of an even number the higher one.
fn median(mut all: Vec<u64>) -> Option<u64> {
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

/// Whether a latency (nanoseconds) is far above that of the siblings.
fn stands_out(own: u64, siblings: u64) -> bool {
    let margin = units::narrow::<u64>(STANDOUT_MARGIN.as_nanos());
    own / STANDOUT_FACTOR > siblings && own > siblings + margin
}

#[cfg(test)]
mod tests {
    use super::{median, stands_out};

    #[test]
    fn only_a_far_slower_drive_stands_out() {
        assert!(stands_out(40_000_000, 8_000_000), "40 ms beside 8 ms");
        assert!(!stands_out(30_000_000, 8_000_000), "30 ms beside 8 ms");
        assert!(!stands_out(900_000, 100_000), "0.9 ms beside 0.1 ms");
        assert_eq!((median(vec![9, 1, 5]), median(Vec::new())), (Some(5), None));
    }
}
