//! An object's blocks one after the other, without a copy.

use std::sync::Arc;

use units::BlockId;
use zio::Block;

use crate::Result;
use crate::dirty::{DirtyObject, lookup};
use crate::tree::DnodeTree;

/// A block, or a run of blocks that are not there.
#[derive(Clone, Debug)]
pub enum BlockSegment {
    /// A block.
    Data {
        /// Its number.
        block: BlockId,
        /// Its content.
        content: Block,
    },
    /// A run of zeros.
    Hole {
        /// The number of its first block.
        first: BlockId,
        /// How many blocks.
        count: u64,
    },
}

/// Walks over a run of blocks. After an error it continues behind the unreadable block.
pub struct BlockSegments {
    source: SegmentSource,
}

enum SegmentSource {
    Clean { tree: Arc<DnodeTree>, at: u64, end: u64 },
    Dirty(lookup::DirtySegments),
}

impl BlockSegments {
    pub(crate) fn new(tree: Arc<DnodeTree>, start: u64, end: u64) -> Self {
        let end = end.min(tree.end_block());
        Self { source: SegmentSource::Clean { tree, at: start, end } }
    }

    pub(crate) fn new_dirty(entry: Arc<DirtyObject>, start: u64, end: u64) -> Self {
        let end = end.min(lookup::end_block(&entry));
        Self {
            source: SegmentSource::Dirty(lookup::DirtySegments { object: entry, at: start, end }),
        }
    }
}

fn next_segment(tree: &DnodeTree, at: &mut u64, end: u64) -> Result<BlockSegment> {
    let first = *at;
    let spot = tree.find(0, first)?;
    if !spot.pointer.is_hole() {
        let content = tree.fetch(&spot.pointer, 0, first)?;
        *at = first + 1;
        return Ok(BlockSegment::Data { block: BlockId::new(first), content });
    }
    let mut level = spot.level;
    while *at < end {
        let above = tree.shape.ancestor(level, *at);
        *at = tree.shape.end_data_block(level, above).max(*at + 1);
        // an error here belongs to the next piece
        match tree.find(0, *at) {
            Ok(next) if next.pointer.is_hole() => level = next.level,
            _ => break,
        }
    }
    *at = (*at).min(end);
    let count = *at - first;
    Ok(BlockSegment::Hole { first: BlockId::new(first), count })
}

impl Iterator for BlockSegments {
    type Item = Result<BlockSegment>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            SegmentSource::Dirty(run) => (run.at < run.end).then(|| run.next_segment()),
            SegmentSource::Clean { tree, at, end } => {
                if *at >= *end {
                    return None;
                }
                let first = *at;
                let piece = next_segment(tree, at, *end);
                if let Err(error) = &piece {
                    *at = tree.resume_block_after(error, first);
                }
                Some(piece)
            }
        }
    }
}
