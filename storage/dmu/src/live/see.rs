//! Reading objects that are being changed.

use std::sync::Arc;

use units::BlockId;
use zio::Block;

use crate::live::entry::Shared;
use crate::live::{Entry, Seen};
use crate::tree::{Spot, Tree};
use crate::{Error, Result};

/// A data block as it is now; `None` in a hole.
pub(crate) fn block(entry: &Entry, block: u64) -> Result<Option<Block>> {
    let mut take = |found: Found<'_>| match found {
        Found::Here(content) => Ok(Some(content)),
        Found::Below(tree) => tree.block(block),
    };
    find(entry, block, &mut take).map(Option::flatten)
}

/// The same, for who reads a long stretch and has the memory for it; gives how long the block
/// is, which is in `into` then.
pub(crate) fn block_into(entry: &Entry, block: u64, into: &mut [u8]) -> Result<Option<usize>> {
    let mut take = |found: Found<'_>| match found {
        Found::Here(content) => Ok(Some(content.copy_to(into))),
        Found::Below(tree) => tree.block_into(block, into),
    };
    find(entry, block, &mut take).map(Option::flatten)
}

/// The tree that a block is in as the drives have it, if that is where it is now.
pub(crate) fn tree_of(entry: &Entry, block: u64) -> Option<Arc<Tree>> {
    match entry.state.read().see(block) {
        Seen::Below(tree) => Some(tree),
        _ => None,
    }
}

/// An error if the way to blocks cannot be read: who writes them, or frees some of them, has to change
/// that, and it would be too late for an answer when the group is written. Blocks that were changed
/// before, and still are in memory, were asked for then.
pub(crate) fn way(entry: &Entry, blocks: std::ops::Range<u64>) -> Result<()> {
    let mut block = blocks.start;
    while block < blocks.end {
        let Some(tree) = tree_of(entry, block) else {
            block = block.saturating_add(1);
            continue;
        };
        // what lies behind the last block goes the same way until it branches off
        match tree.find(0, block.min(tree.max_block())) {
            Err(error) if !is_current(entry, &tree) => {
                drop::<Error>(error);
                continue;
            }
            found => drop(found?),
        }
        let shape = &tree.shape;
        block = if shape.top == 0 { blocks.end } else { shape.end(1, shape.parent(block)) };
    }
    Ok(())
}

/// The same of the blocks in which a range of blocks begins and ends that is freed: what is freed as a
/// whole needs no way to it.
pub(crate) fn way_to_edges(entry: &Entry, range: &std::ops::Range<u64>) -> Result<()> {
    let last = range.end.saturating_sub(1);
    for edge in [range.start, last].into_iter().filter(|_| range.start < range.end) {
        while let Some(tree) = tree_of(entry, edge) {
            let shape = &tree.shape;
            let in_part = |level: &u8| {
                let above = shape.above(*level, edge);
                let ends = shape.end(*level, above).min(tree.end_block());
                shape.first(*level, above) < range.start || ends > range.end
            };
            let Some(level) = (1..=shape.top).find(in_part) else { break };
            let below = level.saturating_sub(1);
            match tree.find(below, shape.above(below, edge)) {
                Err(error) if !is_current(entry, &tree) => drop::<Error>(error),
                found => {
                    drop(found?);
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Where a block is.
enum Found<'a> {
    /// In memory.
    Here(Block),
    /// Below, in this tree.
    Below(&'a Tree),
}

/// What `take` makes of the block; `None` in a hole.
fn find<T>(
    entry: &Entry,
    block: u64,
    take: &mut dyn FnMut(Found<'_>) -> Result<T>,
) -> Result<Option<T>> {
    loop {
        // nobody is to wait, or read, with the lock
        let seen = entry.state.read().see(block);
        let tree = match seen {
            Seen::Here(content) => return take(Found::Here(content)).map(Some),
            Seen::Shared(shared) => match shared.read(block) {
                Err(error) if !is_shared(entry, block, &shared) => {
                    drop::<Error>(error);
                    continue;
                }
                result => return take(Found::Here(result?)).map(Some),
            },
            Seen::Coming(coming) => {
                coming.wait();
                continue;
            }
            Seen::Hole => return Ok(None),
            Seen::Below(tree) => tree,
        };
        match take(Found::Below(&tree)) {
            // what was there may have been freed and written over while it was read
            Err(error) if !is_current(entry, &tree) => drop::<Error>(error),
            result => return result.map(Some),
        }
    }
}

/// What a tree knows of a block; none if another tree took its place meanwhile.
fn spot_in(entry: &Entry, tree: &Arc<Tree>, block: u64) -> Result<Option<Spot>> {
    match tree.find(0, block) {
        Err(_) if !is_current(entry, tree) => Ok(None),
        found => found.map(Some),
    }
}

fn is_current(entry: &Entry, tree: &Arc<Tree>) -> bool {
    entry.state.read().base.as_ref().is_some_and(|base| Arc::ptr_eq(base, tree))
}

fn is_shared(entry: &Entry, block: u64, shared: &Arc<Shared>) -> bool {
    matches!(entry.state.read().see(block), Seen::Shared(now) if Arc::ptr_eq(&now, shared))
}

/// The data block that follows the last.
pub(crate) fn end_block(entry: &Entry) -> u64 {
    let state = entry.state.read();
    state.dnode().map_or(0, |dnode| dnode.max_block.get().saturating_add(1))
}

/// The first block from `from` on that is there.
pub(crate) fn next_data(entry: &Entry, from: u64) -> Result<Option<u64>> {
    let mut at = from;
    while at < end_block(entry) {
        let (below, here) = {
            let state = entry.state.read();
            match state.see(at) {
                Seen::Here(_) | Seen::Shared(_) | Seen::Coming(_) => return Ok(Some(at)),
                Seen::Hole => (Err(state.hole_end(at)), state.next_here(at)),
                // the drives may have far less than was written since
                Seen::Below(tree) if at >= tree.end_block() => (Err(u64::MAX), state.next_here(at)),
                Seen::Below(tree) => (Ok(tree), state.next_here(at)),
            }
        };
        let next = match below {
            Err(end) => end,
            Ok(tree) => {
                let Some(spot) = spot_in(entry, &tree, at)? else { continue };
                if !spot.pointer.is_hole() {
                    return Ok(Some(at));
                }
                let above = tree.shape.above(spot.level, at);
                tree.shape.end(spot.level, above).max(at.saturating_add(1))
            }
        };
        at = here.map_or(next, |here| here.min(next));
    }
    Ok(None)
}

/// The first block from `from` on that is not there.
pub(crate) fn next_hole(entry: &Entry, from: u64) -> Result<u64> {
    let mut at = from;
    while at < end_block(entry) {
        let seen = entry.state.read().see(at);
        match seen {
            Seen::Here(_) | Seen::Shared(_) | Seen::Coming(_) => {}
            Seen::Hole => return Ok(at),
            Seen::Below(tree) if at >= tree.end_block() => return Ok(at),
            Seen::Below(tree) => {
                let Some(spot) = spot_in(entry, &tree, at)? else { continue };
                if spot.pointer.is_hole() {
                    return Ok(at);
                }
            }
        }
        at = at.saturating_add(1);
    }
    Ok(at)
}

/// A run of blocks, to be streamed.
pub(crate) struct Run {
    pub(crate) entry: Arc<Entry>,
    pub(crate) at: u64,
    pub(crate) end: u64,
}

impl Run {
    /// The next piece: a block, or a run of blocks that are not there.
    pub(crate) fn piece(&mut self) -> Result<crate::Piece> {
        let first = self.at;
        self.at = first.saturating_add(1);
        if let Some(content) = block(&self.entry, first)? {
            return Ok(crate::Piece::Data { block: BlockId::new(first), content });
        }
        self.at = next_data(&self.entry, first)?.unwrap_or(self.end).min(self.end).max(self.at);
        let count = self.at.saturating_sub(first);
        Ok(crate::Piece::Hole { first: BlockId::new(first), count })
    }
}
