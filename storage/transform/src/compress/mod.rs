//! Compression: one method's bytes to the logical bytes and back.
//!
//! A stored block is padded with zeros to whole sectors, so every reader here accepts trailing
//! bytes; every reader fills the whole of `dst` or fails, and none trusts a length it has read.
//!
//! Learnt from: blocks of the pools in `tests/golden` (one per method). Proved by: `tests/it`.

mod gzip;
mod lz4;
mod lzjb;
mod prescan;
mod zle;
mod zstd;

pub use ondisk::blkptr::Compression;

use crate::Error;

/// Turns the stored bytes `src` (physical size, padding included) into `dst` (logical size).
pub fn decompress(method: Compression, src: &[u8], dst: &mut [u8]) -> Result<(), Error> {
    match method {
        Compression::Off => copy_uncompressed(src, dst),
        Compression::Empty => {
            dst.fill(0);
            Ok(())
        }
        Compression::Lz4 => lz4::decompress(src, dst),
        Compression::Zstd => zstd::decompress(src, dst),
        Compression::Gzip(_) => gzip::decompress(src, dst),
        Compression::Lzjb => lzjb::decompress(src, dst),
        Compression::Zle => zle::decompress(src, dst),
        Compression::On => Err(unsupported_code(1)),
        Compression::Inherit => Err(unsupported_code(0)),
    }
}

/// Compresses `src` into at most `dst_limit` bytes, framed as on disk, without padding.
///
/// `level` is zstd's own (1 to 19, or -1 to -1000 in OpenZFS's steps; 0 is its default of 3);
/// the other methods take none, gzip's is part of the method. `None`: it does not fit, or the
/// method is none that compresses. `Empty` gives no bytes at all when `src` is all zeros.
///
/// # Panics
/// If our own arithmetic or bookkeeping is wrong.
pub fn compress(method: Compression, level: i32, src: &[u8], dst_limit: usize) -> Option<Vec<u8>> {
    let found = match method {
        Compression::Empty => is_zero(src).then(Vec::new),
        Compression::Lz4 => lz4::compress(src, dst_limit),
        Compression::Zstd => zstd::compress(level, src, dst_limit),
        Compression::Gzip(gzip_level) => gzip::compress(gzip_level, src, dst_limit),
        Compression::Lzjb => lzjb::compress(src, dst_limit),
        Compression::Zle => zle::compress(src, dst_limit),
        Compression::Off | Compression::On | Compression::Inherit => None,
    }?;
    assert!(found.len() <= dst_limit, "compressed bytes are within the limit");
    debug_assert!(is_reversible(method, src, &found), "a block decompresses to itself");
    Some(found)
}

/// Whether a reader gets the block back.
fn is_reversible(method: Compression, src: &[u8], compressed: &[u8]) -> bool {
    let mut plain = vec![0; src.len()];
    decompress(method, compressed, &mut plain).is_ok() && plain == src
}

/// True if every byte is zero: such a block is stored as a hole.
pub fn is_zero(data: &[u8]) -> bool {
    let mut chunks = data.chunks_exact(64);
    chunks.all(|c| c.iter().fold(0, |acc, b| acc | b) == 0)
        && data.chunks_exact(64).remainder().iter().all(|b| *b == 0)
}

fn copy_uncompressed(src: &[u8], dst: &mut [u8]) -> Result<(), Error> {
    let stored = src.get(..dst.len()).ok_or(Error::CorruptCompression {
        method: "off",
        rule: "fewer bytes are stored than the block is long",
    })?;
    dst.copy_from_slice(stored);
    Ok(())
}

fn unsupported_code(code: u64) -> Error {
    Error::Unsupported { feature: "compression code of a stored block", code }
}
