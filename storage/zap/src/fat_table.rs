//! The pointer table of a fat table, and the leaves that it leads to.

use dmu::{Object, RecentBlocks};
use ondisk::zap::fat::{Header, Table};
use ondisk::zap::leaf::Leaf;
use ondisk::zap::{hash, pointers};
use units::{BlockId, Zbookmark};
use zio::Block;

use crate::{Error, Result};

/// A fat table: its header, and the blocks that were used last.
pub(crate) struct FatTable {
    pub(crate) header: Header,
    pub(crate) block: Block,
    /// Not of a live object set, which knows its blocks itself, and changes them.
    recent_blocks: Option<RecentBlocks<u64, 8>>,
}

impl FatTable {
    pub(crate) fn new(header: Header, block: Block, live: bool) -> Self {
        Self { header, block, recent_blocks: (!live).then(RecentBlocks::new) }
    }

    /// The leaf for a place in the pointer table.
    pub(crate) fn leaf_at_index(&self, object: &Object, index: u64) -> Result<BlockId> {
        match &self.header.table {
            Table::Embedded => {
                let zero = BlockId::new(0);
                let missing = Error::MissingBlock { zbookmark: object.zbookmark(zero) };
                let Some(word) = self.embedded_word(index) else { return Err(missing) };
                pointers::read_pointer(&self.block, self.block.order(), word)
                    .map_err(|error| corrupt_error(object, zero, error))
            }
            Table::External { first, next, .. } => {
                let loaded = self.load_pointer(object, *first, index);
                let table_block = index.checked_shr(self.header.block_shift).unwrap_or(0);
                match (loaded, next) {
                    // the copied part of the larger table has every pointer twice in a row
                    (Err(_), Some((next, copied))) if table_block < *copied => {
                        self.load_pointer(object, *next, index * 2)
                    }
                    (loaded, _) => loaded,
                }
            }
        }
    }

    fn embedded_word(&self, index: u64) -> Option<usize> {
        let index = Some(index).filter(|index| *index < self.header.table_len())?;
        usize::try_from(index).ok()?.checked_add(self.header.embedded_start())
    }

    fn load_pointer(&self, object: &Object, first: BlockId, index: u64) -> Result<BlockId> {
        let (block, word) = pointer_position(&self.header, first, index);
        let content = self.block(object, block)?;
        pointers::read_pointer(&content, content.order(), word)
            .map_err(|error| corrupt_error(object, block, error))
    }

    /// A block of the table, which must be there.
    pub(crate) fn block(&self, object: &Object, block: BlockId) -> Result<Block> {
        let Some(recent) = &self.recent_blocks else { return read_block(object, block) };
        if let Some(known) = recent.get(block.get()) {
            return Ok(known);
        }
        let read = read_block(object, block)?;
        recent.insert(block.get(), &read);
        Ok(read)
    }

    /// The leaf for a hash, with its block number.
    pub(crate) fn leaf(&self, object: &Object, hash: u64) -> Result<(BlockId, Block)> {
        let number = self.leaf_at_index(object, self.index_of_hash(hash))?;
        let block = self.block(object, number)?;
        let leaf = Leaf::parse(&block, block.order());
        let leaf = leaf.map_err(|error| corrupt_error(object, number, error))?;
        if !leaf.covers(hash) {
            return Err(Error::WrongLeaf { zbookmark: object.zbookmark(number), hash });
        }
        Ok((number, block))
    }

    /// The place in the pointer table for a hash.
    pub(crate) const fn index_of_hash(&self, hash: u64) -> u64 {
        hash::index(hash, self.header.table_shift)
    }

    /// The first hash of a place in the pointer table; `None` behind the last.
    pub(crate) fn first_hash(&self, index: u64) -> Option<u64> {
        let shift = self.header.table_shift;
        let index = Some(index).filter(|index| *index < self.header.table_len())?;
        Some(index.checked_shl(64 - shift).unwrap_or(0))
    }

    /// The place in the pointer table at which to continue after `index` led to nothing: behind the
    /// places of the table's blocks that are not there at all, or else the next.
    pub(crate) fn index_after_gap(&self, object: &Object, index: u64) -> u64 {
        let next = index + 1;
        let Table::External { first, blocks, .. } = &self.header.table else { return next };
        let shift = self.header.block_shift;
        let size = 8_u64 << shift;
        let after = index.checked_shr(shift).unwrap_or(0) + 1;
        let from = (first.get() + after) * size;
        let found = match object.next_data(from) {
            Ok(Some(byte)) => byte / size - first.get(),
            Ok(None) => *blocks,
            Err(_) => after,
        };
        (found.min(*blocks) << shift).max(next)
    }
}

/// The block of an external table and the word in it in which a pointer stands.
pub(crate) fn pointer_position(header: &Header, first: BlockId, index: u64) -> (BlockId, usize) {
    let shift = header.block_shift;
    let block = first.get() + index.checked_shr(shift).unwrap_or(0);
    let mask = !u64::MAX.checked_shl(shift).unwrap_or(0);
    (BlockId::new(block), units::to_usize(index & mask))
}

/// A block of a table, which must be there.
pub(crate) fn read_block(object: &Object, block: BlockId) -> Result<Block> {
    object.block(block)?.ok_or(Error::MissingBlock { zbookmark: object.zbookmark(block) })
}

pub(crate) fn corrupt_error(object: &Object, block: BlockId, error: ondisk::Error) -> Error {
    let place: Zbookmark = object.zbookmark(block);
    Error::Corrupt { zbookmark: place, why: error }
}
