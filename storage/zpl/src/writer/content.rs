//! What is in files: written, cut, punched.

use dmu::PendingWrite;
use ondisk::sa::Attribute;
use ondisk::zil::{Body, SetAttr};
use ondisk::znode::{Time, flag};
use txg::Tx;
use units::ObjectId;

use crate::sheet::Sheet;
use crate::writer::draft::{Draft, SMALL_NEED};
use crate::writer::{Atime, SMALL, Writer};
use crate::{Caller, Error, Kind, Need, Promise, Result};

/// Where a write begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// At this byte.
    At(u64),
    /// Where the file ends.
    End,
}

/// No file is larger.
const LARGEST: u64 = i64::MAX as u64;
/// So many bytes at most are written within one transaction.
const AT_ONCE: usize = 4 << 20;
/// So many blocks at most are freed within one transaction.
const BLOCKS_AT_ONCE: u64 = 32768;
const MANY_FREED: Need = Need { frees: true, blocks: BLOCKS_AT_ONCE, ..SMALL_NEED };
const SECTOR: u64 = 512;

impl Writer {
    /// Writes bytes; gives the byte behind them, and tells the file's size then.
    pub fn write(
        &self,
        caller: &Caller,
        file: ObjectId,
        at: Position,
        bytes: &[u8],
    ) -> Result<u64> {
        let _long = self.fs.objset().begin_long_write(bytes.len());
        let locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.to_be_written(file)?;
        let size = draft.size();
        let mut offset = match at {
            Position::At(offset) => offset,
            Position::End => size,
        };
        if self.forbids(&draft.sheet, flag::APPENDONLY) && at != Position::End && offset < size {
            return Err(self.forbidden(file, "the file can only be appended to"));
        }
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if offset.checked_add(count).is_none_or(|end| end > LARGEST) {
            return Err(Error::TooLarge { objset: self.objset(), object: file });
        }
        if bytes.is_empty() {
            return Ok(offset);
        }
        // the last piece goes to the drives while others change the file
        let mut pieces = bytes.chunks(AT_ONCE);
        let last = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            drop(self.write_piece(caller, &mut draft, (offset, 0), piece)?);
            offset = offset.saturating_add(u64::try_from(piece.len()).unwrap_or(0));
        }
        let underway = self.write_piece(caller, &mut draft, (offset, 0), last)?;
        drop(locked);
        drop(underway);
        Ok(offset.saturating_add(u64::try_from(last.len()).unwrap_or(0)))
    }

    /// Writes a block that the intent log leads to, of which only what is before `end` was meant. As
    /// OpenZFS has it, the block is written whole, and the file ends at `end` only where that makes it
    /// longer. Doing it twice would not be the same, so all of it is one transaction.
    pub(super) fn write_block(
        &self,
        caller: &Caller,
        file: ObjectId,
        (offset, end): (u64, u64),
        content: &[u8],
    ) -> Result<()> {
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.to_be_written(file)?;
        let count = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let whole = offset.checked_add(count).filter(|whole| *whole <= LARGEST);
        let too_large = || Error::TooLarge { objset: self.objset(), object: file };
        let whole = whole.ok_or_else(too_large)?;
        let meant = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let is_longer = draft.size() < end;
        let content = content.get(..meant).filter(|_| is_longer).unwrap_or(content);
        if !content.is_empty() {
            drop(self.write_piece(caller, &mut draft, (offset, whole), content)?);
        }
        Ok(())
    }

    pub(super) fn to_be_written(&self, file: ObjectId) -> Result<Draft> {
        let draft = self.draft(file)?;
        let (objset, object) = (self.objset(), file);
        match draft.kind() {
            Kind::File => {}
            Kind::Directory => return Err(Error::IsDirectory { objset, object }),
            _ => return Err(self.invalid(file, "only files have content")),
        }
        if self.forbids(&draft.sheet, flag::IMMUTABLE) {
            return Err(self.forbidden(file, "the file is immutable"));
        }
        Ok(draft)
    }

    /// The file's only block becomes as large as if the file reached to `reach`. Some of it may be on
    /// its way to the drives still when this returns.
    fn write_piece<'a>(
        &self,
        caller: &Caller,
        draft: &mut Draft,
        (offset, reach): (u64, u64),
        bytes: &'a [u8],
    ) -> Result<PendingWrite<'a, Tx>> {
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let end = offset.saturating_add(count);
        let size = draft.size().max(end);
        draft.sheet.set_word(Attribute::Size, size);
        draft.sheet.touch_content(caller.now);
        let cleared = !caller.keeps_setid && clear_set_id(&mut draft.sheet);
        self.settle(&mut draft.sheet)?;
        let bytes_needed = SMALL.saturating_add(count.saturating_mul(2));
        let piece = self.piece(draft).into();
        let tx =
            self.begin.begin(&Need { bytes: bytes_needed, piece, ..draft.need_of_owners() })?;
        self.grow_block(&tx, draft, size.max(reach))?;
        let underway = draft.object.begin_write(tx, offset, bytes)?;
        let tx = underway.tx();
        draft.store(tx)?;
        if cleared {
            self.begin.promise(tx, Promise::Record(set_promise(draft, SetAttr::MODE)));
        }
        self.begin.promise(tx, Promise::Write { object: draft.id(), offset, bytes });
        Ok(underway)
    }

    /// Bytes of the blocks in which a file's content comes: the only one may still grow.
    fn piece(&self, draft: &Draft) -> u32 {
        let has_more = draft.object.max_block().get() > 0;
        if has_more { draft.object.block_size() } else { self.settings.read().record_size }
    }

    /// Makes the file's first block as large as a file that ends at `end` is to have it, while it
    /// has no other.
    pub(super) fn grow_block(&self, tx: &Tx, draft: &Draft, end: u64) -> Result<()> {
        let object = self.fs.objset().object(draft.id())?;
        if object.max_block().get() > 0 {
            return Ok(());
        }
        let now = object.block_size();
        let wanted = block_size(now, self.settings.read().record_size, end);
        if wanted > now {
            object.set_block_size(tx, wanted)?;
        }
        Ok(())
    }

    /// Cuts a file off at a size, or lengthens it with a hole.
    pub fn truncate(&self, caller: &Caller, file: ObjectId, size: u64) -> Result<()> {
        let _locked = self.fs.inner.locks.write(&[file]);
        let draft = self.to_be_written(file)?;
        self.resize(caller, draft, size)
    }

    /// The same of a file that is locked.
    fn resize(&self, caller: &Caller, mut draft: Draft, size: u64) -> Result<()> {
        let file = draft.id();
        if self.forbids(&draft.sheet, flag::APPENDONLY) {
            return Err(self.forbidden(file, "the file can only be appended to"));
        }
        if size > LARGEST {
            return Err(Error::TooLarge { objset: self.objset(), object: file });
        }
        let old = draft.size();
        draft.sheet.set_word(Attribute::Size, size);
        draft.sheet.touch_content(caller.now);
        let cleared = !caller.keeps_setid && clear_set_id(&mut draft.sheet);
        self.settle(&mut draft.sheet)?;
        let mode = if cleared { SetAttr::MODE } else { 0 };
        // before anything is freed: who reads the file for a promise meanwhile promises this, too
        let promise = |tx: &Tx| {
            let body = set_promise(&draft, SetAttr::SIZE | SetAttr::MTIME | mode);
            self.begin.promise(tx, Promise::Record(body));
        };
        self.free_behind(&draft, size, &promise)?;
        let tx = self.begin.begin(&Need { frees: size <= old, ..SMALL_NEED })?;
        promise(&tx);
        if size < old {
            draft.object.free_range(&tx, size..u64::MAX)?;
        } else {
            self.grow_block(&tx, &draft, size)?;
        }
        draft.store(&tx)
    }

    /// Frees most of what is behind a byte, from the end on, a bit at a time, so that no
    /// transaction frees too much. The file may have a hole at its end for a while; `first` comes before
    /// it has.
    pub(super) fn free_behind(&self, draft: &Draft, start: u64, first: &dyn Fn(&Tx)) -> Result<()> {
        let step = u64::from(draft.object.block_size()).saturating_mul(BLOCKS_AT_ONCE);
        let mut starts = Vec::new();
        // what is a hole already may be far longer than all data
        let mut next = draft.object.next_data(start)?;
        while let Some(data) = next {
            starts.push(data);
            next = match data.checked_add(step) {
                Some(behind) => draft.object.next_data(behind)?,
                None => None,
            };
        }
        for (count, from) in starts.into_iter().skip(1).rev().enumerate() {
            let tx = self.begin.begin(&MANY_FREED)?;
            if count == 0 {
                first(&tx);
            }
            draft.object.free_range(&tx, from..u64::MAX)?;
        }
        Ok(())
    }

    /// Makes a hole in a file, which keeps its size.
    pub fn punch(
        &self,
        caller: &Caller,
        file: ObjectId,
        range: std::ops::Range<u64>,
    ) -> Result<()> {
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.to_be_written(file)?;
        if self.forbids(&draft.sheet, flag::APPENDONLY) {
            return Err(self.forbidden(file, "the file can only be appended to"));
        }
        let step = u64::from(draft.object.block_size()).saturating_mul(BLOCKS_AT_ONCE);
        let end = range.end.min(draft.size());
        let mut start = range.start;
        draft.sheet.touch_content(caller.now);
        let cleared = !caller.keeps_setid && clear_set_id(&mut draft.sheet);
        self.settle(&mut draft.sheet)?;
        while start < end {
            let next = start.saturating_add(step).min(end);
            let tx = self.begin.begin(&MANY_FREED)?;
            if cleared && start == range.start {
                self.begin.promise(&tx, Promise::Record(set_promise(&draft, SetAttr::MODE)));
            }
            let length = next.saturating_sub(start);
            let body = Body::Truncate { object: file, offset: start, length };
            self.begin.promise(&tx, Promise::Record(body));
            draft.object.free_range(&tx, start..next)?;
            draft.store(&tx)?;
            start = draft.object.next_data(next)?.unwrap_or(end).max(next);
        }
        Ok(())
    }

    /// Sees to it that a file reaches to `end` at least (fallocate). Space is not set aside: on a
    /// pool that never overwrites that would promise nothing.
    pub fn extend(&self, caller: &Caller, file: ObjectId, end: u64) -> Result<()> {
        // under one lock: what others append meanwhile is not to be cut off
        let _locked = self.fs.inner.locks.write(&[file]);
        if self.fs.inner.attributes(file)?.size >= end {
            return Ok(());
        }
        let draft = self.to_be_written(file)?;
        self.resize(caller, draft, end)
    }

    /// Whether [`Self::accessed`] would change something of a file that has these times (atime, mtime,
    /// ctime).
    pub fn is_access_due(&self, times: [Time; 3], now: Time) -> bool {
        is_due(self.settings.read().atime, times, now)
    }

    /// Notes that a file was read, if that is wanted.
    pub fn accessed(&self, file: ObjectId, now: Time) -> Result<()> {
        let how = self.settings.read().atime;
        if how == Atime::Off {
            return Ok(());
        }
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.draft(file)?;
        let times = [Attribute::Atime, Attribute::Mtime, Attribute::Ctime]
            .map(|attribute| draft.sheet.time(attribute));
        if !is_due(how, times, now) {
            return Ok(());
        }
        draft.sheet.set_time(Attribute::Atime, now);
        self.settle(&mut draft.sheet)?;
        let tx = self.begin.begin(&SMALL_NEED)?;
        draft.store(&tx)
    }
}

const DAY: i64 = 24 * 60 * 60;

/// Whether a file that has these times (atime, mtime, ctime) is to have another atime when it is read.
fn is_due(how: Atime, [atime, mtime, ctime]: [Time; 3], now: Time) -> bool {
    let is_old = || now.seconds.saturating_sub(atime.seconds) >= DAY;
    match how {
        Atime::Off => false,
        Atime::On => true,
        Atime::Relative => atime <= mtime || atime <= ctime || is_old(),
    }
}

/// The block size that the only block of a file is to have, if the file ends at `end`: as large
/// as the file, but not larger than the dataset's record size, or the next power of two where it
/// is larger already.
pub(crate) fn block_size(now: u32, record_size: u32, end: u64) -> u32 {
    let most = if now > record_size && !now.is_power_of_two() {
        now.checked_next_power_of_two().unwrap_or(now)
    } else {
        record_size
    };
    let wanted = u32::try_from(end.next_multiple_of(SECTOR)).unwrap_or(u32::MAX);
    wanted.min(most).max(now)
}

/// Who is not privileged takes set-user and set-group away from a file by writing to it.
pub(super) fn clear_set_id(sheet: &mut Sheet) -> bool {
    let mode = sheet.mode();
    let without = without_set_id(mode);
    if without != mode {
        sheet.set_word(Attribute::Mode, without.into());
    }
    without != mode
}

/// A mode without set-user, and without set-group unless that means something else, as it does where
/// the group may not execute. So have it all file systems of Linux.
pub fn without_set_id(mode: u32) -> u32 {
    let groups = if mode & 0o010 == 0 { 0 } else { 0o2000 };
    mode & !(0o4000 | groups)
}

/// What the log is told of attributes that came with something else.
pub(super) fn set_promise(draft: &Draft, mask: u64) -> Body {
    let attributes = draft.sheet.attributes();
    Body::SetAttr(Box::new(SetAttr {
        object: draft.id(),
        mask,
        mode: draft.sheet.mode().into(),
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
    use super::block_size;

    #[test]
    fn the_only_block_grows_with_the_file() {
        assert_eq!(block_size(512, 131072, 1), 512);
        assert_eq!(block_size(512, 131072, 700), 1024);
        assert_eq!(block_size(1024, 131072, 200_000), 131072);
        assert_eq!(block_size(131072, 131072, 1 << 40), 131072);
        // the record size went down: only what is no power of two grows, up to the next
        assert_eq!(block_size(1536, 1024, 9999), 2048);
        assert_eq!(block_size(4096, 1024, 9999), 4096);
    }
}
