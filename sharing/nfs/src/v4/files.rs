//! Attributes, access, and content.

use posix::FileType;
use vfs::{FileOffset, OpenFile};

use super::attributes::{RequestedAttributes, to_set_attributes};
use super::compound::Compound;
use crate::node::{FileNode, Node};
use crate::request::Result;
use crate::v3::files::{to_stability, to_stable_how};
use crate::wire::status::Status;
use crate::wire::v3::StableHow;
use crate::wire::v4::{Bitmap, SetAttributes, StateId, attr};
use crate::wire::xdr::Writer;

/// The access that OPEN asks for.
/// The bits of ACCESS that minor versions 0 and 1 have.
const ACCESS_BITS: u32 = 0x3f;
pub(super) const ACCESS_READ: u32 = 1;
pub(super) const ACCESS_WRITE: u32 = 2;
/// Bytes of a result of READ beside its data.
pub(super) const READ_OVERHEAD: usize = 64;

impl Compound<'_> {
    pub(super) fn get_attributes(&mut self, wanted: &Bitmap) -> Result<()> {
        if wanted.has(attr::TIME_ACCESS_SET) || wanted.has(attr::TIME_MODIFY_SET) {
            return Err(Status::INVAL);
        }
        let node = self.current.as_ref().ok_or(Status::NOFILEHANDLE)?;
        let wanted = RequestedAttributes { bitmap: *wanted, minor_version: self.minor_version };
        wanted.write(&self.request, node, self.writer)
    }

    pub(super) fn verify(&mut self, is_equal: bool, wanted: &Bitmap, values: &[u8]) -> Result<()> {
        let node = self.current.as_ref().ok_or(Status::NOFILEHANDLE)?;
        if attr::WITHOUT_VALUE.iter().any(|attribute| wanted.has(*attribute)) {
            return Err(Status::INVAL);
        }
        let mut own = Writer::default();
        let attributes = RequestedAttributes { bitmap: *wanted, minor_version: self.minor_version };
        attributes.write(&self.request, node, &mut own)?;
        let mut theirs = Writer::default();
        wanted.write(&mut theirs);
        let header = theirs.len();
        if own.as_bytes().get(..header) != Some(theirs.as_bytes()) {
            return Err(Status::ATTRNOTSUPP);
        }
        theirs.opaque(values);
        match (own.as_bytes() == theirs.as_bytes(), is_equal) {
            (true, true) | (false, false) => Ok(()),
            (true, false) => Err(Status::SAME),
            (false, true) => Err(Status::NOT_SAME),
        }
    }

    pub(super) fn set_attributes(&mut self, state: &StateId, set: &SetAttributes) -> Result<()> {
        let node = self.current()?.clone();
        let file = node.writable()?;
        let mut all = to_set_attributes(set)?;
        let state = self.resolve_state(state)?;
        if let Some(size) = all.size
            && !state.is_special()
        {
            // the open has shown that the caller may write, whatever the mode is now
            let fs = &file.export.filesystem;
            self.with_file(&state, file, ACCESS_WRITE, |open| {
                Ok(fs.truncate(&self.request.context(file), open, size)?)
            })?;
            all.size = None;
            self.request.commit(file)?;
        }
        if all.size.is_some() && self.request.file_attributes(file)?.stat.kind.is_directory() {
            return Err(Status::ISDIR);
        }
        self.request.set_attributes(file, &all)?;
        self.set_acl(file, set)?;
        set.set.write(self.writer);
        Ok(())
    }

    pub(super) fn access(&mut self, wanted: u32) -> Result<()> {
        // the bits of extended attributes came with minor version 2
        let known = if self.minor_version < 2 { ACCESS_BITS } else { u32::MAX };
        let (supported, granted) = self.request.access(self.current()?, wanted & known)?;
        self.writer.u32(supported);
        self.writer.u32(granted);
        Ok(())
    }

    /// Runs work on the open file of a state, or on a file that is opened for a request without one.
    pub(super) fn with_file<T>(
        &self,
        state: &StateId,
        file: &FileNode,
        access: u32,
        work: impl FnOnce(&OpenFile) -> Result<T>,
    ) -> Result<T> {
        let state = self.resolve_state(state)?;
        if state.is_special() {
            let opened = self.request.open_by_handle(file, access == ACCESS_WRITE);
            // another client denies the access
            let locked =
                |status| if status == Status::SHARE_DENIED { Status::LOCKED } else { status };
            return work(&*opened.map_err(locked)?);
        }
        let client = self.request.client;
        if let Some(delegated) = self.state.delegated_access(client, &state, &file.handle)? {
            if delegated & access == 0 {
                return Err(Status::OPENMODE);
            }
            let open = self.request.open_by_handle(file, access == ACCESS_WRITE)?;
            return work(&open);
        }
        let target = self.state.open_target(self.request.client, &state, &file.handle)?;
        if target.access & access == 0 {
            return Err(Status::OPENMODE);
        }
        if target.uid != file.admission.credentials.uid {
            // the state is known to another user than the one who opened the file
            self.request.check_access(file, access == ACCESS_WRITE)?;
        }
        let open = target.file.read();
        work(&open)
    }

    /// The current file, which must be a regular one.
    pub(super) fn regular<'a>(&self, node: &'a Node) -> Result<&'a FileNode> {
        let file = node.file()?;
        match self.request.file_attributes(file)?.stat.kind {
            FileType::File => Ok(file),
            FileType::Directory => Err(Status::ISDIR),
            FileType::Symlink => Err(Status::SYMLINK),
            _ => Err(Status::WRONG_TYPE),
        }
    }

    pub(super) fn read(&mut self, state: &StateId, offset: u64, count: u32) -> Result<()> {
        let node = self.current()?.clone();
        let file = self.regular(&node)?;
        let most = usize::try_from(count).expect("a 64-bit system");
        let room = self.room().checked_sub(READ_OVERHEAD).ok_or(Status::REP_TOO_BIG)?;
        let most = most.min(self.request.core.options.max_io_bytes).min(room);
        let is_kept = self.slot.as_ref().is_some_and(|held| held.is_cached);
        let mut writer = std::mem::take(self.writer);
        let end = writer.placeholder();
        let read = self.with_file(state, file, ACCESS_READ, |open| {
            let from = FileOffset { file: open, offset };
            self.request.read(file, from, (most, is_kept), &mut writer)
        });
        writer.set(end, u32::from(matches!(read, Ok((_, true)))));
        *self.writer = writer;
        self.counters.read_bytes += u64::try_from(read?.0).expect("a buffer in memory");
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        state: &StateId,
        offset: u64,
        stable: StableHow,
        data: &[u8],
    ) -> Result<()> {
        let node = self.current()?.clone();
        self.regular(&node)?;
        let file = node.writable()?;
        let written = self.with_file(state, file, ACCESS_WRITE, |open| {
            self.request.write(file, (open, offset), data, to_stability(stable))
        })?;
        self.writer.count(data.len());
        self.writer.u32(to_stable_how(written.stability).number());
        self.writer.fixed(&written.verifier.bytes());
        self.counters.written_bytes += u64::try_from(data.len()).expect("a buffer in memory");
        Ok(())
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        let node = self.current()?.clone();
        self.regular(&node)?;
        let verifier = self.request.commit_writes(node.writable()?)?;
        self.writer.fixed(&verifier.bytes());
        Ok(())
    }
}
