//! A removed vdev: its blocks lie elsewhere, piece by piece.
//!
//! Addresses on it stay in block pointers for ever; a mapping says where each part of its space
//! was copied to. A block may have been cut in several pieces, each of which may lie on a mirror:
//! since only the whole has a checksum, the pieces' copies are tried in combination.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;
use units::VdevId;

use crate::node::NodeAddress;
use crate::{Error, LeafError, NodeKind, ReadRequest, VdevTree, mirror};

/// More vdevs than this are never removed one into the other.
const MAX_DEPTH: u32 = 64;
/// More combinations of copies than this are not tried.
const MAX_COMBINATIONS: usize = 4096;

/// A part of the removed vdev's space and where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingSegment {
    /// Where it was: bytes from the end of the front labels.
    pub source: u64,
    /// How long it is, in bytes.
    pub length: u64,
    /// On which vdev it is now.
    pub vdev: VdevId,
    /// Where there.
    pub offset: u64,
}

/// Where all of a removed vdev's space went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndirectMapping(Vec<MappingSegment>);

impl IndirectMapping {
    /// From segments in any order.
    pub fn new(mut segments: Vec<MappingSegment>) -> Self {
        segments.sort_unstable_by_key(|segment| segment.source);
        Self(segments)
    }

    /// Adds a segment behind all others.
    ///
    /// # Panics
    /// Where it is empty, or begins before the end of another.
    pub fn push(&mut self, segment: MappingSegment) {
        assert!(segment.length > 0 && segment.source >= self.end(), "segments are copied in order");
        self.0.push(segment);
    }

    /// The end of the last segment, in bytes of the removed vdev: all in use before it is mapped.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.source.saturating_add(last.length))
    }

    /// The segments, by where they were.
    pub fn segments(&self) -> &[MappingSegment] {
        &self.0
    }

    /// The pieces that cover a range of bytes; `None` where some are not mapped.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn map_range(&self, range: Range<u64>) -> Option<Vec<MappingSegment>> {
        let mut offset = range.start;
        let mut length = range.end.checked_sub(offset)?;
        let mut pieces = Vec::new();
        let mut index = self.0.partition_point(|s| s.source <= offset).checked_sub(1)?;
        while length > 0 {
            let segment = self.0.get(index)?;
            let inside = offset.checked_sub(segment.source)?;
            let here = segment.length.checked_sub(inside)?.min(length);
            if here == 0 {
                return None;
            }
            let target = segment.offset.checked_add(inside)?;
            pieces.push(MappingSegment {
                source: offset,
                length: here,
                vdev: segment.vdev,
                offset: target,
            });
            offset = offset.checked_add(here)?;
            length -= here;
            index += 1;
        }
        assert_eq!(offset, range.end, "the pieces cover the range");
        Some(pieces)
    }
}

/// A removed vdev in the tree.
#[derive(Debug, Default)]
pub struct Indirect(RwLock<Option<Arc<IndirectMapping>>>);

impl Clone for Indirect {
    fn clone(&self) -> Self {
        Self(RwLock::new(self.mapping()))
    }
}

impl Indirect {
    pub(crate) fn set_mapping(&self, mapping: Arc<IndirectMapping>) {
        *self.0.write() = Some(mapping);
    }

    /// Where its space went, once that is known.
    pub fn mapping(&self) -> Option<Arc<IndirectMapping>> {
        self.0.read().clone()
    }
}

/// Reads a block that was on a removed vdev.
pub(crate) fn read_indirect(
    tree: &VdevTree,
    vdev: VdevId,
    removed: &Indirect,
    request: &ReadRequest<'_>,
    into: &mut [u8],
    faults: &mut Vec<LeafError>,
    depth: u32,
) -> Result<(), Error> {
    if removed.mapping().is_none() {
        return Err(Error::NoVdev(vdev));
    }
    let mut pieces = Vec::new();
    resolve_pieces(tree, vdev, request.offset, request.size as u64, depth, &mut pieces)?;
    let total = pieces.iter().map(|piece| piece.length).sum::<u64>();
    assert_eq!(total, request.size as u64, "the pieces of a moved block are the whole block");
    if let [whole] = pieces[..] {
        let request = ReadRequest { offset: whole.offset, ..*request };
        return tree.read_at_depth(whole.vdev, &request, into, faults, depth + 1);
    }
    let mut copies = Vec::with_capacity(pieces.len());
    for piece in &pieces {
        copies.push(read_versions(tree, *piece, request, faults)?);
    }
    try_combinations(&copies, request, into)
}

/// Where a range of a removed vdev lies now.
pub(crate) fn resolve_range(
    tree: &VdevTree,
    vdev: VdevId,
    offset: u64,
    length: u64,
) -> Result<Vec<MappingSegment>, Error> {
    let mut pieces = Vec::new();
    resolve_pieces(tree, vdev, offset, length, 0, &mut pieces)?;
    Ok(pieces)
}

/// The pieces of a range, none of which lies on a removed vdev any more.
fn resolve_pieces(
    tree: &VdevTree,
    vdev: VdevId,
    offset: u64,
    length: u64,
    depth: u32,
    pieces: &mut Vec<MappingSegment>,
) -> Result<(), Error> {
    let node = tree.top(vdev).ok_or(Error::NoVdev(vdev))?;
    let NodeKind::Indirect(removed) = &node.kind else {
        pieces.push(MappingSegment { source: 0, length, vdev, offset });
        return Ok(());
    };
    let mapping = removed.mapping().ok_or(Error::NoVdev(vdev))?;
    if depth > MAX_DEPTH {
        return Err(Error::InvalidAddress(
            "removed vdevs point to one another in a circle".to_owned(),
        ));
    }
    let unmapped =
        || Error::InvalidAddress(format!("{length} bytes at {offset:#x} were never moved"));
    let end = offset.checked_add(length).ok_or_else(unmapped)?;
    for piece in mapping.map_range(offset..end).ok_or_else(unmapped)? {
        resolve_pieces(tree, piece.vdev, piece.offset, piece.length, depth + 1, pieces)?;
    }
    Ok(())
}

/// The different contents that the sides of the vdev have for a piece.
fn read_versions(
    tree: &VdevTree,
    piece: MappingSegment,
    request: &ReadRequest<'_>,
    faults: &mut Vec<LeafError>,
) -> Result<Vec<Vec<u8>>, Error> {
    let node = &*tree.top(piece.vdev).ok_or(Error::NoVdev(piece.vdev))?;
    let size = units::to_usize(piece.length).min(request.size);
    let mut found: Vec<Vec<u8>> = Vec::new();
    for index in 0..node.replica_count() {
        let Some(side) = node.replica(index) else { continue };
        let spot = NodeAddress {
            allow_stale: request.has_checksum,
            ..NodeAddress::new(piece.offset, request.birth)
        };
        let mut bytes = vec![0; size];
        if side.read_child(None, spot, &mut bytes, faults).is_ok() && !found.contains(&bytes) {
            found.push(bytes);
        }
    }
    if found.is_empty() {
        // not a mirror (or nothing there): whatever way the vdev has to get at it
        let any = |_: &[u8]| true;
        let whole = ReadRequest { offset: piece.offset, size, is_valid: &any, ..*request };
        let mut bytes = vec![0; size];
        mirror::read_mirror(node, &whole, &mut bytes, faults)?;
        found.push(bytes);
    }
    Ok(found)
}

/// Tries the pieces' versions in combination.
fn try_combinations(
    copies: &[Vec<Vec<u8>>],
    request: &ReadRequest<'_>,
    into: &mut [u8],
) -> Result<(), Error> {
    let mut chosen = vec![0; copies.len()];
    for _ in 0..MAX_COMBINATIONS {
        let bytes = copies.iter().zip(&chosen).flat_map(|(versions, index)| &versions[*index]);
        into.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        if (request.is_valid)(into) {
            return Ok(());
        }
        // count on, as an odometer does
        let Some(wheel) = (0..copies.len()).find(|i| chosen[*i] + 1 < copies[*i].len()) else {
            break;
        };
        chosen[..wheel].fill(0);
        chosen[wheel] += 1;
    }
    Err(Error::ChecksumMismatch)
}

#[cfg(test)]
mod tests {
    use super::{IndirectMapping, MappingSegment};
    use units::VdevId;

    #[test]
    fn a_range_is_cut_where_the_segments_end() {
        let segment = |source, length, offset| MappingSegment {
            source,
            length,
            vdev: VdevId::new(1),
            offset,
        };
        let mapping =
            IndirectMapping::new(vec![segment(8192, 4096, 500), segment(4096, 4096, 100)]);
        let pieces = mapping.map_range(6144..10_240).unwrap();
        assert_eq!(pieces, [segment(6144, 2048, 2148), segment(8192, 2048, 500)]);
        assert_eq!(mapping.map_range(0..512), None);
        assert_eq!(mapping.map_range(12_000..12_512), None);
    }
}
