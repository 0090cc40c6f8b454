//! A micro table: its block, and its entries in the order of their hashes.

use std::sync::OnceLock;

use ondisk::zap::fat::Flags;
use ondisk::zap::hash;
use ondisk::zap::micro::{Micro, MicroEntry};
use zio::Block;

use crate::normalize::normalize;
use crate::zap::NameQuery;
use crate::{ZapCursor, ZapEntry, ZapValue};

/// Where an entry is in the order of hashes, and which it is.
pub(crate) type IndexEntry = (ZapCursor, usize);

pub(crate) struct MicroTable {
    pub(crate) block: Block,
    index: OnceLock<Vec<IndexEntry>>,
}

impl MicroTable {
    pub(crate) fn new(block: Block) -> Self {
        Self { block, index: OnceLock::new() }
    }

    /// The table of a block whose entries are parsed already.
    pub(crate) fn with_index(block: Block, seats: Vec<IndexEntry>) -> Self {
        Self { block, index: OnceLock::from(seats) }
    }

    /// Its entries in the order of their hashes.
    pub(crate) fn index(&self) -> &[IndexEntry] {
        self.index.get_or_init(|| build_index(&self.block))
    }

    /// The same, and no longer the block.
    pub(crate) fn into_index(self) -> Vec<IndexEntry> {
        self.index.into_inner().unwrap_or_else(|| build_index(&self.block))
    }

    /// The first entry of a hash that is the wanted one.
    pub(crate) fn find(&self, hash: u64, wanted: &NameQuery<'_>) -> Option<ZapEntry> {
        let (cursor, _, entry) =
            self.entries_with_hash(hash).find(|(_, _, entry)| wanted.matches(entry.name))?;
        Some(micro_entry(cursor, entry))
    }

    /// The entries of a hash, with their numbers.
    pub(crate) fn entries_with_hash(
        &self,
        hash: u64,
    ) -> impl Iterator<Item = (ZapCursor, usize, MicroEntry<'_>)> + use<'_> {
        let seats = self.index();
        let first = seats.partition_point(|(cursor, _)| cursor.hash < hash);
        let rest = seats.get(first..).unwrap_or_default();
        let same = rest.iter().take_while(move |(cursor, _)| cursor.hash == hash);
        let table = parse_micro(&self.block);
        same.filter_map(move |(cursor, at)| Some((*cursor, *at, table.entry(*at)?)))
    }
}

/// The micro table in a block that has been found to hold one.
pub(crate) fn parse_micro(block: &Block) -> Micro<'_> {
    Micro::parse(block, block.order()).unwrap_or_default()
}

fn build_index(block: &Block) -> Vec<IndexEntry> {
    let table = parse_micro(block);
    let seat = |(at, entry): (usize, MicroEntry<'_>)| {
        let name = normalize(entry.name, table.normalization);
        let hash = hash::hash_name(table.salt, Flags::default(), &name);
        (ZapCursor { hash, collision: entry.collision }, at)
    };
    let mut seats: Vec<IndexEntry> = table.numbered_entries().map(seat).collect();
    seats.sort_unstable();
    seats
}

pub(crate) fn micro_entry(cursor: ZapCursor, entry: MicroEntry<'_>) -> ZapEntry {
    let (name, value) = (entry.name.to_vec(), ZapValue::from_u64(entry.value));
    ZapEntry { name, key64: None, value, cursor }
}
