//! Pointer table of a fat ZAP: a word for each place, the number of the leaf's block.
//!
//! The words fill the second half of the header, or blocks of their own ([`super::fat::Table`]).
//! A table that grows doubles: each pointer of the old one stands twice in a row in the new.
//!
//! Learnt from: zap.c. Proved by: the tests below, and those of zap.

use std::ops::Range;

use units::BlockId;

use super::write;
use crate::{Order, Reader, Result};

/// Fails where a block number is none of an object with blocks of `size` bytes. Bytes of several blocks more than
/// these can still be counted in 64 bits.
pub(super) fn check_block(place: &Reader<'_>, size: usize, block: u64) -> Result<()> {
    let limit =
        u64::MAX.checked_shr(size.checked_ilog2().unwrap_or(0).saturating_add(3)).unwrap_or(0);
    if block <= limit {
        return Ok(());
    }
    Err(place.corrupt_field(8, "a block of a fat zap is within its object", block))
}

/// The pointer in a word of a block.
pub fn read_pointer(bytes: &[u8], order: Order, word: usize) -> Result<BlockId> {
    let mut reader = Reader::new("zap pointer table", bytes, order);
    reader.seek(word.saturating_mul(8));
    let block = reader.u64()?;
    check_block(&reader, bytes.len(), block)?;
    Ok(BlockId::new(block))
}

/// Makes words of a block point to a leaf.
pub fn write_pointers(bytes: &mut [u8], order: Order, words: Range<usize>, leaf: BlockId) {
    for word in words {
        write::u64(bytes, word.saturating_mul(8), order, leaf.get());
    }
}

/// Encodes some pointers twice each, as a block of a table of double size has them, in that table's
/// byte order.
pub fn double_pointers(bytes: &[u8], order: Order, words: Range<usize>, into: Order) -> Vec<u8> {
    let from = bytes.get(words.start.saturating_mul(8)..words.end.saturating_mul(8));
    let twice = |word: &[u8]| {
        let mut word = word.to_vec();
        if order != into {
            word.reverse();
        }
        [word.clone(), word].concat()
    };
    from.unwrap_or_default().chunks_exact(8).flat_map(twice).collect()
}

#[cfg(test)]
mod tests {
    use super::{double_pointers, read_pointer, write_pointers};
    use crate::Order;
    use units::BlockId;

    #[test]
    fn pointers_are_written_read_and_doubled() {
        for order in [Order::Little, Order::Big] {
            let mut bytes = vec![0; 64];
            write_pointers(&mut bytes, order, 2..5, BlockId::new(0x1234));
            write_pointers(&mut bytes, order, 7..9, BlockId::new(9));
            let read = |bytes: &[u8], word| read_pointer(bytes, order, word).unwrap().get();
            let all: Vec<u64> = (0..8).map(|word| read(&bytes, word)).collect();
            assert_eq!(all, [0, 0, 0x1234, 0x1234, 0x1234, 0, 0, 9]);
            assert!(read_pointer(&bytes, order, 8).is_err());
            let twice = double_pointers(&bytes, order, 4..8, Order::Big);
            let read = |word| read_pointer(&twice, Order::Big, word).unwrap().get();
            let all: Vec<u64> = (0..8).map(read).collect();
            assert_eq!(all, [0x1234, 0x1234, 0, 0, 0, 0, 9, 9]);
        }
    }
}
