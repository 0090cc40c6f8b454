//! Deadlist: the blocks that the previous snapshot references and this dataset no longer does.
//!
//! It is an object of type "DSL deadlist map" whose data is a ZAP from a birth txg (as a 64-bit
//! key) to the [`super::Bpobj`] with the blocks born since then and before the next key's txg.
//! Its bonus:
//!
//! ```text
//! offset  size  field         meaning
//!      0     8  used          bytes of all its blocks
//!      8     8  compressed    the same before redundancy
//!     16     8  uncompressed  the same before compression
//!     24   296  padding       0
//!    320
//! ```
//!
//! Pools before version 26 have one bpobj (of that object type) in the deadlist's place.
//! A clone's livelist has the same form: it records allocations and frees since the clone's
//! creation.
//!
//! Learnt from: `zdb -dddd` of the fixtures' MOS. Proved by: `golden_lists`.

use super::dir::encode_words;
use crate::{Order, Reader, Result};

/// Header of a deadlist (`dsl_deadlist_phys_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deadlist {
    /// Bytes of all its blocks (`dl_used`).
    pub used: u64,
    /// The same before redundancy (`dl_comp`).
    pub compressed: u64,
    /// The same before compression (`dl_uncomp`).
    pub uncompressed: u64,
}

impl Deadlist {
    /// Bytes on disk; those after the fields are padding.
    pub const SIZE: usize = 320;

    /// Reads one; padding may be cut off.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { used: reader.u64()?, compressed: reader.u64()?, uncompressed: reader.u64()? })
    }

    /// From a bonus buffer.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        Self::read(&mut Reader::new("deadlist", bytes, order))
    }

    /// The bytes of one, as it lies in a bonus buffer.
    pub fn encode(&self) -> Vec<u8> {
        encode_words(&[self.used, self.compressed, self.uncompressed], Self::SIZE)
    }
}
