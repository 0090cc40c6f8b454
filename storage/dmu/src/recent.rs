//! The blocks that were used last: a few, so that neighbours are found without asking below.

use parking_lot::Mutex;
use zio::Block;

/// A handful of blocks by a key of their own, the last used first.
pub(crate) struct Recent<K, const N: usize>(Mutex<Vec<(K, Block)>>);

impl<K: PartialEq + Copy, const N: usize> Recent<K, N> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub(crate) fn find(&self, key: K) -> Option<Block> {
        let mut blocks = self.0.lock();
        let at = blocks.iter().position(|(known, _)| *known == key)?;
        if let Some(passed) = blocks.get_mut(..=at) {
            passed.rotate_right(1);
        }
        blocks.first().map(|(_, block)| block.clone())
    }

    pub(crate) fn keep(&self, key: K, block: &Block) {
        let mut blocks = self.0.lock();
        if blocks.iter().any(|(known, _)| *known == key) {
            return;
        }
        blocks.truncate(N.saturating_sub(1));
        blocks.insert(0, (key, block.clone()));
    }
}
