//! Dnode blocks: all of it is readable without a key except bonus buffers with user data.
//!
//! ```text
//! offset  size  field          since  meaning
//!      0     1  type           v1     0: the slot is free
//!      1     2  shape          v1     indirect block size and number of levels
//!      3     1  pointers       v1     number of block pointers, at most 3
//!      4     1  bonus_type     v1     decides whether the bonus buffer is encrypted
//!      5     2  methods        v1     checksum and compression
//!      7     1  flags          v1     bit 2: a spill pointer ends the dnode
//!      8     2  data_sectors   v1     size of a data block
//!     10     2  bonus_len      v1     bytes of the bonus buffer in use
//!     12     1  extra_slots    v1     how many slots of 512 bytes follow this one
//!     13     3  padding        v1
//!     16     8  last_block     v1     number of the last block
//!     24     8  used           v1     space used
//!     32    32  padding2       v1
//!     64     -  block_pointers v1     128 bytes each, then the bonus buffer
//! ```
//!
//! Of each dnode these are authenticated: the first 64 bytes (of the flags only the spill bit,
//! and no space used), the facts of every pointer, and a bonus buffer that is not encrypted.
//! Bonus buffers are encrypted over all the room they have, not only what is in use.
//!
//! Learnt from: dnode blocks of an encrypted pool. Proved by: `tests/it`.

use std::ops::Range;

use ondisk::{ObjectType, Order};

use super::fields::{POINTER, PointerAuthData};
use crate::Error;

/// Bytes of a dnode slot.
pub(super) const SLOT: usize = 512;
const CORE: usize = 64;
const POINTERS_AT: usize = 3;
const BONUS_TYPE_AT: usize = 4;
const FLAGS_AT: usize = 7;
const SECTORS_AT: usize = 8;
const BONUS_LEN_AT: usize = 10;
const EXTRA_SLOTS_AT: usize = 12;
const LAST_BLOCK_AT: usize = 16;
const USED_AT: usize = 24;
const SPILL: u8 = 1 << 2;

/// One dnode with all its slots.
pub(super) struct RawDnode<'a> {
    core: &'a [u8; CORE],
    pointers: &'a [[u8; POINTER]],
    bonus: &'a [u8],
    spill: Option<&'a [u8; POINTER]>,
}

impl<'a> RawDnode<'a> {
    /// The dnode at the start of `bytes`, and the bytes after it.
    pub(super) fn split_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        let core: &[u8; CORE] = bytes.first_chunk().ok_or(corrupt("it is cut off"))?;
        let slots = usize::from(core[EXTRA_SLOTS_AT]) + 1;
        let (whole, rest) =
            bytes.split_at_checked(slots * SLOT).ok_or(corrupt("its slots go past the block"))?;
        let body = &whole[CORE..];
        let (pointers, room) = body
            .split_at_checked(usize::from(core[POINTERS_AT]) * POINTER)
            .ok_or(corrupt("its block pointers go past its slots"))?;
        let (bonus, spill) = if core[FLAGS_AT] & SPILL == 0 {
            (room, None)
        } else {
            let (bonus, spill) =
                room.split_last_chunk().ok_or(corrupt("it has no room for a spill pointer"))?;
            (bonus, Some(spill))
        };
        Ok((Self { core, pointers: pointers.as_chunks().0, bonus, spill }, rest))
    }

    pub(super) fn is_free(&self) -> bool {
        self.core[0] == 0
    }

    fn bonus_is_encrypted(&self) -> bool {
        !self.is_free()
            && ObjectType(self.core[BONUS_TYPE_AT]).is_encrypted()
            && self.core[BONUS_LEN_AT..BONUS_LEN_AT + 2] != [0, 0]
    }

    /// The core with what is not portable masked, in the byte order of the block.
    fn portable_core(&self) -> [u8; CORE] {
        let mut core = *self.core;
        core[FLAGS_AT] &= SPILL;
        core[USED_AT..USED_AT + 8].fill(0);
        core
    }

    /// The same, its numbers little-endian.
    pub(super) fn little_core(&self, order: Order) -> [u8; CORE] {
        let mut core = self.portable_core();
        if order == Order::Big {
            core[SECTORS_AT..SECTORS_AT + 2].reverse();
            core[BONUS_LEN_AT..BONUS_LEN_AT + 2].reverse();
            core[LAST_BLOCK_AT..LAST_BLOCK_AT + 8].reverse();
        }
        core
    }

    /// The authenticated fields of its pointers, the spill pointer last.
    pub(super) fn pointer_auth_data(
        &self,
        version: u64,
        order: Order,
    ) -> impl Iterator<Item = PointerAuthData> {
        self.pointers
            .iter()
            .chain(self.spill)
            .map(move |pointer| PointerAuthData::new(pointer, version, order))
    }
}

/// The parts of a dnode block that are encrypted; the authenticated parts are appended to `aad`.
pub(super) fn encrypted_parts(
    block: &[u8],
    version: u64,
    order: Order,
    aad: &mut Vec<u8>,
) -> Result<Vec<Range<usize>>, Error> {
    let mut parts = Vec::new();
    let mut rest = block;
    while rest.len() >= SLOT {
        let start = block.len() - rest.len();
        let (node, after) = RawDnode::split_first(rest)?;
        aad.extend_from_slice(&node.portable_core());
        for facts in node.pointer_auth_data(version, order) {
            aad.extend_from_slice(facts.as_slice());
        }
        if node.bonus_is_encrypted() {
            let from = start + CORE + node.pointers.len() * POINTER;
            parts.push(from..from + node.bonus.len());
        } else {
            aad.extend_from_slice(node.bonus);
        }
        rest = after;
    }
    Ok(parts)
}

fn corrupt(rule: &'static str) -> Error {
    Error::CorruptLayout { structure: "a dnode", rule }
}
