//! Changes of a fat table: of its leaves, and what its header counts.

use dmu::Object;
use ondisk::Order;
use ondisk::zap::fat::{Flags, Header};
use ondisk::zap::leaf::{Key, Leaf, LeafEntry, LeafMut, LeafUpdate};
use ondisk::zap::{Normalization, pointers};
use txg::Tx;
use units::{BlockId, MinusOrZero};
use zio::Block;

use crate::fat_table::{corrupt_error, read_block};
use crate::write::StoreMode;
use crate::{Error, Result, ZapValue};

/// The byte order of newly written blocks.
pub(super) const ORDER: Order = Order::Little;
/// If a leaf has fewer free chunks than this and only one pointer, the pointer table grows: a split
/// of the leaf would need that.
const GROW_FREE_CHUNKS: u16 = 20;

/// A fat table that is being changed, with its header as it is to be.
pub(super) struct FatWriter<'a> {
    pub(super) object: &'a Object,
    pub(super) tx: &'a Tx,
    pub(super) header: Header,
    pub(super) order: Order,
    /// The header's block may be an older one than `header`.
    pub(super) is_header_dirty: bool,
}

/// Makes blocks 0 and 1 of the object an empty table.
pub(super) fn init_fat(
    object: &Object,
    tx: &Tx,
    salt: u64,
    normalization: Normalization,
    flags: Flags,
) -> Result<()> {
    let mut size = 0;
    object.change_block(tx, BlockId::new(0), &mut |bytes| {
        bytes.fill(0);
        size = bytes.len();
        let wide = units::narrow::<u32>(size);
        let header = Header::new(wide, salt, normalization, flags);
        header.write(bytes, ORDER);
        let first = header.embedded_start();
        let words = first..first * 2;
        pointers::write_pointers(bytes, ORDER, words, BlockId::new(1));
    })?;
    let mut leaf = vec![0; size];
    LeafMut::init(&mut leaf, ORDER, !normalization.is_none());
    object.write(tx, units::to_u64(size), &leaf)?;
    Ok(())
}

impl<'a> FatWriter<'a> {
    pub(super) fn open(object: &'a Object, tx: &'a Tx) -> Result<Self> {
        let zero = BlockId::new(0);
        let block = read_block(object, zero)?;
        let order = block.order();
        let header =
            Header::parse(&block, order).map_err(|error| corrupt_error(object, zero, error))?;
        Ok(Self { object, tx, header, order, is_header_dirty: false })
    }

    /// Inserts an entry into its leaf, which is split until the entry fits. Without a `collision`
    /// it gets a free collision number.
    pub(super) fn store(
        &mut self,
        key: &Key<'_>,
        collision: Option<u32>,
        value: &ZapValue,
        mode: StoreMode,
    ) -> Result<()> {
        let done = self.store_in_leaf(key, collision, value, mode);
        // also of a change that came to nothing: leaves may have been split for it
        let saved = self.write_header();
        done.and(saved)
    }

    /// The same without saving the header, which the caller does.
    pub(super) fn store_in_leaf(
        &mut self,
        key: &Key<'_>,
        collision: Option<u32>,
        value: &ZapValue,
        mode: StoreMode,
    ) -> Result<()> {
        let content = (value.int_size(), value.bytes());
        loop {
            let (number, block) = self.find_leaf(key.hash)?;
            let found = self.find_entry(number, &block, key)?;
            drop(block);
            if found.is_some() && mode == StoreMode::Insert {
                return Err(Error::Exists { zbookmark: self.object.zbookmark(BlockId::new(0)) });
            }
            self.dirty_header()?;
            let mut state = (0, 0);
            let fit = self.edit_leaf(number, &mut |leaf| {
                let fit = match &found {
                    Some(entry) => leaf.set_value(entry, content)?,
                    None => leaf.insert(key, collision, content)?,
                };
                let view = leaf.view()?;
                state = (view.prefix_bits, view.free_chunks);
                Ok(fit)
            })?;
            match fit {
                LeafUpdate::Done => {
                    if found.is_none() {
                        self.header.entries += 1;
                        self.is_header_dirty = true;
                    }
                    let (prefix_bits, free_chunks) = state;
                    if prefix_bits >= self.header.table_shift && free_chunks < GROW_FREE_CHUNKS
                        || self.is_growing()
                    {
                        // the entry is in: that the table cannot grow yet is for the next to find
                        let _ = self.grow_table();
                    }
                    return Ok(());
                }
                LeafUpdate::LeafFull => self.split_leaf(key.hash)?,
                LeafUpdate::TooLarge => {
                    return Err(Error::BadValue { zbookmark: self.object.zbookmark(number) });
                }
            }
        }
    }

    /// Removes an entry; returns whether it existed. After an error the entry still exists.
    pub(super) fn remove(&mut self, key: &Key<'_>) -> Result<bool> {
        let (number, block) = self.find_leaf(key.hash)?;
        let found = self.find_entry(number, &block, key)?;
        drop(block);
        let Some(entry) = found else { return Ok(false) };
        self.dirty_header()?;
        let left = self.edit_leaf(number, &mut |leaf| {
            leaf.remove(&entry)?;
            leaf.view().map(|view| view.entry_count)
        })?;
        self.header.entries = self.header.entries.minus_or_zero(1);
        self.is_header_dirty = true;
        if left == 0 {
            // the entry is out: an empty leaf that cannot be joined now is only not made use of
            let _ = self.join_empty_leaves(key.hash);
        }
        self.write_header()?;
        Ok(true)
    }

    /// Prepares the header for saving. Changes of this txg can then be undone without reading any
    /// block.
    fn dirty_header(&self) -> Result<()> {
        Ok(self.object.change_block(self.tx, BlockId::new(0), &mut |_| {})?)
    }

    /// Writes the header, if it has changed.
    pub(super) fn write_header(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_header_dirty) {
            return Ok(());
        }
        let (header, order) = (&self.header, self.order);
        let mut write = |bytes: &mut [u8]| header.write(bytes, order);
        Ok(self.object.change_block(self.tx, BlockId::new(0), &mut write)?)
    }

    /// The leaf for a hash, with its block number.
    pub(super) fn find_leaf(&self, hash: u64) -> Result<(BlockId, Block)> {
        let number = self.leaf_pointer(ondisk::zap::hash::index(hash, self.header.table_shift))?;
        let block = read_block(self.object, number)?;
        let leaf = Leaf::parse(&block, block.order());
        let leaf = leaf.map_err(|error| corrupt_error(self.object, number, error))?;
        if leaf.covers(hash) && leaf.prefix_bits <= self.header.table_shift {
            return Ok((number, block));
        }
        Err(Error::WrongLeaf { zbookmark: self.object.zbookmark(number), hash })
    }

    fn find_entry(
        &self,
        number: BlockId,
        block: &Block,
        key: &Key<'_>,
    ) -> Result<Option<LeafEntry>> {
        let leaf = Leaf::parse(block, block.order());
        leaf.and_then(|leaf| leaf.find(key))
            .map_err(|error| corrupt_error(self.object, number, error))
    }

    /// Changes a leaf where it is.
    pub(super) fn edit_leaf<T>(
        &self,
        number: BlockId,
        edit: &mut dyn FnMut(&mut LeafMut<'_>) -> ondisk::Result<T>,
    ) -> Result<T> {
        let order = read_block(self.object, number)?.order();
        let mut done = None;
        self.object.change_block(self.tx, number, &mut |bytes| {
            done = Some(LeafMut::open(bytes, order).and_then(|mut leaf| edit(&mut leaf)));
        })?;
        let missing = Error::MissingBlock { zbookmark: self.object.zbookmark(number) };
        done.ok_or(missing)?.map_err(|error| corrupt_error(self.object, number, error))
    }

    /// Puts a whole block where there may have been none.
    pub(super) fn write_block(&self, number: BlockId, bytes: &[u8]) -> Result<()> {
        Ok(self.object.write(self.tx, self.block_offset(number), bytes)?)
    }

    /// Where a block begins, in bytes.
    pub(super) fn block_offset(&self, number: BlockId) -> u64 {
        let size = 8_u64 << self.header.block_shift;
        number.get() * size
    }

    /// The next block that was never used, and as many more as are wanted; they are used now.
    pub(super) fn allocate_blocks(&mut self, count: u64) -> BlockId {
        let first = self.header.free_block;
        self.header.free_block = BlockId::new(first.get() + count);
        self.is_header_dirty = true;
        first
    }
}
