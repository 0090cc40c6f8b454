//! lz4: a big-endian length, then one raw lz4 block.
//!
//! ```text
//! offset  size  field   since  meaning
//!      0     4  length  lz4    bytes of the raw block, big-endian; what follows it is padding
//!      4     -  block   lz4    a raw lz4 block that decodes to exactly the logical size
//! ```

use std::cell::RefCell;

use lz4::block::{CompressionMode, compress_to_buffer, decompress_to_buffer};

use super::prescan::is_likely_compressible;
use crate::Error;

const HEADER: usize = 4;
const SECTOR: usize = 4096;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), Error> {
    let (head, rest) = src.split_first_chunk::<HEADER>().ok_or(corrupt("no length"))?;
    let length = u32::from_be_bytes(*head) as usize;
    let block = rest.get(..length).ok_or(corrupt("the length points past the block"))?;
    let size = i32::try_from(dst.len()).map_err(|_| corrupt("the block is too long"))?;
    match decompress_to_buffer(block, Some(size), dst) {
        Ok(n) if n == dst.len() => Ok(()),
        Ok(_) => Err(corrupt("it ends early")),
        Err(_) => Err(corrupt("the sequence is malformed")),
    }
}

thread_local! {
    /// Incompressible data is only detected at the end of the output, so each thread reuses its
    /// buffer.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn compress(src: &[u8], dst_limit: usize) -> Option<Vec<u8>> {
    let is_of_use = dst_limit >= src.len() || is_likely_compressible(src);
    is_of_use.then(|| compress_all(src, dst_limit))?
}

/// The same without a glance at it before.
pub(super) fn compress_all(src: &[u8], dst_limit: usize) -> Option<Vec<u8>> {
    let bound = lz4::block::compress_bound(src.len()).ok()?;
    let most = bound.min(dst_limit.checked_sub(HEADER)?);
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < most {
            scratch.resize(most, 0);
        }
        let (body, _) = scratch.split_at_mut(most);
        let n = compress_to_buffer(src, Some(CompressionMode::DEFAULT), false, body).ok()?;
        let found = body.get(..n).filter(|found| !found.is_empty())?;
        // room for the padding up to a sector
        let mut out = Vec::with_capacity((HEADER + n).next_multiple_of(SECTOR));
        out.extend_from_slice(&u32::try_from(n).ok()?.to_be_bytes());
        out.extend_from_slice(found);
        Some(out)
    })
}

fn corrupt(rule: &'static str) -> Error {
    Error::CorruptCompression { method: "lz4", rule }
}
