//! An object's blocks one after the other, without a copy.

use std::sync::Arc;

use units::BlockId;
use zio::Block;

use crate::Result;
use crate::tree::Tree;

/// A block, or a run of blocks that are not there.
#[derive(Clone, Debug)]
pub enum Piece {
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

/// Walks over a run of blocks. After an error it goes on behind what could not be read.
pub struct Pieces {
    tree: Arc<Tree>,
    at: u64,
    end: u64,
}

impl Pieces {
    pub(crate) fn new(tree: Arc<Tree>, start: u64, end: u64) -> Self {
        let end = end.min(tree.end_block());
        Self { tree, at: start, end }
    }

    fn piece(&mut self) -> Result<Piece> {
        let first = self.at;
        let spot = self.tree.find(0, first)?;
        if !spot.pointer.is_hole() {
            let content = self.tree.fetch(&spot.pointer, 0, first)?;
            self.at = first.saturating_add(1);
            return Ok(Piece::Data { block: BlockId::new(first), content });
        }
        let mut level = spot.level;
        while self.at < self.end {
            let above = self.tree.shape.above(level, self.at);
            self.at = self.tree.shape.end(level, above).max(self.at.saturating_add(1));
            // an error here belongs to the next piece
            match self.tree.find(0, self.at) {
                Ok(next) if next.pointer.is_hole() => level = next.level,
                _ => break,
            }
        }
        self.at = self.at.min(self.end);
        let count = self.at.saturating_sub(first);
        Ok(Piece::Hole { first: BlockId::new(first), count })
    }
}

impl Iterator for Pieces {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let at = self.at;
        let piece = self.piece();
        if let Err(error) = &piece {
            self.at = self.tree.behind(error, at);
        }
        Some(piece)
    }
}
