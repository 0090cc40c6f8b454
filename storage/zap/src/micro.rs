//! A micro table: its block, and its entries in the order of their hashes.

use std::sync::OnceLock;

use ondisk::zap::fat::Flags;
use ondisk::zap::hash;
use ondisk::zap::micro::{Micro, MicroEntry};
use zio::Block;

use crate::normalize::normalize;
use crate::zap::Wanted;
use crate::{Cursor, Entry, Value};

/// Where an entry is in the order of hashes, and which it is.
pub(crate) type Seat = (Cursor, usize);

pub(crate) struct MicroTable {
    pub(crate) block: Block,
    seats: OnceLock<Vec<Seat>>,
}

impl MicroTable {
    pub(crate) fn new(block: Block) -> Self {
        Self { block, seats: OnceLock::new() }
    }

    /// The table in a block whose entries are known.
    pub(crate) fn with(block: Block, seats: Vec<Seat>) -> Self {
        Self { block, seats: OnceLock::from(seats) }
    }

    /// Its entries in the order of their hashes.
    pub(crate) fn seats(&self) -> &[Seat] {
        self.seats.get_or_init(|| seats_of(&self.block))
    }

    /// The same, and no longer the block.
    pub(crate) fn into_seats(self) -> Vec<Seat> {
        self.seats.into_inner().unwrap_or_else(|| seats_of(&self.block))
    }

    /// The first entry of a hash that is the wanted one.
    pub(crate) fn find(&self, hash: u64, wanted: &Wanted<'_>) -> Option<Entry> {
        let (cursor, _, entry) = self.same(hash).find(|(_, _, entry)| wanted.is(entry.name))?;
        Some(micro_entry(cursor, entry))
    }

    /// The entries of a hash, with their numbers.
    pub(crate) fn same(
        &self,
        hash: u64,
    ) -> impl Iterator<Item = (Cursor, usize, MicroEntry<'_>)> + use<'_> {
        let seats = self.seats();
        let first = seats.partition_point(|(cursor, _)| cursor.hash < hash);
        let rest = seats.get(first..).unwrap_or_default();
        let same = rest.iter().take_while(move |(cursor, _)| cursor.hash == hash);
        let table = micro(&self.block);
        same.filter_map(move |(cursor, at)| Some((*cursor, *at, table.entry(*at)?)))
    }
}

/// The micro table in a block that has been found to hold one.
pub(crate) fn micro(block: &Block) -> Micro<'_> {
    Micro::parse(block, block.order()).unwrap_or_default()
}

fn seats_of(block: &Block) -> Vec<Seat> {
    let table = micro(block);
    let seat = |(at, entry): (usize, MicroEntry<'_>)| {
        let name = normalize(entry.name, table.normalization);
        let hash = hash::of_name(table.salt, Flags::default(), &name);
        (Cursor { hash, collision: entry.collision }, at)
    };
    let mut seats: Vec<Seat> = table.numbered().map(seat).collect();
    seats.sort_unstable();
    seats
}

pub(crate) fn micro_entry(cursor: Cursor, entry: MicroEntry<'_>) -> Entry {
    let (name, value) = (entry.name.to_vec(), Value::number(entry.value));
    Entry { name, key64: None, value, cursor }
}
