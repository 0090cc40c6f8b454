//! Blocks that a commit of the intent log writes before their txg.
//!
//! A commit of a long write need not put the data into the log: it writes the dirty blocks to their
//! final places, and a log record has the pointer to each. The txg later brings the same pointers,
//! so that the data is written once.
//!
//! ```text
//! commit   dirty block ─▶ final place on the drives;  log record ─▶ pointer to it
//! sync     the object's tree ─▶ the same pointer
//! ```
//!
//! A block that changes after its commit, within the same txg, gets another place. The first one is
//! then an orphan: it is freed with the txg, so that the log can refer to it until the txg is on the
//! drives.
//!
//! Learnt from: `dmu_sync` of OpenZFS 2.3.2.

use std::ops::Range;

use ondisk::Blkptr;
use txg::Tx;
use units::Txg;
use zio::Block;

use super::record::{BlockVersion, DirtyObject};
use super::write_through::WriteTarget;
use crate::sync::workers;
use crate::{Object, Result};

/// Smaller blocks stay in the log: their records and their places cost more than their data.
const MIN_BLOCK_BYTES: usize = 32 << 10;
/// Adjacent bytes that a thread writes at a time.
const WRITE_CHUNK: usize = 1 << 20;

/// A block that is on the drives before its txg.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogWrite {
    /// The offset of the block in its object, in bytes.
    pub offset: u64,
    /// Bytes of the block.
    pub length: u64,
    /// Where it is.
    pub pointer: Blkptr,
}

/// A dirty block, and its place once it has one.
struct DirtyBlock {
    block: u64,
    content: Block,
    written: Option<BlockVersion>,
}

impl Object {
    /// Writes the blocks that this txg has changed and that lie wholly in a range of bytes. Returns
    /// those that are on the drives after the next flush, in order. The data of all others belongs
    /// into the log: they are small, or cannot be written before their txg, or the write failed.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn write_for_log(&self, tx: &Tx, range: &Range<u64>) -> Result<Vec<LogWrite>> {
        let (entry, overlay) = self.require_writable()?;
        let size = self.current_block_size(entry)?;
        let wide = units::to_u64(size);
        let blocks = range.start.div_ceil(wide)..range.end / wide;
        let target = overlay.write_through.get().filter(|_| size >= MIN_BLOCK_BYTES);
        let target = target.filter(|_| blocks.start < blocks.end);
        let target = target.and_then(|early| {
            WriteTarget::with_policy(entry, overlay, early, &|query| early.log_write_policy(query))
        });
        let Some(target) = target else { return Ok(Vec::new()) };
        // Rule W6: the caller holds the txg. Its sync must not begin before these blocks have their pointers:
        // it would write them to a second place, and a log record would point to freed space.
        let (mut written, mut dirty) = dirty_blocks(entry, tx.txg(), blocks, size);
        store_blocks(&target, &mut dirty, tx.txg())?;
        install_written(entry, tx.txg(), &dirty);
        let stored = dirty.into_iter().filter_map(|dirty| match dirty.written {
            Some(BlockVersion::WrittenThrough(stored)) => {
                Some((dirty.block, stored.overridden().pointer.clone()))
            }
            _ => None,
        });
        written.extend(stored);
        written.sort_unstable_by_key(|(block, _)| *block);
        assert!(
            written.is_sorted_by(|(one, _), (next, _)| one < next),
            "a block was written before or is written now"
        );
        assert!(
            written.iter().all(|(_, pointer)| pointer.birth() <= tx.txg()),
            "a log record points to no block of a later txg"
        );
        let log_write = |(block, pointer)| LogWrite { offset: block * wide, length: wide, pointer };
        Ok(written.into_iter().map(log_write).collect())
    }
}

/// The pointers of those blocks of a txg that are on the drives already, and the dirty ones.
fn dirty_blocks(
    entry: &DirtyObject,
    txg: Txg,
    blocks: Range<u64>,
    size: usize,
) -> (Vec<(u64, Blkptr)>, Vec<DirtyBlock>) {
    let (mut written, mut dirty) = (Vec::new(), Vec::new());
    let state = entry.state.read();
    for (block, versions) in state.blocks.range(blocks) {
        match versions.last() {
            Some((known, BlockVersion::Bytes(content)))
                if *known == txg && content.len() == size =>
            {
                dirty.push(DirtyBlock { block: *block, content: content.clone(), written: None });
            }
            Some((known, BlockVersion::WrittenThrough(stored))) if *known == txg => {
                written.push((*block, stored.overridden().pointer.clone()));
            }
            _ => {}
        }
    }
    (written, dirty)
}

/// Writes blocks, several threads at a time.
fn store_blocks(target: &WriteTarget, dirty: &mut [DirtyBlock], txg: Txg) -> Result<()> {
    let size = dirty.first().map_or(1, |dirty| dirty.content.len());
    let share = dirty.len().div_ceil(target.workers().max(1));
    let together = WRITE_CHUNK.checked_div(size).unwrap_or(1).min(share).max(1);
    let runs: Vec<&[DirtyBlock]> = dirty.chunks(together).collect();
    let stored = workers::map_parallel(target.workers(), &runs, &|run| {
        let blocks: Vec<(u64, &[u8])> =
            run.iter().map(|dirty| (dirty.block, &dirty.content[..])).collect();
        Ok(target.write_blocks(&blocks, txg))
    })?;
    for (dirty, stored) in dirty.iter_mut().zip(stored.into_iter().flatten()) {
        dirty.written = stored.map(BlockVersion::WrittenThrough);
    }
    Ok(())
}

/// Puts the written blocks in the place of the dirty ones. A block that has changed meanwhile keeps
/// its bytes, and the written one becomes an orphan.
fn install_written(entry: &DirtyObject, txg: Txg, dirty: &[DirtyBlock]) {
    let mut state = entry.state.write();
    for DirtyBlock { block, content, written } in dirty {
        let versions = state.blocks.get_mut(block).into_iter().flatten();
        for (_, version) in versions.filter(|(known, _)| *known == txg) {
            // Rule: only the bytes that were written get the pointer. A writer that changed the block meanwhile
            // has a copy of its own; with the pointer a crash would leave the older bytes.
            if let (BlockVersion::Bytes(now), Some(written)) = (&*version, written)
                && now.is_same_buffer(content)
            {
                *version = written.clone();
            }
        }
    }
}
