//! The pointer table of a fat table, and the leaves that it leads to.

use dmu::{Object, Recent};
use ondisk::zap::fat::{Header, Table};
use ondisk::zap::hash;
use units::{BlockId, Place};
use zio::Block;

use crate::{Error, Result};

/// A fat table: its header, and the blocks that were used last.
pub(crate) struct Fat {
    pub(crate) header: Header,
    recent: Recent<u64, 8>,
}

impl Fat {
    pub(crate) fn new(header: Header) -> Self {
        Self { header, recent: Recent::new() }
    }

    /// The leaf for a place in the pointer table.
    pub(crate) fn leaf_of(&self, object: &Object, index: u64) -> Result<u64> {
        match &self.header.table {
            Table::Embedded(pointers) => usize::try_from(index)
                .ok()
                .and_then(|index| pointers.get(index).copied())
                .ok_or(Error::Missing { place: object.place(BlockId::new(0)) }),
            Table::External { first, next, .. } => {
                let loaded = self.load(object, *first, index);
                let table_block = index.checked_shr(self.header.block_shift).unwrap_or(0);
                match (loaded, next) {
                    // what has been copied into the larger table stands there twice in a row
                    (Err(_), Some((next, copied))) if table_block < *copied => {
                        self.load(object, *next, index.saturating_mul(2))
                    }
                    (loaded, _) => loaded,
                }
            }
        }
    }

    fn load(&self, object: &Object, first: BlockId, index: u64) -> Result<u64> {
        let shift = self.header.block_shift;
        let block = first.get().saturating_add(index.checked_shr(shift).unwrap_or(0));
        let content = self.block(object, block)?;
        let mask = !u64::MAX.checked_shl(shift).unwrap_or(0);
        let at = usize::try_from((index & mask).saturating_mul(8)).unwrap_or(usize::MAX);
        let mut reader = ondisk::Reader::new("zap pointer table", &content, content.order());
        reader.seek(at);
        reader.u64().map_err(|why| corrupt(object, block, why))
    }

    /// A block of the table, which must be there.
    pub(crate) fn block(&self, object: &Object, block: u64) -> Result<Block> {
        if let Some(known) = self.recent.find(block) {
            return Ok(known);
        }
        let id = BlockId::new(block);
        let read = object.block(id)?.ok_or(Error::Missing { place: object.place(id) })?;
        self.recent.keep(block, &read);
        Ok(read)
    }

    /// The place in the pointer table for a hash.
    pub(crate) const fn index(&self, hash: u64) -> u64 {
        hash::index(hash, self.header.table_shift)
    }

    /// The place in the pointer table at which to go on after `index` led to nothing: behind the
    /// places of the table's blocks that are not there at all, or else the next.
    pub(crate) fn behind_gap(&self, object: &Object, index: u64) -> u64 {
        let next = index.saturating_add(1);
        let Table::External { first, blocks, .. } = &self.header.table else { return next };
        let size = u64::from(object.block_size());
        let shift = self.header.block_shift;
        let after = index.checked_shr(shift).unwrap_or(0).saturating_add(1);
        let from = first.get().saturating_add(after).saturating_mul(size);
        let found = match object.next_data(from) {
            Ok(Some(byte)) => byte.checked_div(size).unwrap_or(0).saturating_sub(first.get()),
            Ok(None) => *blocks,
            Err(_) => after,
        };
        found.min(*blocks).checked_shl(shift).unwrap_or(u64::MAX).max(next)
    }
}

pub(crate) fn corrupt(object: &Object, block: u64, why: ondisk::Error) -> Error {
    let place: Place = object.place(BlockId::new(block));
    Error::Corrupt { place, why }
}
