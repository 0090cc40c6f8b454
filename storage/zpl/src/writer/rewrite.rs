//! Blocks of a file are written again as they are, so that they get the pool's present layout and the
//! dataset's present compression, checksum and copies (zfs-rewrite(8)).
//!
//! The content, the size and the times of the file stay. Writers wait for the file's lock as they do for
//! each other, so what they write is never undone. The intent log needs no record: a crash loses nothing.

use std::ops::Range;

use ondisk::Blkptr;
use ondisk::blkptr::Checksum;
use units::{BlockId, ObjectId};

use crate::writer::{FsWriter, SMALL_OP_BYTES};
use crate::{Result, SpaceNeed};

/// The most bytes that are rewritten within one transaction, unless a single block is larger.
const MAX_TX_BYTES: u64 = 4 << 20;
/// The most blocks of which the pointers are read for one transaction.
const MAX_EXAMINED_BLOCKS: u64 = 4096;

/// A part of a file that was rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RewrittenRange {
    /// The byte where the next part begins; none at the end of the range or of the file.
    pub next: Option<u64>,
    /// Bytes of the blocks that were rewritten, as the file has them.
    pub rewritten: u64,
    /// Bytes of the blocks that were left as they are, holes aside.
    pub skipped: u64,
}

/// A block to rewrite.
struct RewriteBlock {
    id: BlockId,
    /// The writer would find the same block in place, and keep that (nopwrite).
    may_be_kept: bool,
}

impl FsWriter {
    /// Rewrites the blocks at the start of a range, in bytes, as many as one transaction holds. Blocks that
    /// `wants` refuses, holes, and blocks that are dirty anyway stay as they are.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn rewrite_range(
        &self,
        file: ObjectId,
        range: Range<u64>,
        wants: &dyn Fn(&Blkptr) -> Result<bool>,
    ) -> Result<RewrittenRange> {
        let _locked = self.fs.inner.locks.write(&[file]);
        let draft = self.load_for_write(file)?;
        let (object, size) = (&draft.object, u64::from(draft.object.block_size()));
        let end = range.end.min(draft.size());
        let blocks = range.start.checked_div(size).unwrap_or(0)..end.div_ceil(size.max(1));
        let mut done = RewrittenRange { next: None, rewritten: 0, skipped: 0 };
        let mut chosen = Vec::new();
        let examined = blocks.start + MAX_EXAMINED_BLOCKS;
        for block in blocks {
            if done.rewritten >= MAX_TX_BYTES || block >= examined {
                done.next = block.checked_mul(size);
                break;
            }
            let Some(pointer) = object.stored_pointer(BlockId::new(block))? else { continue };
            if wants(&pointer)? {
                chosen.push(RewriteBlock::new(block, &pointer));
                done.rewritten += size;
            } else {
                done.skipped += size;
            }
        }
        assert_eq!(
            done.rewritten,
            units::to_u64(chosen.len()) * size,
            "each block of file {file} that is counted is rewritten"
        );
        if !chosen.is_empty() {
            self.rewrite_blocks(object, &chosen, done.rewritten)?;
        }
        Ok(done)
    }

    /// Makes blocks dirty with their own content.
    fn rewrite_blocks(
        &self,
        object: &dmu::Object,
        chosen: &[RewriteBlock],
        bytes: u64,
    ) -> Result<()> {
        let size = u64::from(object.block_size());
        let mut contents = Vec::with_capacity(chosen.len());
        for block in chosen {
            contents.push((block, object.block(block.id)?));
        }
        let bytes = SMALL_OP_BYTES + bytes * 2;
        let need = SpaceNeed { bytes, block_size: size, ..SpaceNeed::default() };
        let tx = self.transactions.begin_tx(&need)?;
        for (block, content) in contents {
            let Some(content) = content else { continue };
            let start = block.id.get() * size;
            if block.may_be_kept {
                object.free_range(&tx, start..start + size)?;
            }
            object.write(&tx, start, &content)?;
        }
        Ok(())
    }
}

impl RewriteBlock {
    fn new(block: u64, pointer: &Blkptr) -> Self {
        let may_be_kept = match pointer {
            Blkptr::Regular(block) => {
                !matches!(block.checksum, Checksum::Off | Checksum::Fletcher2 | Checksum::Fletcher4)
            }
            _ => false,
        };
        Self { id: BlockId::new(block), may_be_kept }
    }
}
