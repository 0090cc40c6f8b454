//! Targets: decompressors, into buffers that are too small, just right and too large.

use transform::compress::{Compression, decompress};

fn decompress_into_all_sizes(method: Compression, data: &[u8]) {
    for room in [0, 1, 512, 4096, 1 << 17] {
        let _ = decompress(method, data, &mut vec![0; room]);
    }
}

/// A block compressed with lz4.
pub fn lz4(data: &[u8]) {
    decompress_into_all_sizes(Compression::Lz4, data);
}

/// A block compressed with zstd.
pub fn zstd(data: &[u8]) {
    decompress_into_all_sizes(Compression::Zstd, data);
}

/// A block compressed with gzip.
pub fn gzip(data: &[u8]) {
    decompress_into_all_sizes(Compression::Gzip(6), data);
}

/// A block compressed with lzjb.
pub fn lzjb(data: &[u8]) {
    decompress_into_all_sizes(Compression::Lzjb, data);
}

/// A block compressed with zle.
pub fn zle(data: &[u8]) {
    decompress_into_all_sizes(Compression::Zle, data);
}
