//! A drive whose reads end when the test says so.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use device::{Device, Error as IoError, MemoryDevice};
use parking_lot::Mutex;

/// A drive with a clock.
#[derive(Debug)]
pub(crate) struct StuckDrive {
    inner: MemoryDevice,
    opened: Instant,
    releases: Mutex<VecDeque<Receiver<()>>>,
}

impl StuckDrive {
    pub(crate) fn blank(name: &str, size: usize) -> Arc<Self> {
        let inner = MemoryDevice::new(name, &vec![0; size]);
        Arc::new(Self { inner, opened: Instant::now(), releases: Mutex::default() })
    }

    /// Has one more read wait until something is sent, or the sender is dropped.
    pub(crate) fn hold_next_read(&self) -> Sender<()> {
        let (release, stuck) = channel();
        self.releases.lock().push_back(stuck);
        release
    }

    /// Whether all reads that are to wait have begun.
    pub(crate) fn are_reads_held(&self) -> bool {
        self.releases.lock().is_empty()
    }
}

impl Device for StuckDrive {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let release = self.releases.lock().pop_front();
        if let Some(release) = release {
            let _ = release.recv();
        }
        self.inner.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        self.inner.write_at(offset, from)
    }

    fn now(&self) -> Duration {
        self.opened.elapsed()
    }
}
