//! Lists of block pointers to be freed one day (bpobj), and of whole trees to be freed (bptree).
//!
//! A bpobj is an object whose data is an array of block pointers, without checksums and embedded
//! payload, and whose bonus is:
//!
//! ```text
//! offset  size  field         since     meaning
//!      0     8  count         v1        pointers in it
//!      8     8  bytes         v1        bytes of their blocks and of those of its sublists
//!     16     8  compressed    v21       the same before redundancy
//!     24     8  uncompressed  v21       the same before compression
//!     32     8  sublists      v26       object whose data is an array of bpobj object numbers
//!     40     8  sublist_count v26       how many there are
//!     48     8  freed         livelist  pointers that tell of a death, in a livelist
//!     56
//! ```
//!
//! In a livelist bit 0 of a pointer's fill marks a free; without it the pointer is an allocation.
//!
//! A bptree, into which a destroyed dataset's tree goes, has this bonus:
//!
//! ```text
//! offset  size  field         meaning
//!      0     8  begin         index of the first entry that is not freed yet
//!      8     8  end           index after the last entry
//!     16     8  bytes         still to be freed
//!     24     8  compressed    the same before redundancy
//!     32     8  uncompressed  the same before compression
//!     40
//! ```
//!
//! and as data entries of this form:
//!
//! ```text
//! offset  size  field      meaning
//!      0   128  root       the tree's root
//!    128     8  birth      only blocks born after this txg are freed
//!    136     8  objset     where freeing continues: all before it is freed
//!    144     8  object
//!    152     8  level      signed
//!    160     8  block
//!    168
//! ```
//!
//! Learnt from: `zdb -dddd` of the fixtures' MOS. Proved by: `golden_lists`.

use units::{ObjectId, Txg};

use super::dir::{encode_words, object};
use crate::{Blkptr, Order, Reader, Result};

/// Header of a list of block pointers (`bpobj_phys_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bpobj {
    /// Pointers in the object itself (`bpo_num_blkptrs`).
    pub count: u64,
    /// Bytes of all blocks (`bpo_bytes`).
    pub bytes: u64,
    /// The same before redundancy; 0 in old ones (`bpo_comp`).
    pub compressed: u64,
    /// The same before compression; 0 in old ones (`bpo_uncomp`).
    pub uncompressed: u64,
    /// Object with the numbers of sublists, or none (`bpo_subobjs`).
    pub sublists: ObjectId,
    /// How many sublists there are (`bpo_num_subobjs`).
    pub sublist_count: u64,
    /// Number of pointers that record a free, in a livelist (`bpo_num_freed`).
    pub freed: u64,
}

impl Bpobj {
    /// Bytes of the newest form; 16, 32 and 48 are older ones.
    pub const SIZE: usize = 56;
    /// Bytes of the form without `freed`, which pools without livelists have.
    pub const SIZE_PLAIN: usize = 48;
    /// Bytes of the form that pools before version 26 have.
    pub const SIZE_WITHOUT_SUBLISTS: usize = 32;
    /// Bytes of the form that pools before version 3 have.
    pub const SIZE_FIRST: usize = 16;

    /// Reads the fields; those that an older form lacks are 0.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let mut header = Self { count: reader.u64()?, bytes: reader.u64()?, ..Self::default() };
        if reader.remaining() >= 16 {
            header.compressed = reader.u64()?;
            header.uncompressed = reader.u64()?;
        }
        if reader.remaining() >= 16 {
            header.sublists = object(reader)?;
            header.sublist_count = reader.u64()?;
        }
        if reader.remaining() >= 8 {
            header.freed = reader.u64()?;
        }
        Ok(header)
    }

    /// From a bonus buffer.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        let header = Self::read(&mut Reader::new("bpobj", bytes, order))?;
        let place = Reader::new("bpobj", bytes, order);
        check_entry_count(&place, header.count)?;
        check_entry_count(&place, header.sublist_count)?;
        Ok(header)
    }

    /// The bytes of one in a form of `size` bytes; what an older form lacks is left out.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn encode(&self, size: usize) -> Vec<u8> {
        let words = [
            self.count,
            self.bytes,
            self.compressed,
            self.uncompressed,
            self.sublists.get(),
            self.sublist_count,
            self.freed,
        ];
        let left_out = words[4..].iter().skip((size / 8).saturating_sub(4));
        assert!(
            left_out.into_iter().all(|word| *word == 0),
            "a list in a form of {size} bytes has {} sublists and {} frees, which it cannot count",
            self.sublist_count,
            self.freed
        );
        encode_words(words.get(..size / 8).unwrap_or(&words), size)
    }

    /// The bytes of a pointer as a list stores it: a checksum only where dedup needs it to find
    /// the block, no payload, and the free flag of a livelist in place of the fill.
    pub fn encode_pointer(pointer: &Blkptr, freed: bool) -> [u8; Blkptr::SIZE] {
        let kept = |at: usize| match (pointer, at) {
            (_, 48..56 | 80..88) => true,
            (Blkptr::Embedded(_), _) => false,
            (Blkptr::Regular(block), 96..) => block.dedup,
            (_, at) => at < 88,
        };
        let mut bytes = pointer.encode();
        for (at, byte) in bytes.iter_mut().enumerate() {
            match at {
                88 => *byte = freed.into(),
                _ if kept(at) => {}
                _ => *byte = 0,
            }
        }
        bytes
    }
}

/// Whether a pointer of a livelist records a free (and not an allocation).
pub fn is_freed(pointer: &Blkptr) -> bool {
    matches!(pointer, Blkptr::Regular(block) if block.fill & 1 != 0)
}

/// Header of the trees to be freed (`bptree_phys_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bptree {
    /// The first entry that is not freed yet (`bt_begin`).
    pub begin: u64,
    /// After the last entry (`bt_end`).
    pub end: u64,
    /// Bytes to be freed (`bt_bytes`).
    pub bytes: u64,
    /// The same before redundancy (`bt_comp`).
    pub compressed: u64,
    /// The same before compression (`bt_uncomp`).
    pub uncompressed: u64,
}

impl Bptree {
    /// Bytes on disk.
    pub const SIZE: usize = 40;

    /// Reads one.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            begin: reader.u64()?,
            end: reader.u64()?,
            bytes: reader.u64()?,
            compressed: reader.u64()?,
            uncompressed: reader.u64()?,
        })
    }

    /// From a bonus buffer.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        let header = Self::read(&mut Reader::new("bptree", bytes, order))?;
        let place = Reader::new("bptree", bytes, order);
        check_entry_count(&place, header.begin)?;
        check_entry_count(&place, header.end)?;
        Ok(header)
    }

    /// The bytes of one, as it lies in a bonus buffer.
    pub fn encode(&self) -> Vec<u8> {
        let words = [self.begin, self.end, self.bytes, self.compressed, self.uncompressed];
        encode_words(&words, Self::SIZE)
    }
}

/// Entries that a list has at most: their bytes must fit an object.
const MAX_ENTRIES: u64 = 1 << 48;

fn check_entry_count(place: &Reader<'_>, count: u64) -> Result<()> {
    if count <= MAX_ENTRIES {
        return Ok(());
    }
    Err(place.corrupt_field(0, "a list has at most 2^48 entries", count))
}

/// A tree to be freed (`bptree_entry_phys_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BptreeEntry {
    /// Its root (`be_bp`).
    pub root: Blkptr,
    /// Only blocks born after this are freed (`be_birth_txg`).
    pub birth: Txg,
    /// The block at which freeing continues: object set, object, level (signed), block (`be_zb`);
    /// all 0 if it has not begun.
    pub resume: [u64; 4],
}

impl BptreeEntry {
    /// Bytes on disk.
    pub const SIZE: usize = 168;

    /// Reads one.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            root: Blkptr::read(reader)?,
            birth: Txg::new(reader.u64()?),
            resume: reader.words()?,
        })
    }

    /// From a slice that holds just one.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        let mut reader = Reader::new("bptree entry", bytes, order);
        let entry = Self::read(&mut reader)?;
        reader.expect_end()?;
        Ok(entry)
    }

    /// The bytes of one.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn encode(&self) -> Vec<u8> {
        let [objset, object, level, block] = self.resume;
        let mut bytes = self.root.encode().to_vec();
        bytes.extend(encode_words(&[self.birth.get(), objset, object, level, block], 40));
        assert_eq!(bytes.len(), Self::SIZE, "an entry of a tree to be freed has its size");
        bytes
    }
}
