//! Requests that take far too long: the drive may be about to fail, though it gives no errors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What takes longer is counted.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many requests took longer than half a minute.
#[derive(Debug, Default)]
pub(crate) struct Slow(AtomicU64);

impl Slow {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Does a request, and counts it if it takes too long.
    pub(crate) fn watch<T>(&self, request: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = request();
        self.note(start.elapsed());
        done
    }

    fn note(&self, took: Duration) {
        if took > PATIENCE {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Slow;

    #[test]
    fn half_a_minute_is_too_long() {
        let slow = Slow::default();
        assert_eq!(slow.watch(|| 7), 7);
        slow.note(Duration::from_secs(29));
        assert_eq!(slow.count(), 0);
        slow.note(Duration::from_secs(31));
        assert_eq!(slow.count(), 1);
    }
}
