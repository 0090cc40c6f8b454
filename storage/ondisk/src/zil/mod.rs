//! Intent log: its header, its blocks and their records.
//!
//! Each dataset has a log of its own, a chain of blocks. The header stands in the object set:
//!
//! ```text
//! offset  size  field             meaning
//!      0     8  claim_txg         the import after a crash that took possession of it; 0: none did
//!      8     8  replay_seq        records up to this one are in the dataset already
//!     16   128  log               pointer to the first block
//!    144     8  claim_block_seq   the last block that was there at the claim
//!    152     8  flags             bit 0: there is something to replay, 1: the next field counts
//!    160     8  claim_record_seq  the last record that was there at the claim
//!    168    24  padding           0
//!    192
//! ```
//!
//! A log block of the newer kind (checksum zilog2) begins with this chain header, one of the
//! older kind (zilog) ends with it:
//!
//! ```text
//! offset  size  field     meaning
//!      0     8  padding   0
//!      8   128  next      pointer to the block that comes next, allocated before it is written
//!    136     8  used      bytes in use; in the newer kind these 184 count too
//!    144    40  seal      magic and checksum
//!    184
//! ```
//!
//! The pointer to a log block holds no checksum but a verifier: two random words, the object
//! set's id and the block's number in the chain, which goes up by one. The chain ends where the
//! next block is not (yet) what its pointer says.
//!
//! Learnt from: `zdb -ivv` of the fixtures `intent-log*`. Proved by: `golden_header` and the
//! tests of the crate `zil`.

mod body;
mod create;
mod record;

pub use body::{Acl, Attributes, Body, Rename, RenameKind, SetAttr, Whiteout, Write};
pub use create::{Create, CreateKind};
pub use record::Record;

use units::{ObjsetId, Txg};

use crate::blkptr::{Protection, Regular};
use crate::{Blkptr, Order, Reader, Result};

/// Header of a dataset's log (`zil_header_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZilHeader {
    /// The txg of the import that took possession of the log; 0 if none did (`zh_claim_txg`).
    pub claim_txg: Txg,
    /// Records up to this number have been replayed (`zh_replay_seq`).
    pub replay_seq: u64,
    /// The first block (`zh_log`).
    pub log: Blkptr,
    /// The last block claimed (`zh_claim_blk_seq`).
    pub claim_block_seq: u64,
    /// Bits (`zh_flags`).
    pub flags: u64,
    /// The last record claimed, if [`ZilHeader::has_claim_record_seq`] (`zh_claim_lr_seq`).
    pub claim_record_seq: u64,
}

impl ZilHeader {
    /// Bytes on disk.
    pub const SIZE: usize = 192;

    /// Reads one.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let header = Self {
            claim_txg: Txg::new(reader.u64()?),
            replay_seq: reader.u64()?,
            log: Blkptr::read(reader)?,
            claim_block_seq: reader.u64()?,
            flags: reader.u64()?,
            claim_record_seq: reader.u64()?,
        };
        reader.skip(24)?;
        Ok(header)
    }

    /// From a slice that begins with one.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        Self::read(&mut Reader::new("log header", bytes, order))
    }

    /// Whether records wait to be replayed; only said once the log was claimed.
    pub const fn is_replay_needed(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Whether `claim_record_seq` counts.
    pub const fn has_claim_record_seq(&self) -> bool {
        self.flags & 2 != 0
    }
}

/// What chains a log block to the next (`zil_chain_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The next block; it need not exist yet (`zc_next_blk`).
    pub next: Blkptr,
    /// Bytes of the block in use (`zc_nused`).
    pub used: u64,
}

impl Chain {
    /// Bytes on disk.
    pub const SIZE: usize = 184;

    /// Reads one; the seal is the business of whoever read the block.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.skip(8)?;
        let chain = Self { next: Blkptr::read(reader)?, used: reader.u64()? };
        reader.skip(40)?;
        Ok(chain)
    }

    /// The chain header of a whole log block, and the bytes of its records.
    ///
    /// `front`: whether it is of the newer kind.
    pub fn split(block: &[u8], order: Order, front: bool) -> Result<(Self, &[u8])> {
        let mut reader = Reader::new("log block", block, order);
        let behind = block.len().saturating_sub(Self::SIZE);
        if !front {
            reader.seek(behind);
        }
        let chain = Self::read(&mut reader)?;
        let (start, limit) = if front { (Self::SIZE, block.len()) } else { (0, behind) };
        let end = usize::try_from(chain.used).ok().filter(|used| *used <= limit);
        let records = end.and_then(|end| block.get(start..end));
        let rule = "the used part must fit the block";
        let records = records.ok_or_else(|| reader.broken(48, rule, chain.used))?;
        Ok((chain, records))
    }
}

/// What a pointer to a log block holds in place of a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verifier {
    /// Random words, the same in the whole chain.
    pub guid: [u64; 2],
    /// The object set that the log belongs to.
    pub objset: ObjsetId,
    /// The block's number in the chain; the first is 1.
    pub seq: u64,
}

impl Verifier {
    /// Of the log block that `pointer` points to.
    ///
    /// A log block keeps its authentication code within itself, so that what passes for the code
    /// in the pointer of an encrypted one is the second half of the verifier.
    pub fn of(pointer: &Regular) -> Self {
        let [first, second, mut third, mut fourth] = pointer.sum;
        if let Protection::Encrypted { mac, .. }
        | Protection::Authenticated { mac }
        | Protection::Indirect { mac } = pointer.protection
        {
            let mut reader = Reader::new("log block pointer", &mac, pointer.order);
            third = reader.u64().unwrap_or(third);
            fourth = reader.u64().unwrap_or(fourth);
        }
        Self { guid: [first, second], objset: ObjsetId::new(third), seq: fourth }
    }

    /// As the four words of the checksum.
    pub const fn words(self) -> [u64; 4] {
        [self.guid[0], self.guid[1], self.objset.get(), self.seq]
    }

    /// What the next block's pointer must hold.
    pub const fn next(self) -> Self {
        Self { seq: self.seq.wrapping_add(1), ..self }
    }
}

#[cfg(test)]
mod tests;
