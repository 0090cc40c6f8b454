//! Many numbers put into a table at once, and copies of tables with other numbers.
//!
//! Put into a micro table one at a time, each entry looks for a free place among all the others, and the
//! block grows by a sector every eight entries: time grows with the square of their number.

use dmu::NewObject;
use ondisk::ObjectType;
use ondisk::zap;
use ondisk::zap::leaf::{Key, LeafMut};
use ondisk::zap::micro::{Micro, MicroEntry, MicroMut};
use txg::Tx;
use units::BlockId;

use crate::fat_table::corrupt_error;
use crate::write::create::{NewZap, SECTOR};
use crate::write::fat::{self, FatWriter};
use crate::write::micro::{MAX_MICRO_BLOCK, MAX_SAME_HASH};
use crate::write::{StoreMode, nul_terminated};
use crate::zap::ZapKind;
use crate::{Error, Result, Zap, ZapValue};

impl Zap {
    /// Puts names that stand for numbers into the table. A name that is in the table already, or twice
    /// in `entries`, is an error; the entries before it may be in the table then.
    pub fn insert_all_u64(&self, tx: &Tx, entries: &[(impl AsRef<[u8]>, u64)]) -> Result<()> {
        if self.is_micro()? {
            if self.fill_micro(tx, entries)? {
                return Ok(());
            }
            let fits = |(name, _): &(_, u64)| AsRef::<[u8]>::as_ref(name).len() <= Micro::MAX_NAME;
            let sum = self.count()? + units::to_u64(entries.len());
            if sum <= MOST_ENTRIES && entries.iter().all(fits) {
                return entries
                    .iter()
                    .try_for_each(|(name, number)| self.insert_u64(tx, name.as_ref(), *number));
            }
            self.upgrade_to_fat(tx)?;
        }
        let mut fat = FatWriter::open(self.object(), tx)?;
        let done = entries.iter().try_for_each(|(name, number)| {
            let bytes = nul_terminated(name.as_ref());
            let count = self.check_name_len(&bytes)?;
            let key = Key { hash: self.stored_hash(name.as_ref())?, bytes: &bytes, count };
            fat.store_in_leaf(&key, None, &ZapValue::from_u64(*number), StoreMode::Insert)
        });
        // leaves may have been split before an error
        let saved = fat.write_header();
        done.and(saved)
    }

    /// Makes a new table with the names of this one, each of which stands for `number`. The values of this
    /// table are numbers, too. The blocks are copied as they are.
    pub fn copy_with_number(
        &self,
        tx: &Tx,
        kind: ObjectType,
        new: &NewZap,
        number: u64,
    ) -> Result<Self> {
        // an older handle does not know how large its blocks are now
        let source = &self.object().objset().object(self.object().id())?;
        let made = NewObject { block_size: source.block_size(), ..new.new_object(kind) };
        let object = source.objset().create(tx, &made)?;
        let size = u64::from(source.block_size());
        for index in 0..=source.max_block().get() {
            let at = BlockId::new(index);
            let Some(block) = source.block(at)? else { continue };
            let told = |error| corrupt_error(source, at, error);
            let (mut bytes, order) = (block.to_vec(), block.order());
            match zap::block_kind(&bytes, order) {
                Ok(zap::MICRO) => {
                    MicroMut::open(&mut bytes, order).map_err(told)?.set_all_numbers(number);
                }
                Ok(zap::LEAF) => {
                    let leaf = LeafMut::open(&mut bytes, order);
                    leaf.and_then(|mut leaf| leaf.set_all_numbers(number)).map_err(told)?;
                }
                // a header, or part of a pointer table
                _ => (),
            }
            object.write(tx, index * size, &bytes)?;
        }
        Self::open(source.objset().object(object.id())?)
    }

    /// Whether its blocks have our byte order.
    pub fn is_little_endian(&self) -> Result<bool> {
        Ok(self.current()?.block().order() == fat::ORDER)
    }

    /// Writes all entries of an empty micro table with one change of its block. Returns whether the
    /// table is empty and can hold them.
    fn fill_micro(&self, tx: &Tx, entries: &[(impl AsRef<[u8]>, u64)]) -> Result<bool> {
        let mut hashed = Vec::with_capacity(entries.len());
        for (name, number) in entries {
            let name = name.as_ref();
            if name.len() > Micro::MAX_NAME {
                return Ok(false);
            }
            self.check_name_len(&nul_terminated(name))?;
            hashed.push((self.hash(name), name, *number));
        }
        let now = self.current()?;
        let order = match &*now {
            ZapKind::Micro(table) if table.index().is_empty() => table.block.order(),
            _ => return Ok(false),
        };
        drop(now);
        let places = u32::try_from(entries.len()).ok().and_then(|count| count.checked_add(1));
        let bytes = places.and_then(|count| count.checked_mul(ENTRY));
        let Some(size) = bytes.map(|bytes| bytes.next_multiple_of(SECTOR)) else {
            return Ok(false);
        };
        let Some(collisions) = collisions(&mut hashed).map_err(|()| self.exists())? else {
            return Ok(false);
        };
        if size > MAX_MICRO_BLOCK {
            return Ok(false);
        }
        assert_eq!(collisions.len(), entries.len(), "each entry has a collision number");
        *self.0.cached.lock() = None;
        if size > SECTOR {
            self.object().set_block_size(tx, size)?;
        }
        self.edit_micro(tx, order, &mut |table| {
            let all = hashed.iter().zip(&collisions).enumerate();
            for (place, ((_, name, value), collision)) in all {
                table.set_entry(place, &MicroEntry { name, value: *value, collision: *collision });
            }
        })?;
        Ok(true)
    }

    fn exists(&self) -> Error {
        Error::Exists { zbookmark: self.zbookmark() }
    }
}

/// Bytes of an entry of a micro table.
const ENTRY: u32 = 64;
/// The most entries of a micro table: its header takes the place of one.
const MOST_ENTRIES: u64 = (MAX_MICRO_BLOCK / ENTRY) as u64 - 1;

/// Sorts entries by hash and numbers those of one hash. `None`: more entries share one hash than
/// the table can hold. An error: a name occurs twice.
fn collisions(hashed: &mut [(u64, &[u8], u64)]) -> std::result::Result<Option<Vec<u32>>, ()> {
    hashed.sort_unstable();
    let mut all: Vec<u32> = Vec::with_capacity(hashed.len());
    let mut last: Option<(u64, &[u8])> = None;
    for (hash, name, _) in hashed.iter() {
        let next = match last {
            Some((same, before)) if same == *hash => {
                if before == *name {
                    return Err(());
                }
                all.last().map_or(0, |number| number + 1)
            }
            _ => 0,
        };
        if usize::try_from(next).is_ok_and(|next| next >= MAX_SAME_HASH) {
            return Ok(None);
        }
        all.push(next);
        last = Some((*hash, name));
    }
    Ok(Some(all))
}
