//! Drives of which it is watched how long they take: one that is about to fail may give no errors for
//! days, and have everybody wait.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::{Device, Error, File};

/// What takes longer is counted.
const SLOW_THRESHOLD: Duration = Duration::from_secs(30);

/// A drive that counts its slow requests.
#[derive(Debug)]
struct TimedDevice {
    file: File,
    slow_requests: AtomicU64,
}

/// Opens a drive for this program alone.
pub(super) fn open_exclusive(path: &Path) -> Result<Arc<dyn Device>, Error> {
    Ok(Arc::new(TimedDevice {
        file: File::open_exclusive(path)?,
        slow_requests: AtomicU64::new(0),
    }))
}

impl TimedDevice {
    /// Does a request, and counts it if it takes too long.
    fn time_request<T>(&self, request: impl FnOnce(&File) -> T) -> T {
        let start = Instant::now();
        let done = request(&self.file);
        if is_slow(start.elapsed()) {
            self.slow_requests.fetch_add(1, Ordering::Relaxed);
        }
        done
    }
}

fn is_slow(took: Duration) -> bool {
    took > SLOW_THRESHOLD
}

impl Device for TimedDevice {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn name(&self) -> &str {
        self.file.name()
    }

    fn path(&self) -> Option<&Path> {
        self.file.path()
    }

    fn is_gone(&self) -> bool {
        self.file.is_gone()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.time_request(|drive| drive.read_at(offset, into))
    }

    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<(), Error> {
        self.time_request(|drive| drive.read_parts_at(offset, parts))
    }

    fn is_writable(&self) -> bool {
        self.file.is_writable()
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.time_request(|drive| drive.write_at(offset, from))
    }

    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), Error> {
        self.time_request(|drive| drive.write_parts_at(offset, parts))
    }

    fn flush(&self) -> Result<(), Error> {
        self.time_request(File::flush)
    }

    fn may_block(&self) -> bool {
        self.file.may_block()
    }

    fn slow_requests(&self) -> u64 {
        self.slow_requests.load(Ordering::Relaxed)
    }

    fn reopen(&self, judge: &dyn Fn(&Arc<dyn Device>) -> bool) -> Result<(), Error> {
        self.file.reopen(judge)
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        self.time_request(|drive| drive.discard(range))
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, is_slow};

    #[test]
    fn half_a_minute_is_too_long() {
        assert!(!is_slow(Duration::from_secs(29)) && is_slow(Duration::from_secs(31)));
    }
}
