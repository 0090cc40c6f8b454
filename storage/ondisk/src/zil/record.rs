//! One record of an intent log.
//!
//! ```text
//! offset  size  field   meaning
//!      0     8  kind    what was done; bit 63: names were compared without case
//!      8     8  length  bytes of the record, these 32 included
//!     16     8  txg     the txg that was to bring the change
//!     24     8  seq     number of the record in the log
//!     32
//! ```
//!
//! Learnt from: `zdb -ivv` of the fixtures `intent-log*`. Proved by: `golden_records`.

use units::Txg;

use super::Body;
use super::body::checked_count;
use crate::blkptr::Regular;
use crate::{Blkptr, Order, Reader, Result};

const FOLD_CASE: u64 = 1 << 63;
/// The kind of a write.
const WRITE: u64 = 9;
/// The kind of blocks that are shared.
const CLONE: u64 = 24;
/// The field of this record kind that holds the number of its pointers.
const CLONE_COUNT: usize = 64;
/// Bytes of a write whose data is in a block of its own.
const WRITE_SIZE: usize = 192;

/// A record (`lr_t` and its body).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The txg that was to bring the change (`lrc_txg`).
    pub txg: Txg,
    /// Its number in the log (`lrc_seq`).
    pub seq: u64,
    /// Whether names were compared without case (`TX_CI`).
    pub fold_case: bool,
    /// The byte order of uninterpreted bytes (ACL entries).
    pub order: Order,
    /// The change.
    pub body: Body,
}

/// The blocks that a record points to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordBlocks {
    /// None.
    None,
    /// One that was written for it.
    Written(Box<Regular>),
    /// Blocks of others, which it shares (`TX_CLONE_RANGE`).
    Cloned(Vec<Regular>),
}

impl Record {
    /// Bytes before the body.
    pub const HEADER: usize = 32;

    /// Reads the record at the cursor and moves to the next one. Bytes that its body does not use
    /// (padding) are skipped.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let start = reader.position();
        let bytes = Self::record_bytes(reader)?;
        let mut inner = Reader::new("log record", bytes, reader.order());
        let kind = inner.u64()?;
        inner.skip(8)?;
        let txg = Txg::new(inner.u64()?);
        let seq = inner.u64()?;
        let body = Body::read(kind & !FOLD_CASE, &mut inner)?;
        debug_assert!(reader.position() > start, "a record has at least its header");
        Ok(Self { txg, seq, fold_case: kind & FOLD_CASE != 0, order: reader.order(), body })
    }

    /// Number and txg of the record at the cursor, which stays where it is.
    pub fn peek(reader: &Reader<'_>) -> Result<(u64, Txg)> {
        let mut ahead = reader.clone();
        let bytes = Self::record_bytes(&mut ahead)?;
        let mut inner = Reader::new("log record", bytes, reader.order());
        inner.skip(16)?;
        let txg = Txg::new(inner.u64()?);
        Ok((inner.u64()?, txg))
    }

    /// Passes over the record at the cursor.
    pub fn skip(reader: &mut Reader<'_>) -> Result<()> {
        Self::record_bytes(reader).map(drop)
    }

    /// Passes over the record at the cursor; gives the blocks that it points to. All that this looks
    /// at is readable without a key, too.
    pub fn read_blocks(reader: &mut Reader<'_>) -> Result<RecordBlocks> {
        let bytes = Self::record_bytes(reader)?;
        let mut inner = Reader::new("log record", bytes, reader.order());
        match inner.u64()? & !FOLD_CASE {
            WRITE if bytes.len() == WRITE_SIZE => {
                inner.skip(WRITE_SIZE.saturating_sub(Blkptr::SIZE).saturating_sub(8))?;
                Ok(match Blkptr::read(&mut inner)? {
                    Blkptr::Regular(block) => RecordBlocks::Written(block),
                    _ => RecordBlocks::None,
                })
            }
            CLONE => {
                inner.skip(CLONE_COUNT.saturating_sub(8))?;
                let count = checked_count(inner.u64()?, Blkptr::SIZE, &inner)?;
                let mut blocks = Vec::with_capacity(count);
                for _ in 0..count {
                    if let Blkptr::Regular(block) = Blkptr::read(&mut inner)? {
                        blocks.push(*block);
                    }
                }
                Ok(RecordBlocks::Cloned(blocks))
            }
            _ => Ok(RecordBlocks::None),
        }
    }

    fn record_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
        let mut ahead = reader.clone();
        ahead.skip(8)?;
        let length = ahead.u64()?;
        let fits = usize::try_from(length)
            .ok()
            .filter(|length| *length >= Self::HEADER && *length <= reader.remaining());
        let rule = "a record must have its header and fit the block";
        reader.bytes(fits.ok_or_else(|| ahead.corrupt_field(8, rule, length))?)
    }
}
