//! A stretch of a file becomes the same as one of another, without a copy: blocks are shared.
//!
//! That can be where the files' blocks are as large and the stretch is of whole blocks; the last
//! may be a part if both files end with it. What waits to be written cannot be shared yet.

use ondisk::sa::Attribute;
use ondisk::znode::flag;
use posix::{Capability, ChangeContext, CloneRange};
use units::{BlockId, MinusOrZero, ObjectId};

use super::content::clear_setid;
use crate::attributes::MAX_FILE_SIZE;
use crate::writer::pending_file::PendingFile;
use crate::writer::{FsWriter, SMALL_OP_BYTES};
use crate::{Error, Result, SpaceNeed};

/// So many blocks at most are shared within one transaction.
const MAX_TX_CLONED_BLOCKS: u64 = 1024;

impl FsWriter {
    /// Shares as much of the beginning of a stretch as can be; gives how many bytes, the rest must
    /// be copied. A log tells nothing of it: who wants it to last waits for the group.
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
        let length = stretch.length.min(source.size().minus_or_zero(start));
        let end = at.checked_add(length).filter(|end| *end <= MAX_FILE_SIZE);
        let too_large = Error::TooLarge { objset: self.objset_id(), object: to };
        let end = end.ok_or(too_large)?;
        if self.is_forbidden(&draft.sa, flag::APPENDONLY) && at < draft.size() {
            return Err(self.not_permitted(to, "the file can only be appended to"));
        }
        // a part of a block is shared only if nothing is behind it, here and there
        let ends = start + length >= source.size() && end >= draft.size();
        let blocks = if ends { length.div_ceil(size) } else { block_of(length, size) };
        let mut done = 0;
        while done < blocks {
            let next = (done + MAX_TX_CLONED_BLOCKS).min(blocks);
            let reached =
                self.clone_block_run(caller, &mut draft, (&source, stretch), done..next)?;
            done = reached;
            if reached < next {
                break;
            }
        }
        Ok((done * size).min(length))
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
        let count = blocks.end - blocks.start;
        let clears = !caller.credentials.has(Capability::FileSetId) && clear_setid(&mut draft.sa);
        draft.sa.touch_mtime(caller.now);
        self.resolve_layouts(&mut draft.sa)?;
        let (shared, bytes) = (count * size, SMALL_OP_BYTES);
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
            let from = BlockId::new(first + block);
            let to = BlockId::new(target + block);
            if !draft.object.clone_block(&tx, to, (&source.object, from))? {
                break;
            }
            reached = block + 1;
        }
        let length = stretch.length.min(source.size().minus_or_zero(stretch.source_offset));
        let end = stretch.target_offset + (reached * size).min(length);
        // where nothing could be shared, nothing is there either
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
    // the only block of a file may be of any size, and grows to what the other has
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
