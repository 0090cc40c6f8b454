//! The content of an L2ARC device: blocks of the pool, and a log of them.
//!
//! Behind the front labels and the boot region of such a device is a header ([`Header`], one
//! sector, at least 512 bytes), and behind it a ring of stored blocks, each aligned to sectors.
//! A log block ([`LogBlock`]) follows each group of blocks and lists them. The header
//! points to the newest two, and each log block to the one before its predecessor:
//!
//! ```text
//! header ─┬─> log block n    ──> n-2 ──> n-4 …
//!         └─> log block n-1  ──> n-3 ──> n-5 …
//!
//! start ….│blocks│log n-1│blocks│log n│…hand (free) evict….│old blocks│log│…… end
//! ```
//!
//! The hand writes towards the end and wraps to the start. The content between the hand and `evict`
//! is gone. The header's checksum is that of a part of a label.
//!
//! A log entry identifies a block by its first address and its birth. Only the checksum in the
//! block pointer proves a block of the cache.
//!
//! Learnt from: `arc.c` and `arc_impl.h` of OpenZFS 2.3.2. Proved by: the tests here, and the
//! engine's `zdb_knows_what_a_cache_drive_holds`.

mod header;
mod log;

pub use header::Header;
pub use log::{Entry, LogBlock, LogPointer};

use crate::{Order, Reader, Result};

/// Where the header stands on a drive, bytes: where on other drives the data begin.
pub const HEADER_OFFSET: u64 = crate::label::DATA_START;
/// No log block has more entries.
pub const MAX_ENTRIES: u64 = 1022;
/// Drives that end before have no log.
const MIN_LOGGED_SIZE: u64 = 1 << 30;
/// log2 of the pool's largest block. All blocks of one log block must fit on the device.
const MAX_BLOCK_SHIFT: u32 = 24;
/// Bits of a word of sizes that say how many sectors of 512 bytes, less one.
const SIZE_MASK: u64 = 0xffff;

/// Entries of each log block on a device whose ring is from `start` to `end` (bytes); 0: there
/// is not a log.
pub fn entries_per_log(start: u64, end: u64) -> u64 {
    if end < MIN_LOGGED_SIZE {
        return 0;
    }
    (end.saturating_sub(start) >> MAX_BLOCK_SHIFT).min(MAX_ENTRIES)
}

/// A reader behind the magic number, which determines the byte order.
fn read_magic<'a>(what: &'static str, bytes: &'a [u8], wanted: u64) -> Result<Reader<'a>> {
    let first = Reader::new(what, bytes, Order::Little).u64()?;
    let order = if first.swap_bytes() == wanted { Order::Big } else { Order::Little };
    let mut reader = Reader::new(what, bytes, order);
    let magic = reader.u64()?;
    if magic != wanted {
        return Err(reader.corrupt_field(8, "the magic number is there", magic));
    }
    Ok(reader)
}

/// A size in bytes, from the bits of a word.
const fn size_from_bits(word: u64, shift: u32) -> u32 {
    let sectors = (word.wrapping_shr(shift) & SIZE_MASK) as u32;
    sectors.wrapping_add(1).wrapping_mul(512)
}

/// The bits of a word for a size in bytes.
fn size_bits(size: u32, shift: u32) -> u64 {
    let sectors = u64::from(size >> 9).saturating_sub(1);
    (sectors & SIZE_MASK).wrapping_shl(shift)
}

#[cfg(test)]
mod tests;
