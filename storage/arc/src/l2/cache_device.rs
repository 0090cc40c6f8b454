//! A drive of the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::Device;
use ondisk::Checksum;
use ondisk::l2arc::{HEADER_OFFSET, Header};
use parking_lot::Mutex;
use transform::checksum::embedded;
use units::{Ashift, Guid};

use super::L2DeviceStats;
use super::ring::{Ring, header_size};
use super::writer::RingWriter;

/// A drive that could not be read or written so often is left alone.
const MAX_ERRORS: u64 = 10;

/// A drive of the cache.
pub(super) struct CacheDevice {
    /// Its key in the index.
    pub(super) id: u64,
    pub(super) guid: Guid,
    pub(super) ashift: Ashift,
    pub(super) device: Arc<dyn Device>,
    /// The writer of the device.
    pub(super) writer: Mutex<RingWriter>,
    size: u64,
    is_disabled: AtomicBool,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    checksum_errors: AtomicU64,
}

impl CacheDevice {
    /// None where it is too small.
    pub(super) fn new(
        number: u64,
        guid: Guid,
        ashift: Ashift,
        device: Arc<dyn Device>,
    ) -> Option<Self> {
        let ring = Ring::new(device.size(), ashift)?;
        let size = ring.size();
        let pen = Mutex::new(RingWriter::new(ring));
        let (is_out, read_errors, write_errors, checksum_errors) = Default::default();
        Some(Self {
            id: number,
            guid,
            ashift,
            device,
            writer: pen,
            size,
            is_disabled: is_out,
            read_errors,
            write_errors,
            checksum_errors,
        })
    }

    /// Whether it may be read and written.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_disabled.load(Ordering::Acquire)
    }

    /// Whether it is not full yet.
    pub(super) fn is_warming_up(&self) -> bool {
        self.is_usable() && self.writer.lock().is_warming_up()
    }

    /// Stops its use; returns when no thread writes to it.
    pub(super) fn disable(&self) {
        self.is_disabled.store(true, Ordering::Release);
        drop(self.writer.lock());
    }

    /// Bytes that may be written to it before others are looked at.
    pub(super) fn max_write_bytes(&self) -> usize {
        units::to_usize(self.size / 4)
    }

    /// It could not be read; whether it is left alone from now on.
    pub(super) fn record_read_error(&self) -> bool {
        self.read_errors.fetch_add(1, Ordering::Relaxed);
        self.disable_if_failing()
    }

    /// It could not be written.
    pub(super) fn record_write_error(&self) {
        self.write_errors.fetch_add(1, Ordering::Relaxed);
        self.disable_if_failing();
    }

    /// A block from it was wrong.
    pub(super) fn record_checksum_error(&self) {
        self.checksum_errors.fetch_add(1, Ordering::Relaxed);
    }

    fn disable_if_failing(&self) -> bool {
        let errors = [&self.read_errors, &self.write_errors];
        let errors: u64 = errors.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        errors >= MAX_ERRORS && !self.is_disabled.swap(true, Ordering::AcqRel)
    }

    /// Clears its error counts; it is used again.
    pub(super) fn clear_errors(&self) {
        for count in [&self.read_errors, &self.write_errors, &self.checksum_errors] {
            count.store(0, Ordering::Relaxed);
        }
        self.is_disabled.store(false, Ordering::Release);
    }

    pub(super) fn stats(&self, allocated: u64) -> L2DeviceStats {
        L2DeviceStats {
            guid: self.guid,
            name: self.device.name().to_owned(),
            is_failed: !self.is_usable(),
            read_errors: self.read_errors.load(Ordering::Relaxed),
            write_errors: self.write_errors.load(Ordering::Relaxed),
            checksum_errors: self.checksum_errors.load(Ordering::Relaxed),
            size: self.size,
            allocated,
        }
    }

    /// The header on it, if one stands there that is whole.
    pub(super) fn read_header(&self) -> Option<Header> {
        let mut bytes = vec![0; usize::try_from(header_size(self.ashift)).ok()?];
        self.device.read_at(HEADER_OFFSET, &mut bytes).ok()?;
        let sealed = embedded::verify(&bytes, &[HEADER_OFFSET, 0, 0, 0], Checksum::Label, false);
        if sealed { Header::parse(&bytes).ok() } else { None }
    }

    /// Writes the header; true if that could be done.
    pub(super) fn write_header(&self, header: &Header) -> bool {
        let mut bytes = vec![0; units::to_usize(header_size(self.ashift))];
        let fields = header.encode();
        bytes[..fields.len()].copy_from_slice(&fields);
        let sealed = embedded::seal(&mut bytes, &[HEADER_OFFSET, 0, 0, 0], Checksum::Label, false);
        assert!(sealed.is_some(), "a sector has space for its checksum");
        self.write(HEADER_OFFSET, &bytes)
    }

    /// Writes; true if that could be done.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let done = self.device.write_at(at, bytes).is_ok();
        if !done {
            self.record_write_error();
        }
        done
    }

    /// Writes the rest of the queue and the log; true if that succeeded.
    pub(super) fn flush(&self) -> bool {
        let done = self.device.flush().is_ok();
        if !done {
            self.record_write_error();
        }
        done
    }
}
