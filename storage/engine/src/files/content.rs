//! The content of a file or a volume, by range and by the block.

use std::ops::{Deref, Range};

use units::{BlockId, MinusOrZero};
use zio::{Block, MemoryParts};
use zpl::Inode;
use zvol::Volume;

use super::{Extents, Result};

/// The content of a file or a volume. Cheap to clone, and shared between threads: each clone may
/// read another range.
#[derive(Clone)]
pub struct Content {
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    File(Box<Inode>),
    Volume(Volume),
}

/// Bytes of a block, shared and not copied.
#[derive(Clone, Debug)]
pub struct Bytes {
    block: Block,
    range: Range<usize>,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.get(self.range.clone()).unwrap_or(&[])
    }
}

/// A range of content that was read at once.
#[derive(Clone, Debug)]
pub struct ContentChunk {
    /// The offset of its first byte.
    pub start: u64,
    /// The offset behind its last byte.
    pub end: u64,
    /// Its bytes; none in a hole, where all are zeros.
    pub bytes: Option<Bytes>,
}

/// A way to read a data block of an object.
type ReadBlock = fn(&dmu::Object, BlockId) -> dmu::Result<Option<Block>>;

/// The bytes read at once if an intent log has content over the dataset's.
const COPY_CHUNK_SIZE: u64 = 128 << 10;

impl Content {
    pub(crate) fn from_node(node: Inode) -> Self {
        Self { inner: Inner::File(Box::new(node)) }
    }

    pub(crate) fn from_volume(volume: Volume) -> Self {
        Self { inner: Inner::Volume(volume) }
    }

    /// The file that it is of; none if it is a volume.
    pub(crate) fn inode(&self) -> Option<&Inode> {
        match &self.inner {
            Inner::File(inode) => Some(inode),
            Inner::Volume(_) => None,
        }
    }

    /// Bytes of it.
    pub fn size(&self) -> u64 {
        match &self.inner {
            Inner::File(node) => node.attributes().size,
            Inner::Volume(volume) => volume.size(),
        }
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u64 {
        let size = match &self.inner {
            Inner::File(node) => node.object().map_or(0, dmu::Object::block_size),
            Inner::Volume(volume) => volume.block_size(),
        };
        if size == 0 { COPY_CHUNK_SIZE } else { size.into() }
    }

    /// Reads from byte `offset` on; returns the number of bytes, less than requested at the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        Ok(match &self.inner {
            Inner::File(node) => node.read(offset, into)?,
            Inner::Volume(volume) => volume.read(offset, into)?,
        })
    }

    /// The bytes from `offset` on as parts of blocks, fewer at the end, if all are in memory. Waits for no drive.
    pub fn parts_in_memory(&self, offset: u64, length: usize) -> Option<MemoryParts> {
        match &self.inner {
            Inner::File(node) => node.parts_in_memory(offset, length),
            Inner::Volume(_) => None,
        }
    }

    /// The first byte from `from` on that is not in a hole; none if there is only a hole.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        Ok(match &self.inner {
            Inner::File(node) => node.next_data(from)?,
            Inner::Volume(volume) => volume.next_data(from)?,
        })
    }

    /// The first byte from `from` on that is in a hole; the end is one.
    pub fn next_hole(&self, from: u64) -> Result<u64> {
        Ok(match &self.inner {
            Inner::File(node) => node.next_hole(from)?,
            Inner::Volume(volume) => volume.next_hole(from)?,
        })
    }

    /// The data ranges from `from` on, and the unreadable ones.
    pub fn extents(&self, from: u64) -> Extents {
        Extents::new(self.clone(), from)
    }

    /// The object below, if nothing lies over it.
    fn object_without_overlay(&self) -> Option<&dmu::Object> {
        match &self.inner {
            Inner::File(node) => node.object().filter(|_| !node.is_overlaid()),
            Inner::Volume(volume) => Some(volume.object()).filter(|_| !volume.is_overlaid()),
        }
    }

    /// The object below.
    pub(crate) fn object(&self) -> Option<&dmu::Object> {
        match &self.inner {
            Inner::File(node) => node.object(),
            Inner::Volume(volume) => Some(volume.object()),
        }
    }

    /// The bytes from `at` up to the end of its block, to `end` or to the end of the content,
    /// whichever comes first. Without a copy, unless an intent log has content over it.
    pub fn read_chunk(&self, at: u64, end: u64) -> Result<ContentChunk> {
        self.read_chunk_with(dmu::Object::block, at, end)
    }

    /// The bytes from a range's start on, for a reader of every block once: no cache takes them
    /// in, so that their memory is warm when the next block is read into it.
    pub fn read_chunk_uncached(&self, range: Range<u64>) -> Result<ContentChunk> {
        self.read_chunk_with(dmu::Object::block_uncached, range.start, range.end)
    }

    fn read_chunk_with(&self, read: ReadBlock, at: u64, end: u64) -> Result<ContentChunk> {
        let size = self.block_size().max(1);
        let block = at / size;
        let left = end.min(self.size()).minus_or_zero(at);
        let end = at + left.min(size - (at - block * size));
        let Some(object) = self.object_without_overlay() else {
            return self.read_chunk_copied(at, end);
        };
        let Some(content) = read(object, BlockId::new(block))? else {
            return Ok(ContentChunk { start: at, end, bytes: None });
        };
        let skip = units::to_usize(at.wrapping_sub(block.wrapping_mul(size)));
        let length = units::to_usize(end.wrapping_sub(at));
        let range = skip..skip + length;
        Ok(ContentChunk { start: at, end, bytes: Some(Bytes { block: content, range }) })
    }

    fn read_chunk_copied(&self, at: u64, end: u64) -> Result<ContentChunk> {
        let end = at + COPY_CHUNK_SIZE.min(end.minus_or_zero(at));
        let mut bytes = vec![0; units::to_usize(end - at)];
        let count = self.read(at, &mut bytes)?;
        let block = Block::new(bytes, ondisk::Order::Little);
        Ok(ContentChunk { start: at, end, bytes: Some(Bytes { block, range: 0..count }) })
    }
}
