//! A fat table shrinks: of two empty leaves that were split from one, one is left.

use ondisk::zap::fat::Table;
use ondisk::zap::leaf::Leaf;
use units::{BlockId, MinusOrZero};

use crate::Result;
use crate::fat_table::{corrupt_error, read_block};
use crate::write::fat::FatWriter;

/// A leaf: its block, and the hashes in it.
#[derive(Clone, Copy)]
struct LeafRange {
    block: BlockId,
    prefix: u64,
    prefix_bits: u32,
}

impl FatWriter<'_> {
    /// Joins the empty leaf of a hash with its sibling as long as that is empty too.
    pub(super) fn join_empty_leaves(&mut self, hash: u64) -> Result<()> {
        let (number, block) = self.find_leaf(hash)?;
        let leaf = Leaf::parse(&block, block.order());
        let leaf = leaf.map_err(|error| corrupt_error(self.object, number, error))?;
        let mut seat =
            LeafRange { block: number, prefix: leaf.prefix, prefix_bits: leaf.prefix_bits };
        drop(block);
        let mut last_freed = false;
        while let Some(other) = self.empty_sibling(seat)? {
            let (kept, freed) = if seat.prefix & 1 == 0 { (seat, other) } else { (other, seat) };
            let run = self.index_range(freed.prefix, freed.prefix_bits);
            // all that is changed must be known before anything is: half of it would be damage
            self.set_leaf_pointers(run.clone(), freed.block)?;
            self.edit_leaf(kept.block, &mut |_| Ok(()))?;
            self.set_leaf_pointers(run, kept.block)?;
            let (prefix, bits) = (kept.prefix >> 1, kept.prefix_bits - 1);
            seat = LeafRange { block: kept.block, prefix, prefix_bits: bits };
            self.edit_leaf(kept.block, &mut |leaf| {
                leaf.set_prefix(prefix, bits);
                Ok(())
            })?;
            self.header.leaves = self.header.leaves.minus_or_zero(1);
            let behind = BlockId::new(freed.block.get() + 1);
            let bytes = self.block_offset(freed.block)..self.block_offset(behind);
            self.object.free_range(self.tx, bytes)?;
            last_freed |= behind == self.header.free_block;
        }
        if last_freed { self.recompute_free_block() } else { Ok(()) }
    }

    /// The leaf that a leaf was split from or that was split from it, if that is empty.
    fn empty_sibling(&self, seat: LeafRange) -> Result<Option<LeafRange>> {
        if seat.prefix_bits == 0 {
            return Ok(None);
        }
        let prefix = seat.prefix ^ 1;
        let run = self.index_range(prefix, seat.prefix_bits);
        let number = self.leaf_pointer(run.start)?;
        if number == seat.block || number != self.leaf_pointer(run.end.max(1) - 1)? {
            return Ok(None);
        }
        let block = read_block(self.object, number)?;
        let leaf = Leaf::parse(&block, block.order());
        let leaf = leaf.map_err(|error| corrupt_error(self.object, number, error))?;
        let is =
            leaf.entry_count == 0 && leaf.prefix == prefix && leaf.prefix_bits == seat.prefix_bits;
        Ok(is.then_some(LeafRange { block: number, prefix, prefix_bits: seat.prefix_bits }))
    }

    /// Finds the first block behind all that are used.
    fn recompute_free_block(&mut self) -> Result<()> {
        let mut last = match &self.header.table {
            Table::Embedded => 0,
            Table::External { first, blocks, next } => {
                let end = first.get() + *blocks;
                let next = next.map(|(next, _)| next.get() + blocks * 2);
                next.unwrap_or(0).max(end) - 1
            }
        };
        for index in 0..self.header.table_len() {
            last = last.max(self.leaf_pointer(index)?.get());
        }
        self.header.free_block = BlockId::new(last + 1);
        Ok(())
    }
}
