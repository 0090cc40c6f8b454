//! Thin provisioning: UNMAP, WRITE SAME, GET LBA STATUS.
//!
//! The parameter list of UNMAP:
//! ```text
//! offset  size  field
//!      0     2  bytes that follow
//!      2     2  bytes of the descriptors
//!      8    16  each descriptor: LBA (64 bits), blocks (32), reserved
//! ```
//! The answer of GET LBA STATUS:
//! ```text
//! offset  size  field
//!      0     4  bytes that follow
//!      8    16  each descriptor: LBA (64 bits), blocks (32), state (8): 0 mapped, 1 not mapped; reserved
//! ```

use lun::{Durability, Lun};

use super::Sense;
use super::blocks::length;
use super::cdb::{Blocks, MAX_UNMAP_BLOCKS};
use super::execute::{Outcome, read_failure, write_failure};

/// Descriptors of one UNMAP.
pub(crate) const MAX_UNMAP_DESCRIPTORS: u32 = 256;
/// Bytes of a buffer with repeated blocks.
const PIECE: u64 = 1 << 20;
/// Blocks of the volume that one GET LBA STATUS looks at. The initiator asks again for the rest.
const MAX_STATUS_BLOCKS: u64 = 16384;
const DESCRIPTOR_SIZE: usize = 16;

/// Frees ranges. Blocks of the volume that are not freed as a whole are zeroed, so that all of them read as zeros.
pub(crate) fn unmap(unit: &dyn Lun, data: &[u8], durability: Durability) -> Outcome {
    if data.is_empty() {
        return Ok(());
    }
    let geometry = unit.geometry();
    let mut ranges = Vec::new();
    for descriptor in parse_unmap(data)? {
        let end = descriptor.lba.checked_add(descriptor.blocks.into());
        let end = end.filter(|end| *end <= geometry.blocks).ok_or(Sense::OUT_OF_RANGE)?;
        let block_size = u64::from(geometry.block_size);
        ranges.push(descriptor.lba * block_size..end * block_size);
    }
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        unit.write_zeroes(range, Durability::Cached).map_err(|error| write_failure(&error))?;
    }
    match durability {
        Durability::Cached => Ok(()),
        Durability::Durable => unit.flush().map_err(|error| write_failure(&error)),
    }
}

struct UnmapDescriptor {
    lba: u64,
    blocks: u32,
}

fn parse_unmap(data: &[u8]) -> Result<Vec<UnmapDescriptor>, Sense> {
    let header: &[u8; 8] = data.first_chunk().ok_or(Sense::PARAMETER_LIST_LENGTH)?;
    let bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let descriptors = data.get(8..8 + bytes).ok_or(Sense::PARAMETER_LIST_LENGTH)?;
    let (descriptors, _) = descriptors.as_chunks::<DESCRIPTOR_SIZE>();
    let mut total = 0_u64;
    let mut found = Vec::new();
    for bytes in descriptors {
        let (lba, rest) = bytes.split_first_chunk().expect("a descriptor has 16 bytes");
        let (blocks, _) = rest.split_first_chunk().expect("a descriptor has 16 bytes");
        let (lba, blocks) = (u64::from_be_bytes(*lba), u32::from_be_bytes(*blocks));
        total += u64::from(blocks);
        found.push(UnmapDescriptor { lba, blocks });
    }
    let most = usize::try_from(MAX_UNMAP_DESCRIPTORS).expect("a small number");
    if found.len() > most || total > MAX_UNMAP_BLOCKS.into() {
        return Err(Sense::INVALID_PARAMETER);
    }
    Ok(found)
}

/// Writes one block again and again. No data: zeros. Zeros are written as a hole, with the bit UNMAP
/// or without.
pub(crate) fn write_same(
    unit: &dyn Lun,
    blocks: Blocks,
    data: Option<&[u8]>,
    durability: Durability,
) -> Outcome {
    let block_size = length(blocks.block_size.into());
    if data.is_some_and(|data| data.len() != block_size) {
        return Err(Sense::invalid_field(1).into());
    }
    let (start, end) = (blocks.offset(), blocks.offset() + blocks.bytes());
    if start == end {
        return Ok(());
    }
    let block = data.filter(|data| data.iter().any(|byte| *byte != 0));
    let Some(block) = block else {
        let zeroed = unit.write_zeroes(start..end, durability);
        return zeroed.map_err(|error| write_failure(&error));
    };
    let most = PIECE.min(blocks.bytes());
    let repeated = block.repeat(length(most) / block_size);
    let mut at = start;
    while at < end {
        let count = most.min(end - at);
        let written = unit.write(at, &repeated[..length(count)], Durability::Cached);
        written.map_err(|error| write_failure(&error))?;
        at += count;
    }
    match durability {
        Durability::Cached => Ok(()),
        Durability::Durable => unit.flush().map_err(|error| write_failure(&error)),
    }
}

pub(crate) fn lba_status(
    unit: &dyn Lun,
    lba: u64,
    allocation: usize,
    data_in: &mut Vec<u8>,
) -> Outcome {
    let geometry = unit.geometry();
    let block_size = u64::from(geometry.block_size);
    let reach = MAX_STATUS_BLOCKS * u64::from(geometry.physical_block_size);
    let start = lba * block_size;
    let end = geometry.size().min(start + reach);
    let room = (allocation.min(4096) / DESCRIPTOR_SIZE).max(1);
    let (mut at, mut descriptors) = (start, Vec::new());
    while at < end && descriptors.len() < room * DESCRIPTOR_SIZE {
        let extent = unit.extent(at..end).map_err(|error| read_failure(&error))?;
        let until = extent.range.end.min(end);
        let blocks = u32::try_from((until - at) / block_size).expect("the reach is bounded");
        descriptors.extend((at / block_size).to_be_bytes());
        descriptors.extend(blocks.to_be_bytes());
        descriptors.extend([u8::from(!extent.is_mapped), 0, 0, 0]);
        at = until;
    }
    let following = u32::try_from(descriptors.len() + 4).expect("the descriptors are bounded");
    let bytes = [&following.to_be_bytes()[..], &[0; 4], &descriptors].concat();
    super::execute::answer(data_in, &bytes, allocation);
    Ok(())
}
