//! Changes of a micro table.

use std::sync::Arc;

use ondisk::Order;
use ondisk::zap::leaf::Key;
use ondisk::zap::micro::{MicroEntry, MicroMut};
use txg::Tx;
use units::BlockId;

use crate::micro::{MicroTable, Seat, micro};
use crate::table::corrupt;
use crate::write::create::SECTOR;
use crate::write::fat::{self, Fat};
use crate::write::{Mode, on_disk};
use crate::zap::Kind;
use crate::{Cursor, Error, Result, Value, Zap};

/// The largest block of a micro table that grows.
pub(super) const MAX_BLOCK: u32 = 128 << 10;
/// Bytes of a block of the fat table that a micro one becomes.
const FAT_BLOCK: u32 = 16 << 10;
/// So many entries of one hash fit into one of its leaves, whatever their names.
pub(super) const MAX_SAME_HASH: usize = 127;

/// What a change of a micro table sets out from. Nothing of the block is held any more, so that
/// it can be changed where it is.
struct Base {
    seats: Vec<Seat>,
    capacity: usize,
    size: u32,
    order: Order,
}

impl Zap {
    /// Puts an entry into a micro table; gives whether it has room for it.
    pub(super) fn put_micro(&self, tx: &Tx, name: &[u8], value: u64, mode: Mode) -> Result<bool> {
        let hash = self.hash_of(name)?;
        let now = self.now()?;
        let Kind::Micro(table) = &*now else { return Ok(false) };
        let mut taken = Vec::new();
        let mut found = None;
        for (cursor, number, entry) in table.same(hash) {
            taken.push(cursor.collision);
            if entry.name == name {
                found = Some((cursor, number));
            }
        }
        if mode == Mode::Insert && found.is_some() {
            return Err(Error::Exists { place: self.place() });
        }
        let mut base = self.release(now);
        let seat = match found {
            Some(seat) => seat,
            None if taken.len() >= MAX_SAME_HASH => return Ok(false),
            None => {
                if base.seats.len() >= base.capacity && !self.widen(tx, &mut base)? {
                    return Ok(false);
                }
                let collision = vacant_number(&taken);
                (Cursor { hash, collision }, base.vacant())
            }
        };
        let (Cursor { collision, .. }, number) = seat;
        let entry = MicroEntry { name, value, collision };
        self.edit_micro(tx, base.order, &mut |table| table.put(number, &entry))?;
        if let Err(at) = base.seats.binary_search(&seat) {
            base.seats.insert(at, seat);
        }
        self.keep(base.seats)?;
        Ok(true)
    }

    /// Takes an entry out of a micro table.
    pub(super) fn remove_micro(&self, tx: &Tx, cursor: Cursor) -> Result<()> {
        let mut base = self.release(self.now()?);
        let Ok(at) = base.seats.binary_search_by_key(&cursor, |(known, _)| *known) else {
            return Ok(());
        };
        let (_, number) = base.seats.remove(at);
        self.edit_micro(tx, base.order, &mut |table| table.clear(number))?;
        self.keep(base.seats)
    }

    /// Makes a fat table of a micro one.
    pub(super) fn upgrade(&self, tx: &Tx) -> Result<()> {
        let now = self.now()?;
        let Kind::Micro(table) = &*now else { return Ok(()) };
        let all = table.seats().iter().filter_map(|(cursor, number)| {
            let entry = micro(&table.block).entry(*number)?;
            Some((*cursor, on_disk(entry.name), entry.value))
        });
        let all: Vec<_> = all.collect();
        drop(self.release(now));
        self.object().set_block_size(tx, FAT_BLOCK)?;
        fat::begin(self.object(), tx, self.0.salt, self.normalization(), self.flags())?;
        let mut fat = Fat::open(self.object(), tx)?;
        for (Cursor { hash, collision }, name, value) in all {
            let count = self.name_count(&name)?;
            let key = Key { hash, bytes: &name, count };
            fat.put(&key, Some(collision), &Value::number(value), Mode::Insert)?;
        }
        fat.save()
    }

    /// Lets go of the table's block.
    fn release(&self, now: Arc<Kind>) -> Base {
        *self.0.known.lock() = None;
        let seats_of = |table: &MicroTable| {
            let block = &table.block;
            let capacity = micro(block).capacity();
            (capacity, u32::try_from(block.len()).unwrap_or(u32::MAX), block.order())
        };
        let (facts, seats) = match Arc::try_unwrap(now) {
            Ok(Kind::Micro(table)) => (seats_of(&table), table.into_seats()),
            Ok(Kind::Fat(_)) => ((0, 0, Order::Little), Vec::new()),
            Err(shared) => match &*shared {
                Kind::Micro(table) => (seats_of(table), table.seats().to_vec()),
                Kind::Fat(_) => ((0, 0, Order::Little), Vec::new()),
            },
        };
        let (capacity, size, order) = facts;
        Base { seats, capacity, size, order }
    }

    /// Remembers the entries of the table as it is now.
    fn keep(&self, seats: Vec<Seat>) -> Result<()> {
        if let Some(block) = self.object().block(BlockId::new(0))? {
            *self.0.known.lock() = Some(Arc::new(Kind::Micro(MicroTable::with(block, seats))));
        }
        Ok(())
    }

    /// Makes room for more entries; gives whether there can be any.
    fn widen(&self, tx: &Tx, base: &mut Base) -> Result<bool> {
        let size = base.size.saturating_add(SECTOR);
        if size > MAX_BLOCK {
            return Ok(false);
        }
        self.object().set_block_size(tx, size)?;
        let block = self.object().block(BlockId::new(0))?;
        let Some(block) = block else { return Ok(false) };
        (base.size, base.capacity, base.order) = (size, micro(&block).capacity(), block.order());
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
            Err(why) => done = Err(corrupt(self.object(), zero, why)),
        })?;
        done
    }
}

/// The least collision number that is not taken.
fn vacant_number(taken: &[u32]) -> u32 {
    let mut number = 0_u32;
    while taken.contains(&number) {
        number = number.saturating_add(1);
    }
    number
}

impl Base {
    /// A place in which no entry is.
    fn vacant(&self) -> usize {
        // mostly none was ever taken out: then it is the one behind the last
        let last = self.seats.len();
        if self.seats.iter().all(|(_, number)| *number < last) {
            return last;
        }
        let mut used = vec![false; self.capacity];
        for (_, number) in &self.seats {
            if let Some(used) = used.get_mut(*number) {
                *used = true;
            }
        }
        used.iter().position(|used| !used).unwrap_or(last)
    }
}
