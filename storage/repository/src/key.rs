//! A block's identity, and its record in packs and in the index.
//!
//! A record of 48 bytes, all numbers little-endian:
//!
//! ```text
//! offset  size  field      meaning
//!      0     8  birth      the txg in which the block was written (physical birth)
//!      8     8  offset     of its first copy on its top-level vdev, bytes
//!     16     4  vdev       of its first copy
//!     20     4  psize      bytes on the pool's drives, parity not counted
//!     24     8  checksum   of the pointer's four checksum words: the XOR, word N rotated left by 16 N bits
//!     32     8  hash       the first 8 bytes of BLAKE3 over the stored bytes
//!     40     4  position   where in the pack the stored bytes begin
//!     44     4  length     stored bytes: `psize` without the zeros at the end
//!     48
//! ```
//!
//! The first five fields are the key, by which records are sorted. The checksum is part of it since a pool
//! that was rewound writes other blocks with the same addresses and births.
//!
//! Learnt from: our own format. Proved by: `records_survive_the_way_to_bytes`.

use ondisk::blkptr::Regular;

use crate::bytes::ByteReader;

/// Bytes of the largest block that a pointer can describe.
const MAX_BLOCK_SIZE: u32 = 32 << 20;

/// The identity of a block within its pool. The order is that of the index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockKey {
    /// Physical birth txg.
    pub birth: u64,
    /// Of the first copy, bytes.
    pub offset: u64,
    /// Of the first copy.
    pub vdev: u32,
    /// Stored bytes on the drives.
    pub psize: u32,
    /// The folded checksum.
    pub checksum: u64,
}

impl BlockKey {
    /// The identity of the block of a pointer; none if the pointer has no address.
    pub fn new(block: &Regular) -> Option<Self> {
        let [first, ..] = block.dvas;
        let first = first?;
        let [a, b, c, d] = block.sum;
        Some(Self {
            birth: block.birth_physical.get(),
            offset: first.offset,
            vdev: first.vdev.get(),
            psize: block.psize,
            checksum: a ^ b.rotate_left(16) ^ c.rotate_left(32) ^ d.rotate_left(48),
        })
    }
}

/// A block's record: its identity, and its place in a pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoredBlock {
    /// The identity.
    pub key: BlockKey,
    /// The first 8 bytes of BLAKE3 over the stored bytes.
    pub hash: u64,
    /// Where in the pack the stored bytes begin.
    pub position: u32,
    /// Stored bytes.
    pub length: u32,
}

impl StoredBlock {
    /// Bytes of a record.
    pub const SIZE: usize = 48;

    /// The record as bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&self.key.birth.to_le_bytes());
        out.extend_from_slice(&self.key.offset.to_le_bytes());
        out.extend_from_slice(&self.key.vdev.to_le_bytes());
        out.extend_from_slice(&self.key.psize.to_le_bytes());
        out.extend_from_slice(&self.key.checksum.to_le_bytes());
        out.extend_from_slice(&self.hash.to_le_bytes());
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.try_into().unwrap_or([0; Self::SIZE])
    }

    pub(crate) fn read(reader: &mut ByteReader<'_>) -> Option<Self> {
        Some(Self {
            key: BlockKey {
                birth: reader.u64()?,
                offset: reader.u64()?,
                vdev: reader.u32()?,
                psize: reader.u32()?,
                checksum: reader.u64()?,
            },
            hash: reader.u64()?,
            position: reader.u32()?,
            length: reader.u32()?,
        })
    }

    /// Whether the sizes are those that a block can have.
    pub(crate) const fn has_valid_sizes(&self) -> bool {
        self.length <= self.key.psize && self.key.psize <= MAX_BLOCK_SIZE
    }

    /// Whether the record describes these stored bytes.
    pub(crate) fn matches(&self, stored: &[u8]) -> bool {
        u32::try_from(stored.len()) == Ok(self.length) && hash(stored) == self.hash
    }
}

/// The first 8 bytes of BLAKE3.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(bytes).as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// A block's bytes without the zeros at their end.
pub(crate) fn trim_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..end).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BlockKey, StoredBlock, trim_zeros};
    use crate::bytes::ByteReader;

    proptest! {
        #[test]
        fn records_survive_the_way_to_bytes(words: [u64; 4], small: [u32; 4]) {
            let [birth, offset, checksum, hash] = words;
            let [vdev, psize, position, length] = small;
            let key = BlockKey { birth, offset, vdev, psize, checksum };
            let record = StoredBlock { key, hash, position, length };
            let bytes = record.encode();
            prop_assert_eq!(StoredBlock::read(&mut ByteReader(&bytes)), Some(record));
            prop_assert_eq!(StoredBlock::read(&mut ByteReader(&bytes[1..])), None);
        }
    }

    #[test]
    fn zeros_at_the_end_are_cut() {
        assert_eq!(trim_zeros(&[1, 0, 2, 0, 0]), [1, 0, 2]);
        assert!(trim_zeros(&[0; 512]).is_empty() && trim_zeros(&[]).is_empty());
    }
}
