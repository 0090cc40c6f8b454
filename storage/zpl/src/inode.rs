//! A file: its attributes, its content by range, its target if it is a symbolic link.

use std::sync::Arc;

use dmu::Object;
use ondisk::sa::Attribute;
use ondisk::znode::Znode;
use ondisk::{Blkptr, ObjectType};
use posix::FileType;
use units::{BlockId, Level, MinusOrZero, ObjectId, Zbookmark};
use zil::extents::{self, ExtentContent};
use zio::MemoryParts;

use crate::attributes::{AttributeError, sa_bytes};
use crate::log_overlay::FileOverlay;
use crate::{Error, Fs, Result, ZnodeAttributes};

/// A file of any kind.
#[derive(Clone)]
pub struct Inode {
    fs: Fs,
    id: ObjectId,
    /// The dataset's object; `None` if the log created the file.
    object: Option<Object>,
    attributes: ZnodeAttributes,
}

/// No target is longer.
const MAX_SYMLINK_TARGET: u64 = 65536;

impl Inode {
    pub(crate) fn open(fs: Fs, id: ObjectId) -> Result<Self> {
        let inner = Arc::clone(&fs.inner);
        let _guard = inner.read_lock(id);
        Self::load_locked(fs, id)
    }

    /// The same of a file that cannot change now.
    fn load_locked(fs: Fs, id: ObjectId) -> Result<Self> {
        let inner = &*fs.inner;
        if let Some(change) = inner.log_overlay.get(id) {
            if change.is_removed {
                return Err(inner.not_found(id));
            }
            let object = if change.is_new { None } else { Some(inner.objset.object(id)?) };
            let attributes = change.attributes;
            return Ok(Self { fs, id, object, attributes });
        }
        let object = inner.objset.object(id)?;
        let attributes =
            ZnodeAttributes::from_dnode(object.dnode(), &|| object.spill(), &inner.schema)
                .map_err(|fault| inner.attribute_error(id, fault))?;
        Ok(Self { fs, id, object: Some(object), attributes })
    }

    /// Passes the file's present state to `look`; in a live file system it is locked meanwhile.
    pub(crate) fn with_current<T>(&self, look: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let guard = self.fs.inner.read_lock(self.id);
        match guard {
            Some(_) => look(&Self::load_locked(self.fs.clone(), self.id)?),
            None => look(self),
        }
    }

    /// A file that is hidden behind this one, and locked with it.
    pub(crate) fn load_hidden(&self, id: ObjectId) -> Result<Self> {
        Self::load_locked(self.fs.clone(), id)
    }

    /// The file system it is of.
    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// The inode number.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Its attributes: of a live file system, at the time of the opening.
    pub fn attributes(&self) -> &ZnodeAttributes {
        &self.attributes
    }

    /// The dataset's object; `None` if the intent log created the file.
    pub fn object(&self) -> Option<&Object> {
        self.object.as_ref()
    }

    /// Whether [`Inode::object`] does not show the present content: the intent log has content over
    /// it, or holes may be redacted ranges.
    pub fn is_overlaid(&self) -> bool {
        self.fs.inner.options.is_redacted
            || self.overlay().is_some_and(|change| !change.extents.is_empty())
    }

    pub(crate) fn overlay(&self) -> Option<&FileOverlay> {
        self.fs.inner.log_overlay.get(self.id)
    }

    fn attribute_error(&self, fault: AttributeError) -> Error {
        self.fs.inner.attribute_error(self.id, fault)
    }

    fn malformed(&self, rule: &'static str) -> Error {
        self.attribute_error(AttributeError::Rule(rule))
    }

    /// Reads from byte `offset` on; returns the number of bytes, less than requested at the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.with_current(|node| node.read_locked(offset, into))
    }

    /// The same as parts of blocks, if all of them are in memory and no log lies over them. Waits for no drive.
    pub fn parts_in_memory(&self, offset: u64, length: usize) -> Option<MemoryParts> {
        let find = |node: &Self| {
            let left = units::to_usize(node.attributes.size.minus_or_zero(offset));
            let object = node.object().filter(|_| !node.is_overlaid())?;
            object.parts_in_memory(offset, length.min(left))
        };
        self.with_current(|node| Ok(find(node))).ok()?
    }

    pub(crate) fn read_locked(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let left = self.attributes.size.minus_or_zero(offset);
        let count = units::to_usize(left).min(into.len());
        let (into, _) = into.split_at_mut(count);
        match self.overlay() {
            Some(change) if !change.extents.is_empty() => {
                self.read_overlaid(change, offset, into)?;
            }
            _ => self.read_base(offset, into)?,
        }
        Ok(count)
    }

    fn read_base(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if let Some(object) = &self.object {
            self.check_not_redacted(object, offset, into.len())?;
            return Ok(object.read(offset, into)?);
        }
        into.fill(0);
        Ok(())
    }

    /// In a redacted dataset, redacted ranges must not read as zeros.
    fn check_not_redacted(&self, object: &Object, offset: u64, length: usize) -> Result<()> {
        let inner = &self.fs.inner;
        if !inner.options.is_redacted || self.attributes.kind != FileType::File || length == 0 {
            return Ok(());
        }
        let hole = object.next_hole(offset)?;
        if hole >= offset + units::to_u64(length) {
            return Ok(());
        }
        Err(Error::Redacted { objset: inner.objset.id(), object: self.id, offset: hole })
    }

    /// Reads the log's content, and the dataset's where the log has none.
    fn read_overlaid(&self, change: &FileOverlay, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset + units::to_u64(into.len());
        let (mut at, mut rest) = (offset, into);
        while at < end {
            let piece = change.extents.slice_at(at, end);
            let count = units::to_usize(piece.end - at);
            let count = count.min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            match piece.content {
                None => self.read_base(at, now)?,
                Some(ExtentContent::Zeros) => now.fill(0),
                Some(ExtentContent::Bytes { data: all, .. }) => {
                    extents::copy_padded(all, change.extents.skip_at(at), now);
                }
                Some(ExtentContent::Block { pointer, .. }) => {
                    self.read_block(pointer, at, change.extents.skip_at(at), now)?;
                }
            }
            (at, rest) = (piece.end, later);
        }
        Ok(())
    }

    fn read_block(&self, pointer: &Blkptr, at: u64, skip: usize, into: &mut [u8]) -> Result<()> {
        if pointer.is_hole() {
            into.fill(0);
            return Ok(());
        }
        let objset = &self.fs.inner.objset;
        let number = at.checked_div(pointer.lsize().into()).unwrap_or(0);
        let place = Zbookmark::new(objset.id(), self.id, Level::new(0), BlockId::new(number));
        let block = objset.source().read(pointer, place, objset.key()).map_err(dmu::Error::from)?;
        extents::copy_padded(&block, skip, into);
        Ok(())
    }

    /// The first byte from `from` on that is not in a hole; `None` if there is none.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        self.with_current(|node| match node.overlay_block_size() {
            Some(blocks) => node.next_data_block(from, blocks),
            None => node.find_data(from),
        })
    }

    /// The first byte from `from` on that is in a hole; the end of the file is one.
    pub fn next_hole(&self, from: u64) -> Result<u64> {
        self.with_current(|node| match node.overlay_block_size() {
            Some(blocks) => node.next_hole_block(from, blocks),
            None => node.find_hole(from),
        })
    }

    /// Bytes of the blocks that a log is laid over the content with; none: it is not.
    fn overlay_block_size(&self) -> Option<u64> {
        let change = self.overlay().filter(|change| !change.extents.is_empty())?;
        Some(change.block_layout.size().max(1))
    }

    /// A block in which one byte is written is all data.
    fn next_data_block(&self, from: u64, size: u64) -> Result<Option<u64>> {
        if from >= self.attributes.size {
            return Ok(None);
        }
        let block = |at: u64| at - at.checked_rem(size).unwrap_or(0);
        let found = self.find_data(block(from))?;
        Ok(found.map(|found| block(found).max(from)).filter(|at| *at < self.attributes.size))
    }

    /// Only a block in which nothing is written is a hole.
    fn next_hole_block(&self, from: u64, size: u64) -> Result<u64> {
        let mut at = from;
        while at < self.attributes.size {
            at = self.find_hole(at)?;
            let begin = at - at.checked_rem(size).unwrap_or(0);
            let end = begin + size;
            if at >= self.attributes.size || self.find_data(begin)?.is_none_or(|data| data >= end) {
                break;
            }
            at = end;
        }
        Ok(at.min(self.attributes.size).max(from))
    }

    fn find_data(&self, from: u64) -> Result<Option<u64>> {
        let size = self.attributes.size;
        let mut at = from;
        while at < size {
            let piece = match self.overlay() {
                Some(change) => change.extents.slice_at(at, size),
                None => extents::ExtentSlice { start: at, end: size, content: None },
            };
            match piece.content {
                Some(ExtentContent::Zeros) => {}
                Some(_) => return Ok(Some(at)),
                None => {
                    let found = match &self.object {
                        Some(object) => object.next_data(at)?,
                        None => None,
                    };
                    if let Some(found) = found.filter(|found| *found < piece.end) {
                        return Ok(Some(found.max(at)));
                    }
                }
            }
            at = piece.end;
        }
        Ok(None)
    }

    fn find_hole(&self, from: u64) -> Result<u64> {
        let size = self.attributes.size;
        let mut at = from;
        while at < size {
            let piece = match self.overlay() {
                Some(change) => change.extents.slice_at(at, size),
                None => extents::ExtentSlice { start: at, end: size, content: None },
            };
            match piece.content {
                Some(ExtentContent::Zeros) => return Ok(at),
                Some(_) => {}
                None => {
                    let found = match &self.object {
                        Some(object) => object.next_hole(at)?,
                        None => at,
                    };
                    if found < piece.end {
                        return Ok(found.max(at));
                    }
                }
            }
            at = piece.end;
        }
        Ok(size.max(from))
    }

    /// Where a symbolic link points.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        self.with_current(Self::read_link_locked)
    }

    fn read_link_locked(&self) -> Result<Vec<u8>> {
        if self.attributes.kind != FileType::Symlink {
            let objset = self.fs.inner.objset.id();
            return Err(Error::NotSymlink { objset, object: self.id });
        }
        let Some(object) = &self.object else {
            return Ok(self.overlay().map(|change| change.target.clone()).unwrap_or_default());
        };
        if object.dnode().bonus_kind == ObjectType::SA {
            let found = sa_bytes(object, &self.fs.inner.schema, Attribute::Symlink);
            let found = found.map_err(|fault| self.attribute_error(fault))?;
            let (bytes, _) = found.ok_or_else(|| self.malformed("a link must have a target"))?;
            return Ok(bytes);
        }
        let size = self.attributes.size;
        if size > MAX_SYMLINK_TARGET {
            return Err(self.malformed("a link's target has at most 64 KiB"));
        }
        let size = units::to_usize(size);
        // a short one stands behind the znode, a long one is the content
        let behind = object.bonus().get(Znode::SIZE..).and_then(|rest| rest.get(..size));
        if let Some(target) = behind {
            return Ok(target.to_vec());
        }
        let mut target = vec![0; size];
        object.read(0, &mut target)?;
        Ok(target)
    }
}
