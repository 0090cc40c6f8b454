//! Parts of blocks in memory: what is sent to a client without a copy.

use std::ops::{Deref, Range};

use crate::Trimmed;

/// Bytes that stand for holes, and for the zeros that [`Trimmed`] leaves out.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A part of a block in memory, or zeros. The block stays in memory until this is dropped.
#[derive(Clone, Debug)]
pub struct MemoryPart {
    /// None: zeros.
    block: Option<Trimmed>,
    range: Range<usize>,
}

/// The parts of a range, in its order.
#[derive(Clone, Debug, Default)]
pub struct MemoryParts(Vec<MemoryPart>);

impl Deref for MemoryPart {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.block.as_ref().map_or(&ZEROS[..], Trimmed::begin);
        bytes.get(self.range.clone()).unwrap_or_default()
    }
}

impl MemoryParts {
    /// Adds zeros.
    pub fn push_zeros(&mut self, mut count: usize) {
        while count > 0 {
            let now = count.min(ZEROS.len());
            self.0.push(MemoryPart { block: None, range: 0..now });
            count -= now;
        }
    }

    /// Adds `count` bytes of a block from `skip` on. False: it is too short.
    pub fn push(&mut self, block: Trimmed, skip: usize, count: usize) -> bool {
        let Some(end) = skip.checked_add(count).filter(|end| *end <= block.length()) else {
            return false;
        };
        let stored = block.begin().len();
        let (start, stop) = (skip.min(stored), end.min(stored));
        if stop > start {
            self.0.push(MemoryPart { block: Some(block), range: start..stop });
        }
        self.push_zeros(count - (stop - start));
        true
    }

    /// The bytes, part by part.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Deref::deref)
    }
}

#[cfg(test)]
mod tests {
    use ondisk::Order;

    use super::MemoryParts;
    use crate::{Block, Trimmed};

    #[test]
    fn parts_are_the_bytes_of_blocks() {
        let mut bytes = vec![0; 128 << 10];
        bytes[..3000].fill(7);
        let block = Trimmed::of(&Block::from_slice(&bytes, Order::Little));
        assert!(block.begin().len() < bytes.len(), "the zeros at the end are left out");
        for (skip, count) in [(0, bytes.len()), (2000, 5000), (100, 50), (100_000, 20_000)] {
            let mut parts = MemoryParts::default();
            assert!(parts.push(block.clone(), skip, count));
            parts.push_zeros(100_000);
            let found: Vec<u8> = parts.slices().flatten().copied().collect();
            assert_eq!(found, [&bytes[skip..skip + count], &vec![0; 100_000]].concat());
        }
        let mut parts = MemoryParts::default();
        assert!(!parts.push(block.clone(), 1, bytes.len()) && !parts.push(block, usize::MAX, 1));
    }
}
