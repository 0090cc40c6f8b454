//! Blocks as caches hold them: without the zeros at their end.
//!
//! A new object set's array of dnodes is as tall as it can ever get, so that five indirect blocks
//! of 128 KiB with one pointer each lead to its first block. In full they would take most of the
//! memory of a pool with many small datasets.

use std::sync::Arc;

use ondisk::Order;

use crate::Block;

/// Shorter blocks are kept in full.
const SHORTEST: usize = 16 << 10;
/// A block is trimmed if no more than this part of it is left.
const PART: usize = 8;
/// The rest's length is a multiple of this, the size of a block pointer.
const UNIT: usize = 128;

/// A block without the zeros at its end. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Trimmed {
    /// It does not end with many zeros.
    Whole(Block),
    /// The zeros at its end are left out.
    Short {
        /// Its beginning.
        begin: Arc<[u8]>,
        /// How long it is with the zeros.
        length: usize,
        /// The byte order of the content.
        order: Order,
    },
}

impl Trimmed {
    /// Leaves the zeros at the end of a block out, if they are most of it.
    pub fn of(block: &Block) -> Self {
        Self::short(block, block.order()).unwrap_or_else(|| Self::Whole(block.clone()))
    }

    /// A copy of bytes as a block's content.
    pub fn copied(bytes: &[u8], order: Order) -> Self {
        Self::short(bytes, order).unwrap_or_else(|| Self::Whole(Block::from_slice(bytes, order)))
    }

    fn short(bytes: &[u8], order: Order) -> Option<Self> {
        let length = bytes.len();
        let most = length / PART;
        let (begin, end) = bytes.split_at(most);
        if length < SHORTEST || !is_zero(end) {
            return None;
        }
        let used = begin.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let begin = begin.get(..used.next_multiple_of(UNIT).min(most))?.into();
        Some(Self::Short { begin, length, order })
    }

    /// The block as it was.
    pub fn to_block(&self) -> Block {
        match self {
            Self::Whole(block) => block.clone(),
            Self::Short { begin, length, order } => {
                let mut bytes = Block::alloc_buffer(*length);
                let (head, tail) = bytes.split_at_mut(begin.len().min(*length));
                head.copy_from_slice(begin.get(..head.len()).unwrap_or_default());
                tail.fill(0);
                Block::new(bytes, *order)
            }
        }
    }

    /// Copies as much of the block's bytes as fits; returns the block's length.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let count = self.length().min(into.len());
        let begin = self.begin();
        let (head, tail) = into.split_at_mut(begin.len().min(count));
        head.copy_from_slice(begin.get(..head.len()).unwrap_or_default());
        if let Some(zeros) = tail.get_mut(..count - head.len()) {
            zeros.fill(0);
        }
        self.length()
    }

    /// How long the block is.
    pub fn length(&self) -> usize {
        match self {
            Self::Whole(block) => block.len(),
            Self::Short { length, .. } => *length,
        }
    }

    /// Its bytes without the zeros that were left out.
    pub fn begin(&self) -> &[u8] {
        match self {
            Self::Whole(block) => block,
            Self::Short { begin, .. } => begin,
        }
    }

    /// The byte order of the content.
    pub fn order(&self) -> Order {
        match self {
            Self::Whole(block) => block.order(),
            Self::Short { order, .. } => *order,
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    // most blocks that are not show it at their end
    bytes.last().is_none_or(|last| *last == 0)
        && bytes.chunks(512).rev().all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use ondisk::Order;

    use super::Trimmed;
    use crate::Block;

    #[test]
    fn trimmed_blocks_come_back_whole() {
        for length in [0_usize, 100, 16 << 10, (16 << 10) + 1, 128 << 10] {
            for used in [0, 1, 127, 128, 129, length / 8, length / 8 + 1, length] {
                let used = used.min(length);
                let mut bytes = vec![0; length];
                bytes[..used].fill(7);
                let block = Block::new(bytes.clone(), Order::Big);
                let trimmed = Trimmed::of(&block);
                let is_short = length >= 16 << 10 && used <= length / 8;
                assert_eq!(trimmed.begin().len() < length, is_short, "{used} of {length}");
                assert!(trimmed.begin().len() >= used);
                assert_eq!((trimmed.length(), trimmed.order()), (length, Order::Big));
                assert!(trimmed.to_block()[..] == bytes, "{used} of {length}");
                for room in [0, used / 2, length, length + 9] {
                    let (mut into, mut wanted) = (vec![1; room], vec![1; room]);
                    assert_eq!(trimmed.copy_to(&mut into), length);
                    assert_eq!(block.copy_to(&mut wanted), length);
                    assert!(into == wanted, "{used} of {length} into {room}");
                }
                assert!(Trimmed::copied(&bytes, Order::Big).to_block()[..] == bytes);
            }
        }
    }
}
