//! Leaf of a fat ZAP: the entries whose hashes begin with the same bits.
//!
//! ```text
//! offset  size  field         meaning
//!      0     8  block_kind    0x8000000000000000
//!      8     8  pad
//!     16     8  prefix        the first bits of the hashes of all entries in it
//!     24     4  magic         0x02ab1eaf
//!     28     2  free_chunks   how many
//!     30     2  entry_count   how many
//!     32     2  prefix_bits   how many bits `prefix` has
//!     34     2  free_list     the first free chunk
//!     36     1  flags         0 chains are sorted by the collision number
//!     37    11  pad
//!     48
//! ```
//!
//! Then follow a hash table of 2-byte chunk numbers, one for each 32 bytes of the block (0xffff:
//! none), and the chunks of 24 bytes. The bits of a hash after the prefix select the chain. A
//! chunk is free (type 253), part of an array (251), or an entry (252):
//!
//! ```text
//! offset  size  field         meaning
//!      0     1  chunk_type    252
//!      1     1  int_size      bytes of an integer of the value: 1, 2, 4 or 8
//!      2     2  next          the next entry of the chain
//!      4     2  name_chunk    where the name begins
//!      6     2  name_count    its bytes, with the NUL; for keys of words: words
//!      8     2  value_chunk   where the value begins
//!     10     2  value_count   its integers
//!     12     4  collision     tells keys of one hash apart (cd)
//!     16     8  hash
//!     24
//! ```
//!
//! An array chunk is the type, 21 bytes, and the number of the next. In arrays integers stand most
//! significant byte first, on every machine.
//!
//! Learnt from: `zdb -dddd` of the fixtures, zap_leaf.h, zap_leaf.c. Proved by: the real leaves in the tests of zap.

mod edit;

pub use edit::{LeafMut, LeafUpdate};

use super::{LEAF, hash};
use crate::{Order, Reader, Result};

/// A leaf block.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    /// The first bits of all hashes in it.
    pub prefix: u64,
    /// How many bits `prefix` has.
    pub prefix_bits: u32,
    /// Number of entries, as the header records it.
    pub entry_count: u16,
    /// Number of free chunks, as the header records it.
    pub free_chunks: u16,
    /// Whether chains are sorted by the collision number, as in normalized tables.
    pub sorted: bool,
    heads: &'a [u8],
    chunks: &'a [u8],
    order: Order,
}

/// One entry: where its name and its value are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafEntry {
    /// The hash of the name.
    pub hash: u64,
    /// The collision number, which distinguishes names of one hash (cd).
    pub collision: u32,
    /// The first chunk of the name.
    pub name_chunk: u16,
    /// Bytes of the name with its NUL, or words of the key.
    pub name_count: u16,
    /// The first chunk of the value.
    pub value_chunk: u16,
    /// Integers of the value.
    pub value_count: u16,
    /// Bytes of such an integer: 1, 2, 4 or 8.
    pub int_size: u8,
    /// The chunk that it is in.
    pub number: u16,
    next: u16,
}

/// The name or key of an entry in a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'a> {
    /// The hash.
    pub hash: u64,
    /// The name with its NUL, or the words of the key, most significant byte first.
    pub bytes: &'a [u8],
    /// How many bytes, or words.
    pub count: u16,
}

impl LeafEntry {
    /// Bytes of the value.
    pub fn value_size(&self) -> usize {
        usize::from(self.value_count).saturating_mul(self.int_size.into())
    }
}

const STRUCTURE: &str = "zap leaf";
const CHUNK: usize = 24;
/// The content of an array chunk.
const ARRAY: usize = 21;
const END: u16 = 0xffff;
const FREE_CHUNK: u8 = 253;
const ENTRY_CHUNK: u8 = 252;
const ARRAY_CHUNK: u8 = 251;

impl<'a> Leaf<'a> {
    /// The fields of a leaf after its prefix.
    pub const MAGIC: u32 = 0x02ab_1eaf;
    const HEADER: usize = 48;

    /// Takes the whole block.
    pub fn parse(bytes: &'a [u8], order: Order) -> Result<Self> {
        let mut reader = Reader::new(STRUCTURE, bytes, order);
        let kind = reader.u64()?;
        if kind != LEAF {
            return Err(reader.corrupt_field(8, "the block says that it is a zap leaf", kind));
        }
        reader.skip(8)?;
        let prefix = reader.u64()?;
        let magic = reader.u32()?;
        if magic != Self::MAGIC {
            return Err(reader.corrupt_field(4, "the magic number is 0x2ab1eaf", magic.into()));
        }
        let free_chunks = reader.u16()?;
        let entry_count = reader.u16()?;
        let prefix_bits = u32::from(reader.u16()?);
        if prefix_bits > 63 {
            return Err(reader.corrupt_field(
                2,
                "a prefix is shorter than a hash",
                prefix_bits.into(),
            ));
        }
        reader.skip(2)?;
        let sorted = reader.u8()? & 1 != 0;
        reader.seek(Self::HEADER);
        if !bytes.len().is_power_of_two() {
            let found = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            return Err(reader.corrupt_field(0, "a block's size is a power of two", found));
        }
        let heads = reader.bytes(bytes.len() / 16)?;
        let chunks = reader.rest();
        Ok(Self { prefix, prefix_bits, entry_count, free_chunks, sorted, heads, chunks, order })
    }

    /// Whether the leaf holds entries of this hash.
    pub const fn covers(&self, hash: u64) -> bool {
        hash::index(hash, self.prefix_bits) == self.prefix
    }

    /// How many chunks there are.
    fn chunk_count(&self) -> usize {
        self.chunks.len() / CHUNK
    }

    fn chunk(&self, number: u16, wanted: u8) -> Result<Reader<'a>> {
        let at = usize::from(number).saturating_mul(CHUNK);
        let slice = self.chunks.get(at..at.saturating_add(CHUNK));
        let mut reader = Reader::new("zap chunk", slice.unwrap_or(&[]), self.order);
        let kind = reader.u8()?;
        if kind != wanted {
            return Err(reader.corrupt_field(
                1,
                "a chunk is of the type that its link says",
                kind.into(),
            ));
        }
        Ok(reader)
    }

    fn entry(&self, number: u16) -> Result<LeafEntry> {
        let mut reader = self.chunk(number, ENTRY_CHUNK)?;
        let int_size = reader.u8()?;
        if !matches!(int_size, 1 | 2 | 4 | 8) {
            let rule = "an integer has 1, 2, 4 or 8 bytes";
            return Err(reader.corrupt_field(1, rule, int_size.into()));
        }
        Ok(LeafEntry {
            number,
            int_size,
            next: reader.u16()?,
            name_chunk: reader.u16()?,
            name_count: reader.u16()?,
            value_chunk: reader.u16()?,
            value_count: reader.u16()?,
            collision: reader.u32()?,
            hash: reader.u64()?,
        })
    }

    /// All entries, chain by chain. A broken chain yields an error, and iteration continues with
    /// the next chain.
    pub fn entries(&self) -> impl Iterator<Item = Result<LeafEntry>> + use<'a> {
        let leaf = *self;
        let mut steps = self.chunk_count();
        let mut next = END;
        let mut head = 0_usize;
        std::iter::from_fn(move || {
            while next == END {
                next = leaf.head(head)?;
                head = head.saturating_add(1);
            }
            let found = leaf.chain_entry(next, &mut steps);
            next = found.as_ref().map_or(END, |entry| entry.next);
            Some(found)
        })
    }

    /// The entries of the chain that a hash leads to; entries of other hashes may be among them.
    pub fn chain(&self, hash: u64) -> impl Iterator<Item = Result<LeafEntry>> + use<'a> {
        let leaf = *self;
        let mut steps = self.chunk_count();
        let mut next = self.head(self.bucket(hash)).unwrap_or(END);
        std::iter::from_fn(move || {
            if next == END {
                return None;
            }
            let found = leaf.chain_entry(next, &mut steps);
            next = found.as_ref().map_or(END, |entry| entry.next);
            Some(found)
        })
    }

    /// An entry, if there have not been more of them than there are chunks.
    fn chain_entry(&self, number: u16, steps: &mut usize) -> Result<LeafEntry> {
        let Some(less) = steps.checked_sub(1) else {
            let place = Reader::new(STRUCTURE, &[], self.order);
            return Err(place.corrupt_field(0, "a chain has an end", number.into()));
        };
        *steps = less;
        self.entry(number)
    }

    fn head(&self, index: usize) -> Option<u16> {
        let at = index.checked_mul(2)?;
        let bytes = self.heads.get(at..)?;
        Reader::new(STRUCTURE, bytes, self.order).u16().ok()
    }

    /// The place in the hash table: the bits that follow the prefix.
    fn bucket(&self, hash: u64) -> usize {
        let buckets = self.heads.len() / 2;
        let after = hash.checked_shl(self.prefix_bits).unwrap_or(0);
        let bits = buckets.checked_ilog2().unwrap_or(0);
        usize::try_from(hash::index(after, bits)).unwrap_or(usize::MAX)
    }

    /// The bytes of a name, with its NUL if the disk has one.
    pub fn name(&self, entry: &LeafEntry) -> Result<Vec<u8>> {
        self.array(entry.name_chunk, entry.name_count.into())
    }

    /// The words of a key, in a table whose keys are words.
    pub fn key(&self, entry: &LeafEntry) -> Result<Vec<u64>> {
        let bytes =
            self.array(entry.name_chunk, usize::from(entry.name_count).saturating_mul(8))?;
        let mut reader = Reader::new(STRUCTURE, &bytes, Order::Big);
        (0..entry.name_count).map(|_| reader.u64()).collect()
    }

    /// The bytes of a value: its integers, most significant byte first.
    pub fn value(&self, entry: &LeafEntry) -> Result<Vec<u8>> {
        self.array(entry.value_chunk, entry.value_size())
    }

    /// Reads the bytes of a name into `into` and replaces its content.
    pub fn read_name(&self, entry: &LeafEntry, into: &mut Vec<u8>) -> Result<()> {
        self.read_array(entry.name_chunk, entry.name_count.into(), into)
    }

    /// The value if it is one integer.
    pub fn number(&self, entry: &LeafEntry) -> Result<Option<u64>> {
        if entry.value_count != 1 {
            return Ok(None);
        }
        let mut reader = self.chunk(entry.value_chunk, ARRAY_CHUNK)?;
        let bytes = reader.bytes(entry.int_size.into())?;
        Ok(Some(bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))))
    }

    /// The entry of a key, if there is one.
    pub fn find(&self, key: &Key<'_>) -> Result<Option<LeafEntry>> {
        for entry in self.chain(key.hash) {
            let entry = entry?;
            if entry.hash == key.hash
                && entry.name_count == key.count
                && self.name_starts_with(&entry, key.bytes)?
            {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Whether the name is this one, of `name.len()` bytes on disk.
    pub fn name_matches(&self, entry: &LeafEntry, name: &[u8]) -> Result<bool> {
        if usize::from(entry.name_count) != name.len() {
            return Ok(false);
        }
        self.name_starts_with(entry, name)
    }

    /// Whether the first bytes of the name, or of the key's words, are these.
    fn name_starts_with(&self, entry: &LeafEntry, bytes: &[u8]) -> Result<bool> {
        let mut number = entry.name_chunk;
        for piece in bytes.chunks(ARRAY) {
            let mut reader = self.chunk(number, ARRAY_CHUNK)?;
            if reader.bytes(ARRAY)?.get(..piece.len()) != Some(piece) {
                return Ok(false);
            }
            number = reader.u16()?;
        }
        Ok(true)
    }

    fn array(&self, first: u16, size: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_array(first, size, &mut bytes)?;
        Ok(bytes)
    }

    fn read_array(&self, first: u16, size: usize, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        if size > self.chunk_count().saturating_mul(ARRAY) {
            let place = Reader::new(STRUCTURE, &[], self.order);
            let found = u64::try_from(size).unwrap_or(u64::MAX);
            return Err(place.corrupt_field(0, "an array fits the leaf", found));
        }
        bytes.reserve(size);
        let mut number = first;
        while bytes.len() < size {
            let mut reader = self.chunk(number, ARRAY_CHUNK)?;
            let piece = reader.bytes(ARRAY)?;
            let left = size.saturating_sub(bytes.len()).min(ARRAY);
            bytes.extend_from_slice(piece.get(..left).unwrap_or(piece));
            number = reader.u16()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
