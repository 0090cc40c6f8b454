//! Copies between units without the data on the network: SCSI EXTENDED COPY, NVMe Copy.
//!
//! Blocks of volumes of one pool are shared where the range is whole blocks of both and the blocks are on the drives
//! already. The other blocks are read and written. Unmapped ranges stay unmapped in the copy.

use std::ops::Range;

use crate::{Durability, Error, Lun};

/// Bytes that are copied at once where blocks cannot be shared.
const PIECE: u64 = 1 << 20;

/// The side of a copy that failed, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The source could not be read.
    #[error(transparent)]
    Read(Error),
    /// The destination could not be written.
    #[error(transparent)]
    Write(Error),
}

/// Copies a range of the source to byte `to` of the destination. On one unit the ranges must not overlap. The start
/// of the range may be copied when an error is returned.
pub fn copy(
    source: &dyn Lun,
    from: Range<u64>,
    (destination, to): (&dyn Lun, u64),
    durability: Durability,
) -> Result<(), CopyError> {
    let mut at = from.start;
    let mut piece = Vec::new();
    while at < from.end {
        let target = to + (at - from.start);
        let shared = share_blocks(source, at..from.end, (destination, target))?;
        at += shared;
        if shared == 0 {
            at = copy_piece(source, at..from.end, (destination, target), &mut piece)?;
        }
    }
    match durability {
        Durability::Cached => Ok(()),
        Durability::Durable => destination.flush().map_err(CopyError::Write),
    }
}

/// Shares blocks. Returns the number of bytes from the start of the range.
fn share_blocks(
    source: &dyn Lun,
    from: Range<u64>,
    (destination, to): (&dyn Lun, u64),
) -> Result<u64, CopyError> {
    match source.block_source().map_err(CopyError::Read)? {
        Some(blocks) => destination.clone_blocks(&blocks, from, to).map_err(CopyError::Write),
        None => Ok(0),
    }
}

/// Copies the first piece of a range. Returns its end.
fn copy_piece(
    source: &dyn Lun,
    from: Range<u64>,
    (destination, to): (&dyn Lun, u64),
    piece: &mut Vec<u8>,
) -> Result<u64, CopyError> {
    let end = from.end.min(from.start + PIECE);
    let extent = source.extent(from.start..end).map_err(CopyError::Read)?;
    let end = extent.range.end.clamp(from.start, end);
    let length = end - from.start;
    let copied = if extent.is_mapped {
        piece.resize(usize::try_from(length).expect("a piece is short"), 0);
        source.read(from.start, piece).map_err(CopyError::Read)?;
        destination.write(to, piece, Durability::Cached)
    } else {
        destination.write_zeroes(to..to + length, Durability::Cached)
    };
    copied.map_err(CopyError::Write)?;
    Ok(end)
}
