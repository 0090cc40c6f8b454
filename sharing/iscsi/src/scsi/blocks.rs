//! Reads, writes, verifies, and compare and write.

use lun::{Compared, Durability, Lun};

use super::cdb::{Blocks, Comparison};
use super::execute::{Outcome, read_failure, write_failure};
use super::{Failure, Sense};

/// Bytes that a command without data of its own reads at once.
const PIECE: u64 = 1 << 20;
/// Bytes that one PRE-FETCH reads.
const MAX_PREFETCH: u64 = 8 << 20;

pub(crate) fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("transfers are bounded")
}

pub(crate) fn read(unit: &dyn Lun, blocks: Blocks, fua: bool, data_in: &mut Vec<u8>) -> Outcome {
    if fua {
        // the medium is to have what is read
        unit.flush().map_err(|error| read_failure(&error))?;
    }
    // the bytes of an earlier command need no zeros: all are overwritten
    data_in.resize(length(blocks.bytes()), 0);
    unit.read(blocks.offset(), data_in).map_err(|error| read_failure(&error))
}

/// Writes the whole blocks that the initiator sent.
pub(crate) fn write(
    unit: &dyn Lun,
    blocks: Blocks,
    data: &[u8],
    durability: Durability,
) -> Outcome {
    let whole = data.len() - data.len() % length(blocks.block_size.into());
    let data = &data[..whole.min(length(blocks.bytes()))];
    if data.is_empty() {
        return Ok(());
    }
    unit.write(blocks.offset(), data, durability).map_err(|error| write_failure(&error))
}

pub(crate) fn write_and_verify(
    unit: &dyn Lun,
    blocks: Blocks,
    data: &[u8],
    compares: bool,
) -> Outcome {
    write(unit, blocks, data, Durability::Durable)?;
    let comparison = if compares { Comparison::Data } else { Comparison::Readable };
    verify(unit, blocks, comparison, data)
}

pub(crate) fn verify(
    unit: &dyn Lun,
    blocks: Blocks,
    comparison: Comparison,
    data: &[u8],
) -> Outcome {
    let expected = match comparison {
        Comparison::Readable => None,
        Comparison::Data => Some(data),
        Comparison::OneBlock if blocks.count == 0 => None,
        Comparison::OneBlock => {
            let block = data.get(..length(blocks.block_size.into()));
            Some(block.ok_or(Sense::invalid_field(1))?)
        }
    };
    let mut at = 0;
    let mut piece = Vec::new();
    while at < blocks.bytes() {
        let count = PIECE.min(blocks.bytes() - at);
        piece.resize(length(count), 0);
        unit.read(blocks.offset() + at, &mut piece).map_err(|error| read_failure(&error))?;
        let start = length(at);
        let different = match (comparison, expected) {
            (Comparison::Data, Some(data)) => {
                // an initiator that sent less has less compared
                let data = data.get(start..).unwrap_or(&[]);
                piece.iter().zip(data).position(|(one, other)| one != other)
            }
            (Comparison::OneBlock, Some(block)) => {
                let repeated = block.iter().cycle();
                piece.iter().zip(repeated).position(|(one, other)| one != other)
            }
            _ => None,
        };
        if let Some(different) = different {
            return Err(Sense::miscompare(start + different).into());
        }
        at += count;
    }
    Ok(())
}

/// Reads the start of a range into the pool's cache.
pub(crate) fn prefetch(unit: &dyn Lun, blocks: Blocks) -> Outcome {
    let end = blocks.bytes().min(MAX_PREFETCH);
    let (mut at, mut piece) = (0, Vec::new());
    while at < end {
        let count = PIECE.min(end - at);
        piece.resize(length(count), 0);
        unit.read(blocks.offset() + at, &mut piece).map_err(|error| read_failure(&error))?;
        at += count;
    }
    Ok(())
}

pub(crate) fn compare_and_write(
    unit: &dyn Lun,
    blocks: Blocks,
    data: &[u8],
    durability: Durability,
) -> Outcome {
    let bytes = length(blocks.bytes());
    if data.len() != bytes * 2 {
        return Err(Sense::invalid_field(13).into());
    }
    if blocks.count == 0 {
        return Ok(());
    }
    let (expected, new) = data.split_at(bytes);
    let compared = unit.compare_and_write(blocks.offset(), expected, new, durability);
    match compared.map_err(|error| write_failure(&error))? {
        Compared::Written => Ok(()),
        Compared::Differs { at } => Err(Failure::Check(Sense::miscompare(at))),
    }
}
