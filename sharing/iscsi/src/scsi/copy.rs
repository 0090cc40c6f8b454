//! EXTENDED COPY and RECEIVE COPY RESULTS: copies between units of one target, without the data on the network.
//!
//! The parameter list of EXTENDED COPY (of the short list identifier):
//! ```text
//! offset  size  field
//!      0     1  list identifier
//!      1     1  0x18: how long the state is held; 0x18 not at all
//!      2     2  bytes of the target descriptors
//!      8     4  bytes of the segment descriptors
//!     12     4  bytes of inline data: 0
//!     16    32  each target descriptor: 0xe4, -, -, -, code set, kind, -, length, name (20), -, bytes of a block (24)
//!            28 each segment descriptor: 2, flags, 24 (16 bits), source (16), destination (16), -, blocks (16 at 10),
//!               LBA of the source (64), LBA of the destination (64)
//! ```
//! Operating parameters, the answer to RECEIVE COPY RESULTS with the action 3:
//! ```text
//!      0     4  bytes that follow
//!      4     1  1: the list identifier may be left out
//!      8     2  target descriptors
//!     10     2  segment descriptors
//!     12     4  bytes of all descriptors
//!     16     4  bytes of a segment
//!     36     1  copies at the same time
//!     37     1  log2 of the granularity of segments
//!     43     1  bytes that follow, then the codes of the descriptors: 2, 0xe4
//! ```
//! The copy status, with the action 0: 8 (32 bits), 1 done, segments (16), 1 KiB (0x01), data (32).
//! Learnt from: SPC-4, 6.4, 6.18 and 7.8.17.

use std::ops::Range;
use std::sync::Arc;

use lun::{AccessKind, CopyError, Durability, Lun};

use super::execute::{Failure, Outcome, Path, read_failure, write_failure};
use super::{LogicalUnit, Sense};

const MAX_TARGETS: u16 = 16;
const MAX_SEGMENTS: u16 = 64;
const HEADER_SIZE: usize = 16;
const TARGET_SIZE: usize = 32;
const SEGMENT_SIZE: usize = 28;
const MAX_DESCRIPTORS_SIZE: u16 = MAX_TARGETS * 32 + MAX_SEGMENTS * 28;
/// The codes of an identification descriptor, and of a segment from blocks to blocks.
const IDENTIFICATION: u8 = 0xe4;
const BLOCKS_TO_BLOCKS: u8 = 0x02;
/// The usage of a list identifier whose state is not held.
const DISCARD: u8 = 0x18;

/// A copy that is done, for RECEIVE COPY RESULTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopyStatus {
    pub(crate) list: u8,
    segments: u16,
    bytes: u64,
}

struct Segment {
    source: usize,
    destination: usize,
    blocks: u64,
    source_lba: u64,
    destination_lba: u64,
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

/// EXTENDED COPY.
pub(crate) fn extended_copy(path: &Path<'_>, logical: &LogicalUnit, data: &[u8]) -> Outcome {
    if data.is_empty() {
        return Ok(());
    }
    let (targets, segments) = parse(data)?;
    let units = targets
        .iter()
        .map(|target| find_unit(path, target).ok_or(Sense::COPY_TARGET_NOT_REACHABLE))
        .collect::<Result<Vec<_>, _>>()?;
    let mut bytes = 0;
    for segment in &segments {
        bytes += copy_segment(path, &units, segment)?;
    }
    if data[1] & DISCARD != DISCARD {
        let segments = u16::try_from(segments.len()).expect("they were counted");
        logical.hold_copy(path.session, CopyStatus { list: data[0], segments, bytes });
    }
    Ok(())
}

fn parse(data: &[u8]) -> Result<(Vec<&[u8]>, Vec<Segment>), Sense> {
    if data.len() < HEADER_SIZE {
        return Err(Sense::PARAMETER_LIST_LENGTH);
    }
    let index = |count: u32| usize::try_from(count).expect("the engine runs on 64 bits");
    let (targets, segments) = (usize::from(be16(data, 2)), index(be32(data, 8)));
    if be32(data, 12) != 0 {
        return Err(Sense::INLINE_DATA_LENGTH);
    }
    let body = &data[HEADER_SIZE..];
    if targets + segments > usize::from(MAX_DESCRIPTORS_SIZE) || body.len() != targets + segments {
        return Err(Sense::PARAMETER_LIST_LENGTH);
    }
    let (targets, segments) = body.split_at(targets);
    if targets.len() > usize::from(MAX_TARGETS) * TARGET_SIZE {
        return Err(Sense::TOO_MANY_TARGET_DESCRIPTORS);
    }
    if segments.len() > usize::from(MAX_SEGMENTS) * SEGMENT_SIZE {
        return Err(Sense::TOO_MANY_SEGMENT_DESCRIPTORS);
    }
    // a descriptor of another kind has another length, so that its code is looked at before
    let targets = targets.chunks(TARGET_SIZE).map(|target| match target {
        [IDENTIFICATION, ..] if target.len() == TARGET_SIZE => Ok(target),
        [IDENTIFICATION, ..] => Err(Sense::PARAMETER_LIST_LENGTH),
        _ => Err(Sense::UNSUPPORTED_TARGET_DESCRIPTOR),
    });
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    let segments = segments.chunks(SEGMENT_SIZE).map(|segment| match segment {
        [BLOCKS_TO_BLOCKS, ..] if segment.len() == SEGMENT_SIZE => Ok(Segment {
            source: be16(segment, 4).into(),
            destination: be16(segment, 6).into(),
            blocks: be16(segment, 10).into(),
            source_lba: be64(segment, 12),
            destination_lba: be64(segment, 20),
        }),
        [BLOCKS_TO_BLOCKS, ..] => Err(Sense::PARAMETER_LIST_LENGTH),
        _ => Err(Sense::UNSUPPORTED_SEGMENT_DESCRIPTOR),
    });
    Ok((targets, segments.collect::<Result<Vec<_>, _>>()?))
}

/// The unit that a descriptor names, by any of the names that it has in the Device Identification page.
fn find_unit(path: &Path<'_>, descriptor: &[u8]) -> Option<Arc<LogicalUnit>> {
    let name = descriptor[8..28].get(..usize::from(descriptor[7]))?;
    let is_named = |unit: &&Arc<LogicalUnit>| match descriptor[5] & 0x3f {
        3 => name == unit.id.naa(),
        1 => {
            // a descriptor has room for the start of this name alone
            let whole = super::inquiry::vendor_name(unit.id);
            name.len() > 16 && whole.starts_with(name)
        }
        _ => false,
    };
    path.units.values().find(is_named).cloned()
}

/// Copies a segment. Returns its bytes.
fn copy_segment(
    path: &Path<'_>,
    units: &[Arc<LogicalUnit>],
    segment: &Segment,
) -> Result<u64, Failure> {
    let unit = |index: usize| units.get(index).ok_or(Sense::COPY_TARGET_NOT_REACHABLE);
    let (source, destination) = (unit(segment.source)?, unit(segment.destination)?);
    // a thread holds one permission: that of the unit that changes
    drop(path.admit_copy(source, AccessKind::Read)?);
    let _admitted = path.admit_copy(destination, AccessKind::Write)?;
    if destination.is_write_protected() {
        return Err(Sense::WRITE_PROTECTED.into());
    }
    let block_size = u64::from(source.unit.geometry().block_size);
    if u64::from(destination.unit.geometry().block_size) != block_size {
        return Err(Sense::COPY_ABORTED.into());
    }
    let range = |unit: &LogicalUnit, lba: u64| -> Result<Range<u64>, Failure> {
        let end = lba.checked_add(segment.blocks);
        let end =
            end.filter(|end| *end <= unit.unit.geometry().blocks).ok_or(Sense::COPY_ABORTED)?;
        Ok(lba * block_size..end * block_size)
    };
    let from = range(source, segment.source_lba)?;
    let to = range(destination, segment.destination_lba)?;
    let overlaps = from.start < to.end && to.start < from.end;
    if Arc::ptr_eq(source, destination) && overlaps {
        return Err(Sense::COPY_ABORTED.into());
    }
    let durability =
        if destination.has_write_cache() { Durability::Cached } else { Durability::Durable };
    let bytes = from.end - from.start;
    let copied = lun::copy(&*source.unit, from, (&*destination.unit, to.start), durability);
    copied.map_err(|error| match error {
        CopyError::Read(error) => read_failure(&error),
        CopyError::Write(error) => write_failure(&error),
    })?;
    Ok(bytes)
}

/// RECEIVE COPY RESULTS.
pub(crate) fn copy_results(
    path: &Path<'_>,
    logical: &LogicalUnit,
    (action, list): (u8, u8),
) -> Result<Vec<u8>, Sense> {
    match action {
        0 => {
            let copy = logical.copy_status(path.session, list).ok_or(Sense::invalid_field(2))?;
            let kibibytes = u32::try_from(copy.bytes >> 10).expect("segments are few and short");
            let mut bytes = vec![0, 0, 0, 8, 1];
            bytes.extend(copy.segments.to_be_bytes());
            bytes.push(1);
            bytes.extend(kibibytes.to_be_bytes());
            Ok(bytes)
        }
        3 => Ok(operating_parameters(&*logical.unit)),
        _ => Err(Sense::invalid_field(1)),
    }
}

fn operating_parameters(unit: &dyn Lun) -> Vec<u8> {
    let block_size = unit.geometry().block_size;
    let mut bytes = vec![0; 46];
    bytes[..4].copy_from_slice(&42_u32.to_be_bytes());
    bytes[4] = 1;
    bytes[8..10].copy_from_slice(&MAX_TARGETS.to_be_bytes());
    bytes[10..12].copy_from_slice(&MAX_SEGMENTS.to_be_bytes());
    bytes[12..16].copy_from_slice(&u32::from(MAX_DESCRIPTORS_SIZE).to_be_bytes());
    bytes[16..20].copy_from_slice(&(block_size * u32::from(u16::MAX)).to_be_bytes());
    bytes[36] = 1;
    bytes[37] = u8::try_from(block_size.ilog2()).expect("32 bits");
    bytes[43] = 2;
    bytes[44..].copy_from_slice(&[BLOCKS_TO_BLOCKS, IDENTIFICATION]);
    bytes
}

/// The page Third-party Copy: descriptors with their type and length (16 bits each).
pub(crate) fn page() -> Vec<u8> {
    let descriptor = |kind: u16, body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = u16::try_from(body.len()).expect("descriptors are short");
        [&kind.to_be_bytes()[..], &length.to_be_bytes(), &body].concat()
    };
    let mut limits = vec![0; 28];
    limits[4..6].copy_from_slice(&MAX_TARGETS.to_be_bytes());
    limits[6..8].copy_from_slice(&MAX_SEGMENTS.to_be_bytes());
    limits[8..12].copy_from_slice(&u32::from(MAX_DESCRIPTORS_SIZE).to_be_bytes());
    [
        // commands with their service actions
        descriptor(0x0001, &[7, 0x83, 1, 0, 0x84, 2, 0, 3]),
        descriptor(0x0004, &limits),
        descriptor(0x0008, &[2, BLOCKS_TO_BLOCKS, IDENTIFICATION]),
        // one copy of a command at a time
        descriptor(
            0x8001,
            &[[0, 0, 0, 1], [0, 0, 0, 1], [0; 4], [9, 0, 0, 0], [0; 4], [0; 4], [0; 4], [0; 4]]
                .concat(),
        ),
    ]
    .concat()
}
