//! A stretch of a file becomes the same as one of another, without a copy: blocks are shared.
//!
//! That can be where the files' blocks are as large and the stretch is of whole blocks; the last
//! may be a part if both files end with it. What waits to be written cannot be shared yet.

use ondisk::sa::Attribute;
use ondisk::znode::flag;
use units::{BlockId, ObjectId};

use super::content::clear_set_id;
use crate::writer::draft::Draft;
use crate::writer::{SMALL, Writer};
use crate::{Caller, Need, Result};

/// From where in a file what is copied where in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// The file that has it.
    pub from: ObjectId,
    /// Its first byte there.
    pub start: u64,
    /// The file that gets it.
    pub to: ObjectId,
    /// Its first byte there.
    pub at: u64,
    /// Bytes of it.
    pub length: u64,
}

/// So many blocks at most are shared within one transaction.
const BLOCKS_AT_ONCE: u64 = 1024;

impl Writer {
    /// Shares as much of the beginning of a stretch as can be; gives how many bytes, the rest must
    /// be copied. A log tells nothing of it: who wants it to last waits for the group.
    pub fn share(&self, caller: &Caller, stretch: &Stretch) -> Result<u64> {
        let Stretch { from, start, to, at, .. } = *stretch;
        let _locked = self.fs.inner.locks.write(&[from, to]);
        let source = self.draft(from)?;
        let mut draft = self.to_be_written(to)?;
        let Some(size) = whole(stretch, &source, &draft) else { return Ok(0) };
        let length = stretch.length.min(source.size().saturating_sub(start));
        let end = at.saturating_add(length);
        if self.forbids(&draft.sheet, flag::APPENDONLY) && at < draft.size() {
            return Err(self.forbidden(to, "the file can only be appended to"));
        }
        // a part of a block is shared only if nothing is behind it, here and there
        let ends = start.saturating_add(length) >= source.size() && end >= draft.size();
        let blocks = if ends { length.div_ceil(size) } else { number(length, size) };
        let mut done = 0;
        while done < blocks {
            let next = done.saturating_add(BLOCKS_AT_ONCE).min(blocks);
            let reached = self.share_blocks(caller, &mut draft, (&source, stretch), done..next)?;
            done = reached;
            if reached < next {
                break;
            }
        }
        Ok(done.saturating_mul(size).min(length))
    }

    /// Shares these blocks of a stretch; gives the first that could not be.
    fn share_blocks(
        &self,
        caller: &Caller,
        draft: &mut Draft,
        (source, stretch): (&Draft, &Stretch),
        blocks: std::ops::Range<u64>,
    ) -> Result<u64> {
        let size = u64::from(source.object.block_size());
        let count = blocks.end.saturating_sub(blocks.start);
        let clears = !caller.keeps_setid && clear_set_id(&mut draft.sheet);
        draft.sheet.touch_content(caller.now);
        self.settle(&mut draft.sheet)?;
        let (shared, bytes) = (count.saturating_mul(size), SMALL);
        let tx = self.begin.begin(&Need { bytes, shared, ..draft.need_of_owners() })?;
        if draft.object.block_size() != source.object.block_size() {
            draft.object.set_block_size(&tx, source.object.block_size())?;
            draft.object = self.fs.objset().object(draft.id())?;
        }
        let (first, target) = (number(stretch.start, size), number(stretch.at, size));
        let mut reached = blocks.start;
        for block in blocks {
            let from = BlockId::new(first.saturating_add(block));
            let to = BlockId::new(target.saturating_add(block));
            if !draft.object.clone_block(&tx, to, (&source.object, from))? {
                break;
            }
            reached = block.saturating_add(1);
        }
        let length = stretch.length.min(source.size().saturating_sub(stretch.start));
        let end = stretch.at.saturating_add(reached.saturating_mul(size).min(length));
        // where nothing could be shared, nothing is there either
        let grown = if reached > 0 { draft.size().max(end) } else { draft.size() };
        draft.sheet.set_word(Attribute::Size, grown);
        draft.store(&tx)?;
        if reached > 0 || clears {
            self.begin.must_sync(&tx);
        }
        Ok(reached)
    }
}

/// The block in which a byte is.
fn number(byte: u64, size: u64) -> u64 {
    byte.checked_div(size).unwrap_or(0)
}

/// The size of the blocks of both files, if a stretch can be shared at all.
fn whole(stretch: &Stretch, source: &Draft, draft: &Draft) -> Option<u64> {
    let (from, to) = (&source.object, &draft.object);
    let size = u64::from(from.block_size());
    let aligned = stretch.start.is_multiple_of(size) && stretch.at.is_multiple_of(size);
    // the only block of a file may be of any size, and grows to what the other has
    let grows =
        to.max_block().get() == 0 && draft.size() <= size && to.block_size() <= from.block_size();
    let alike = to.block_size() == from.block_size() || grows;
    let odd = !size.is_power_of_two();
    let lone = !odd || (stretch.start == 0 && stretch.at == 0 && draft.size() <= size);
    let apart = stretch.from != stretch.to || stretch.start.abs_diff(stretch.at) >= stretch.length;
    let files = source.kind() == crate::Kind::File && stretch.length > 0;
    (aligned && alike && lone && apart && files && stretch.start < source.size()).then_some(size)
}
