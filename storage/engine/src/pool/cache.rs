//! The read cache of a held pool: how it does, and what writes to its drives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Pool;

/// So many bytes a second are written to drives of the cache, and as many more as long as one is
/// not full: more would wear them out for little.
const L2ARC_FEED_RATE: u64 = 32 << 20;
/// Who waits looks this often whether it is to end.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How a pool's read cache does, since the pool was taken over.
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

impl Pool {
    /// How its read cache does.
    pub fn cache_counts(&self) -> CacheCounts {
        let (memory_hits, memory_misses) = self.0.spa.cache_hit_counts();
        let drives = self.0.spa.l2arc().stats();
        CacheCounts {
            memory_hits,
            memory_misses,
            drive_hits: drives.hits,
            drive_misses: drives.misses,
            drive_written: drives.bytes_written,
            drive_blocks: drives.blocks,
        }
    }

    /// Writes up to so many bytes of what was read lately to a drive of the cache; gives how many.
    pub fn feed_l2arc(&self, most: u64) -> u64 {
        self.0.spa.l2arc().feed(units::to_usize(most)) as u64
    }

    /// Writes what was read lately to drives of the cache, every `interval`, until told to stop.
    /// For a thread of its own.
    pub fn run_l2arc_feed(&self, interval: Duration, stop: &AtomicBool) {
        let l2arc = self.0.spa.l2arc();
        while !stop.load(Ordering::Acquire) && !self.0.spa.txgs().is_stopped() {
            let begun = Instant::now();
            if l2arc.has_devices() {
                let rate =
                    if l2arc.is_warming_up() { 2 * L2ARC_FEED_RATE } else { L2ARC_FEED_RATE };
                let millis = units::narrow::<u64>(interval.as_millis());
                self.feed_l2arc(rate * millis / 1000);
            }
            while begun.elapsed() < interval && !stop.load(Ordering::Acquire) {
                std::thread::sleep(STOP_POLL_INTERVAL.min(interval));
            }
        }
    }
}
