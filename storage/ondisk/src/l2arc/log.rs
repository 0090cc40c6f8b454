//! Log blocks of a cache drive: which blocks it holds, and where.
//!
//! A log block, 64 KiB before it is compressed (LZ4 or not at all):
//!
//! ```text
//! offset   size  field     meaning
//!      0      8  magic     "LOGBLKHD" as a number; its byte order is the block's
//!      8     64  prev_lbp  the log block before the one before this
//!     72     56  pad       0
//!    128  65408  entries   1022 of 64 bytes; how many count says the drive's header
//!  65536
//! ```
//!
//! The pointer to one, in a header or another log block:
//!
//! ```text
//! offset  size  field          meaning
//!      0     8  daddr          where it is, bytes from the drive's start
//!      8     8  payload_asize  bytes of the blocks that it tells of, whole sectors
//!     16     8  payload_start  where the first of them is
//!     24     8  prop           bits 0-15 its bytes before compression, 16-31 after, both in sectors
//!                              of 512 less one, 32-38 compression, 40-47 checksum (Fletcher4)
//!     32    32  cksum          of its bytes as stored
//!     64
//! ```
//!
//! An entry:
//!
//! ```text
//! offset  size  field      meaning
//!      0    16  dva        the block's first address in the pool
//!     16     8  birth      the txg in which it was written there
//!     24     8  prop       bits 0-15 lsize, 16-31 psize, 32-38 compression, 39 whether it was only
//!                          read ahead, 48-55 what it is (1 data, 2 metadata), 56 whether it is
//!                          encrypted or has a MAC, 57-60 which part of the cache had it
//!     32     8  daddr      where it is on this drive, bytes from its start
//!     40     8  complevel  0
//!     48    16  pad        0
//!     64
//! ```
//!
//! Learnt from: `arc_impl.h` of OpenZFS 2.3.2. Proved by: `log_block_survives_encoding`.

use units::Txg;

use super::{size_bits, size_from_bits};
use crate::writer::FixedWriter;
use crate::{Checksum, Compression, Dva, Reader, Result};

const MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
const STRUCTURE: &str = "log block of a cache drive";
const COMPRESSION_MASK: u64 = 0x7f;
/// The part of the cache for blocks that were seen once lately.
const MRU_STATE: u64 = 1;

/// Where a log block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPointer {
    /// Bytes from the drive's start.
    pub offset: u64,
    /// Bytes of the blocks in it, whole sectors.
    pub payload_size: u64,
    /// Where the first of these is.
    pub payload_start: u64,
    /// Its bytes before compression.
    pub lsize: u32,
    /// Its bytes on the drive.
    pub psize: u32,
    /// How it is compressed; none: as no log block is.
    pub compression: Option<Compression>,
    /// The checksum of its bytes on the drive.
    pub sum: [u64; 4],
}

impl LogPointer {
    /// Bytes on disk.
    pub const SIZE: usize = 64;
    /// The one that leads nowhere: no log block is at the start of a drive.
    pub const NONE: Self = Self {
        offset: 0,
        payload_size: 0,
        payload_start: 0,
        lsize: 512,
        psize: 512,
        compression: None,
        sum: [0; 4],
    };

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (at, payload_size, payload_start) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let prop = reader.u64()?;
        let method = u8::try_from((prop >> 32) & COMPRESSION_MASK).unwrap_or(0);
        Ok(Self {
            offset: at,
            payload_size,
            payload_start,
            lsize: size_from_bits(prop, 0),
            psize: size_from_bits(prop, 16),
            compression: Compression::from_number(method)
                .filter(|method| matches!(method, Compression::Off | Compression::Lz4)),
            sum: [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?],
        })
    }

    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        // one that leads nowhere is all zeros
        let Some(compression) = self.compression else { return bytes };
        let prop = size_bits(self.lsize, 0)
            | size_bits(self.psize, 16)
            | u64::from(compression.number()) << 32
            | u64::from(Checksum::Fletcher4.number()) << 40;
        let mut room = FixedWriter::new(&mut bytes);
        room.u64(self.offset).u64(self.payload_size).u64(self.payload_start).u64(prop);
        for word in self.sum {
            room.u64(word);
        }
        bytes
    }
}

/// A block that the drive holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its first address in the pool.
    pub dva: Dva,
    /// The txg in which it was written there.
    pub birth: Txg,
    /// Its bytes as its object sees it.
    pub lsize: u32,
    /// Its stored bytes.
    pub psize: u32,
    /// How the stored bytes were made; none: as no block of this version is.
    pub compression: Option<Compression>,
    /// Whether it is metadata.
    pub metadata: bool,
    /// Whether it is encrypted or has a MAC.
    pub protected: bool,
    /// Where it is on this drive, bytes from its start.
    pub offset: u64,
}

impl Entry {
    /// Bytes on disk.
    pub const SIZE: usize = 64;

    /// None if there is no address.
    fn read(reader: &mut Reader<'_>) -> Result<Option<Self>> {
        let dva = Dva::read(reader)?;
        let (birth, prop, at) = (Txg::new(reader.u64()?), reader.u64()?, reader.u64()?);
        reader.skip(24)?;
        let method = u8::try_from((prop >> 32) & COMPRESSION_MASK).unwrap_or(0);
        Ok(dva.map(|dva| Self {
            dva,
            birth,
            lsize: size_from_bits(prop, 0),
            psize: size_from_bits(prop, 16),
            compression: Compression::from_number(method),
            metadata: (prop >> 48) & 0xff == 2,
            protected: (prop >> 56) & 1 == 1,
            offset: at,
        }))
    }

    fn encode_into(&self, room: &mut FixedWriter<'_>) {
        let [first, second] = self.dva.to_words();
        let method = self.compression.unwrap_or(Compression::Off);
        let prop = size_bits(self.lsize, 0)
            | size_bits(self.psize, 16)
            | u64::from(method.number()) << 32
            | if self.metadata { 2 } else { 1 } << 48
            | u64::from(self.protected) << 56
            | MRU_STATE << 57;
        room.u64(first).u64(second).u64(self.birth.get()).u64(prop).u64(self.offset).zeros(24);
    }
}

/// A log block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogBlock {
    /// The one before the one before it.
    pub previous: LogPointer,
    /// Its entries, in the order in which the blocks were written.
    pub entries: Vec<Entry>,
}

impl LogBlock {
    /// Bytes before compression.
    pub const SIZE: usize = 64 << 10;
    const HEADER_SIZE: usize = 128;

    /// Reads a log block of which the first `count` entries count.
    pub fn parse(bytes: &[u8], count: u64) -> Result<Self> {
        let mut reader = super::read_magic(STRUCTURE, bytes, MAGIC)?;
        let before = LogPointer::read(&mut reader)?;
        reader.seek(Self::HEADER_SIZE);
        let mut entries = Vec::new();
        for _ in 0..count.min(super::MAX_ENTRIES) {
            entries.extend(Entry::read(&mut reader)?);
        }
        Ok(Self { previous: before, entries })
    }

    /// Its bytes before compression.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        let mut room = FixedWriter::new(&mut bytes);
        room.u64(MAGIC).bytes(&self.previous.encode()).zeros(56);
        for entry in &self.entries {
            entry.encode_into(&mut room);
        }
        bytes
    }
}
