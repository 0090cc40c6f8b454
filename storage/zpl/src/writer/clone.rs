//! A range of a file becomes the same as one of another file of the pool, without a copy: blocks are shared.
//!
//! The other file is in this file system, in another one, or in a snapshot. Blocks can be shared where
//! the files' blocks have the same size and the range is of whole blocks; the last may be a part if both
//! files end with it. Dirty blocks cannot be shared yet.

use ondisk::sa::Attribute;
use ondisk::znode::flag;
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use posix::{Capability, ChangeContext, CloneRange, FileType};
use units::{BlockId, MinusOrZero, ObjectId};

use super::content::clear_setid;
use crate::attributes::MAX_FILE_SIZE;
use crate::writer::pending_file::PendingFile;
use crate::writer::{FsWriter, SMALL_OP_BYTES};
use crate::{Error, Fs, Result, SpaceNeed};

/// The most blocks that are shared within one transaction.
const MAX_TX_CLONED_BLOCKS: u64 = 1024;

/// The locks of two files: none may be read or changed but by the holder.
type CloneLocks<'a> = (Vec<RwLockWriteGuard<'a, ()>>, Option<RwLockReadGuard<'a, ()>>);

/// The file whose blocks are shared.
struct CloneSource {
    object: dmu::Object,
    size: u64,
    kind: FileType,
}

impl CloneSource {
    /// Loads a file that nobody can change now. `None` if its holes may not be real: those of a redacted
    /// dataset, and those of a file on which an intent log lies.
    fn load(fs: &Fs, id: ObjectId) -> Result<Option<Self>> {
        if fs.options().is_redacted || fs.inner.log_overlay.get(id).is_some() {
            return Ok(None);
        }
        let (object, attributes) = (fs.inner.objset.object(id)?, fs.inner.attributes(id)?);
        Ok(Some(Self { object, size: attributes.size, kind: attributes.kind }))
    }
}

impl FsWriter {
    /// Shares as much of the beginning of a range as is possible. Returns the number of bytes; the rest must
    /// be copied. `source_fs` is the file system of the source, or a snapshot, in the same pool. The intent log
    /// has no record of it: fsync waits for the txg.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn clone_blocks(
        &self,
        caller: &ChangeContext,
        source_fs: &Fs,
        range: &CloneRange<ObjectId>,
    ) -> Result<u64> {
        let CloneRange { source_offset: start, target: to, target_offset: at, .. } = *range;
        let _locked = self.lock_for_clone(source_fs, range);
        let Some(source) = CloneSource::load(source_fs, range.source)? else { return Ok(0) };
        let mut draft = self.load_for_write(to)?;
        let is_same_file = self.is_own(source_fs) && range.source == to;
        let Some(size) = clonable_block_size(range, &source, (&draft, is_same_file)) else {
            return Ok(0);
        };
        let length = range.length.min(source.size.minus_or_zero(start));
        let end = at.checked_add(length).filter(|end| *end <= MAX_FILE_SIZE);
        let too_large = Error::TooLarge { objset: self.objset_id(), object: to };
        let end = end.ok_or(too_large)?;
        if self.is_forbidden(&draft.sa, flag::APPENDONLY) && at < draft.size() {
            return Err(self.not_permitted(to, "the file can only be appended to"));
        }
        // a part of a block is shared only if nothing is behind it, here and there
        let ends = start + length >= source.size && end >= draft.size();
        let blocks = if ends { length.div_ceil(size) } else { block_of(length, size) };
        // a file that begins with one small block would keep that block size for ever
        let is_small = size < u64::from(self.settings.read().record_size);
        if is_small && length <= size && draft.size() <= size && end > size {
            return Ok(0);
        }
        let mut done = 0;
        while done < blocks {
            let next = (done + MAX_TX_CLONED_BLOCKS).min(blocks);
            let reached = self.clone_block_run(caller, &mut draft, (&source, range), done..next)?;
            assert!((done..=next).contains(&reached), "only blocks that were asked for are shared");
            done = reached;
            if reached < next {
                break;
            }
        }
        Ok((done * size).min(length))
    }

    fn is_own(&self, fs: &Fs) -> bool {
        fs.objset().is_same(self.fs.objset())
    }

    /// Locks both files. Those of two file systems are locked in the order of the numbers of their object sets.
    fn lock_for_clone<'a>(
        &'a self,
        source_fs: &'a Fs,
        range: &CloneRange<ObjectId>,
    ) -> CloneLocks<'a> {
        let own = &self.fs.inner.locks;
        if self.is_own(source_fs) {
            return (own.write(&[range.source, range.target]), None);
        }
        let source = || source_fs.inner.read_lock(range.source);
        if source_fs.objset().id() < self.objset_id() {
            let source = source();
            (own.write(&[range.target]), source)
        } else {
            let target = own.write(&[range.target]);
            (target, source())
        }
    }

    /// Shares these blocks of a range. Returns the first that could not be shared.
    fn clone_block_run(
        &self,
        caller: &ChangeContext,
        draft: &mut PendingFile,
        (source, range): (&CloneSource, &CloneRange<ObjectId>),
        blocks: std::ops::Range<u64>,
    ) -> Result<u64> {
        let size = u64::from(source.object.block_size());
        let count = blocks.end - blocks.start;
        let clears = !caller.credentials.has(Capability::FileSetId) && clear_setid(&mut draft.sa);
        draft.sa.touch_mtime(caller.now);
        self.resolve_layouts(&mut draft.sa)?;
        let (shared, bytes) = (count * size, SMALL_OP_BYTES);
        let need = SpaceNeed { bytes, cloned_bytes: shared, ..draft.quota_need() };
        let Some(tx) = self.transactions.begin_clone_tx(&need, source.object.objset())? else {
            return Ok(blocks.start);
        };
        if draft.object.block_size() != source.object.block_size() {
            draft.object.set_block_size(&tx, source.object.block_size())?;
            draft.object = self.fs.objset().object(draft.id())?;
        }
        let (first, target) =
            (block_of(range.source_offset, size), block_of(range.target_offset, size));
        let mut reached = blocks.start;
        for block in blocks {
            let from = BlockId::new(first + block);
            let to = BlockId::new(target + block);
            if !draft.object.clone_block(&tx, to, (&source.object, from))? {
                break;
            }
            reached = block + 1;
        }
        let length = range.length.min(source.size.minus_or_zero(range.source_offset));
        let end = range.target_offset + (reached * size).min(length);
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

/// The block that holds a byte.
fn block_of(byte: u64, size: u64) -> u64 {
    byte.checked_div(size).unwrap_or(0)
}

/// The size of the blocks of both files, if a range can be shared at all.
fn clonable_block_size(
    range: &CloneRange<ObjectId>,
    source: &CloneSource,
    (draft, is_same_file): (&PendingFile, bool),
) -> Option<u64> {
    let (from, to) = (&source.object, &draft.object);
    let size = u64::from(from.block_size());
    let aligned =
        range.source_offset.is_multiple_of(size) && range.target_offset.is_multiple_of(size);
    // the only block of a file may be of any size, and grows to that of the other file
    let grows =
        to.max_block().get() == 0 && draft.size() <= size && to.block_size() <= from.block_size();
    let alike = to.block_size() == from.block_size() || grows;
    let odd = !size.is_power_of_two();
    let lone =
        !odd || (range.source_offset == 0 && range.target_offset == 0 && draft.size() <= size);
    let apart = !is_same_file || range.source_offset.abs_diff(range.target_offset) >= range.length;
    let files = source.kind == FileType::File && range.length > 0;
    let keys = to.objset().has_same_key(from.objset());
    (aligned && alike && lone && apart && files && keys && range.source_offset < source.size)
        .then_some(size)
}
