//! NFSv4.2: holes, space, and copies on the server.

use vfs::{AllocateMode, FileOffset, OpenFile, Stability};

use super::compound::Compound;
use super::files::{ACCESS_READ, ACCESS_WRITE, READ_OVERHEAD};
use crate::node::FileNode;
use crate::request::Result;
use crate::v3::files::to_stable_how;
use crate::wire::status::Status;
use crate::wire::v4::StateId;
use crate::wire::xdr::Writer;

/// SEEK: the next data, or the next hole.
const SEEK_DATA: u32 = 0;
const SEEK_HOLE: u32 = 1;
/// READ_PLUS: the kinds of a part of a file.
const DATA: u32 = 0;
const HOLE: u32 = 1;
/// Bytes that one COPY copies at most, so that no slot is busy for long. The client asks for the rest.
const MAX_COPY: u64 = 64 << 20;

impl Compound<'_> {
    pub(super) fn seek(&mut self, state: &StateId, offset: u64, what: u32) -> Result<()> {
        let node = self.current()?.clone();
        let file = self.regular(&node)?;
        let fs = &file.export.filesystem;
        let (found, size) = self.with_file(state, file, ACCESS_READ, |open| {
            let (context, size) = (self.request.context(file), open.size()?);
            if offset >= size {
                return Err(Status::NXIO);
            }
            let found = match what {
                SEEK_DATA => fs.seek_data(&context, open, offset)?,
                SEEK_HOLE => Some(fs.seek_hole(&context, open, offset)?),
                _ => return Err(Status::UNION_NOTSUPP),
            };
            Ok((found, size))
        })?;
        self.writer.bool(found.is_none_or(|found| found >= size));
        self.writer.u64(found.unwrap_or(size));
        Ok(())
    }

    /// READ_PLUS: the data at an offset, or the hole there. The client asks for what comes behind it.
    pub(super) fn read_plus(&mut self, state: &StateId, offset: u64, count: u32) -> Result<()> {
        let node = self.current()?.clone();
        let file = self.regular(&node)?;
        let room = self.room().checked_sub(READ_OVERHEAD).ok_or(Status::REP_TOO_BIG)?;
        let most = usize::try_from(count).expect("a 64-bit system");
        let most = most.min(self.request.core.options.max_io_bytes).min(room);
        let mut writer = std::mem::take(self.writer);
        let read = self.with_file(state, file, ACCESS_READ, |open| {
            self.write_part(&mut writer, file, FileOffset { file: open, offset }, (count, most))
        });
        *self.writer = writer;
        self.counters.read_bytes += u64::try_from(read?).expect("a buffer in memory");
        Ok(())
    }

    /// Writes a hole of at most `count` bytes, or at most `most` bytes of data. Returns the number of bytes that were read.
    fn write_part(
        &self,
        writer: &mut Writer,
        file: &FileNode,
        from: FileOffset<'_, OpenFile>,
        (count, most): (u32, usize),
    ) -> Result<usize> {
        let (fs, context) = (&file.export.filesystem, self.request.context(file));
        let (open, offset, size) = (from.file, from.offset, from.file.size()?);
        let end = offset.checked_add(count.into()).map_or(size, |end| end.min(size));
        let (is_end, parts) = (writer.placeholder(), writer.placeholder());
        if offset >= end {
            writer.set(is_end, u32::from(offset >= size));
            return Ok(0);
        }
        writer.set(parts, 1);
        let data = fs.seek_data(&context, open, offset)?.unwrap_or(size);
        if data > offset {
            let hole_end = data.min(end);
            writer.u32(HOLE);
            writer.u64(offset);
            writer.u64(hole_end - offset);
            writer.set(is_end, u32::from(hole_end >= size));
            return Ok(0);
        }
        let end = fs.seek_hole(&context, open, offset)?.min(end);
        let length = usize::try_from(end - offset).expect("a 64-bit system").min(most);
        writer.u32(DATA);
        writer.u64(offset);
        let (read, is_last) = self.request.read(file, from, (length, true), writer)?;
        writer.set(is_end, u32::from(is_last));
        Ok(read)
    }

    pub(super) fn allocate(&mut self, state: &StateId, range: (u64, u64)) -> Result<()> {
        self.arrange(state, range, |compound, file, open, range| {
            let (fs, context) = (&file.export.filesystem, compound.request.context(file));
            Ok(fs.allocate(&context, open, range, AllocateMode::Extend)?)
        })
    }

    pub(super) fn deallocate(&mut self, state: &StateId, range: (u64, u64)) -> Result<()> {
        self.arrange(state, range, |compound, file, open, range| {
            let (fs, context) = (&file.export.filesystem, compound.request.context(file));
            Ok(fs.punch_hole(&context, open, range, AllocateMode::KeepSize)?)
        })
    }

    fn arrange(
        &self,
        state: &StateId,
        (offset, length): (u64, u64),
        work: impl FnOnce(&Self, &FileNode, &OpenFile, std::ops::Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let node = self.current()?.clone();
        self.regular(&node)?;
        let file = node.writable()?;
        let end = offset.checked_add(length).filter(|_| length > 0).ok_or(Status::INVAL)?;
        self.with_file(state, file, ACCESS_WRITE, |open| work(self, file, open, offset..end))?;
        self.request.commit(file)
    }

    /// Runs work on the saved and the current file, with the bytes to copy: as many as asked for, or up to the end of
    /// the source. The files may be of two exports.
    fn with_files<T>(
        &self,
        states: &[StateId; 2],
        offsets: [u64; 2],
        count: u64,
        work: impl FnOnce(&FileNode, [(&OpenFile, u64); 2], u64) -> Result<T>,
    ) -> Result<T> {
        let (from, to) = (self.saved()?.clone(), self.current()?.clone());
        let from = self.regular(&from)?;
        self.regular(&to)?;
        let to = to.writable()?;
        // the first state is of the saved file
        let source = if states[0] == StateId::CURRENT {
            self.saved_state.ok_or(Status::BAD_STATEID)?
        } else {
            states[0]
        };
        self.with_file(&source, from, ACCESS_READ, |source| {
            let left = source.size()?.checked_sub(offsets[0]).ok_or(Status::INVAL)?;
            let count = if count == 0 { left } else { count };
            if count > left || offsets[1].checked_add(count).is_none() {
                return Err(Status::INVAL);
            }
            self.with_file(&states[1], to, ACCESS_WRITE, |target| {
                let is_same = from.handle == to.handle;
                if is_same && offsets[0].abs_diff(offsets[1]) < count {
                    return Err(Status::INVAL);
                }
                work(to, [(source, offsets[0]), (target, offsets[1])], count)
            })
        })
    }

    pub(super) fn copy(
        &mut self,
        states: &[StateId; 2],
        offsets: [u64; 2],
        (count, is_between_servers): (u64, bool),
    ) -> Result<()> {
        if is_between_servers {
            return Err(Status::NOTSUPP);
        }
        let (done, verifier) =
            self.with_files(states, offsets, count, |to, [source, target], count| {
                let (fs, context) = (&to.export.filesystem, self.request.context(to));
                // a rollback after this makes the client copy again
                let verifier = fs.boot_verifier();
                let (from, at) = (file_offset(source), file_offset(target));
                Ok((fs.copy_range(&context, from, at, count.min(MAX_COPY))?, verifier))
            })?;
        // the copy is complete: nothing calls back
        self.writer.count(0);
        self.writer.u64(done);
        self.writer.u32(to_stable_how(Stability::Unstable).number());
        self.writer.fixed(&verifier.bytes());
        // consecutive and synchronous
        self.writer.bool(true);
        self.writer.bool(true);
        Ok(())
    }

    pub(super) fn clone(
        &mut self,
        states: &[StateId; 2],
        offsets: [u64; 2],
        count: u64,
    ) -> Result<()> {
        let pools = [self.saved()?, self.current()?]
            .map(|node| node.file().map(|file| file.export.filesystem.pool_guid()));
        if let [Ok(from), Ok(to)] = &pools
            && from != to
        {
            return Err(Status::XDEV);
        }
        let node = self.with_files(states, offsets, count, |to, [source, target], count| {
            let (fs, context) = (&to.export.filesystem, self.request.context(to));
            let shared =
                fs.clone_range(&context, file_offset(source), file_offset(target), count)?;
            let rest = count - shared;
            // the end of a file is no whole block: it is copied
            if rest > MAX_COPY {
                return Err(Status::NOTSUPP);
            }
            let from = FileOffset { file: source.0, offset: source.1 + shared };
            let at = FileOffset { file: target.0, offset: target.1 + shared };
            if fs.copy_range(&context, from, at, rest)? == rest {
                Ok(to.clone())
            } else {
                Err(Status::IO)
            }
        })?;
        self.request.commit(&node)
    }
}

fn file_offset((file, offset): (&OpenFile, u64)) -> FileOffset<'_, OpenFile> {
    FileOffset { file, offset }
}
