//! Ranges of requests: whole logical blocks within the unit.

use std::ops::Range;

use crate::{Error, Result};

/// The range of an offset and a length, which must be whole blocks within the size of the unit.
pub(crate) fn check(
    block_size: u32,
    (offset, length): (u64, u64),
    size: u64,
) -> Result<Range<u64>> {
    let is_whole = |number: u64| number.is_multiple_of(block_size.into());
    if !is_whole(offset) || !is_whole(length) {
        return Err(Error::Unaligned { block_size });
    }
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(offset..end),
        end => Err(Error::OutOfRange { end: end.unwrap_or(u64::MAX), size }),
    }
}

/// The same for a range that a protocol gives.
pub(crate) fn check_given(block_size: u32, range: &Range<u64>, size: u64) -> Result<Range<u64>> {
    match range.end.checked_sub(range.start) {
        Some(length) => check(block_size, (range.start, length), size),
        None => Err(Error::OutOfRange { end: range.end, size }),
    }
}

/// Bytes of a buffer.
pub(crate) fn byte_count(bytes: &[u8]) -> u64 {
    // Rust's buffers have at most i64::MAX bytes
    bytes.len() as u64
}
