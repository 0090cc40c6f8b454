//! Copies between units without the data on the network: SCSI EXTENDED COPY, NVMe Copy.
//!
//! Blocks of volumes of one pool are shared where the range is whole blocks of both and the blocks are on the drives
//! already. A long copy waits for the next txg once, so that dirty blocks are there, too. The other blocks are read and
//! written. Unmapped ranges stay unmapped in the copy.

use std::ops::Range;

use crate::{Durability, Error, Lun};

/// Bytes that are copied at once where blocks cannot be shared.
const PIECE: u64 = 1 << 20;

/// Bytes of a copy that waits for dirty blocks. A shorter one is done sooner by reading and writing.
const LEAST_SETTLED: u64 = 4 << 20;

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
    let (mut piece, mut may_settle) = (Vec::new(), true);
    while at < from.end {
        let target = to + (at - from.start);
        let mut shared = share_blocks(source, at..from.end, (destination, target))?;
        if shared == 0
            && may_settle
            && is_worth_settling(source, at..from.end, (destination, target))
        {
            may_settle = false;
            // an error comes again from the read
            if source.settle().is_ok() {
                shared = share_blocks(source, at..from.end, (destination, target))?;
            }
        }
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

/// Whether blocks of a range may be shared after they were written to the drives, and are many.
fn is_worth_settling(
    source: &dyn Lun,
    from: Range<u64>,
    (destination, to): (&dyn Lun, u64),
) -> bool {
    let block = u64::from(source.geometry().physical_block_size);
    let is_alike =
        destination.geometry().physical_block_size == source.geometry().physical_block_size;
    let is_aligned = from.start.is_multiple_of(block) && to.is_multiple_of(block);
    let blocks = source.block_source().ok().flatten();
    // a hole needs no copy
    let is_mapped = || source.extent(from.clone()).is_ok_and(|extent| extent.is_mapped);
    from.end - from.start >= LEAST_SETTLED
        && is_alike
        && is_aligned
        && blocks.is_some_and(|blocks| blocks.can_share())
        && is_mapped()
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
