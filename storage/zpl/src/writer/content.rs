//! Changes the content of files: writes, truncations, holes.

use dmu::PendingWrite;
use ondisk::sa::Attribute;
use ondisk::zil::{Body, SetAttr};
use ondisk::znode::flag;
use posix::{Capability, ChangeContext, FileType, Time, WriteOffset};
use txg::Tx;
use units::{MinusOrZero, ObjectId};

use crate::attributes::MAX_FILE_SIZE;
use crate::sa_table::SaTable;
use crate::writer::pending_file::{PendingFile, SMALL_NEED};
use crate::writer::{AtimeMode, FsWriter, SMALL_OP_BYTES};
use crate::{Error, LogRecord, Result, SpaceNeed};

/// So many bytes at most are written within one transaction.
const MAX_TX_BYTES: usize = 4 << 20;
/// The most blocks freed within one transaction.
const MAX_TX_FREED_BLOCKS: u64 = 32768;
const BULK_FREE_NEED: SpaceNeed =
    SpaceNeed { frees_space: true, freed_blocks: MAX_TX_FREED_BLOCKS, ..SMALL_NEED };
const SECTOR: u64 = 512;

impl FsWriter {
    /// Writes bytes; returns the end of the write, and the file's size then.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn write(
        &self,
        caller: &ChangeContext,
        file: ObjectId,
        at: WriteOffset,
        bytes: &[u8],
    ) -> Result<u64> {
        let _long = self.fs.objset().begin_long_write(bytes.len());
        // Rule: lock the file before a transaction begins. Otherwise a later change of the file could be in
        // an earlier txg, and a crash between the two txgs would keep the later one alone.
        let locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.load_for_write(file)?;
        let size = draft.size();
        let mut offset = match at {
            WriteOffset::At(offset) => offset,
            WriteOffset::End => size,
        };
        if self.is_forbidden(&draft.sa, flag::APPENDONLY) && at != WriteOffset::End && offset < size
        {
            return Err(self.not_permitted(file, "the file can only be appended to"));
        }
        let count = units::to_u64(bytes.len());
        if offset.checked_add(count).is_none_or(|end| end > MAX_FILE_SIZE) {
            return Err(Error::TooLarge { objset: self.objset_id(), object: file });
        }
        if bytes.is_empty() {
            return Ok(offset);
        }
        let start = offset;
        // the last piece goes to the drives while others change the file
        let mut pieces = bytes.chunks(MAX_TX_BYTES);
        let last = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            drop(self.write_chunk(caller, &mut draft, (offset, 0), piece)?);
            offset += units::to_u64(piece.len());
        }
        let underway = self.write_chunk(caller, &mut draft, (offset, 0), last)?;
        let end = offset + units::to_u64(last.len());
        assert_eq!(end - start, count, "each byte of a write to file {file} is in a piece");
        assert!(draft.size() >= end, "a file reaches to its last byte");
        drop(locked);
        drop(underway);
        Ok(end)
    }

    /// Replays a write whose whole block is in the log; the write ended at `end`. Like OpenZFS,
    /// this writes the block whole, and truncates the file to `end` only if that makes the file
    /// longer. Doing it twice gives a different result, so it is one transaction.
    pub(super) fn replay_write_block(
        &self,
        caller: &ChangeContext,
        file: ObjectId,
        (offset, end): (u64, u64),
        content: &[u8],
    ) -> Result<()> {
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.load_for_write(file)?;
        let count = units::to_u64(content.len());
        let whole = offset.checked_add(count).filter(|whole| *whole <= MAX_FILE_SIZE);
        let too_large = || Error::TooLarge { objset: self.objset_id(), object: file };
        let whole = whole.ok_or_else(too_large)?;
        let meant = units::to_usize(end.minus_or_zero(offset));
        let is_longer = draft.size() < end;
        let content = content.get(..meant).filter(|_| is_longer).unwrap_or(content);
        if !content.is_empty() {
            drop(self.write_chunk(caller, &mut draft, (offset, whole), content)?);
        }
        Ok(())
    }

    pub(super) fn load_for_write(&self, file: ObjectId) -> Result<PendingFile> {
        let draft = self.load_pending(file)?;
        let (objset, object) = (self.objset_id(), file);
        match draft.kind() {
            FileType::File => {}
            FileType::Directory => return Err(Error::IsDirectory { objset, object }),
            _ => return Err(self.invalid_error(file, "only files have content")),
        }
        if self.is_forbidden(&draft.sa, flag::IMMUTABLE) {
            return Err(self.not_permitted(file, "the file is immutable"));
        }
        Ok(draft)
    }

    /// The file's only block becomes as large as if the file reached to `reach`. Some of it may be on
    /// its way to the drives still when this returns.
    fn write_chunk<'a>(
        &self,
        caller: &ChangeContext,
        draft: &mut PendingFile,
        (offset, reach): (u64, u64),
        bytes: &'a [u8],
    ) -> Result<PendingWrite<'a, Tx>> {
        let count = units::to_u64(bytes.len());
        let end = offset + count;
        assert!(count > 0 && end <= MAX_FILE_SIZE, "callers refuse other ranges");
        let size = draft.size().max(end);
        draft.sa.set_word(Attribute::Size, size);
        draft.sa.touch_mtime(caller.now);
        let cleared = !caller.credentials.has(Capability::FileSetId) && clear_setid(&mut draft.sa);
        self.resolve_layouts(&mut draft.sa)?;
        let bytes_needed = SMALL_OP_BYTES + count * 2;
        let piece = self.write_block_size(draft).into();
        let tx = self.transactions.begin_tx(&SpaceNeed {
            bytes: bytes_needed,
            block_size: piece,
            ..draft.quota_need()
        })?;
        self.grow_first_block(&tx, draft, size.max(reach))?;
        let underway = draft.object.begin_write(tx, offset, bytes)?;
        let tx = underway.tx();
        draft.store(tx)?;
        if cleared {
            self.transactions
                .log_record(tx, LogRecord::Record(implied_setattr_record(draft, SetAttr::MODE)));
        }
        self.transactions.log_record(tx, LogRecord::Write { object: draft.id(), offset, bytes });
        Ok(underway)
    }

    /// Bytes of the blocks in which a file's content comes: the only one may still grow.
    fn write_block_size(&self, draft: &PendingFile) -> u32 {
        let has_more = draft.object.max_block().get() > 0;
        if has_more { draft.object.block_size() } else { self.settings.read().record_size }
    }

    /// Grows the file's first block to the size for a file that ends at `end`, while it is the only
    /// block.
    pub(super) fn grow_first_block(&self, tx: &Tx, draft: &PendingFile, end: u64) -> Result<()> {
        let object = self.fs.objset().object(draft.id())?;
        if object.max_block().get() > 0 {
            return Ok(());
        }
        let now = object.block_size();
        let wanted = first_block_size(now, self.settings.read().record_size, end);
        if wanted > now {
            object.set_block_size(tx, wanted)?;
        }
        Ok(())
    }

    /// Cuts a file off at a size, or lengthens it with a hole.
    pub fn truncate(&self, caller: &ChangeContext, file: ObjectId, size: u64) -> Result<()> {
        self.truncate_if(caller, file, size, None)
    }

    /// Sets the size of a file if it was last changed (ctime) at that time.
    pub(super) fn truncate_if(
        &self,
        caller: &ChangeContext,
        file: ObjectId,
        size: u64,
        if_ctime: Option<Time>,
    ) -> Result<()> {
        let _locked = self.fs.inner.locks.write(&[file]);
        let draft = self.load_for_write(file)?;
        self.check_guard(&draft, if_ctime)?;
        self.resize_locked(caller, draft, size)
    }

    /// The same of a file that is locked.
    fn resize_locked(
        &self,
        caller: &ChangeContext,
        mut draft: PendingFile,
        size: u64,
    ) -> Result<()> {
        let file = draft.id();
        if self.is_forbidden(&draft.sa, flag::APPENDONLY) {
            return Err(self.not_permitted(file, "the file can only be appended to"));
        }
        if size > MAX_FILE_SIZE {
            return Err(Error::TooLarge { objset: self.objset_id(), object: file });
        }
        let old = draft.size();
        draft.sa.set_word(Attribute::Size, size);
        draft.sa.touch_mtime(caller.now);
        let cleared = !caller.credentials.has(Capability::FileSetId) && clear_setid(&mut draft.sa);
        self.resolve_layouts(&mut draft.sa)?;
        let mode = if cleared { SetAttr::MODE } else { 0 };
        // before any block is freed: a concurrent commit that reads the file must find this record
        let promise = |tx: &Tx| {
            let body = implied_setattr_record(&draft, SetAttr::SIZE | SetAttr::MTIME | mode);
            self.transactions.log_record(tx, LogRecord::Record(body));
        };
        self.free_tail(&draft, size, &promise)?;
        let tx =
            self.transactions.begin_tx(&SpaceNeed { frees_space: size <= old, ..SMALL_NEED })?;
        promise(&tx);
        if size < old {
            draft.object.free_range(&tx, size..u64::MAX)?;
        } else {
            self.grow_first_block(&tx, &draft, size)?;
        }
        draft.store(&tx)
    }

    /// Frees most of the content after a byte, from the end on, in steps, so that no transaction
    /// frees too much. The file may have a hole at its end for a while; `first` is called before
    /// that.
    pub(super) fn free_tail(
        &self,
        draft: &PendingFile,
        start: u64,
        first: &dyn Fn(&Tx),
    ) -> Result<()> {
        let step = u64::from(draft.object.block_size()) * MAX_TX_FREED_BLOCKS;
        let mut starts = Vec::new();
        // the existing hole may be far longer than all data
        let mut next = draft.object.next_data(start)?;
        while let Some(data) = next {
            starts.push(data);
            next = match data.checked_add(step) {
                Some(behind) => draft.object.next_data(behind)?,
                None => None,
            };
        }
        // from the end on: after a crash the file has a hole at its end, and no old data behind one
        assert!(starts.is_sorted_by(|one, next| one < next), "each step frees less than the last");
        for (count, from) in starts.into_iter().skip(1).rev().enumerate() {
            let tx = self.transactions.begin_tx(&BULK_FREE_NEED)?;
            if count == 0 {
                first(&tx);
            }
            draft.object.free_range(&tx, from..u64::MAX)?;
        }
        Ok(())
    }

    /// Makes a hole in a file, which keeps its size.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn punch_hole(
        &self,
        caller: &ChangeContext,
        file: ObjectId,
        range: std::ops::Range<u64>,
    ) -> Result<()> {
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.load_for_write(file)?;
        if self.is_forbidden(&draft.sa, flag::APPENDONLY) {
            return Err(self.not_permitted(file, "the file can only be appended to"));
        }
        let step = u64::from(draft.object.block_size()) * MAX_TX_FREED_BLOCKS;
        let end = range.end.min(draft.size());
        let mut start = range.start;
        draft.sa.touch_mtime(caller.now);
        let cleared = !caller.credentials.has(Capability::FileSetId) && clear_setid(&mut draft.sa);
        self.resolve_layouts(&mut draft.sa)?;
        while start < end {
            let next = (start + step).min(end);
            let tx = self.transactions.begin_tx(&BULK_FREE_NEED)?;
            if cleared && start == range.start {
                self.transactions.log_record(
                    &tx,
                    LogRecord::Record(implied_setattr_record(&draft, SetAttr::MODE)),
                );
            }
            let length = next - start;
            let body = Body::Truncate { object: file, offset: start, length };
            self.transactions.log_record(&tx, LogRecord::Record(body));
            draft.object.free_range(&tx, start..next)?;
            draft.store(&tx)?;
            assert!(next > start, "each step of a hole in file {file} moves on from {start}");
            start = draft.object.next_data(next)?.unwrap_or(end).max(next);
        }
        Ok(())
    }

    /// Extends a file to at least `end` (fallocate). No space is reserved: a pool never overwrites
    /// blocks, so a reservation would not help.
    pub fn extend(&self, caller: &ChangeContext, file: ObjectId, end: u64) -> Result<()> {
        // under one lock: what others append meanwhile is not to be cut off
        let _locked = self.fs.inner.locks.write(&[file]);
        if self.fs.inner.attributes(file)?.size >= end {
            return Ok(());
        }
        let draft = self.load_for_write(file)?;
        self.resize_locked(caller, draft, end)
    }

    /// Whether [`Self::update_atime`] would change something of a file that has these times (atime, mtime,
    /// ctime).
    pub fn is_atime_due(&self, times: [Time; 3], now: Time) -> bool {
        is_atime_due(self.settings.read().atime, times, now)
    }

    /// Notes that a file was read, if that is wanted.
    pub fn update_atime(&self, file: ObjectId, now: Time) -> Result<()> {
        let how = self.settings.read().atime;
        if how == AtimeMode::Off {
            return Ok(());
        }
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.load_pending(file)?;
        let times = [Attribute::Atime, Attribute::Mtime, Attribute::Ctime]
            .map(|attribute| draft.sa.time(attribute));
        if !is_atime_due(how, times, now) {
            return Ok(());
        }
        draft.sa.set_time(Attribute::Atime, now);
        self.resolve_layouts(&mut draft.sa)?;
        let tx = self.transactions.begin_tx(&SMALL_NEED)?;
        draft.store(&tx)
    }
}

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// Whether a file that has these times (atime, mtime, ctime) is to have another atime when it is read.
fn is_atime_due(how: AtimeMode, [atime, mtime, ctime]: [Time; 3], now: Time) -> bool {
    let is_old = || now.seconds.saturating_sub(atime.seconds) >= SECONDS_PER_DAY;
    match how {
        AtimeMode::Off => false,
        AtimeMode::On => true,
        AtimeMode::Relative => atime <= mtime || atime <= ctime || is_old(),
    }
}

/// The block size that the only block of a file is to have, if the file ends at `end`: as large
/// as the file, but not larger than the dataset's record size, or the next power of two where it
/// is larger already.
pub(crate) fn first_block_size(now: u32, record_size: u32, end: u64) -> u32 {
    let most = if now > record_size && !now.is_power_of_two() {
        now.checked_next_power_of_two().unwrap_or(now)
    } else {
        record_size
    };
    let wanted = units::narrow::<u32>(end.min(most.into()).next_multiple_of(SECTOR));
    wanted.min(most).max(now)
}

/// Clears the set-ID bits of a file, as a write by an unprivileged process does. Returns whether the
/// file had any.
pub(super) fn clear_setid(sheet: &mut SaTable) -> bool {
    let mode = sheet.mode();
    let without = posix::mode::without_setid(mode);
    if without != mode {
        sheet.set_word(Attribute::Mode, without.into());
    }
    without != mode
}

/// The attributes for a log record of another change.
pub(super) fn implied_setattr_record(draft: &PendingFile, mask: u64) -> Body {
    let attributes = draft.sa.attributes();
    Body::SetAttr(Box::new(SetAttr {
        object: draft.id(),
        mask,
        mode: draft.sa.mode().into(),
        uid: attributes.owner,
        gid: attributes.group,
        size: attributes.size,
        atime: attributes.atime.to_words(),
        mtime: attributes.mtime.to_words(),
        attributes: None,
        domains: Vec::new(),
    }))
}

#[cfg(test)]
mod tests {
    use super::first_block_size;

    #[test]
    fn the_only_block_grows_with_the_file() {
        assert_eq!(first_block_size(512, 131072, 1), 512);
        assert_eq!(first_block_size(512, 131072, 700), 1024);
        assert_eq!(first_block_size(1024, 131072, 200_000), 131072);
        assert_eq!(first_block_size(131072, 131072, 1 << 40), 131072);
        // recordsize was reduced: only a size that is not a power of two grows, up to the next one
        assert_eq!(first_block_size(1536, 1024, 9999), 2048);
        assert_eq!(first_block_size(4096, 1024, 9999), 4096);
    }
}
