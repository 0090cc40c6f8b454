//! A fat table shrinks: of two empty leaves that were split from one, one is left.

use ondisk::zap::fat::Table;
use ondisk::zap::leaf::Leaf;
use units::BlockId;

use crate::Result;
use crate::table::{block_of, corrupt};
use crate::write::fat::Fat;

/// A leaf: its block, and the hashes in it.
#[derive(Clone, Copy)]
struct Seat {
    number: BlockId,
    prefix: u64,
    bits: u32,
}

impl Fat<'_> {
    /// Joins the leaf of a hash, which is empty, with its neighbour as long as that is empty too.
    pub(super) fn shrink(&mut self, hash: u64) -> Result<()> {
        let (number, block) = self.leaf(hash)?;
        let leaf = Leaf::parse(&block, block.order());
        let leaf = leaf.map_err(|why| corrupt(self.object, number, why))?;
        let mut seat = Seat { number, prefix: leaf.prefix, bits: leaf.prefix_bits };
        drop(block);
        let mut last_freed = false;
        while let Some(other) = self.empty_neighbour(seat)? {
            let (kept, freed) = if seat.prefix & 1 == 0 { (seat, other) } else { (other, seat) };
            let run = self.run(freed.prefix, freed.bits);
            // all that is changed must be known before anything is: half of it would be damage
            self.point(run.clone(), freed.number)?;
            self.edit(kept.number, &mut |_| Ok(()))?;
            self.point(run, kept.number)?;
            let (prefix, bits) = (kept.prefix >> 1, kept.bits.saturating_sub(1));
            seat = Seat { number: kept.number, prefix, bits };
            self.edit(kept.number, &mut |leaf| {
                leaf.set_prefix(prefix, bits);
                Ok(())
            })?;
            self.header.leaves = self.header.leaves.saturating_sub(1);
            let behind = BlockId::new(freed.number.get().saturating_add(1));
            let bytes = self.offset(freed.number)..self.offset(behind);
            self.object.free_range(self.tx, bytes)?;
            last_freed |= behind == self.header.free_block;
        }
        if last_freed { self.find_free_block() } else { Ok(()) }
    }

    /// The leaf that a leaf was split from or that was split from it, if that is empty.
    fn empty_neighbour(&self, seat: Seat) -> Result<Option<Seat>> {
        if seat.bits == 0 {
            return Ok(None);
        }
        let prefix = seat.prefix ^ 1;
        let run = self.run(prefix, seat.bits);
        let number = self.pointer(run.start)?;
        if number == seat.number || number != self.pointer(run.end.saturating_sub(1))? {
            return Ok(None);
        }
        let block = block_of(self.object, number)?;
        let leaf = Leaf::parse(&block, block.order());
        let leaf = leaf.map_err(|why| corrupt(self.object, number, why))?;
        let is = leaf.entry_count == 0 && leaf.prefix == prefix && leaf.prefix_bits == seat.bits;
        Ok(is.then_some(Seat { number, prefix, bits: seat.bits }))
    }

    /// Finds the first block behind all that are used.
    fn find_free_block(&mut self) -> Result<()> {
        let mut last = match &self.header.table {
            Table::Embedded => 0,
            Table::External { first, blocks, next } => {
                let end = first.get().saturating_add(*blocks);
                let next =
                    next.map(|(next, _)| next.get().saturating_add(blocks.saturating_mul(2)));
                next.unwrap_or(0).max(end).saturating_sub(1)
            }
        };
        for index in 0..self.header.table_len() {
            last = last.max(self.pointer(index)?.get());
        }
        self.header.free_block = BlockId::new(last.saturating_add(1));
        Ok(())
    }
}
