//! A stretch of a file becomes the same as one of another, without a copy: blocks are shared.
//!
//! The files' block sizes must be equal, and the range must consist of whole blocks; the last one
//! may be partial if both files end with it. Dirty blocks cannot be shared yet.

use ondisk::sa::Attribute;
use ondisk::znode::flag;
use posix::{Capability, ChangeContext, CloneRange};
use units::{BlockId, ObjectId};

use super::content::clear_setid;
use crate::writer::pending_file::PendingFile;
use crate::writer::{FsWriter, SMALL_OP_BYTES};
use crate::{Result, SpaceNeed};

/// The most blocks shared within one transaction.
const MAX_TX_CLONED_BLOCKS: u64 = 1024;

impl FsWriter {
    /// Shares as much of the beginning of a range as possible; returns the number of bytes, the
    /// rest must be copied. There is no log record: an fsync waits for the txg.
    pub fn clone_blocks(
        &self,
        caller: &ChangeContext,
        stretch: &CloneRange<ObjectId>,
    ) -> Result<u64> {
        let CloneRange {
            source: from, source_offset: start, target: to, target_offset: at, ..
        } = *stretch;
        let _locked = self.fs.inner.locks.write(&[from, to]);
        let source = self.load_pending(from)?;
        let mut draft = self.load_for_write(to)?;
        let Some(size) = clonable_block_size(stretch, &source, &draft) else { return Ok(0) };
        let length = stretch.length.min(source.size().saturating_sub(start));
        let end = at.saturating_add(length);
        if self.is_forbidden(&draft.sa, flag::APPENDONLY) && at < draft.size() {
            return Err(self.not_permitted(to, "the file can only be appended to"));
        }
        // a part of a block is shared only if nothing is behind it, here and there
        let ends = start.saturating_add(length) >= source.size() && end >= draft.size();
        let blocks = if ends { length.div_ceil(size) } else { block_of(length, size) };
        let mut done = 0;
        while done < blocks {
            let next = done.saturating_add(MAX_TX_CLONED_BLOCKS).min(blocks);
            let reached =
                self.clone_block_run(caller, &mut draft, (&source, stretch), done..next)?;
            done = reached;
            if reached < next {
                break;
            }
        }
        Ok(done.saturating_mul(size).min(length))
    }

    /// Shares these blocks of a stretch; gives the first that could not be.
    fn clone_block_run(
        &self,
        caller: &ChangeContext,
        draft: &mut PendingFile,
        (source, stretch): (&PendingFile, &CloneRange<ObjectId>),
        blocks: std::ops::Range<u64>,
    ) -> Result<u64> {
        let size = u64::from(source.object.block_size());
        let count = blocks.end.saturating_sub(blocks.start);
        let clears = !caller.credentials.has(Capability::FileSetId) && clear_setid(&mut draft.sa);
        draft.sa.touch_mtime(caller.now);
        self.resolve_layouts(&mut draft.sa)?;
        let (shared, bytes) = (count.saturating_mul(size), SMALL_OP_BYTES);
        let tx = self.transactions.begin_tx(&SpaceNeed {
            bytes,
            cloned_bytes: shared,
            ..draft.quota_need()
        })?;
        if draft.object.block_size() != source.object.block_size() {
            draft.object.set_block_size(&tx, source.object.block_size())?;
            draft.object = self.fs.objset().object(draft.id())?;
        }
        let (first, target) =
            (block_of(stretch.source_offset, size), block_of(stretch.target_offset, size));
        let mut reached = blocks.start;
        for block in blocks {
            let from = BlockId::new(first.saturating_add(block));
            let to = BlockId::new(target.saturating_add(block));
            if !draft.object.clone_block(&tx, to, (&source.object, from))? {
                break;
            }
            reached = block.saturating_add(1);
        }
        let length = stretch.length.min(source.size().saturating_sub(stretch.source_offset));
        let end = stretch.target_offset.saturating_add(reached.saturating_mul(size).min(length));
        // nothing could be shared, and nothing was changed
        let grown = if reached > 0 { draft.size().max(end) } else { draft.size() };
        draft.sa.set_word(Attribute::Size, grown);
        draft.store(&tx)?;
        if reached > 0 || clears {
            self.transactions.require_txg_sync(&tx);
        }
        Ok(reached)
    }
}

/// The block in which a byte is.
fn block_of(byte: u64, size: u64) -> u64 {
    byte.checked_div(size).unwrap_or(0)
}

/// The size of the blocks of both files, if a stretch can be shared at all.
fn clonable_block_size(
    stretch: &CloneRange<ObjectId>,
    source: &PendingFile,
    draft: &PendingFile,
) -> Option<u64> {
    let (from, to) = (&source.object, &draft.object);
    let size = u64::from(from.block_size());
    let aligned =
        stretch.source_offset.is_multiple_of(size) && stretch.target_offset.is_multiple_of(size);
    // the only block of a file may have any size, and grows to that of the other
    let grows =
        to.max_block().get() == 0 && draft.size() <= size && to.block_size() <= from.block_size();
    let alike = to.block_size() == from.block_size() || grows;
    let odd = !size.is_power_of_two();
    let lone =
        !odd || (stretch.source_offset == 0 && stretch.target_offset == 0 && draft.size() <= size);
    let apart = stretch.source != stretch.target
        || stretch.source_offset.abs_diff(stretch.target_offset) >= stretch.length;
    let files = source.kind() == posix::FileType::File && stretch.length > 0;
    (aligned && alike && lone && apart && files && stretch.source_offset < source.size())
        .then_some(size)
}
