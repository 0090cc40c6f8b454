//! An object's blocks one after the other, without a copy.

use std::sync::Arc;

use units::BlockId;
use zio::Block;

use crate::Result;
use crate::live::{Entry, see};
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
    run: Run,
}

enum Run {
    Still { tree: Arc<Tree>, at: u64, end: u64 },
    Live(see::Run),
}

impl Pieces {
    pub(crate) fn new(tree: Arc<Tree>, start: u64, end: u64) -> Self {
        let end = end.min(tree.end_block());
        Self { run: Run::Still { tree, at: start, end } }
    }

    pub(crate) fn live(entry: Arc<Entry>, start: u64, end: u64) -> Self {
        let end = end.min(see::end_block(&entry));
        Self { run: Run::Live(see::Run { entry, at: start, end }) }
    }
}

fn piece(tree: &Tree, at: &mut u64, end: u64) -> Result<Piece> {
    let first = *at;
    let spot = tree.find(0, first)?;
    if !spot.pointer.is_hole() {
        let content = tree.fetch(&spot.pointer, 0, first)?;
        *at = first.saturating_add(1);
        return Ok(Piece::Data { block: BlockId::new(first), content });
    }
    let mut level = spot.level;
    while *at < end {
        let above = tree.shape.above(level, *at);
        *at = tree.shape.end(level, above).max(at.saturating_add(1));
        // an error here belongs to the next piece
        match tree.find(0, *at) {
            Ok(next) if next.pointer.is_hole() => level = next.level,
            _ => break,
        }
    }
    *at = (*at).min(end);
    let count = at.saturating_sub(first);
    Ok(Piece::Hole { first: BlockId::new(first), count })
}

impl Iterator for Pieces {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.run {
            Run::Live(run) => (run.at < run.end).then(|| run.piece()),
            Run::Still { tree, at, end } => {
                if *at >= *end {
                    return None;
                }
                let first = *at;
                let piece = piece(tree, at, *end);
                if let Err(error) = &piece {
                    *at = tree.behind(error, first);
                }
                Some(piece)
            }
        }
    }
}
