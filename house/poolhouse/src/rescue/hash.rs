//! Content to hashes: of a whole file, or of each of its ranges of data.

use std::ops::ControlFlow;

use engine::files::{Content, ContentChunk, Error, Extent};
use engine::hex;
use sha2::{Digest, Sha256};

use crate::parallel::run_ordered;

/// Larger files are listed as ranges of data; the rest is zeros.
pub(crate) const MAX_WHOLE_HASH: u64 = 8 << 20;
/// The bytes that one thread reads at a time, at least a block.
const CHUNK_SIZE: u64 = 512 << 10;
/// Content of this size and more is read ahead by another thread.
const READAHEAD_MIN_SIZE: u64 = 2 << 20;

/// The SHA-256 of a range, as hexadecimal digits. Holes are zeros.
pub(crate) fn digest(content: &Content, start: u64, end: u64) -> Result<String, Error> {
    let mut sha = Sha256::new();
    if end.saturating_sub(start) < READAHEAD_MIN_SIZE {
        for_each_piece(content, start, end, &mut |piece| update_digest(&mut sha, &piece))?;
    } else {
        digest_with_readahead(content, start, end, &mut sha)?;
    }
    Ok(hex(&sha.finalize()))
}

fn digest_with_readahead(
    content: &Content,
    start: u64,
    end: u64,
    sha: &mut Sha256,
) -> Result<(), Error> {
    // the hashed buffer goes back to the reading thread, whose store reuses it
    let trash = std::cell::RefCell::new(Vec::new());
    let jobs = chunks(content, start, end).map(|range| (range, trash.take()));
    let mut failed = None;
    let read = |((start, end), trash): ((u64, u64), Vec<Vec<ContentChunk>>)| {
        drop(trash);
        let mut found = Vec::new();
        for_each_piece(content, start, end, &mut |piece| found.push(piece)).map(|()| found)
    };
    let _ = run_ordered(1, 3, jobs, read, |found| match found {
        Ok(found) => {
            for piece in &found {
                update_digest(sha, piece);
            }
            trash.borrow_mut().push(found);
            ControlFlow::Continue(())
        }
        Err(why) => {
            failed = Some(why);
            ControlFlow::Break(())
        }
    });
    failed.map_or(Ok(()), Err)
}

/// The ranges of data of a large file: offset, length, SHA-256.
pub(crate) fn hash_ranges(content: &Content) -> Result<Vec<(u64, u64, String)>, Error> {
    let mut found = Vec::new();
    for extent in content.extents(0) {
        match extent {
            Extent::Data { start, end } => {
                found.push((start, end - start, digest(content, start, end)?));
            }
            Extent::Unreadable { why, .. } => return Err(why),
        }
    }
    Ok(found)
}

/// A range in parts that begin with a block.
pub(crate) fn chunks(
    content: &Content,
    start: u64,
    end: u64,
) -> impl Iterator<Item = (u64, u64)> + use<> {
    let block = content.block_size().max(1);
    let step = if block >= CHUNK_SIZE { block } else { CHUNK_SIZE / block * block };
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let from = at;
        at = (from / step).saturating_add(1).saturating_mul(step).min(end);
        Some((from, at))
    })
}

/// Shows the pieces of a range one after the other.
pub(crate) fn for_each_piece(
    content: &Content,
    start: u64,
    end: u64,
    show: &mut dyn FnMut(ContentChunk),
) -> Result<(), Error> {
    let mut at = start;
    while at < end {
        let piece = content.read_chunk_uncached(at..end)?;
        if piece.end <= at {
            break;
        }
        at = piece.end;
        show(piece);
    }
    Ok(())
}

fn update_digest(sha: &mut Sha256, piece: &ContentChunk) {
    if let Some(bytes) = &piece.bytes {
        sha.update(&**bytes);
        return;
    }
    let mut left = piece.end - piece.start;
    while left > 0 {
        let count = left.min(ZEROS.len() as u64);
        sha.update(&ZEROS[..usize::try_from(count).unwrap_or(ZEROS.len())]);
        left -= count;
    }
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
