//! A pack: blocks back to back, and a footer with their records.
//!
//! The footer lists the blocks in the order in which they lie. With it the index can be made again from
//! the packs, and a run that was cut finds the blocks that it has stored. The last 64 bytes of the object:
//!
//! ```text
//! offset  size  field      meaning
//!      0     8  magic      "PHPACK\0\1"
//!      8     8  pool       the guid of the pool
//!     16     4  kind       0 data, 1 metadata (indirect blocks, dnodes, directories)
//!     20     4  count      of records before the trailer, 48 bytes each (key.rs)
//!     24     8  blocks     bytes of blocks before the records
//!     32    32  sum        BLAKE3 of the records and of the first 32 bytes of the trailer
//!     64
//! ```
//!
//! Learnt from: our own format. Proved by: `packs_survive_the_way_to_bytes`.

use crate::bytes::{ByteReader, length};
use crate::key::{BlockKey, StoredBlock, hash, trim_zeros};

const MAGIC: [u8; 8] = *b"PHPACK\0\x01";
const TRAILER_SIZE: usize = 64;
/// The size at which a pack is stored.
pub(crate) const PACK_SIZE: usize = 32 << 20;
/// No pack is larger: a block has at most 32 MiB, and the records at most 48 MiB.
pub(crate) const MAX_PACK_SIZE: u64 = 128 << 20;
/// The most records of a pack: blocks of 512 bytes.
pub(crate) const MAX_PACK_BLOCKS: u32 = 1 << 20;

/// The kind of blocks in a pack. Metadata is kept apart, so that walks read little.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum PackKind {
    /// The content of files and volumes.
    Data,
    /// Indirect blocks, dnodes, directories and tables.
    Metadata,
}

impl PackKind {
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Data => 0,
            Self::Metadata => 1,
        }
    }

    pub(crate) const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Data),
            1 => Some(Self::Metadata),
            _ => None,
        }
    }
}

/// The footer of a pack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackFooter {
    /// The pool's guid.
    pub pool: u64,
    /// The kind of its blocks.
    pub kind: PackKind,
    /// Its blocks, in the order in which they lie.
    pub blocks: Vec<StoredBlock>,
}

impl PackFooter {
    /// Where in the object the footer begins, from its trailer and the object's size. The error is the
    /// rule that the trailer breaks.
    pub(crate) fn start(trailer: &[u8], size: u64) -> Result<u64, &'static str> {
        let (_, _, count, blocks) = parse_trailer(trailer)?;
        let footer = u64::from(count)
            .checked_mul(StoredBlock::SIZE as u64)
            .and_then(|records| records.checked_add(TRAILER_SIZE as u64));
        let end = footer.and_then(|footer| blocks.checked_add(footer));
        if count > MAX_PACK_BLOCKS || end != Some(size) {
            return Err("its sizes do not add up");
        }
        Ok(blocks)
    }

    /// Parses the last bytes of a pack, from its first record to its end. The error is the rule that they
    /// break.
    pub fn parse(footer: &[u8]) -> Result<Self, &'static str> {
        let short = "it is too short";
        let split = footer.len().checked_sub(TRAILER_SIZE).ok_or(short)?;
        let (records, trailer) = footer.split_at_checked(split).ok_or(short)?;
        let (pool, kind, count, end) = parse_trailer(trailer)?;
        let sum = footer.len().checked_sub(32).and_then(|at| footer.split_at_checked(at));
        let (summed, sum) = sum.ok_or(short)?;
        if blake3::hash(summed).as_bytes() != sum {
            return Err("the checksum of its footer is wrong");
        }
        let expected = usize::try_from(count).ok().and_then(|n| n.checked_mul(StoredBlock::SIZE));
        if expected != Some(records.len()) {
            return Err("its number of records is wrong");
        }
        let mut reader = ByteReader(records);
        let mut blocks = Vec::new();
        while let Some(block) = StoredBlock::read(&mut reader) {
            let block_end = u64::from(block.position).checked_add(block.length.into());
            if block_end.is_none_or(|block_end| block_end > end) || !block.has_valid_sizes() {
                return Err("the sizes of a record are wrong");
            }
            blocks.push(block);
        }
        Ok(Self { pool, kind, blocks })
    }

    /// Bytes of a trailer.
    pub(crate) const TRAILER_SIZE: u64 = TRAILER_SIZE as u64;
}

type Trailer = (u64, PackKind, u32, u64);

fn parse_trailer(trailer: &[u8]) -> Result<Trailer, &'static str> {
    let short = "it is too short";
    let mut reader = ByteReader(trailer);
    if reader.array() != Some(MAGIC) {
        return Err("it does not end as a pack does");
    }
    let pool = reader.u64().ok_or(short)?;
    let kind = reader.u32().and_then(PackKind::from_number).ok_or("its kind is unknown")?;
    let count = reader.u32().ok_or(short)?;
    let blocks = reader.u64().ok_or(short)?;
    Ok((pool, kind, count, blocks))
}

/// A pack that is being filled.
#[derive(Debug)]
pub(crate) struct PackBuilder {
    pool: u64,
    kind: PackKind,
    bytes: Vec<u8>,
    blocks: Vec<StoredBlock>,
}

impl PackBuilder {
    pub(crate) const fn new(pool: u64, kind: PackKind) -> Self {
        Self { pool, kind, bytes: Vec::new(), blocks: Vec::new() }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= PACK_SIZE || length_u32(self.blocks.len()) >= MAX_PACK_BLOCKS
    }

    /// Adds a block by its stored bytes; zeros at their end are not stored.
    pub(crate) fn add(&mut self, key: BlockKey, stored: &[u8]) -> StoredBlock {
        assert!(!self.is_full(), "a full pack of {} blocks is stored", self.blocks.len());
        let stored = trim_zeros(stored);
        let (position, length) = (length_u32(self.bytes.len()), length_u32(stored.len()));
        let block = StoredBlock { key, hash: hash(stored), position, length };
        self.blocks.push(block);
        self.bytes.extend_from_slice(stored);
        block
    }

    /// The content of the object.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Vec<StoredBlock>) {
        let end = length(&self.bytes);
        let footer = self.bytes.len();
        for block in &self.blocks {
            self.bytes.extend_from_slice(&block.encode());
        }
        self.bytes.extend_from_slice(&MAGIC);
        self.bytes.extend_from_slice(&self.pool.to_le_bytes());
        self.bytes.extend_from_slice(&self.kind.number().to_le_bytes());
        self.bytes.extend_from_slice(&length_u32(self.blocks.len()).to_le_bytes());
        self.bytes.extend_from_slice(&end.to_le_bytes());
        let sum = blake3::hash(self.bytes.get(footer..).unwrap_or_default());
        self.bytes.extend_from_slice(sum.as_bytes());
        assert!(length(&self.bytes) <= MAX_PACK_SIZE, "a reader refuses larger packs");
        assert_eq!(
            self.bytes.len() - footer,
            self.blocks.len() * StoredBlock::SIZE + TRAILER_SIZE,
            "the footer is as long as its trailer says"
        );
        (self.bytes, self.blocks)
    }
}

/// Packs end long before 4 GiB, and so do their numbers of blocks.
fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("a pack is smaller than 4 GiB")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{PackBuilder, PackFooter, PackKind, TRAILER_SIZE};
    use crate::key::BlockKey;

    fn footer_of(object: &[u8]) -> Result<PackFooter, &'static str> {
        let trailer = object.len().saturating_sub(TRAILER_SIZE);
        let start = PackFooter::start(&object[trailer..], object.len() as u64)?;
        PackFooter::parse(&object[usize::try_from(start).unwrap()..])
    }

    proptest! {
        #[test]
        fn packs_survive_the_way_to_bytes(
            blocks in proptest::collection::vec(proptest::collection::vec(0_u8..3, 512..600), 0..20),
            flip: usize,
        ) {
            let mut pack = PackBuilder::new(7, PackKind::Metadata);
            for (at, block) in blocks.iter().enumerate() {
                let psize = u32::try_from(block.len()).unwrap();
                pack.add(BlockKey { birth: at as u64, psize, ..BlockKey::default() }, block);
            }
            let (object, records) = pack.finish();
            let footer = footer_of(&object).unwrap();
            prop_assert_eq!((footer.pool, footer.kind), (7, PackKind::Metadata));
            prop_assert_eq!(&footer.blocks, &records);
            for (record, block) in records.iter().zip(&blocks) {
                let (start, length) = (record.position as usize, record.length as usize);
                let mut stored = object[start..start + length].to_vec();
                prop_assert!(record.matches(&stored));
                stored.resize(block.len(), 0);
                prop_assert_eq!(&stored, block);
            }
            // a flipped bit of the footer is found
            let footer_start = object.len() - TRAILER_SIZE - records.len() * 48;
            let mut wrong = object.clone();
            let at = footer_start + flip % (object.len() - footer_start);
            wrong[at] ^= 1;
            prop_assert!(footer_of(&wrong).is_err());
            prop_assert!(footer_of(&object[1..]).is_err());
        }
    }
}
