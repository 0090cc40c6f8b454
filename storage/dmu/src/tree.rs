//! The path from a dnode down to a block; each step is validated against the dnode.

use std::sync::Arc;

use ondisk::dnode::Dnode;
use ondisk::{Blkptr, Order, swap};
use units::{BlockId, Level, ObjectId, ObjsetId, Zbookmark};
use zio::{Block, Key, MemoryParts, Source, Trimmed};

use crate::recent_blocks::RecentBlocks;
use crate::tree_shape::TreeShape;
use crate::{Error, Result};

/// A dnode's tree and where its blocks come from.
pub(crate) struct DnodeTree {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) key: Option<Key>,
    pub(crate) objset: ObjsetId,
    pub(crate) object: ObjectId,
    pub(crate) dnode: Dnode,
    pub(crate) shape: TreeShape,
    indirect: RecentBlocks<(u8, u64), 12, Trimmed>,
}

/// The kind of read of a pointer's block.
type ReadFn = fn(
    &(dyn Source + 'static),
    &Blkptr,
    Zbookmark,
    Option<&Key>,
) -> std::result::Result<Block, zio::Error>;

/// The end of the path to a block.
pub(crate) struct FoundPointer {
    /// The pointer; a hole if one is in the way.
    pub(crate) pointer: Blkptr,
    /// The level of the pointer: above the requested one if it is a hole that spans more.
    pub(crate) level: u8,
}

impl DnodeTree {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        key: Option<Key>,
        objset: ObjsetId,
        object: ObjectId,
        dnode: Dnode,
    ) -> Self {
        let shape = TreeShape::from_dnode(&dnode);
        Self { source, key, objset, object, dnode, shape, indirect: RecentBlocks::new() }
    }

    pub(crate) fn zbookmark(&self, level: u8, block: u64) -> Zbookmark {
        Zbookmark::new(self.objset, self.object, Level::new(level), BlockId::new(block))
    }

    pub(crate) fn max_block(&self) -> u64 {
        self.dnode.max_block.get()
    }

    /// The data block that follows the last.
    pub(crate) fn end_block(&self) -> u64 {
        self.max_block() + 1
    }

    /// The pointer to a block, or the hole that it is in.
    pub(crate) fn find(&self, level: u8, block: u64) -> Result<FoundPointer> {
        if level > self.shape.top_level {
            return Err(Error::OutOfTree { zbookmark: self.zbookmark(level, block) });
        }
        if block > self.shape.ancestor(level, self.max_block()) {
            return Ok(FoundPointer { pointer: Blkptr::EMPTY, level });
        }
        self.descend(level, block)
    }

    /// The pointer to a block of the top level, which the dnode has.
    fn root_pointer(&self, level: u8, block: u64) -> Result<FoundPointer> {
        let root = usize::try_from(block).ok().and_then(|at| self.dnode.pointers.get(at));
        let place = self.zbookmark(level, block);
        let pointer = root.ok_or(Error::OutOfTree { zbookmark: place })?.clone();
        self.validate_pointer(&pointer, level, block)?;
        Ok(FoundPointer { pointer, level })
    }

    fn descend(&self, level: u8, block: u64) -> Result<FoundPointer> {
        if level >= self.shape.top_level {
            return self.root_pointer(level, block);
        }
        let (above, parent) = (level + 1, self.shape.parent(block));
        let indirect = if let Some(known) = self.indirect.get((above, parent)) {
            known
        } else {
            let spot = self.descend(above, parent)?;
            if spot.pointer.is_hole() {
                return Ok(spot);
            }
            let read = Trimmed::of(&self.fetch(&spot.pointer, above, parent)?);
            self.indirect.insert((above, parent), &read);
            read
        };
        let pointer = self.child_pointer(&indirect, level, block)?;
        self.validate_pointer(&pointer, level, block)?;
        Ok(FoundPointer { pointer, level })
    }

    /// The same, if the indirect blocks on the path are in memory.
    fn descend_in_memory(&self, level: u8, block: u64) -> Result<Option<FoundPointer>> {
        if level >= self.shape.top_level {
            return self.root_pointer(level, block).map(Some);
        }
        let (above, parent) = (level + 1, self.shape.parent(block));
        let indirect = if let Some(known) = self.indirect.get((above, parent)) {
            known
        } else {
            let Some(spot) = self.descend_in_memory(above, parent)? else { return Ok(None) };
            if spot.pointer.is_hole() {
                return Ok(Some(spot));
            }
            let Some(read) = self.fetch_cached(&spot.pointer, above, parent) else {
                return Ok(None);
            };
            self.indirect.insert((above, parent), &read);
            read
        };
        let pointer = self.child_pointer(&indirect, level, block)?;
        self.validate_pointer(&pointer, level, block)?;
        Ok(Some(FoundPointer { pointer, level }))
    }

    /// The block of a validated pointer, if it is in memory as this machine writes blocks.
    fn fetch_cached(&self, pointer: &Blkptr, level: u8, block: u64) -> Option<Trimmed> {
        let read = self.source.read_cached(pointer)?;
        self.validate_length(read.length(), level, block).ok()?;
        (read.order() == Order::Little).then_some(read)
    }

    /// Adds a part of a data block, if it and the path to it are in memory. Returns whether it has done so.
    /// Errors are left to the read from the drives.
    pub(crate) fn push_in_memory(
        &self,
        (block, skip, count): (u64, usize, usize),
        parts: &mut MemoryParts,
    ) -> bool {
        let is_behind = block > self.max_block();
        let spot = if is_behind { None } else { self.descend_in_memory(0, block).ok().flatten() };
        match spot {
            Some(spot) if !spot.pointer.is_hole() => {
                let content = self.fetch_cached(&spot.pointer, 0, block);
                content.is_some_and(|content| parts.push(content, skip, count))
            }
            None if !is_behind => false,
            _ => {
                parts.push_zeros(count);
                true
            }
        }
    }

    /// The pointer to a block as it stands in the indirect block above.
    fn child_pointer(&self, indirect: &Trimmed, level: u8, block: u64) -> Result<Blkptr> {
        let (begin, slot) = (indirect.begin(), self.shape.slot(block));
        let offset = slot * Blkptr::SIZE;
        if offset >= begin.len() && offset < indirect.length() {
            // among the zeros that are left out
            return Ok(Blkptr::EMPTY);
        }
        parse_child(begin, indirect.order(), slot)
            .map_err(|error| Error::Corrupt { zbookmark: self.zbookmark(level, block), why: error })
    }

    /// Reads the block of a validated pointer.
    pub(crate) fn fetch(&self, pointer: &Blkptr, level: u8, block: u64) -> Result<Block> {
        let read = self.source.read(pointer, self.zbookmark(level, block), self.key.as_ref())?;
        self.validate_length(read.len(), level, block)?;
        Ok(self.in_native_order(read, level))
    }

    /// A block as this machine would have written it: above this floor all blocks are little-endian.
    fn in_native_order(&self, block: Block, level: u8) -> Block {
        if block.order() == Order::Little {
            return block;
        }
        let mut bytes = block.to_vec();
        swap::to_little(self.dnode.kind, level, &mut bytes);
        Block::new(bytes, Order::Little)
    }

    /// Whether a block has the length that the dnode gives.
    fn validate_length(&self, length: usize, level: u8, block: u64) -> Result<()> {
        let wanted = if level == 0 { self.dnode.block_size } else { self.dnode.indirect_size() };
        if u64::try_from(length) != Ok(u64::from(wanted)) {
            let found = units::to_u64(length);
            let place = self.zbookmark(level, block);
            return Err(Error::Mismatch {
                zbookmark: place,
                field: "size",
                expected: wanted.into(),
                found,
            });
        }
        Ok(())
    }

    /// Whether a pointer is one that this object can have there.
    pub(crate) fn validate_pointer(&self, pointer: &Blkptr, level: u8, block: u64) -> Result<()> {
        if pointer.is_hole() || matches!(pointer, Blkptr::Redacted(_)) {
            return Ok(());
        }
        let size = if level == 0 { self.dnode.block_size } else { self.dnode.indirect_size() };
        let facts = [
            ("level", u64::from(level), u64::from(pointer.level().get())),
            ("type", u64::from(self.dnode.kind.0), u64::from(pointer.kind().0)),
            ("size", u64::from(size), u64::from(pointer.lsize())),
        ];
        for (field, wanted, found) in facts {
            if wanted != found {
                let place = self.zbookmark(level, block);
                return Err(Error::Mismatch { zbookmark: place, field, expected: wanted, found });
            }
        }
        Ok(())
    }

    /// A data block; `None` in a hole.
    pub(crate) fn block(&self, block: u64) -> Result<Option<Block>> {
        self.read_block_with(<dyn Source>::read, block)
    }

    fn read_block_with(&self, read: ReadFn, block: u64) -> Result<Option<Block>> {
        let spot = self.find(0, block)?;
        if spot.pointer.is_hole() {
            return Ok(None);
        }
        let (zbookmark, key) = (self.zbookmark(0, block), self.key.as_ref());
        let found = read(&*self.source, &spot.pointer, zbookmark, key)?;
        self.validate_length(found.len(), 0, block)?;
        Ok(Some(self.in_native_order(found, 0)))
    }

    /// The same, for a reader that will not read it again.
    pub(crate) fn block_uncached(&self, block: u64) -> Result<Option<Block>> {
        self.read_block_with(<dyn Source>::read_once, block)
    }

    /// The same for a reader of a long range with its own memory. Returns the length of the
    /// block, which is then in `into`.
    pub(crate) fn block_into(&self, block: u64, into: &mut [u8]) -> Result<Option<usize>> {
        let spot = self.find(0, block)?;
        if spot.pointer.is_hole() {
            return Ok(None);
        }
        let (zbookmark, key) = (self.zbookmark(0, block), self.key.as_ref());
        let length = self.source.read_into(&spot.pointer, zbookmark, key, into)?;
        self.validate_length(length, 0, block)?;
        if spot.pointer.order() == Order::Big
            && let Some(read) = into.get_mut(..length)
        {
            swap::to_little(self.dnode.kind, 0, read);
        }
        Ok(Some(length))
    }

    /// The data block at which to continue after an error: that behind everything the error hides.
    pub(crate) fn resume_block_after(&self, error: &Error, block: u64) -> u64 {
        let zbookmark = error.zbookmark();
        let ours = (zbookmark.objset, zbookmark.object) == (self.objset, self.object);
        let end = if ours {
            self.shape.end_data_block(zbookmark.level.get(), zbookmark.block.get())
        } else {
            0
        };
        end.max(block + 1)
    }
}

/// The pointer in a slot of an indirect block.
pub(crate) fn parse_child(bytes: &[u8], order: Order, slot: usize) -> ondisk::Result<Blkptr> {
    let mut reader = ondisk::Reader::new("indirect block", bytes, order);
    reader.seek(slot * Blkptr::SIZE);
    Blkptr::read(&mut reader)
}
