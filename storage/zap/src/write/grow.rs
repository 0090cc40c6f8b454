//! A fat table grows: leaves are split, and the pointer table doubles.
//!
//! The first pointer table is in the header's block; outgrown, it gets a block of its own, twice as
//! large. That one doubles into blocks twice as many, one block of the old at each change of the
//! table, so that no change is long; until the last is copied, pointers are set in both.

use std::ops::Range;

use ondisk::zap::fat::Table;
use ondisk::zap::leaf::{Leaf, LeafMut};
use ondisk::zap::pointers;
use units::BlockId;

use crate::fat_table::{corrupt_error, pointer_position, read_block};
use crate::write::fat::{FatWriter, ORDER};
use crate::{Error, Result};

impl FatWriter<'_> {
    /// Splits the leaf of a hash in two by the next bit.
    pub(super) fn split_leaf(&mut self, hash: u64) -> Result<()> {
        let (number, block) = self.find_leaf(hash)?;
        let told = |error| corrupt_error(self.object, number, error);
        let leaf = Leaf::parse(&block, block.order()).map_err(told)?;
        let (prefix, bits) = (leaf.prefix, leaf.prefix_bits);
        let (mut lower, mut upper) = (block.to_vec(), vec![0; block.len()]);
        let mut new = LeafMut::init(&mut upper, ORDER, !self.header.normalization.is_none());
        LeafMut::open(&mut lower, block.order())
            .and_then(|mut old| old.split(&mut new))
            .map_err(told)?;
        drop(block);
        while bits >= self.header.table_shift {
            self.grow_table()?;
        }
        let run =
            self.index_range(prefix.saturating_mul(2).saturating_add(1), bits.saturating_add(1));
        // the block of the pointers must be read before the leaf changes: a read error then changes
        // nothing
        self.set_leaf_pointers(run.clone(), number)?;
        let upper_number = self.allocate_blocks(1);
        self.write_block(upper_number, &upper)?;
        self.object.change_block(self.tx, number, &mut |bytes| bytes.copy_from_slice(&lower))?;
        self.header.leaves = self.header.leaves.saturating_add(1);
        self.set_leaf_pointers(run, upper_number)
    }

    /// The places in the pointer table of the hashes that begin with a prefix.
    pub(super) fn index_range(&self, prefix: u64, bits: u32) -> Range<u64> {
        let spare = self.header.table_shift.saturating_sub(bits);
        let first = prefix.checked_shl(spare).unwrap_or(u64::MAX);
        first..first.saturating_add(1_u64.checked_shl(spare).unwrap_or(u64::MAX))
    }

    /// The leaf that a place in the pointer table leads to.
    pub(super) fn leaf_pointer(&self, index: u64) -> Result<BlockId> {
        let (number, word) = match &self.header.table {
            Table::Embedded => (BlockId::new(0), self.embedded_word(index)),
            Table::External { first, .. } => pointer_position(&self.header, *first, index),
        };
        let block = read_block(self.object, number)?;
        pointers::read_pointer(&block, block.order(), word)
            .map_err(|error| corrupt_error(self.object, number, error))
    }

    fn embedded_word(&self, index: u64) -> usize {
        usize::try_from(index).unwrap_or(usize::MAX).saturating_add(self.header.embedded_start())
    }

    /// Makes places in the pointer table lead to a leaf.
    pub(super) fn set_leaf_pointers(&self, places: Range<u64>, leaf: BlockId) -> Result<()> {
        match &self.header.table {
            Table::Embedded => {
                let words = self.embedded_word(places.start)..self.embedded_word(places.end);
                self.set_block_pointers(BlockId::new(0), words, leaf)
            }
            Table::External { first, next, .. } => {
                if let Some((next, _)) = next {
                    let twice = places.start.saturating_mul(2)..places.end.saturating_mul(2);
                    self.set_external_pointers(*next, twice, leaf)?;
                }
                self.set_external_pointers(*first, places, leaf)
            }
        }
    }

    /// The same in a table that begins with block `first`.
    fn set_external_pointers(
        &self,
        first: BlockId,
        places: Range<u64>,
        leaf: BlockId,
    ) -> Result<()> {
        let mut at = places.start;
        while at < places.end {
            let (number, word) = pointer_position(&self.header, first, at);
            let whole = 1_usize.checked_shl(self.header.block_shift).unwrap_or(usize::MAX);
            let left = usize::try_from(places.end.saturating_sub(at)).unwrap_or(usize::MAX);
            let count = whole.saturating_sub(word).min(left).max(1);
            self.set_block_pointers(number, word..word.saturating_add(count), leaf)?;
            at = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    fn set_block_pointers(
        &self,
        number: BlockId,
        words: Range<usize>,
        leaf: BlockId,
    ) -> Result<()> {
        let order = self.object.block(number)?.map_or(ORDER, |block| block.order());
        let mut point =
            |bytes: &mut [u8]| pointers::write_pointers(bytes, order, words.clone(), leaf);
        Ok(self.object.change_block(self.tx, number, &mut point)?)
    }

    /// Whether a larger pointer table is being made.
    pub(super) fn is_growing(&self) -> bool {
        matches!(&self.header.table, Table::External { next: Some(_), .. })
    }

    /// Goes a step towards a pointer table twice as large.
    pub(super) fn grow_table(&mut self) -> Result<()> {
        // hash bits beyond the last cannot separate entries
        if self.header.table_shift.saturating_add(2) >= self.header.flags.hash_bits() {
            return Err(Error::Full { zbookmark: self.object.zbookmark(BlockId::new(0)) });
        }
        let before = (self.header.table.clone(), self.header.free_block);
        let grown = self.grow_step();
        if grown.is_err() {
            (self.header.table, self.header.free_block) = before;
        }
        grown
    }

    fn grow_step(&mut self) -> Result<()> {
        let shift = self.header.block_shift;
        let words = 1_usize.checked_shl(shift).unwrap_or(0);
        let half = words / 2;
        self.is_header_dirty = true;
        match self.header.table.clone() {
            Table::Embedded => {
                let first = self.allocate_blocks(1);
                self.double_block(BlockId::new(0), half..words, first)?;
                self.header.table = Table::External { first, blocks: 1, next: None };
                self.header.table_shift = shift;
            }
            Table::External { first, blocks, next } => {
                let (target, copied) = match next {
                    Some(next) => next,
                    None => (self.allocate_blocks(blocks.saturating_mul(2)), 0),
                };
                let from = BlockId::new(first.get().saturating_add(copied));
                let to = target.get().saturating_add(copied.saturating_mul(2));
                self.double_block(from, 0..half, BlockId::new(to))?;
                self.double_block(from, half..words, BlockId::new(to.saturating_add(1)))?;
                let copied = copied.saturating_add(1);
                if copied < blocks {
                    let next = Some((target, copied));
                    self.header.table = Table::External { first, blocks, next };
                    return Ok(());
                }
                let end = BlockId::new(first.get().saturating_add(blocks));
                self.object
                    .free_range(self.tx, self.block_offset(first)..self.block_offset(end))?;
                let blocks = blocks.saturating_mul(2);
                self.header.table = Table::External { first: target, blocks, next: None };
                self.header.table_shift = self.header.table_shift.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Fills a block of the larger table from half a block of the present one.
    fn double_block(&self, from: BlockId, words: Range<usize>, to: BlockId) -> Result<()> {
        let block = read_block(self.object, from)?;
        let bytes = pointers::double_pointers(&block, block.order(), words, ORDER);
        drop(block);
        self.write_block(to, &bytes)
    }
}
