//! An object: its dnode, bonus and spill, and its content by offset.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;

use ondisk::dnode::Dnode;
use ondisk::object_type::Content;
use ondisk::{Blkptr, Order};
use units::{BlockId, Level, ObjectId, Zbookmark};
use zio::{Block, BlockRead, MemoryParts};

use crate::dirty::record::SpillLocation;
use crate::dirty::{BlockLocation, DirtyObject, lookup};
use crate::tree::DnodeTree;
use crate::walk::{BlockVisit, WalkControl, WalkOptions, walk_tree};
use crate::{BlockSegments, Error, Objset, Result};

/// A read of this many bytes counts as one of a long range.
const LONG_READ: usize = 512 << 10;
/// The most blocks that are read together.
const READ_RUN_BLOCKS: usize = 64;

/// The block number that stands for the spill block in a [`Zbookmark`] (DMU_SPILL_BLKID).
pub const SPILL_BLOCK: BlockId = BlockId::new(u64::MAX.wrapping_sub(1));

/// An object of an object set. Cheap to clone; a clone shares the blocks that were used last.
#[derive(Clone)]
pub struct Object {
    objset: Objset,
    pub(crate) tree: Arc<DnodeTree>,
    /// Of a live object set: the dirty overlay.
    entry: Option<Arc<DirtyObject>>,
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({} of objset {})", self.id(), self.objset.id())
    }
}

impl Object {
    pub(crate) fn new(objset: Objset, tree: Arc<DnodeTree>) -> Self {
        Self { objset, tree, entry: None }
    }

    /// One of a live object set. `tree` has the dnode as it is now.
    pub(crate) fn new_writable(
        objset: Objset,
        tree: Arc<DnodeTree>,
        entry: Arc<DirtyObject>,
    ) -> Self {
        Self { objset, tree, entry: Some(entry) }
    }

    pub(crate) fn entry(&self) -> Option<&Arc<DirtyObject>> {
        self.entry.as_ref()
    }

    /// Its number.
    pub fn id(&self) -> ObjectId {
        self.tree.object
    }

    /// The object set that it is of.
    pub fn objset(&self) -> &Objset {
        &self.objset
    }

    /// Its type.
    pub fn dnode(&self) -> &Dnode {
        &self.tree.dnode
    }

    /// The bonus, as long as the dnode says.
    pub fn bonus(&self) -> &[u8] {
        &self.tree.dnode.bonus
    }

    /// The byte order of the bonus.
    pub fn bonus_order(&self) -> Order {
        self.tree.dnode.order
    }

    /// The spill block, if there is one.
    pub fn spill(&self) -> Result<Option<Block>> {
        let below = match self.entry().map(|entry| entry.state.read().lookup_spill()) {
            Some(SpillLocation::InMemory(spill)) => return Ok(spill),
            Some(SpillLocation::OnDisk(pointer)) => pointer,
            None => self.dnode().spill.clone(),
        };
        let Some(pointer) = below.filter(|pointer| !pointer.is_hole()) else { return Ok(None) };
        let zbookmark = self.spill_zbookmark();
        validate_spill(&pointer, self.dnode(), zbookmark)?;
        Ok(Some(self.tree.source.read(&pointer, zbookmark, self.tree.key.as_ref())?))
    }

    /// Whether there is a spill block. It need not be readable.
    pub fn has_spill(&self) -> bool {
        match self.entry().map(|entry| entry.state.read().lookup_spill()) {
            Some(SpillLocation::InMemory(spill)) => spill.is_some(),
            Some(SpillLocation::OnDisk(pointer)) => pointer.is_some_and(|it| !it.is_hole()),
            None => self.dnode().spill.as_ref().is_some_and(|it| !it.is_hole()),
        }
    }

    fn spill_zbookmark(&self) -> Zbookmark {
        self.tree.zbookmark(0, SPILL_BLOCK.get())
    }

    /// Bytes of a data block.
    pub fn block_size(&self) -> u32 {
        self.tree.dnode.block_size
    }

    /// The last data block that there may be.
    pub fn max_block(&self) -> BlockId {
        self.tree.dnode.max_block
    }

    /// The address of a data block of it, for errors.
    pub fn zbookmark(&self, block: BlockId) -> Zbookmark {
        self.tree.zbookmark(0, block.get())
    }

    /// The pointer to a block of any level; a hole where it, or one above it, is. A dirty block has
    /// none yet.
    pub fn pointer(&self, level: Level, block: BlockId) -> Result<Blkptr> {
        self.tree.find(level.get(), block.get()).map(|spot| spot.pointer)
    }

    /// The pointer to a data block that is on the drives as it is seen now. None if it is a hole, or dirty.
    pub fn stored_pointer(&self, block: BlockId) -> Result<Option<Blkptr>> {
        let tree = match self.entry().map(|entry| entry.state.read().lookup_block(block.get())) {
            Some(BlockLocation::OnDisk(tree)) => tree,
            Some(_) => return Ok(None),
            None => Arc::clone(&self.tree),
        };
        let pointer = tree.find(0, block.get())?.pointer;
        Ok(Some(pointer).filter(|pointer| !pointer.is_hole()))
    }

    /// A data block; `None` in a hole and beyond the last.
    pub fn block(&self, block: BlockId) -> Result<Option<Block>> {
        self.read_block(block.get())
    }

    fn read_block(&self, block: u64) -> Result<Option<Block>> {
        match self.entry() {
            Some(entry) => lookup::read_block(entry, block),
            None => self.tree.block(block),
        }
    }

    /// The same for a reader of a long range: zeros in a hole.
    fn read_block_into(&self, block: u64, into: &mut [u8]) -> Result<()> {
        let length = match self.entry() {
            Some(entry) => lookup::read_block_into(entry, block, into)?,
            None => self.tree.block_into(block, into)?,
        };
        match length {
            Some(length) if length == into.len() => {}
            Some(_) => return Err(Error::OutOfTree { zbookmark: self.tree.zbookmark(0, block) }),
            None => into.fill(0),
        }
        Ok(())
    }

    /// The same for a reader of every block once: no cache takes it in.
    pub fn block_uncached(&self, block: BlockId) -> Result<Option<Block>> {
        self.tree.block_uncached(block.get())
    }

    /// Content from `offset` on: zeros in holes and beyond the last block.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let size = NonZeroU64::new(self.block_size().into()).unwrap_or(NonZeroU64::MIN);
        let (mut block, skip) = (offset / size, units::to_usize(offset % size));
        let count = NonZeroUsize::try_from(size).unwrap_or(NonZeroUsize::MAX);
        let whole = count.get();
        let is_long = into.len() >= LONG_READ;
        let head = if skip > 0 { (whole - skip).min(into.len()) } else { 0 };
        let (head, rest) = into.split_at_mut(head);
        if !head.is_empty() {
            self.read_part(block, skip, head)?;
            block += 1;
        }
        let long = if is_long { rest.len() - rest.len() % count } else { 0 };
        let (long, rest) = rest.split_at_mut(long);
        for run in long.chunks_mut(whole * READ_RUN_BLOCKS) {
            self.read_run(block, whole, run)?;
            let blocks = units::to_u64(run.len() / count);
            block += blocks;
        }
        for into in rest.chunks_mut(whole) {
            self.read_part(block, 0, into)?;
            block += 1;
        }
        Ok(())
    }

    /// The same as parts of blocks, if all of them are in memory: it waits neither for a drive nor for another thread.
    pub fn parts_in_memory(&self, offset: u64, length: usize) -> Option<MemoryParts> {
        let size = NonZeroU64::new(self.block_size().into())?;
        let (mut block, mut skip) = (offset / size, units::to_usize(offset % size));
        let (mut parts, mut left) = (MemoryParts::default(), length);
        while left > 0 {
            let count = (units::to_usize(size.get()) - skip).min(left);
            let is_found = match self.entry() {
                Some(entry) => lookup::push_in_memory(entry, (block, skip, count), &mut parts),
                None => self.tree.push_in_memory((block, skip, count), &mut parts),
            };
            if !is_found {
                return None;
            }
            (block, skip, left) = (block + 1, 0, left - count);
        }
        Some(parts)
    }

    /// A part of a block.
    fn read_part(&self, block: u64, skip: usize, into: &mut [u8]) -> Result<()> {
        let Some(content) = self.read_block(block)? else {
            into.fill(0);
            return Ok(());
        };
        match content.get(skip..skip + into.len()) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => return Err(Error::OutOfTree { zbookmark: self.tree.zbookmark(0, block) }),
        }
        Ok(())
    }

    /// Whole blocks of a long range: read together where possible, and the rest block by block.
    fn read_run(&self, first: u64, whole: usize, run: &mut [u8]) -> Result<()> {
        let pointers: Vec<_> = (first..)
            .take(run.len().div_ceil(whole))
            .map(|block| {
                self.pointer_on_disk(block).map(|pointer| (self.tree.zbookmark(0, block), pointer))
            })
            .collect();
        let mut wanted: Vec<BlockRead<'_>> = (run.chunks_mut(whole).zip(&pointers))
            .filter_map(|(into, found)| {
                let (place, pointer) = found.as_ref()?;
                Some(BlockRead { pointer, zbookmark: *place, into, is_done: false })
            })
            .collect();
        self.tree.source.read_blocks(&mut wanted);
        let mut done =
            wanted.into_iter().map(|wanted| wanted.is_done).collect::<Vec<_>>().into_iter();
        for ((block, into), pointer) in (first..).zip(run.chunks_mut(whole)).zip(&pointers) {
            if pointer.is_none() || !done.next().unwrap_or(false) {
                self.read_block_into(block, into)?;
            }
        }
        Ok(())
    }

    /// The pointer to a block, if its present version is on the drives.
    fn pointer_on_disk(&self, block: u64) -> Option<Blkptr> {
        let pointer = match self.entry() {
            Some(entry) => lookup::base_tree_of(entry, block)?.find(0, block),
            None => self.tree.find(0, block),
        };
        let pointer = pointer.ok().map(|spot| spot.pointer).filter(|pointer| !pointer.is_hole());
        // a block that must be turned after it was read goes the longer way
        let as_it_is = |pointer: &Blkptr| {
            self.dnode().kind.content() == Content::Bytes || pointer.order() == Order::Little
        };
        pointer.filter(as_it_is)
    }

    /// The content of a run of blocks, a piece at a time, without a copy; holes of any size are
    /// one piece each. The run ends with the last block.
    pub fn segments(&self, range: std::ops::Range<BlockId>) -> BlockSegments {
        let (start, end) = (range.start.get(), range.end.get());
        match self.entry() {
            Some(entry) => BlockSegments::new_dirty(Arc::clone(entry), start, end),
            None => BlockSegments::new(Arc::clone(&self.tree), start, end),
        }
    }

    /// The first byte from `from` on in an existing block; `None` if there is none.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        let size = u64::from(self.block_size());
        let mut block = from / size.max(1);
        if let Some(entry) = self.entry() {
            let found = lookup::next_data(entry, block)?;
            return Ok(found.map(|block| (block * size).max(from)));
        }
        while block < self.tree.end_block() {
            let spot = self.tree.find(0, block)?;
            if !spot.pointer.is_hole() {
                return Ok(Some((block * size).max(from)));
            }
            let above = self.tree.shape.ancestor(spot.level, block);
            block = self.tree.shape.end_data_block(spot.level, above).max(block + 1);
        }
        Ok(None)
    }

    /// The first byte from `from` on that is in a hole or beyond the last block.
    pub fn next_hole(&self, from: u64) -> Result<u64> {
        self.next_hole_within(from..u64::MAX)
    }

    /// Like [`Object::next_hole`], for at most the blocks of a range. Without a hole in it, the
    /// result is the end of the range or a byte after it. Every block is looked up, so a long range
    /// takes long.
    pub fn next_hole_within(&self, range: std::ops::Range<u64>) -> Result<u64> {
        let (from, size) = (range.start, u64::from(self.block_size()));
        let mut block = from / size.max(1);
        let end = range.end.div_ceil(size.max(1));
        if let Some(entry) = self.entry() {
            return Ok(lookup::next_hole(entry, block..end)?
                .checked_mul(size)
                .map_or(range.end, |byte| byte.max(from)));
        }
        while block < self.tree.end_block().min(end) {
            if self.tree.find(0, block)?.pointer.is_hole() {
                break;
            }
            block += 1;
        }
        Ok(block.checked_mul(size).map_or(range.end, |byte| byte.max(from)))
    }

    /// Calls `visit` with every pointer of the object: those of indirect blocks before their
    /// children, the spill's last. An unreadable block is reported to `visit`, and the walk
    /// continues. Returns whether the end was reached.
    pub fn walk(
        &self,
        plan: &WalkOptions,
        visit: &mut dyn FnMut(Zbookmark, BlockVisit<'_>) -> WalkControl,
    ) -> bool {
        walk_tree(&self.tree, plan, visit)
    }
}

/// Whether a pointer can be that to the spill block.
pub(crate) fn validate_spill(pointer: &Blkptr, dnode: &Dnode, place: Zbookmark) -> Result<()> {
    let facts = [
        ("level", 0, u64::from(pointer.level().get())),
        ("type", u64::from(dnode.bonus_kind.0), u64::from(pointer.kind().0)),
    ];
    for (field, wanted, found) in facts {
        if wanted != found && !matches!(pointer, Blkptr::Redacted(_) | Blkptr::Hole(_)) {
            return Err(Error::Mismatch { zbookmark: place, field, expected: wanted, found });
        }
    }
    Ok(())
}
