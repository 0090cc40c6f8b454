//! Bookmark: the data of a snapshot that an incremental send needs.
//!
//! Bookmarks are the values of a ZAP, arrays of 64-bit numbers, of the short form or the long:
//!
//! ```text
//! offset  size  field                    form   meaning
//!      0     8  guid                     short  of the bookmarked snapshot
//!      8     8  creation_txg             short  of the snapshot
//!     16     8  creation_time            short  of the snapshot, seconds since 1970
//!     24     8  redaction                long   object of the redaction list, or 0
//!     32     8  flags                    long   bit 0: the "freed" fields count, 1: snapshot is there
//!     40     8  referenced               long   bytes that the snapshot referenced
//!     48     8  compressed               long   the same before redundancy
//!     56     8  uncompressed             long   the same before compression
//!     64     8  freed                    long   bytes freed before the next snapshot
//!     72     8  freed_compressed         long   the same before redundancy
//!     80     8  freed_uncompressed       long   the same before compression
//!     88     8  ivset_guid               long   identity of the set of nonces, for raw sends
//!     96
//! ```
//!
//! A redaction list's header is its object's bonus, or its spill block where it is long:
//!
//! ```text
//! offset  size  field        meaning
//!      0     8  last_object  where writing it stands; all ones when it is complete
//!      8     8  last_block
//!     16     8  count        entries in the object's data
//!     24     8  snap_count   how many guids follow
//!     32        snaps        guids of the snapshots that it was made against
//! ```
//!
//! and its data entries of 32 bytes, ordered by object and block:
//!
//! ```text
//! offset  size  field       meaning
//!      0     8  object      the object
//!      8     8  block       its first redacted block
//!     16     8  size_count  bits 0-47 how many blocks less one, 48-63 a block's size in sectors
//!     24     8  padding     0
//!     32
//! ```
//!
//! Learnt from: `zdb -dddd` of the fixture `redacted`. Proved by: `golden_bookmarks`.

use units::{BlockId, Guid, ObjectId, Txg};

use crate::{Order, Reader, Result};

/// A bookmark (`zfs_bookmark_phys_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bookmark {
    /// The snapshot's identity (`zbm_guid`).
    pub guid: Guid,
    /// When the snapshot was taken (`zbm_creation_txg`).
    pub creation_txg: Txg,
    /// The same in seconds since 1970 (`zbm_creation_time`).
    pub creation_time: u64,
    /// The redaction list, or none (`zbm_redaction_obj`).
    pub redaction: ObjectId,
    /// Bits (`zbm_flags`).
    pub flags: u64,
    /// Bytes that the snapshot referenced (`zbm_referenced_bytes_refd`).
    pub referenced: u64,
    /// The same before redundancy (`zbm_compressed_bytes_refd`).
    pub compressed: u64,
    /// The same before compression (`zbm_uncompressed_bytes_refd`).
    pub uncompressed: u64,
    /// Bytes freed before the next snapshot (`zbm_referenced_freed_before_next_snap`).
    pub freed: u64,
    /// The same before redundancy (`zbm_compressed_freed_before_next_snap`).
    pub freed_compressed: u64,
    /// The same before compression (`zbm_uncompressed_freed_before_next_snap`).
    pub freed_uncompressed: u64,
    /// Identity of the set of nonces (`zbm_ivset_guid`).
    pub ivset_guid: u64,
}

impl Bookmark {
    /// The flag that the sizes are there.
    pub const HAS_SIZES: u64 = 1;
    /// The flag that the snapshot is still there; it is kept only with the sizes.
    pub const SNAPSHOT_EXISTS: u64 = 1 << 1;
    /// Bytes of the long form.
    pub const SIZE: usize = 96;
    /// Bytes of the short form.
    pub const SHORT_SIZE: usize = 24;

    /// Reads either form; fields that the short one lacks are 0. Bytes after the long one are
    /// ignored.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let mut mark = Self {
            guid: Guid::new(reader.u64()?),
            creation_txg: Txg::new(reader.u64()?),
            creation_time: reader.u64()?,
            ..Self::default()
        };
        if reader.remaining() == 0 {
            return Ok(mark);
        }
        mark.redaction = ObjectId::new(reader.u64()?);
        mark.flags = reader.u64()?;
        mark.referenced = reader.u64()?;
        mark.compressed = reader.u64()?;
        mark.uncompressed = reader.u64()?;
        mark.freed = reader.u64()?;
        mark.freed_compressed = reader.u64()?;
        mark.freed_uncompressed = reader.u64()?;
        mark.ivset_guid = reader.u64()?;
        Ok(mark)
    }

    /// From a slice that holds just one.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        Self::read(&mut Reader::new("bookmark", bytes, order))
    }

    /// From the numbers of a ZAP entry.
    pub fn from_words(words: &[u64]) -> Result<Self> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Self::parse(&bytes, Order::Little)
    }

    /// The numbers of a ZAP entry: the short form unless something of the long one is set.
    pub fn to_words(self) -> Vec<u64> {
        let short = [self.guid.get(), self.creation_txg.get(), self.creation_time];
        if !self.is_long() {
            return short.to_vec();
        }
        let long = [
            self.redaction.get(),
            self.flags,
            self.referenced,
            self.compressed,
            self.uncompressed,
            self.freed,
            self.freed_compressed,
            self.freed_uncompressed,
            self.ivset_guid,
        ];
        [&short[..], &long[..]].concat()
    }

    /// Whether it needs the long form.
    pub const fn is_long(&self) -> bool {
        self.has_sizes() || self.redaction.exists() || self.ivset_guid != 0
    }

    /// Whether the sizes are there: the long form that was made with them
    /// (`ZBM_FLAG_HAS_FBN`).
    pub const fn has_sizes(&self) -> bool {
        self.flags & Self::HAS_SIZES != 0
    }
}

/// Header of a redaction list (`redaction_list_phys_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RedactionList {
    /// Where making it stands; all ones when it is complete (`rlp_last_object`).
    pub last_object: u64,
    /// The block there (`rlp_last_blkid`).
    pub last_block: u64,
    /// How many entries there are (`rlp_num_entries`).
    pub count: u64,
    /// Guids of the snapshots it was made against (`rlp_snaps`).
    pub snaps: Vec<Guid>,
}

impl RedactionList {
    /// Bytes before the guids.
    pub const SIZE: usize = 32;

    /// Reads the header with its guids.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let last_object = reader.u64()?;
        let last_block = reader.u64()?;
        let count = reader.u64()?;
        let number = reader.u64()?;
        let room = reader.remaining() / 8;
        let number = usize::try_from(number).ok().filter(|number| *number <= room);
        let number = number
            .ok_or_else(|| reader.corrupt_field(8, "the guids must fit the block", u64::MAX))?;
        let snaps = (0..number).map(|_| reader.u64().map(Guid::new)).collect::<Result<_>>()?;
        Ok(Self { last_object, last_block, count, snaps })
    }

    /// The header of a complete list.
    pub fn complete(count: u64, snaps: Vec<Guid>) -> Self {
        Self { last_object: u64::MAX, last_block: u64::MAX, count, snaps }
    }

    /// Whether the list was made to its end.
    pub const fn is_complete(&self) -> bool {
        self.last_object == u64::MAX && self.last_block == u64::MAX
    }

    /// The bytes of the header with its guids.
    pub fn encode(&self) -> Vec<u8> {
        let number = units::to_u64(self.snaps.len());
        let words = [self.last_object, self.last_block, self.count, number];
        let guids = self.snaps.iter().map(|guid| guid.get());
        words.into_iter().chain(guids).flat_map(u64::to_le_bytes).collect()
    }

    /// From a bonus buffer or a spill block; later bytes are ignored.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        Self::read(&mut Reader::new("redaction list", bytes, order))
    }
}

/// A run of redacted blocks (`redact_block_phys_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedactedBlocks {
    /// The object.
    pub object: ObjectId,
    /// The first block.
    pub first: BlockId,
    /// How many blocks.
    pub count: u64,
    /// Bytes of one.
    pub block_size: u64,
}

impl RedactedBlocks {
    /// Bytes on disk.
    pub const SIZE: usize = 32;
    /// The most blocks of one run.
    pub const MAX_COUNT: u64 = 1 << 48;

    /// Its bytes. It has a block, and at most [`Self::MAX_COUNT`].
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let count = self.count.wrapping_sub(1) & (Self::MAX_COUNT - 1);
        let packed = count | (self.block_size >> 9) << 48;
        let words = [self.object.get(), self.first.get(), packed, 0];
        let mut bytes = [0; Self::SIZE];
        for (field, word) in bytes.chunks_exact_mut(8).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads one.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let object = ObjectId::new(reader.u64()?);
        let first = BlockId::new(reader.u64()?);
        let packed = reader.u64()?;
        reader.skip(8)?;
        let count = (packed & (Self::MAX_COUNT - 1)).wrapping_add(1);
        Ok(Self { object, first, count, block_size: (packed >> 48) << 9 })
    }

    /// From a slice that holds just one.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        let mut reader = Reader::new("redacted blocks", bytes, order);
        let run = Self::read(&mut reader)?;
        reader.expect_end()?;
        Ok(run)
    }
}
