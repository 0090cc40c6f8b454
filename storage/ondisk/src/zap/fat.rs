//! Fat ZAP header: block 0 of a table of any size, and its table of pointers.
//!
//! ```text
//! offset  size  field             meaning
//!      0     8  block_kind        0x8000000000000001
//!      8     8  magic             0x2f52ab2ab
//!     16     8  table_block       where the pointer table begins
//!     24     8  table_blocks      its length in blocks; 0: it is the second half of this block
//!     32     8  table_shift       it has 2^this pointers
//!     40     8  next_block        where a table twice as large is being made; 0: nowhere
//!     48     8  next_copied       blocks of the old table that are in the new one
//!     56     8  free_block        the first block that was never used
//!     64     8  leaves            leaf blocks
//!     72     8  entries           entries in all leaves
//!     80     8  salt              of the hash
//!     88     8  normalization     how names are made equal
//!     96     8  flags             0 48-bit hashes, 1 keys are words, 2 the first word is the hash
//!    104
//! ```
//!
//! While a table grows the old one stays true: pointers are written to both.
//!
//! Learnt from: `zdb -dddd` of the fixtures, zap_impl.h, zap.c. Proved by: the tests below, and those of zap.

use units::BlockId;

use super::{HEADER, Normalization, write};
use crate::{Error, Order, Reader, Result};

/// The kind of keys and hashes of a table (zap_flags).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u64);

impl Flags {
    /// Hashes have 48 bits instead of 28 (ZAP_FLAG_HASH64).
    pub const fn long_hash(self) -> bool {
        self.0 & 1 != 0
    }

    /// Keys are 64-bit words instead of names (ZAP_FLAG_UINT64_KEY).
    pub const fn word_keys(self) -> bool {
        self.0 & 2 != 0
    }

    /// The first word of a key is its hash (ZAP_FLAG_PRE_HASHED_KEY).
    pub const fn pre_hashed(self) -> bool {
        self.0 & 4 != 0
    }

    /// How many bits of a hash count.
    pub const fn hash_bits(self) -> u32 {
        if self.long_hash() { 48 } else { 28 }
    }

    /// The bits of a hash that count: the upper ones.
    pub const fn hash_mask(self) -> u64 {
        u64::MAX << (64_u32.wrapping_sub(self.hash_bits()))
    }
}

/// Where the pointer table is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Table {
    /// In the second half of the header's block.
    Embedded,
    /// In blocks of its own.
    External {
        /// The first of them.
        first: BlockId,
        /// How many.
        blocks: u64,
        /// A larger table while it is being filled: its first block, and the number of blocks of
        /// the present one that were copied into it.
        next: Option<(BlockId, u64)>,
    },
}

/// The header of a fat table (zap_phys_t).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The pointer table.
    pub table: Table,
    /// log2 of the number of pointers.
    pub table_shift: u32,
    /// log2 of the number of pointers in a block of an external table.
    pub block_shift: u32,
    /// The first block that was never used.
    pub free_block: BlockId,
    /// How many leaf blocks there are.
    pub leaves: u64,
    /// How many entries there are.
    pub entries: u64,
    /// Stirred into the hash.
    pub salt: u64,
    /// How names are made equal.
    pub normalization: Normalization,
    /// Keys and hashes.
    pub flags: Flags,
}

/// Most leaves, entries and pointers of a table: its hashes have 48 bits at most.
const MAX_COUNT: u64 = 1 << 48;

impl Header {
    /// The fields of a header after its kind.
    pub const MAGIC: u64 = 0x2_f52a_b2ab;

    /// Parses a whole block; all blocks of the table have its size.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        let mut reader = Reader::new("fat zap header", bytes, order);
        let kind = reader.u64()?;
        if kind != HEADER {
            return Err(reader.corrupt_field(8, "the block says that it is a fat zap", kind));
        }
        let magic = reader.u64()?;
        if magic != Self::MAGIC {
            return Err(reader.corrupt_field(8, "the magic number is 0x2f52ab2ab", magic));
        }
        if !bytes.len().is_power_of_two() {
            let found = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            return Err(reader.corrupt_field(0, "a block's size is a power of two", found));
        }
        let block_shift = bytes.len().ilog2().saturating_sub(3);
        let table = RawTable::read(&mut reader)?;
        let free_block = BlockId::new(reader.u64()?);
        let leaves = reader.u64()?;
        let entries = reader.u64()?;
        let salt = reader.u64()?;
        let normalization = Normalization(reader.u64()?);
        let flags = Flags(reader.u64()?);
        if flags.0 > 7 {
            return Err(Error::Unknown {
                structure: "fat zap header",
                field: "flags",
                found: flags.0,
            });
        }
        for block in [free_block.get(), table.block, table.next_block, table.blocks] {
            super::pointers::check_block(&reader, bytes.len(), block)?;
        }
        if leaves.max(entries) > MAX_COUNT {
            let rule = "a fat zap has at most 2^48 leaves and entries";
            return Err(reader.corrupt_field(0, rule, leaves.max(entries)));
        }
        let (table, table_shift) = table.validate(&mut reader, block_shift)?;
        Ok(Self {
            table,
            table_shift,
            block_shift,
            free_block,
            leaves,
            entries,
            salt,
            normalization,
            flags,
        })
    }

    /// The header of a new table in blocks of `size` bytes, with block 1 as its one leaf.
    pub fn new(size: u32, salt: u64, normalization: Normalization, flags: Flags) -> Self {
        let block_shift = size.checked_ilog2().unwrap_or(0).saturating_sub(3);
        Self {
            table: Table::Embedded,
            table_shift: block_shift.saturating_sub(1),
            block_shift,
            free_block: BlockId::new(2),
            leaves: 1,
            entries: 0,
            salt,
            normalization,
            flags,
        }
    }

    /// Writes the header into its block; an embedded table in the block stays unchanged.
    pub fn write(&self, bytes: &mut [u8], order: Order) {
        let (first, blocks, next) = match &self.table {
            Table::Embedded => (0, 0, None),
            Table::External { first, blocks, next } => (first.get(), *blocks, *next),
        };
        let (next_block, next_copied) =
            next.map_or((0, 0), |(block, copied)| (block.get(), copied));
        let words = [
            HEADER,
            Self::MAGIC,
            first,
            blocks,
            u64::from(self.table_shift),
            next_block,
            next_copied,
            self.free_block.get(),
            self.leaves,
            self.entries,
            self.salt,
            self.normalization.0,
            self.flags.0,
        ];
        for (number, word) in words.into_iter().enumerate() {
            write::u64(bytes, number.saturating_mul(8), order, word);
        }
    }

    /// The word of the header's block in which an embedded table begins.
    pub fn embedded_start(&self) -> usize {
        1_usize.checked_shl(self.table_shift).unwrap_or(0)
    }

    /// How many pointers the table has.
    pub fn table_len(&self) -> u64 {
        1_u64.checked_shl(self.table_shift).unwrap_or(u64::MAX)
    }
}

/// The five words of the table as they stand.
struct RawTable {
    block: u64,
    blocks: u64,
    shift: u64,
    next_block: u64,
    next_copied: u64,
}

impl RawTable {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            block: reader.u64()?,
            blocks: reader.u64()?,
            shift: reader.u64()?,
            next_block: reader.u64()?,
            next_copied: reader.u64()?,
        })
    }

    /// An embedded table is half a block; an external one has as many words as its shift gives.
    fn validate(&self, reader: &mut Reader<'_>, block_shift: u32) -> Result<(Table, u32)> {
        let shift = u32::try_from(self.shift).unwrap_or(u32::MAX);
        if self.blocks == 0 {
            if shift != block_shift.saturating_sub(1) {
                let rule = "an embedded pointer table fills half the block";
                return Err(reader.corrupt_field(0, rule, self.shift));
            }
            return Ok((Table::Embedded, shift));
        }
        if shift > MAX_COUNT.ilog2() {
            let rule = "a pointer table has at most 2^48 pointers";
            return Err(reader.corrupt_field(0, rule, self.shift));
        }
        let blocks = shift.checked_sub(block_shift).and_then(|bits| 1_u64.checked_shl(bits));
        if blocks != Some(self.blocks) {
            let rule = "a pointer table is as long as its shift says";
            return Err(reader.corrupt_field(0, rule, self.blocks));
        }
        let next = (self.next_block != 0)
            .then_some((BlockId::new(self.next_block), self.next_copied.min(self.blocks)));
        let first = BlockId::new(self.block);
        Ok((Table::External { first, blocks: self.blocks, next }, shift))
    }
}

#[cfg(test)]
mod tests {
    use super::{Flags, Header, Normalization, Table};
    use crate::Order;
    use crate::zap::HEADER;
    use crate::zap::pointers::read_pointer;

    /// A header of 1 KiB with an external table of 2^`shift` pointers in `blocks` blocks.
    fn header(blocks: u64, shift: u64, next: u64) -> Vec<u8> {
        let words = [HEADER, Header::MAGIC, 5, blocks, shift, next, 1, 9, 3, 77, 42, 2, 1];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.resize(1024, 0);
        bytes[1023] = 8;
        bytes
    }

    #[test]
    fn external_table_and_its_successor_are_parsed() {
        let read = Header::parse(&header(4, 9, 30), Order::Big).unwrap();
        let Table::External { first, blocks, next } = read.table else { panic!("{read:?}") };
        assert_eq!((first.get(), blocks), (5, 4));
        assert_eq!(next.map(|(block, copied)| (block.get(), copied)), Some((30, 1)));
        assert_eq!((read.entries, read.salt, read.flags.hash_bits()), (77, 42, 48));
        assert!(Header::parse(&header(5, 9, 0), Order::Big).is_err());
        assert!(Header::parse(&header(1 << 60, 70, 0), Order::Big).is_err());
    }

    #[test]
    fn header_survives_writing() {
        let table = Flags(7);
        assert_eq!(Header::new(1024, 9, Normalization(2), table).embedded_start(), 64);
        for (blocks, shift, next) in [(4, 9, 30), (4, 9, 0), (0, 6, 0)] {
            let bytes = header(blocks, shift, next);
            let mut read = Header::parse(&bytes, Order::Big).unwrap();
            let mut written = vec![0; 1024];
            read.write(&mut written, Order::Big);
            if blocks == 0 {
                // the first block of no table at all, and of no successor
                let (first, next) = (16..24, 40..56);
                written[first.clone()].copy_from_slice(&bytes[first]);
                written[next.clone()].copy_from_slice(&bytes[next]);
            } else if next == 0 {
                written[48..56].copy_from_slice(&bytes[48..56]);
            }
            assert_eq!(written[..1023], bytes[..1023]);
            read.entries = 1 << 40;
            read.write(&mut written, Order::Little);
            assert_eq!(Header::parse(&written, Order::Little).unwrap(), read);
        }
    }

    #[test]
    fn an_embedded_table_is_the_second_half() {
        let read = Header::parse(&header(0, 6, 0), Order::Big).unwrap();
        assert_eq!((read.table.clone(), read.table_len()), (Table::Embedded, 64));
        let last = read_pointer(&header(0, 6, 0), Order::Big, read.embedded_start() + 63).unwrap();
        assert_eq!(last.get(), 8);
        assert!(Header::parse(&header(0, 7, 0), Order::Big).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_header_or_an_error(tail in proptest::collection::vec(0_u8.., 1008)) {
            let mut bytes = header(0, 6, 0);
            bytes[16..].copy_from_slice(&tail);
            let _ = Header::parse(&bytes, Order::Big);
        }
    }
}
