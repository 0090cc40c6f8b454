//! gzip: a zlib stream (RFC 1950), despite the name; padding follows its checksum.

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use crate::Error;

thread_local! {
    static READER: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    static WRITER: RefCell<Option<(u8, Compressor)>> = const { RefCell::new(None) };
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), Error> {
    let wanted = dst.len();
    match READER.with_borrow_mut(|reader| reader.zlib_decompress(src, dst)) {
        Ok(n) if n == wanted => Ok(()),
        Ok(_) => Err(corrupt("it ends early")),
        Err(DecompressionError::InsufficientSpace) => Err(corrupt("it decodes to too much")),
        Err(DecompressionError::BadData) => Err(corrupt("the stream is malformed")),
    }
}

pub(super) fn compress(level: u8, src: &[u8], dst_limit: usize) -> Option<Vec<u8>> {
    let known = CompressionLvl::new(i32::from(level.clamp(1, 9))).ok()?;
    WRITER.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|(l, _)| *l != level) {
            *slot = Some((level, Compressor::new(known)));
        }
        let (_, writer) = slot.as_mut()?;
        let mut out = vec![0; writer.zlib_compress_bound(src.len()).min(dst_limit)];
        let n = writer.zlib_compress(src, &mut out).ok()?;
        out.truncate(n);
        Some(out)
    })
}

fn corrupt(rule: &'static str) -> Error {
    Error::CorruptCompression { method: "gzip", rule }
}
