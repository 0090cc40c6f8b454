//! Reading objects that are being changed.

use std::sync::Arc;

use units::{BlockId, Level, ObjsetId, Zbookmark};
use zio::{Block, MemoryParts, Trimmed};

use crate::dirty::record::OverriddenBlock;
use crate::dirty::{BlockLocation, DirtyObject};
use crate::tree::{DnodeTree, FoundPointer};
use crate::{Error, Result};

/// A data block as it is now; `None` in a hole.
pub(crate) fn read_block(entry: &DirtyObject, block: u64) -> Result<Option<Block>> {
    let mut take = |found: BlockSource<'_>| match found {
        BlockSource::InMemory(content) => Ok(Some(content)),
        BlockSource::OnDisk(tree) => tree.block(block),
    };
    resolve_block(entry, block, &mut take).map(Option::flatten)
}

/// The same for a reader of a long range with its own memory. Returns the length of the block,
/// which is then in `into`.
pub(crate) fn read_block_into(
    entry: &DirtyObject,
    block: u64,
    into: &mut [u8],
) -> Result<Option<usize>> {
    let mut take = |found: BlockSource<'_>| match found {
        BlockSource::InMemory(content) => Ok(Some(content.copy_to(into))),
        BlockSource::OnDisk(tree) => tree.block_into(block, into),
    };
    resolve_block(entry, block, &mut take).map(Option::flatten)
}

/// Adds a part of a block, if it is in memory and no other thread has to be awaited. Returns whether it has done so.
pub(crate) fn push_in_memory(
    entry: &DirtyObject,
    (block, skip, count): (u64, usize, usize),
    parts: &mut MemoryParts,
) -> bool {
    let seen = entry.state.try_read().map(|state| state.lookup_block(block));
    match seen {
        Some(BlockLocation::InMemory(content)) => parts.push(Trimmed::Whole(content), skip, count),
        Some(BlockLocation::Hole) => {
            parts.push_zeros(count);
            true
        }
        Some(BlockLocation::OnDisk(tree)) => tree.push_in_memory((block, skip, count), parts),
        _ => false,
    }
}

/// The tree of a block on the drives, if the present version is there.
pub(crate) fn base_tree_of(entry: &DirtyObject, block: u64) -> Option<Arc<DnodeTree>> {
    match entry.state.read().lookup_block(block) {
        BlockLocation::OnDisk(tree) => Some(tree),
        _ => None,
    }
}

/// Fails if the indirect blocks of these blocks cannot be read. A writer must change them, and an
/// error at the sync would be too late. Blocks that were changed before and are still in memory
/// were checked then.
pub(crate) fn check_path(entry: &DirtyObject, blocks: std::ops::Range<u64>) -> Result<()> {
    let mut block = blocks.start;
    while block < blocks.end {
        let Some(tree) = base_tree_of(entry, block) else {
            block += 1;
            continue;
        };
        // blocks behind the last one use the same indirect blocks up to a common ancestor
        match tree.find(0, block.min(tree.max_block())) {
            Err(error) if !is_current_base(entry, &tree) => {
                drop::<Error>(error);
                continue;
            }
            found => drop(found?),
        }
        let shape = &tree.shape;
        let next = if shape.top_level == 0 {
            blocks.end
        } else {
            shape.end_data_block(1, shape.parent(block))
        };
        assert!(next > block, "the blocks below an indirect block end after each of them");
        block = next;
    }
    Ok(())
}

/// The same for the first and last blocks of a range that is freed: blocks that are freed as a
/// whole need no indirect blocks.
pub(crate) fn check_edge_paths(entry: &DirtyObject, range: &std::ops::Range<u64>) -> Result<()> {
    let last = range.end.max(1) - 1;
    for edge in [range.start, last].into_iter().filter(|_| range.start < range.end) {
        while let Some(tree) = base_tree_of(entry, edge) {
            let shape = &tree.shape;
            let in_part = |level: &u8| {
                let above = shape.ancestor(*level, edge);
                let ends = shape.end_data_block(*level, above).min(tree.end_block());
                shape.first_data_block(*level, above) < range.start || ends > range.end
            };
            let Some(level) = (1..=shape.top_level).find(in_part) else { break };
            let below = level - 1;
            match tree.find(below, shape.ancestor(below, edge)) {
                Err(error) if !is_current_base(entry, &tree) => drop::<Error>(error),
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
enum BlockSource<'a> {
    /// In memory.
    InMemory(Block),
    /// Below, in this tree.
    OnDisk(&'a DnodeTree),
}

/// The result of `take` on the block; `None` in a hole.
fn resolve_block<T>(
    entry: &DirtyObject,
    block: u64,
    take: &mut dyn FnMut(BlockSource<'_>) -> Result<T>,
) -> Result<Option<T>> {
    loop {
        // Rule: look up under the lock, read without it, and check the tree again after an error. A
        // reader that held the lock during I/O would stop the sync, which needs it to install the tree.
        let seen = entry.state.read().lookup_block(block);
        let tree = match seen {
            BlockLocation::InMemory(content) => {
                return take(BlockSource::InMemory(content)).map(Some);
            }
            BlockLocation::Overridden(shared) => match shared.read(block) {
                Err(error) if !is_current_override(entry, block, &shared) => {
                    drop::<Error>(error);
                    continue;
                }
                result => return take(BlockSource::InMemory(result?)).map(Some),
            },
            BlockLocation::InFlight(coming) => {
                coming.wait_done();
                continue;
            }
            BlockLocation::Hole => return Ok(None),
            BlockLocation::Encrypted => return Err(encrypted(entry, block)),
            BlockLocation::OnDisk(tree) => tree,
        };
        match take(BlockSource::OnDisk(&tree)) {
            // the block may have been freed and overwritten while it was read
            Err(error) if !is_current_base(entry, &tree) => drop::<Error>(error),
            result => return result.map(Some),
        }
    }
}

/// A raw stream brought the block; it cannot be read before its txg is synced.
fn encrypted(entry: &DirtyObject, block: u64) -> Error {
    let objset = entry.state.read().base.as_ref().map(|base| base.zbookmark(0, block).objset);
    let objset = objset.unwrap_or(ObjsetId::MOS);
    let zbookmark = Zbookmark::new(objset, entry.id, Level::new(0), BlockId::new(block));
    Error::NoContent { zbookmark }
}

/// The pointer of a block in a tree; none if another tree replaced it meanwhile.
fn find_if_current(
    entry: &DirtyObject,
    tree: &Arc<DnodeTree>,
    block: u64,
) -> Result<Option<FoundPointer>> {
    match tree.find(0, block) {
        Err(_) if !is_current_base(entry, tree) => Ok(None),
        found => found.map(Some),
    }
}

fn is_current_base(entry: &DirtyObject, tree: &Arc<DnodeTree>) -> bool {
    entry.state.read().base.as_ref().is_some_and(|base| Arc::ptr_eq(base, tree))
}

fn is_current_override(entry: &DirtyObject, block: u64, shared: &Arc<OverriddenBlock>) -> bool {
    matches!(entry.state.read().lookup_block(block), BlockLocation::Overridden(now) if Arc::ptr_eq(&now, shared))
}

/// The data block that follows the last.
pub(crate) fn end_block(entry: &DirtyObject) -> u64 {
    let state = entry.state.read();
    state.dnode().map_or(0, |dnode| dnode.max_block.get() + 1)
}

/// The first existing block from `from` on.
pub(crate) fn next_data(entry: &DirtyObject, from: u64) -> Result<Option<u64>> {
    let mut at = from;
    while at < end_block(entry) {
        let (below, here) = {
            let state = entry.state.read();
            match state.lookup_block(at) {
                BlockLocation::InMemory(_)
                | BlockLocation::Overridden(_)
                | BlockLocation::InFlight(_)
                | BlockLocation::Encrypted => return Ok(Some(at)),
                BlockLocation::Hole => (Err(state.hole_end(at)), state.next_dirty_block(at)),
                // the drives may have far less than was written since
                BlockLocation::OnDisk(tree) if at >= tree.end_block() => {
                    (Err(u64::MAX), state.next_dirty_block(at))
                }
                BlockLocation::OnDisk(tree) => (Ok(tree), state.next_dirty_block(at)),
            }
        };
        let next = match below {
            Err(end) => end,
            Ok(tree) => {
                let Some(spot) = find_if_current(entry, &tree, at)? else { continue };
                if !spot.pointer.is_hole() {
                    return Ok(Some(at));
                }
                let above = tree.shape.ancestor(spot.level, at);
                tree.shape.end_data_block(spot.level, above).max(at + 1)
            }
        };
        at = here.map_or(next, |here| here.min(next));
    }
    Ok(None)
}

/// The first block of a range that is a hole, or the end of the range or of the object.
pub(crate) fn next_hole(entry: &DirtyObject, range: std::ops::Range<u64>) -> Result<u64> {
    let mut at = range.start;
    while at < end_block(entry).min(range.end) {
        let seen = entry.state.read().lookup_block(at);
        match seen {
            BlockLocation::InMemory(_)
            | BlockLocation::Overridden(_)
            | BlockLocation::InFlight(_)
            | BlockLocation::Encrypted => {}
            BlockLocation::Hole => return Ok(at),
            BlockLocation::OnDisk(tree) if at >= tree.end_block() => return Ok(at),
            BlockLocation::OnDisk(tree) => {
                let Some(spot) = find_if_current(entry, &tree, at)? else { continue };
                if spot.pointer.is_hole() {
                    return Ok(at);
                }
            }
        }
        at += 1;
    }
    Ok(at)
}

/// A run of blocks, to be streamed.
pub(crate) struct DirtySegments {
    pub(crate) object: Arc<DirtyObject>,
    pub(crate) at: u64,
    pub(crate) end: u64,
}

impl DirtySegments {
    /// The next piece: a block, or a run of blocks that are not there.
    pub(crate) fn next_segment(&mut self) -> Result<crate::BlockSegment> {
        let first = self.at;
        self.at = first + 1;
        if let Some(content) = read_block(&self.object, first)? {
            return Ok(crate::BlockSegment::Data { block: BlockId::new(first), content });
        }
        self.at = next_data(&self.object, first)?.unwrap_or(self.end).min(self.end).max(self.at);
        let count = self.at - first;
        Ok(crate::BlockSegment::Hole { first: BlockId::new(first), count })
    }
}
