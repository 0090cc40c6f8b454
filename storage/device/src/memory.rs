//! A device in memory, for tests and simulations: sparse, and cheap to copy.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::{Device, Error};

/// Bytes that are kept, or not, together.
const PAGE_SIZE: usize = 4096;

type Page = Arc<[u8; PAGE_SIZE]>;

/// Bytes in memory. A clone is a device of its own with the same content; what neither has
/// written since they share.
pub struct MemoryDevice {
    name: String,
    size: u64,
    pages: RwLock<BTreeMap<u64, Page>>,
}

impl MemoryDevice {
    /// A device that holds `bytes`.
    pub fn new(name: impl Into<String>, bytes: &[u8]) -> Self {
        let memory = Self::zeroed(name, bytes.len() as u64);
        memory.write_pages(0, bytes);
        memory
    }

    /// A device of `size` bytes, all zero: they take no memory until they are written.
    pub fn zeroed(name: impl Into<String>, size: u64) -> Self {
        Self { name: name.into(), size, pages: RwLock::default() }
    }

    /// Its content, whole.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; units::to_usize(self.size)];
        self.read_pages(0, &mut bytes);
        bytes
    }

    /// Writes within the size.
    fn write_pages(&self, offset: u64, from: &[u8]) {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        for (page, start, range) in split_at_pages(offset, from.len()) {
            let part = &from[range];
            if !pages.contains_key(&page) && part.iter().all(|byte| *byte == 0) {
                continue;
            }
            let page = pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_SIZE]));
            Arc::make_mut(page)[start..start + part.len()].copy_from_slice(part);
        }
    }

    /// Reads within the size.
    fn read_pages(&self, offset: u64, into: &mut [u8]) {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        for (page, start, range) in split_at_pages(offset, into.len()) {
            let part = &mut into[range];
            match pages.get(&page) {
                Some(page) => part.copy_from_slice(&page[start..start + part.len()]),
                None => part.fill(0),
            }
        }
    }
}

/// Cuts a range of bytes at the pages: which page, from where in it, which of the bytes.
fn split_at_pages(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let start = units::to_usize(at % PAGE_SIZE as u64);
        let end = length.min(done + PAGE_SIZE - start);
        let range = done..end;
        done = end;
        Some((at / PAGE_SIZE as u64, start, range))
    })
}

impl Clone for MemoryDevice {
    fn clone(&self) -> Self {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner).clone();
        Self { name: self.name.clone(), size: self.size, pages: RwLock::new(pages) }
    }
}

impl std::fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory('{}', {} bytes)", self.name, self.size)
    }
}

impl Device for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        Error::check_range(&self.name, self.size, offset, into.len())?;
        self.read_pages(offset, into);
        Ok(())
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        Error::check_range(&self.name, self.size, offset, from.len())?;
        self.write_pages(offset, from);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryDevice;
    use crate::{Device, Error};

    #[test]
    fn pages_are_shared_until_they_are_written() {
        let one = MemoryDevice::new("one", &[3; 10_000]);
        let two = one.clone();
        two.write_at(4000, &[9; 200]).unwrap();
        let mut expected = vec![3; 10_000];
        assert_eq!(one.bytes(), expected);
        expected[4000..4200].fill(9);
        assert_eq!(two.bytes(), expected);
        assert!(matches!(two.write_at(9999, &[1, 2]), Err(Error::OutOfRange { .. })));
    }

    #[test]
    fn blank_ranges_use_no_memory() {
        let large = MemoryDevice::zeroed("large", 1 << 50);
        large.write_at((1 << 50) - 5, b"hello").unwrap();
        large.write_at(0, &[0; 1 << 13]).unwrap();
        let mut bytes = [1; 10];
        large.read_at((1 << 50) - 10, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0\0\0\0hello");
        assert_eq!(large.pages.read().unwrap().len(), 1);
    }
}
