//! A part of a device that is a device itself: a partition within an image of a whole disk.

use std::ops::Range;
use std::sync::Arc;

use crate::{Device, Error};

/// `size` bytes of another device, from `start` on.
#[derive(Debug, Clone)]
pub struct DeviceSlice {
    name: String,
    inner: Arc<dyn Device>,
    start: u64,
    size: u64,
}

impl DeviceSlice {
    /// A part of `inner`; cut where it would reach beyond the end.
    pub fn new(name: impl Into<String>, inner: Arc<dyn Device>, start: u64, size: u64) -> Self {
        let start = start.min(inner.size());
        let size = size.min(inner.size() - start);
        Self { name: name.into(), inner, start, size }
    }
}

impl Device for DeviceSlice {
    fn size(&self) -> u64 {
        self.size
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        Error::check_range(&self.name, self.size, offset, into.len())?;
        self.inner.read_at(self.start + offset, into)
    }

    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<(), Error> {
        let length = parts.iter().map(|part| part.len()).sum();
        Error::check_range(&self.name, self.size, offset, length)?;
        self.inner.read_parts_at(self.start + offset, parts)
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        Error::check_range(&self.name, self.size, offset, from.len())?;
        self.inner.write_at(self.start + offset, from)
    }

    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), Error> {
        let length = parts.iter().map(|part| part.len()).sum();
        Error::check_range(&self.name, self.size, offset, length)?;
        self.inner.write_parts_at(self.start + offset, parts)
    }

    fn flush(&self) -> Result<(), Error> {
        self.inner.flush()
    }

    fn may_block(&self) -> bool {
        self.inner.may_block()
    }

    fn slow_requests(&self) -> u64 {
        self.inner.slow_requests()
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        let place = |at: u64| self.start + at.min(self.size);
        self.inner.discard(place(range.start)..place(range.end))
    }
}
