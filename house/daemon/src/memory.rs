//! The daemon's memory: it returns free pages to the system, and shrinks the cache when memory is short.
//!
//! The cache has half of the memory that the daemon may use. Open file systems, mounts and buffers
//! have the other half. If they use more, the cache shrinks by as much, and grows again later:
//!
//! ```text
//! | cache                    | dirty data, I/O, open file systems |        resident <= limit
//! | cache        | reserved  | dirty data, I/O, open file systems ... |    they use more
//! ```
//!
//! The allocator keeps the memory of threads that have ended. After many of them ended, as when clients disconnect or
//! file systems are unmounted, the daemon returns it.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::pool::{MemoryBudget, MemoryReservation, free_buffers};
use units::MinusOrZero as _;

/// The time from a call that frees memory to the first return.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// The time from the first return to the second: threads of exported pools and ended mounts may
/// still end.
const SECOND_DELAY: Duration = Duration::from_millis(500);

/// Returns memory to the system after calls that free some.
#[derive(Clone)]
pub(crate) struct Heap {
    return_free_memory: fn(),
    /// Whether a return is scheduled.
    is_due: Arc<AtomicBool>,
}

impl Heap {
    /// `return_free_memory` is the allocator's way to give pages that hold nothing back to the system.
    pub(crate) fn new(return_free_memory: fn()) -> Self {
        Self { return_free_memory, is_due: Arc::default() }
    }

    /// Returns free memory in a moment, and once more a little later.
    pub(crate) fn shrink_soon(&self) {
        if self.is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let heap = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(FIRST_DELAY).await;
            heap.is_due.store(false, Ordering::Release);
            heap.shrink().await;
            tokio::time::sleep(SECOND_DELAY).await;
            heap.shrink().await;
        });
    }

    async fn shrink(&self) {
        let return_free_memory = self.return_free_memory;
        let shrink = move || {
            free_buffers();
            return_free_memory();
        };
        // the log has a panic
        let _ = tokio::task::spawn_blocking(shrink).await;
    }
}

/// The time between two readings of the daemon's memory.
const PRESSURE_INTERVAL: Duration = Duration::from_millis(100);
/// The part of the memory that is kept free for growth between two readings.
const HEADROOM_DIVISOR: usize = 8;
/// The cache keeps at least this part of its memory: below it, each block would be read again and again.
const MIN_CACHE_DIVISOR: usize = 8;
/// A change of the reservation that is worth the work.
const MIN_CHANGE: usize = 1 << 20;

/// As many threads have to end before their memory is worth a return.
const ENDED_THREADS: u64 = 16;
/// The number of readings without an ended thread after which no more are expected.
const QUIET_READINGS: u32 = 10;

/// The number of the daemon's threads, reading after reading.
#[derive(Default)]
struct ThreadCount {
    /// The most threads since the last return of memory.
    most: u64,
    last: u64,
    /// The readings since one was below that before it.
    quiet: u32,
}

impl ThreadCount {
    /// Notes a reading. Returns whether the memory of ended threads has to be returned now.
    fn record(&mut self, count: u64) -> bool {
        self.quiet = if count < self.last { 0 } else { self.quiet.wrapping_add(1) };
        self.last = count;
        self.most = self.most.max(count);
        let is_due = self.most - count >= ENDED_THREADS && self.quiet >= QUIET_READINGS;
        if is_due {
            self.most = count;
        }
        is_due
    }
}

/// Shrinks the cache while the rest of the daemon uses more than its share.
pub(crate) struct MemoryPressure {
    /// The resident bytes above which the cache shrinks.
    limit: usize,
    reservation: MemoryReservation,
    /// The bytes of the reservation, and the most that it may have.
    reserved: usize,
    max_reserved: usize,
}

impl MemoryPressure {
    /// `limit`: the bytes that the daemon may use, of which the blocks of `cache` are a part.
    pub(crate) fn new(limit: u64, cache: &MemoryBudget) -> Self {
        let max_reserved = cache.bytes() - cache.bytes() / MIN_CACHE_DIVISOR;
        let reservation = cache.reserve();
        let limit = units::to_usize(limit);
        let limit = limit - limit / HEADROOM_DIVISOR;
        Self { limit, reservation, reserved: 0, max_reserved }
    }

    /// Follows the daemon's memory and threads until it ends.
    pub(crate) async fn watch(mut self, heap: Heap) {
        let mut ticks = tokio::time::interval(PRESSURE_INTERVAL);
        let mut threads = ThreadCount::default();
        loop {
            ticks.tick().await;
            if threads.record(thread_count().unwrap_or(0)) {
                heap.shrink().await;
            }
            let Some(resident) = resident_bytes() else { return };
            let next = self.next_reservation(resident);
            let grew = next > self.reserved;
            if next.abs_diff(self.reserved) < MIN_CHANGE {
                continue;
            }
            self.reserved = next;
            // blocks are evicted here: not on the thread that serves requests
            let done = tokio::task::spawn_blocking(move || {
                self.reservation.set_bytes(next);
                self
            });
            // the log has a panic; the cache goes on with the last reservation
            let Ok(this) = done.await else { return };
            self = this;
            if grew {
                heap.shrink().await;
            }
        }
    }

    /// The reservation by which the daemon comes to its limit, if the rest of it stays as it is.
    fn next_reservation(&self, resident: usize) -> usize {
        let wanted = self.reserved + resident;
        if wanted > self.limit { (wanted - self.limit).min(self.max_reserved) } else { 0 }
    }
}

/// The bytes of this process that no other shares and no file backs.
fn resident_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').skip(1).map(str::parse::<usize>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    // the kernel counts both at different moments
    Some(resident.minus_or_zero(shared) * rustix::param::page_size())
}

/// The number of threads of this process.
fn thread_count() -> Option<u64> {
    // its directory has a link for each, besides two of its own
    std::fs::metadata("/proc/self/task").ok()?.nlink().checked_sub(2)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};
    use std::time::Duration;

    use engine::pool::MemoryBudget;

    use super::{ENDED_THREADS, Heap, MemoryPressure, QUIET_READINGS, ThreadCount, resident_bytes};

    #[test]
    fn ended_threads_are_counted_once() {
        let mut threads = ThreadCount::default();
        let mut is_due = |count: u64| threads.record(count);
        assert!((10..40).all(|count| !is_due(count)));
        // they end one after another
        assert!((12..40).rev().all(|count| !is_due(count)));
        assert!((1..QUIET_READINGS).all(|_| !is_due(12)));
        assert!(is_due(12));
        assert!((0..2 * QUIET_READINGS).all(|_| !is_due(12)));
        assert!((0..2 * QUIET_READINGS).all(|_| !is_due(12 + ENDED_THREADS - 1)));
        assert!((0..2 * QUIET_READINGS).all(|_| !is_due(12)), "too few");
    }

    static RETURNS: AtomicUsize = AtomicUsize::new(0);

    #[tokio::test]
    async fn memory_of_ended_threads_is_returned() {
        let pressure = MemoryPressure::new(1 << 40, &MemoryBudget::with_bytes(1 << 20));
        let heap = Heap::new(|| _ = RETURNS.fetch_add(1, Ordering::Relaxed));
        let watch = tokio::spawn(pressure.watch(heap));
        let count = 4 * ENDED_THREADS;
        let all_run = Arc::new(Barrier::new(units::to_usize(count) + 1));
        let start = |_| {
            let all_run = Arc::clone(&all_run);
            std::thread::spawn(move || {
                all_run.wait();
                // a reading sees them
                std::thread::sleep(Duration::from_millis(500));
            })
        };
        let _threads: Vec<_> = (0..count).map(start).collect();
        tokio::task::spawn_blocking(move || all_run.wait()).await.unwrap();
        while RETURNS.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        watch.abort();
    }

    #[test]
    fn cache_shrinks_while_the_rest_grows() {
        let budget = MemoryBudget::with_bytes(128 << 20);
        let mut pressure = MemoryPressure::new(256 << 20, &budget);
        assert_eq!(pressure.next_reservation(200 << 20), 0);
        assert_eq!(pressure.next_reservation(268 << 20), 44 << 20);
        pressure.reserved = 44 << 20;
        assert_eq!(pressure.next_reservation(224 << 20), 44 << 20, "the limit is met");
        assert_eq!(pressure.next_reservation(218 << 20), 38 << 20, "some goes back");
        assert_eq!(pressure.next_reservation(2 << 30), 112 << 20, "an eighth stays");
        assert_eq!(pressure.next_reservation(100 << 20), 0);
    }

    #[test]
    fn resident_memory_is_counted_in_bytes() {
        let before = resident_bytes().unwrap();
        let block = vec![1_u8; 32 << 20];
        let after = resident_bytes().unwrap();
        assert!(after >= before + (24 << 20), "{before} {after} {}", block[12345]);
    }
}
