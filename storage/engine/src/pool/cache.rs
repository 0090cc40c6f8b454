//! The read cache of an imported pool: its statistics, and the L2ARC feed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::pool::handles::{Background, Drives};

/// The bytes a second written to cache drives; twice as many while a drive is not full. More would
/// wear them out for little gain.
const L2ARC_FEED_RATE: u64 = 32 << 20;
/// The interval at which a waiting thread checks whether to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The statistics of a pool's read cache, since the import.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CacheCounts {
    /// Blocks that came from memory.
    pub memory_hits: u64,
    /// Blocks that did not.
    pub memory_misses: u64,
    /// Of these, blocks that came from a drive of the cache.
    pub drive_hits: u64,
    /// Blocks that the drives of the cache did not have.
    pub drive_misses: u64,
    /// Bytes that were written to drives of the cache.
    pub drive_written: u64,
    /// Blocks that are on drives of the cache.
    pub drive_blocks: u64,
}

impl Drives<'_> {
    /// How its read cache does.
    pub fn cache_counts(self) -> CacheCounts {
        let (memory_hits, memory_misses) = self.pool.0.spa.cache_hit_counts();
        let drives = self.pool.0.spa.l2arc().stats();
        CacheCounts {
            memory_hits,
            memory_misses,
            drive_hits: drives.hits,
            drive_misses: drives.misses,
            drive_written: drives.bytes_written,
            drive_blocks: drives.blocks,
        }
    }
}

impl Background<'_> {
    /// Writes up to this many recently read bytes to a cache drive; returns the number.
    pub fn feed_l2arc(self, most: u64) -> u64 {
        self.pool.0.spa.l2arc().feed(units::to_usize(most)) as u64
    }

    /// Writes recently read blocks to cache drives, every `interval`, until stopped.
    /// For a thread of its own.
    pub fn run_l2arc_feed(self, interval: Duration, stop: &AtomicBool) {
        let l2arc = self.pool.0.spa.l2arc();
        while !stop.load(Ordering::Acquire) && !self.pool.0.spa.txgs().is_stopped() {
            let begun = Instant::now();
            if l2arc.has_devices() {
                let rate =
                    if l2arc.is_warming_up() { 2 * L2ARC_FEED_RATE } else { L2ARC_FEED_RATE };
                let millis = units::narrow::<u64>(interval.as_millis());
                self.pool.background().feed_l2arc(rate * millis / 1000);
            }
            while begun.elapsed() < interval && !stop.load(Ordering::Acquire) {
                std::thread::sleep(STOP_POLL_INTERVAL.min(interval));
            }
        }
    }
}
