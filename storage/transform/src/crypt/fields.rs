//! The few fields of block pointers that codes are computed over, straight from their bytes.
//!
//! ```text
//! offset  size  field  since  meaning
//!      0    16  dva    v1     the first address; all zeros in a hole
//!     16    32  dvas   v1     the others; in an encrypted block the third is salt and nonce
//!     48     8  prop   v1     sizes, methods, type, level and flags
//!     56    40  birth  v1     padding, births and fill count
//!     96    16  sum    v1     the half of the checksum that stays a checksum
//!    112    16  mac    v1     the authentication code, in the other half
//! ```

use ondisk::Order;

/// Bytes of a block pointer.
pub(super) const POINTER: usize = 128;

const PROP_AT: usize = 48;
const MAC_AT: usize = 112;
const TYPE_OBJSET: u8 = 11;
const TYPE_SHIFT: u32 = 48;
const LEVEL_SHIFT: u32 = 56;
const LEVEL_MASK: u64 = 0x1f;
const PHYSICAL_SIZE: u64 = 0xffff << 16;
const COMPRESSION: u64 = 0x7f << 32;
const EMBEDDED: u64 = 1 << 39;
const CHECKSUM: u64 = 0xff << 40;
const DEDUP: u64 = 1 << 62;
const LITTLE_ENDIAN: u64 = 1 << 63;

/// A 64-bit word as written by a machine of this byte order.
pub(super) fn word(bytes: [u8; 8], order: Order) -> u64 {
    match order {
        Order::Little => u64::from_le_bytes(bytes),
        Order::Big => u64::from_be_bytes(bytes),
    }
}

/// The authenticated fields of a block pointer: 32 bytes, or 24 in version 0.
pub(super) struct PointerAuthData {
    bytes: [u8; 32],
    len: usize,
}

impl PointerAuthData {
    /// Of the pointer `bytes`, which lies in a block of this order.
    pub(super) fn new(bytes: &[u8; POINTER], version: u64, order: Order) -> Self {
        let at = |place: usize| {
            let chunks = bytes.as_chunks::<8>().0;
            word(chunks[place / 8], order)
        };
        let prop = at(PROP_AT);
        let hole = at(0) == 0 && at(8) == 0 && prop & EMBEDDED == 0;
        let mut facts = [0; 32];
        facts[..8].copy_from_slice(&portable_properties(prop, version, hole).to_le_bytes());
        if (prop >> TYPE_SHIFT).to_le_bytes()[0] != TYPE_OBJSET {
            let code = [at(MAC_AT), at(MAC_AT + 8)].map(|w| mac_bytes(w, prop));
            facts[8..24].copy_from_slice(code.as_flattened());
        }
        Self { bytes: facts, len: if version == 0 { 24 } else { 32 } }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A code's bytes were put into a word by the writer of the block pointed to.
fn mac_bytes(word: u64, prop: u64) -> [u8; 8] {
    if prop & LITTLE_ENDIAN != 0 { word.to_le_bytes() } else { word.to_be_bytes() }
}

/// The properties that stay the same when a block is sent to another pool as it is.
fn portable_properties(prop: u64, version: u64, hole: bool) -> u64 {
    let mut masked = DEDUP | CHECKSUM;
    if version == 0 {
        masked |= PHYSICAL_SIZE;
    } else if hole {
        return 0;
    } else if prop >> LEVEL_SHIFT & LEVEL_MASK != 0 {
        masked |= PHYSICAL_SIZE | COMPRESSION | LITTLE_ENDIAN;
    }
    prop & !masked
}
