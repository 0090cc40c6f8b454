//! A table of a fixed length whose entries take memory when they are first used, a chunk at a time.
//!
//! A mounted file system that nobody uses has used hardly any of its locks and layouts, and there may be thousands of
//! such file systems.

use std::sync::OnceLock;

/// Entries that are allocated together.
const CHUNK_LEN: usize = 32;

/// A table of a fixed length. An entry is `T::default()` until a caller changes it.
#[derive(Debug)]
pub(crate) struct ChunkedTable<T>(Box<[OnceLock<Box<[T]>>]>);

impl<T: Default> ChunkedTable<T> {
    /// A table of `length` entries, a multiple of 32.
    pub(crate) fn new(length: usize) -> Self {
        assert!(length.is_multiple_of(CHUNK_LEN), "a table has whole chunks");
        Self(std::iter::repeat_with(OnceLock::new).take(length / CHUNK_LEN).collect())
    }

    /// The entry at `index`; none beyond the end. The first use of a chunk allocates it.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let chunk = self.0.get(index / CHUNK_LEN)?;
        let new_chunk = || std::iter::repeat_with(T::default).take(CHUNK_LEN).collect();
        chunk.get_or_init(new_chunk).get(index % CHUNK_LEN)
    }

    /// The entry at `index`, if its chunk is allocated.
    pub(crate) fn get_allocated(&self, index: usize) -> Option<&T> {
        self.0.get(index / CHUNK_LEN)?.get()?.get(index % CHUNK_LEN)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::ChunkedTable;

    #[test]
    fn entries_are_allocated_at_first_use() {
        let table = ChunkedTable::<AtomicU64>::new(64);
        assert!(table.get_allocated(40).is_none());
        table.get(40).unwrap().store(7, Relaxed);
        assert_eq!(table.get(40).unwrap().load(Relaxed), 7);
        assert_eq!(table.get_allocated(63).unwrap().load(Relaxed), 0);
        assert!(table.get_allocated(31).is_none() && table.get(64).is_none());
    }
}
