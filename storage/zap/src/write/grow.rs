//! A fat table grows: leaves are split, and the pointer table doubles.
//!
//! The first pointer table is in the header's block; outgrown, it gets a block of its own, twice as
//! large. That one doubles into blocks twice as many, one block of the old at each change of the
//! table, so that no change is long; until the last is copied, pointers are set in both.

use std::ops::Range;

use ondisk::zap::fat::Table;
use ondisk::zap::leaf::{Leaf, LeafMut};
use ondisk::zap::pointers;
use units::{BlockId, MinusOrZero};

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
        assert!(bits < self.header.table_shift, "each half of a leaf has a pointer of its own");
        let run = self.index_range((prefix << 1) | 1, bits + 1);
        // what the pointers to it are in must be known before anything is taken out of the leaf
        self.set_leaf_pointers(run.clone(), number)?;
        let upper_number = self.allocate_blocks(1);
        self.write_block(upper_number, &upper)?;
        self.object.change_block(self.tx, number, &mut |bytes| bytes.copy_from_slice(&lower))?;
        self.header.leaves += 1;
        self.set_leaf_pointers(run, upper_number)
    }

    /// The places in the pointer table of the hashes that begin with a prefix.
    pub(super) fn index_range(&self, prefix: u64, bits: u32) -> Range<u64> {
        let spare = self.header.table_shift.minus_or_zero(bits);
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
        units::to_usize(index) + self.header.embedded_start()
    }

    /// Makes places in the pointer table lead to a leaf.
    pub(super) fn set_leaf_pointers(&self, places: Range<u64>, leaf: BlockId) -> Result<()> {
        assert!(
            places.start < places.end && places.end <= self.header.table_len(),
            "the pointers to a leaf lie in the table"
        );
        match &self.header.table {
            Table::Embedded => {
                let words = self.embedded_word(places.start)..self.embedded_word(places.end);
                self.set_block_pointers(BlockId::new(0), words, leaf)
            }
            Table::External { first, next, .. } => {
                if let Some((next, _)) = next {
                    let twice = places.start * 2..places.end * 2;
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
            let whole = 1_usize << self.header.block_shift;
            let left = units::to_usize(places.end - at);
            let count = (whole - word).min(left).max(1);
            self.set_block_pointers(number, word..word + count, leaf)?;
            at += units::to_u64(count);
        }
        assert_eq!(at, places.end, "each pointer of {places:?} leads to leaf {leaf}");
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
        // bits that no hash has tell nothing apart
        if self.header.table_shift + 2 >= self.header.flags.hash_bits() {
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
                    None => (self.allocate_blocks(blocks * 2), 0),
                };
                let from = BlockId::new(first.get() + copied);
                let to = target.get() + copied * 2;
                self.double_block(from, 0..half, BlockId::new(to))?;
                self.double_block(from, half..words, BlockId::new(to + 1))?;
                // Rule: the larger table is used once all its blocks are copied. Until then pointers are set in both,
                // as a txg may end at each step, and the table of that txg must be whole after a crash.
                let copied = copied + 1;
                if copied < blocks {
                    let next = Some((target, copied));
                    self.header.table = Table::External { first, blocks, next };
                    return Ok(());
                }
                let end = BlockId::new(first.get() + blocks);
                self.object
                    .free_range(self.tx, self.block_offset(first)..self.block_offset(end))?;
                let blocks = blocks * 2;
                self.header.table = Table::External { first: target, blocks, next: None };
                self.header.table_shift += 1;
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
