//! Counts and times the requests of drives: a failing drive may give no errors for days, and block
//! everything.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::{Device, Error, File, IoKind, IoStats};

/// Slower requests are counted as slow.
const SLOW_THRESHOLD: Duration = Duration::from_secs(30);

/// For how long a drive may stay open after it was detached.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often it is tried meanwhile.
const RELEASE_POLL: Duration = Duration::from_millis(10);

/// A drive that counts its requests.
#[derive(Debug)]
struct TimedDevice {
    file: File,
    slow_requests: AtomicU64,
    stats: IoStats,
    opened: Instant,
}

/// Opens a drive for this program alone.
pub(super) fn open_exclusive(path: &Path) -> Result<Arc<dyn Device>, Error> {
    let file = File::open_exclusive(path)?;
    let (slow_requests, stats) = (AtomicU64::new(0), IoStats::default());
    Ok(Arc::new(TimedDevice { file, slow_requests, stats, opened: Instant::now() }))
}

/// Like [`open_exclusive`], for a drive that was perhaps just detached from a pool of this process: requests that
/// began before keep it open until they end.
pub(super) fn open_exclusive_once_released(path: &Path) -> Result<Arc<dyn Device>, Error> {
    let start = Instant::now();
    loop {
        match open_exclusive(path) {
            Err(Error::InUse { .. })
                if device::is_open_for_writing(path) && start.elapsed() < RELEASE_TIMEOUT =>
            {
                std::thread::sleep(RELEASE_POLL);
            }
            opened => return opened,
        }
    }
}

impl TimedDevice {
    /// Does a request of this many bytes, and counts it.
    fn time_request<T>(&self, kind: IoKind, bytes: u64, request: impl FnOnce(&File) -> T) -> T {
        self.stats.begin(kind);
        let start = Instant::now();
        let done = request(&self.file);
        let took = start.elapsed();
        self.stats.end(kind, bytes, took);
        if is_slow(took) {
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

    fn current_size(&self) -> u64 {
        self.file.current_size()
    }

    fn adopt_size(&self) {
        self.file.adopt_size();
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
        let bytes = into.len() as u64;
        self.time_request(IoKind::Read, bytes, |drive| drive.read_at(offset, into))
    }

    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<(), Error> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.time_request(IoKind::Read, bytes, |drive| drive.read_parts_at(offset, parts))
    }

    fn is_writable(&self) -> bool {
        self.file.is_writable()
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let bytes = from.len() as u64;
        self.time_request(IoKind::Write, bytes, |drive| drive.write_at(offset, from))
    }

    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), Error> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.time_request(IoKind::Write, bytes, |drive| drive.write_parts_at(offset, parts))
    }

    fn flush(&self) -> Result<(), Error> {
        self.time_request(IoKind::Flush, 0, File::flush)
    }

    fn may_block(&self) -> bool {
        self.file.may_block()
    }

    fn slow_requests(&self) -> u64 {
        self.slow_requests.load(Ordering::Relaxed)
    }

    fn io_stats(&self) -> Option<&IoStats> {
        Some(&self.stats)
    }

    fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    fn reopen(&self, judge: &dyn Fn(&Arc<dyn Device>) -> bool) -> Result<(), Error> {
        self.file.reopen(judge)
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        let bytes = range.end - range.start;
        self.time_request(IoKind::Trim, bytes, |drive| drive.discard(range))
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, is_slow, open_exclusive, open_exclusive_once_released};

    #[test]
    fn detached_drive_is_opened_once_requests_end() {
        let path = std::env::temp_dir().join(format!("poolhouse-released-{}", std::process::id()));
        std::fs::write(&path, [0; 512]).unwrap();
        let before = open_exclusive(&path).unwrap();
        assert!(open_exclusive(&path).is_err(), "a request under way has it open");
        let request = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(before);
        });
        let opened = open_exclusive_once_released(&path);
        request.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(opened.is_ok());
    }

    #[test]
    fn half_a_minute_is_too_long() {
        assert!(!is_slow(Duration::from_secs(29)) && is_slow(Duration::from_secs(31)));
    }
}
