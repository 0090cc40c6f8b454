//! Intent log: its blocks and their records.
//!
//! Each dataset has a log of its own, a chain of blocks whose header stands in the object set
//! ([`crate::objset::LogHeader`]).
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
//! Learnt from: `zdb -ivv` of the fixtures `intent-log*`. Proved by: `golden_records` and
//! the tests of the crate `zil`.

mod body;
mod create;
mod encode;
mod record;

pub use body::{Acl, Attributes, Body, Rename, RenameKind, SetAttr, Whiteout, Write};
pub use create::{Create, CreateKind};
pub use record::{Record, RecordBlocks};

use units::ObjsetId;

use crate::blkptr::{Protection, Regular};
use crate::{Blkptr, Order, Reader, Result};

/// The chain header of a log block (`zil_chain_t`).
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

    /// Reads one; the reader of the block verifies the seal.
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
        let records = records.ok_or_else(|| reader.corrupt_field(48, rule, chain.used))?;
        Ok((chain, records))
    }
}

/// The verifier that a pointer to a log block has in place of a checksum.
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
    pub fn from_pointer(pointer: &Regular) -> Self {
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

    /// The verifier in the next block's pointer.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { seq: self.seq.wrapping_add(1), ..self }
    }
}

#[cfg(test)]
mod tests;
