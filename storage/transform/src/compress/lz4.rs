//! lz4: a big-endian length, then one raw lz4 block.
//!
//! ```text
//! offset  size  field   since  meaning
//!      0     4  length  lz4    bytes of the raw block, big-endian; what follows it is padding
//!      4     -  block   lz4    a raw lz4 block that decodes to exactly the logical size
//! ```

use lz4::block::{CompressionMode, compress_to_buffer, decompress_to_buffer};

use crate::Error;

const HEADER: usize = 4;

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

pub(super) fn compress(src: &[u8], dst_limit: usize) -> Option<Vec<u8>> {
    let bound = lz4::block::compress_bound(src.len()).ok()?;
    let mut out = vec![0; HEADER.checked_add(bound)?.min(dst_limit)];
    let body = out.get_mut(HEADER..)?;
    let n = compress_to_buffer(src, Some(CompressionMode::DEFAULT), false, body).ok()?;
    if n == 0 {
        return None;
    }
    out.truncate(HEADER + n);
    out.get_mut(..HEADER)?.copy_from_slice(&u32::try_from(n).ok()?.to_be_bytes());
    Some(out)
}

fn corrupt(rule: &'static str) -> Error {
    Error::CorruptCompression { method: "lz4", rule }
}
