//! The most recently used blocks: a few, so that adjacent accesses need no lookup.

use parking_lot::Mutex;
use zio::Block;

/// A few blocks by a key of their own, the last used first; `B` is their stored form.
pub struct RecentBlocks<K, const N: usize, B = Block>(Mutex<Vec<(K, B)>>);

impl<K: PartialEq + Copy, const N: usize, B: Clone> Default for RecentBlocks<K, N, B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: PartialEq + Copy, const N: usize, B: Clone> RecentBlocks<K, N, B> {
    /// With nothing in it.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The block of this key, if it is among those used last.
    pub fn get(&self, key: K) -> Option<B> {
        let mut blocks = self.0.lock();
        let at = blocks.iter().position(|(known, _)| *known == key)?;
        if let Some(passed) = blocks.get_mut(..=at) {
            passed.rotate_right(1);
        }
        blocks.first().map(|(_, block)| block.clone())
    }

    /// Keeps a block; the one that was not used for the longest is forgotten.
    pub fn insert(&self, key: K, block: &B) {
        let mut blocks = self.0.lock();
        if blocks.iter().any(|(known, _)| *known == key) {
            return;
        }
        blocks.truncate(N - 1);
        blocks.insert(0, (key, block.clone()));
    }
}
