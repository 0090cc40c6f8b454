//! A device that looks like another one with some bytes changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Device, Error};

/// Bytes of a sector, the unit of change.
pub const SECTOR: usize = 512;

/// A device with other bytes in some sectors, or truncated. The device below is never written.
#[derive(Clone, Debug)]
pub struct Overlay {
    name: String,
    inner: Arc<dyn Device>,
    size: u64,
    changed_sectors: BTreeMap<u64, [u8; SECTOR]>,
}

impl Overlay {
    /// The device as it is.
    pub fn new(name: impl Into<String>, inner: Arc<dyn Device>) -> Self {
        let size = inner.size();
        Self { name: name.into(), inner, size, changed_sectors: BTreeMap::new() }
    }

    /// Cuts it, or lets zeros follow its end.
    pub fn resize(&mut self, size: u64) {
        self.size = size;
    }

    /// Changes a range, whole sectors at a time; the change gets the present bytes.
    pub fn edit_sectors(&mut self, offset: u64, length: usize, how: &mut dyn FnMut(&mut [u8])) {
        let first = offset - offset % SECTOR as u64;
        let count = length.div_ceil(SECTOR).max(1);
        let mut bytes = vec![0; count * SECTOR];
        if self.read_at(first, &mut bytes).is_err() {
            return;
        }
        how(&mut bytes);
        for (sector, chunk) in (0_u64..).zip(bytes.chunks_exact(SECTOR)) {
            let Ok(chunk) = chunk.try_into() else { continue };
            self.changed_sectors.insert(first / SECTOR as u64 + sector, chunk);
        }
    }
}

impl Device for Overlay {
    fn size(&self) -> u64 {
        self.size
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.size);
        let Some(end) = end else {
            let device = self.name.clone();
            return Err(Error::OutOfRange { device, offset, length: into.len(), size: self.size });
        };
        let there = usize::try_from(self.inner.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let (below, beyond) = into.split_at_mut(there.min(into.len()));
        self.inner.read_at(offset, below)?;
        beyond.fill(0);
        let sector = SECTOR as u64;
        for (number, bytes) in self.changed_sectors.range(offset / sector..end.div_ceil(sector)) {
            let from = (number * sector).max(offset);
            let to = ((number + 1) * sector).min(end);
            let place = |at: u64, base: u64| usize::try_from(at - base).unwrap_or(usize::MAX);
            into[place(from, offset)..place(to, offset)]
                .copy_from_slice(&bytes[place(from, number * sector)..place(to, number * sector)]);
        }
        Ok(())
    }
}
