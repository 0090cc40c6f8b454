//! Changes of a micro table.

use std::sync::Arc;

use ondisk::Order;
use ondisk::zap::leaf::Key;
use ondisk::zap::micro::{MicroEntry, MicroMut};
use txg::Tx;
use units::BlockId;

use crate::fat_table::corrupt_error;
use crate::micro::{IndexEntry, MicroTable, parse_micro};
use crate::write::create::SECTOR;
use crate::write::fat::{self, FatWriter};
use crate::write::{StoreMode, nul_terminated};
use crate::zap::ZapKind;
use crate::{Error, Result, Zap, ZapCursor, ZapValue};

/// The largest block of a micro table that grows.
pub(super) const MAX_MICRO_BLOCK: u32 = 128 << 10;
/// Bytes of a block of the fat table that a micro one becomes.
const FAT_BLOCK_SIZE: u32 = 16 << 10;
/// This many entries of one hash fit into one leaf, whatever their names are.
pub(super) const MAX_SAME_HASH: usize = 127;

/// The state that a change of a micro table starts from. It keeps no reference to the block, so
/// that the block can be changed in place.
struct MicroState {
    index: Vec<IndexEntry>,
    capacity: usize,
    block_size: u32,
    order: Order,
}

impl Zap {
    /// Inserts an entry into a micro table; returns whether it fits.
    pub(super) fn store_micro(
        &self,
        tx: &Tx,
        name: &[u8],
        value: u64,
        mode: StoreMode,
    ) -> Result<bool> {
        let hash = self.stored_hash(name)?;
        let now = self.current()?;
        let ZapKind::Micro(table) = &*now else { return Ok(false) };
        let mut taken = Vec::new();
        let mut found = None;
        for (cursor, number, entry) in table.entries_with_hash(hash) {
            taken.push(cursor.collision);
            if entry.name == name {
                found = Some((cursor, number));
            }
        }
        if mode == StoreMode::Insert && found.is_some() {
            return Err(Error::Exists { zbookmark: self.zbookmark() });
        }
        let mut base = self.release_micro(now);
        let seat = match found {
            Some(seat) => seat,
            None if taken.len() >= MAX_SAME_HASH => return Ok(false),
            None => {
                if base.index.len() >= base.capacity && !self.grow_micro(tx, &mut base)? {
                    return Ok(false);
                }
                let collision = free_collision(&taken);
                (ZapCursor { hash, collision }, base.free_slot())
            }
        };
        let (ZapCursor { collision, .. }, number) = seat;
        assert!(number < base.capacity, "an entry has a place in the block");
        let entry = MicroEntry { name, value, collision };
        self.edit_micro(tx, base.order, &mut |table| table.set_entry(number, &entry))?;
        if let Err(at) = base.index.binary_search(&seat) {
            base.index.insert(at, seat);
        }
        let (entries, places) = (base.index.len(), base.capacity);
        assert!(entries <= places, "{entries} entries are in a block of {places} places");
        self.cache_micro(base.index)?;
        Ok(true)
    }

    /// Takes an entry out of a micro table.
    pub(super) fn remove_micro(&self, tx: &Tx, cursor: ZapCursor) -> Result<()> {
        let mut base = self.release_micro(self.current()?);
        let Ok(at) = base.index.binary_search_by_key(&cursor, |(known, _)| *known) else {
            return Ok(());
        };
        let (_, number) = base.index.remove(at);
        self.edit_micro(tx, base.order, &mut |table| table.clear_entry(number))?;
        self.cache_micro(base.index)
    }

    /// Makes a fat table of a micro one.
    pub(super) fn upgrade_to_fat(&self, tx: &Tx) -> Result<()> {
        let now = self.current()?;
        let ZapKind::Micro(table) = &*now else { return Ok(()) };
        let all = table.index().iter().filter_map(|(cursor, number)| {
            let entry = parse_micro(&table.block).entry(*number)?;
            Some((*cursor, nul_terminated(entry.name), entry.value))
        });
        let all: Vec<_> = all.collect();
        let count = units::to_u64(all.len());
        drop(self.release_micro(now));
        self.object().set_block_size(tx, FAT_BLOCK_SIZE)?;
        fat::init_fat(self.object(), tx, self.0.salt, self.normalization(), self.flags())?;
        let mut fat = FatWriter::open(self.object(), tx)?;
        for (ZapCursor { hash, collision }, name, value) in all {
            let count = self.check_name_len(&name)?;
            let key = Key { hash, bytes: &name, count };
            fat.store(&key, Some(collision), &ZapValue::from_u64(value), StoreMode::Insert)?;
        }
        assert_eq!(fat.header.entries, count, "the fat table has all entries of the micro one");
        fat.write_header()
    }

    /// Drops the reference to the table's block.
    fn release_micro(&self, now: Arc<ZapKind>) -> MicroState {
        *self.0.cached.lock() = None;
        let seats_of = |table: &MicroTable| {
            let block = &table.block;
            let capacity = parse_micro(block).capacity();
            (capacity, units::narrow::<u32>(block.len()), block.order())
        };
        let (facts, seats) = match Arc::try_unwrap(now) {
            Ok(ZapKind::Micro(table)) => (seats_of(&table), table.into_index()),
            Ok(ZapKind::Fat(_)) => ((0, 0, Order::Little), Vec::new()),
            Err(shared) => match &*shared {
                ZapKind::Micro(table) => (seats_of(table), table.index().to_vec()),
                ZapKind::Fat(_) => ((0, 0, Order::Little), Vec::new()),
            },
        };
        let (capacity, size, order) = facts;
        MicroState { index: seats, capacity, block_size: size, order }
    }

    /// Remembers the entries of the table as it is now.
    fn cache_micro(&self, seats: Vec<IndexEntry>) -> Result<()> {
        if let Some(block) = self.object().block(BlockId::new(0))? {
            debug_assert_eq!(
                parse_micro(&block).entries().count(),
                seats.len(),
                "the index has the entries of the block"
            );
            *self.0.cached.lock() =
                Some(Arc::new(ZapKind::Micro(MicroTable::with_index(block, seats))));
        }
        Ok(())
    }

    /// Grows the block for more entries; returns whether it can grow.
    fn grow_micro(&self, tx: &Tx, base: &mut MicroState) -> Result<bool> {
        let size = base.block_size + SECTOR;
        if size > MAX_MICRO_BLOCK {
            return Ok(false);
        }
        self.object().set_block_size(tx, size)?;
        let block = self.object().block(BlockId::new(0))?;
        let Some(block) = block else { return Ok(false) };
        (base.block_size, base.capacity, base.order) =
            (size, parse_micro(&block).capacity(), block.order());
        assert!(base.index.len() < base.capacity, "a larger block has place for more entries");
        Ok(true)
    }

    pub(super) fn edit_micro(
        &self,
        tx: &Tx,
        order: Order,
        edit: &mut dyn FnMut(&mut MicroMut<'_>),
    ) -> Result<()> {
        let zero = BlockId::new(0);
        let mut done = Ok(());
        self.object().change_block(tx, zero, &mut |bytes| match MicroMut::open(bytes, order) {
            Ok(mut table) => edit(&mut table),
            Err(error) => done = Err(corrupt_error(self.object(), zero, error)),
        })?;
        done
    }
}

/// The least collision number that is not taken.
fn free_collision(taken: &[u32]) -> u32 {
    let mut number = 0_u32;
    while taken.contains(&number) {
        number += 1;
    }
    number
}

impl MicroState {
    /// A place in which no entry is.
    fn free_slot(&self) -> usize {
        // mostly none was ever taken out: then it is the one behind the last
        let last = self.index.len();
        if self.index.iter().all(|(_, number)| *number < last) {
            return last;
        }
        let mut used = vec![false; self.capacity];
        for (_, number) in &self.index {
            if let Some(used) = used.get_mut(*number) {
                *used = true;
            }
        }
        used.iter().position(|used| !used).unwrap_or(last)
    }
}
