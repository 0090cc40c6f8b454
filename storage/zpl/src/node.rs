//! A file: its attributes, its content by range, its target if it is a symbolic link.

use std::sync::Arc;

use dmu::Object;
use ondisk::sa::Attribute;
use ondisk::znode::Znode;
use ondisk::{Blkptr, ObjectType};
use units::{BlockId, Level, ObjectId, Place};
use zil::extents::{self, Content};

use crate::attributes::{Fault, sa_bytes};
use crate::overlay::Change;
use crate::{Attributes, Error, Fs, Kind, Result};

/// A file of any kind.
#[derive(Clone)]
pub struct Node {
    fs: Fs,
    id: ObjectId,
    /// What the dataset has; `None` where the log made the file.
    object: Option<Object>,
    attributes: Attributes,
}

/// No target is longer.
const LONGEST_TARGET: u64 = 65536;

impl Node {
    pub(crate) fn open(fs: Fs, id: ObjectId) -> Result<Self> {
        let inner = Arc::clone(&fs.inner);
        let _guard = inner.guard(id);
        Self::load(fs, id)
    }

    /// The same of a file that nobody can change now.
    fn load(fs: Fs, id: ObjectId) -> Result<Self> {
        let inner = &*fs.inner;
        if let Some(change) = inner.overlay.get(id) {
            if change.is_gone {
                return Err(inner.gone(id));
            }
            let object = if change.is_new { None } else { Some(inner.objset.object(id)?) };
            let attributes = change.attributes;
            return Ok(Self { fs, id, object, attributes });
        }
        let object = inner.objset.object(id)?;
        let attributes = Attributes::of(object.dnode(), &|| object.spill(), &inner.schema)
            .map_err(|fault| inner.fault(id, fault))?;
        Ok(Self { fs, id, object: Some(object), attributes })
    }

    /// Shows the file as it is now to `look`; in a live file system nobody changes it meanwhile.
    pub(crate) fn now<T>(&self, look: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let guard = self.fs.inner.guard(self.id);
        match guard {
            Some(_) => look(&Self::load(self.fs.clone(), self.id)?),
            None => look(self),
        }
    }

    /// A file that is hidden behind this one, and locked with it.
    pub(crate) fn hidden(&self, id: ObjectId) -> Result<Self> {
        Self::load(self.fs.clone(), id)
    }

    /// The file system it is of.
    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// Its number: the inode.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// What there is to know of it: of a live file system, when this was opened.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// What the dataset has of it; `None` where the intent log made the file.
    pub fn object(&self) -> Option<&Object> {
        self.object.as_ref()
    }

    /// Whether [`Node::object`] is not the whole truth: the intent log laid content over what the
    /// dataset has, or holes may be what was redacted.
    pub fn is_overlaid(&self) -> bool {
        self.fs.inner.options.redacted
            || self.change().is_some_and(|change| !change.data.is_empty())
    }

    pub(crate) fn change(&self) -> Option<&Change> {
        self.fs.inner.overlay.get(self.id)
    }

    fn fault(&self, fault: Fault) -> Error {
        self.fs.inner.fault(self.id, fault)
    }

    fn rule(&self, rule: &'static str) -> Error {
        self.fault(Fault::Rule(rule))
    }

    /// Reads from byte `offset` on; gives how many bytes it were, less than asked for at the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.now(|node| node.read_now(offset, into))
    }

    pub(crate) fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let left = self.attributes.size.saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let (into, _) = into.split_at_mut(count);
        match self.change() {
            Some(change) if !change.data.is_empty() => self.read_over(change, offset, into)?,
            _ => self.read_base(offset, into)?,
        }
        Ok(count)
    }

    fn read_base(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if let Some(object) = &self.object {
            self.must_be_whole(object, offset, into.len())?;
            return Ok(object.read(offset, into)?);
        }
        into.fill(0);
        Ok(())
    }

    /// In a redacted dataset, what was left out must not pass for zeros.
    fn must_be_whole(&self, object: &Object, offset: u64, length: usize) -> Result<()> {
        let inner = &self.fs.inner;
        if !inner.options.redacted || self.attributes.kind != Kind::File || length == 0 {
            return Ok(());
        }
        let hole = object.next_hole(offset)?;
        if hole >= offset.saturating_add(u64::try_from(length).unwrap_or(u64::MAX)) {
            return Ok(());
        }
        Err(Error::Redacted { objset: inner.objset.id(), object: self.id, offset: hole })
    }

    /// Reads what the log laid over the content, and the content where it did not.
    fn read_over(&self, change: &Change, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(u64::try_from(into.len()).unwrap_or(u64::MAX));
        let (mut at, mut rest) = (offset, into);
        while at < end {
            let piece = change.data.piece(at, end);
            let count = usize::try_from(piece.end.saturating_sub(at)).unwrap_or(usize::MAX);
            let count = count.min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            match piece.content {
                None => self.read_base(at, now)?,
                Some(Content::Zeros) => now.fill(0),
                Some(Content::Bytes { all, .. }) => {
                    extents::copy(all, change.data.skipped(at), now);
                }
                Some(Content::Block { pointer, .. }) => {
                    self.read_block(pointer, at, change.data.skipped(at), now)?;
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
        let place = Place::new(objset.id(), self.id, Level::new(0), BlockId::new(number));
        let block = objset.source().read(pointer, place, objset.key()).map_err(dmu::Error::from)?;
        extents::copy(&block, skip, into);
        Ok(())
    }

    /// The first byte from `from` on that is not in a hole; `None` if there is none.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        self.now(|node| match node.blocks_over() {
            Some(blocks) => node.next_block_of_data(from, blocks),
            None => node.data_from(from),
        })
    }

    /// The first byte from `from` on that is in a hole; the end of the file is one.
    pub fn next_hole(&self, from: u64) -> Result<u64> {
        self.now(|node| match node.blocks_over() {
            Some(blocks) => node.next_block_without(from, blocks),
            None => node.hole_from(from),
        })
    }

    /// Bytes of the blocks that a log is laid over the content with; none: it is not.
    fn blocks_over(&self) -> Option<u64> {
        let change = self.change().filter(|change| !change.data.is_empty())?;
        Some(change.blocks.size().max(1))
    }

    /// A block in which one byte is written is all data.
    fn next_block_of_data(&self, from: u64, size: u64) -> Result<Option<u64>> {
        if from >= self.attributes.size {
            return Ok(None);
        }
        let block = |at: u64| at.saturating_sub(at.checked_rem(size).unwrap_or(0));
        let found = self.data_from(block(from))?;
        Ok(found.map(|found| block(found).max(from)).filter(|at| *at < self.attributes.size))
    }

    /// Only a block in which nothing is written is a hole.
    fn next_block_without(&self, from: u64, size: u64) -> Result<u64> {
        let mut at = from;
        while at < self.attributes.size {
            at = self.hole_from(at)?;
            let begin = at.saturating_sub(at.checked_rem(size).unwrap_or(0));
            let end = begin.saturating_add(size);
            if at >= self.attributes.size || self.data_from(begin)?.is_none_or(|data| data >= end) {
                break;
            }
            at = end;
        }
        Ok(at.min(self.attributes.size).max(from))
    }

    fn data_from(&self, from: u64) -> Result<Option<u64>> {
        let size = self.attributes.size;
        let mut at = from;
        while at < size {
            let piece = match self.change() {
                Some(change) => change.data.piece(at, size),
                None => extents::Piece { start: at, end: size, content: None },
            };
            match piece.content {
                Some(Content::Zeros) => {}
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

    fn hole_from(&self, from: u64) -> Result<u64> {
        let size = self.attributes.size;
        let mut at = from;
        while at < size {
            let piece = match self.change() {
                Some(change) => change.data.piece(at, size),
                None => extents::Piece { start: at, end: size, content: None },
            };
            match piece.content {
                Some(Content::Zeros) => return Ok(at),
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
    pub fn readlink(&self) -> Result<Vec<u8>> {
        self.now(Self::readlink_now)
    }

    fn readlink_now(&self) -> Result<Vec<u8>> {
        if self.attributes.kind != Kind::Symlink {
            let objset = self.fs.inner.objset.id();
            return Err(Error::NotSymlink { objset, object: self.id });
        }
        let Some(object) = &self.object else {
            return Ok(self.change().map(|change| change.target.clone()).unwrap_or_default());
        };
        if object.dnode().bonus_kind == ObjectType::SA {
            let found = sa_bytes(object, &self.fs.inner.schema, Attribute::Symlink);
            let found = found.map_err(|fault| self.fault(fault))?;
            let (bytes, _) = found.ok_or_else(|| self.rule("a link must have a target"))?;
            return Ok(bytes);
        }
        let size = self.attributes.size;
        if size > LONGEST_TARGET {
            return Err(self.rule("a link's target has at most 64 KiB"));
        }
        let size = usize::try_from(size).unwrap_or(0);
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
