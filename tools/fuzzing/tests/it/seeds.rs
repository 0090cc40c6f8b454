//! Blocks that OpenZFS wrote, found in an image without knowing where they are.
//!
//! Metadata is compressed with lz4: any 4 KiB of the image that can be the start of such a
//! block and decompress to a size of metadata are used.

use transform::compress::{Compression, decompress};

/// Beyond this, an input only takes time.
const MAX_BLOCK_SIZE: usize = 16 << 10;
const MAX_BLOCKS: usize = 400;
const MAX_MICROZAPS: usize = 50;
/// The first records of a send stream of OpenZFS.
const SEND_STREAM: &[u8] =
    include_bytes!("../../../../storage/ondisk/tests/golden/stream-full.bin");
const BLOCK_SIZES: [usize; 6] = [512, 1024, 4096, 16 << 10, 32 << 10, 128 << 10];

/// Label, uberblocks, and metadata of the fixture's first image, each at most 16 KiB.
pub(crate) fn find_blocks(fixture: &str) -> Vec<Vec<u8>> {
    let image = &fixtures::load(fixture).images()[0];
    let bytes = std::fs::read(image).unwrap();
    let mut found = vec![bytes[16 << 10..32 << 10].to_vec(), bytes[128 << 10..132 << 10].to_vec()];
    found.extend((0..16).map(|n| [n; 512].to_vec()));
    found.push(SEND_STREAM.to_vec());
    for chunk in bytes[4 << 20..].chunks(4096) {
        if found.len() < MAX_BLOCKS && !transform::compress::is_zero(chunk) {
            found.extend(decompress_block(chunk));
            found.extend((found.len() % 4 == 0).then(|| chunk.to_vec()));
        }
        if found.len() < MAX_BLOCKS + MAX_MICROZAPS && is_microzap(chunk) {
            found.push(chunk[..512].to_vec());
        }
    }
    for block in &mut found {
        block.truncate(MAX_BLOCK_SIZE);
    }
    found
}

/// Tables of one sector are not compressed.
fn is_microzap(chunk: &[u8]) -> bool {
    chunk[..8] == ondisk::zap::MICRO.to_le_bytes()
}

fn decompress_block(chunk: &[u8]) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(chunk[..4].try_into().unwrap());
    if !(8..4092).contains(&length) {
        return None;
    }
    BLOCK_SIZES.into_iter().find_map(|size| {
        let mut block = vec![0; size];
        decompress(Compression::Lz4, chunk, &mut block).ok().map(|()| block)
    })
}
