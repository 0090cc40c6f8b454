//! Cloned blocks: how many references beyond the first there are to each (block_cloning).
//!
//! Each top-level vdev with such blocks has a table of them by their offset, and an array of
//! counts: how many of them are in each range of it. Where a range's count is 0, no table need be
//! asked, which is what makes freeing cheap. What a txg changes is held in memory until its sync.

use std::collections::BTreeMap;

use dmu::{NewObject, Object, Objset};
use lock::{Mutex, rank};
use ondisk::dedup::{CloneTable, clone_count, clone_table_name};
use ondisk::zap::fat::Flags;
use ondisk::{ObjectType, Order, Reader};
use txg::Tx;
use units::{ObjectId, VdevId};
use zap::{NewZap, Zap, ZapValue};

use crate::{Error, PoolDirectory};

/// Bytes of a vdev that one count stands for.
const RANGE_SIZE: u64 = 16 << 20;
/// Bytes of a block of the array of counts.
const COUNTS_BLOCK_SIZE: u32 = 32 << 10;
/// More ranges no vdev has: it would be of four PiB.
const MAX_RANGES: u64 = 1 << 28;
/// Words that are metadata (DMU_OTN_UINT64_METADATA).
const U64_METADATA: ObjectType = ObjectType(0xc3);
/// A table that is metadata (DMU_OTN_ZAP_METADATA).
const ZAP_METADATA: ObjectType = ObjectType(0xc4);

/// A block that is or may be cloned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClonedBlock {
    /// The vdev of its first address.
    pub vdev: VdevId,
    /// The offset of its first address, in bytes.
    pub offset: u64,
    /// Bytes that all its copies take, as space is counted.
    pub size: u64,
}

/// The tables of cloned blocks of a pool.
pub struct CloneTables {
    mos: Objset,
    tops: Mutex<BTreeMap<VdevId, VdevCloneTable>, { rank::CLONE_TABLES }>,
}

/// What is known of a vdev's cloned blocks.
struct VdevCloneTable {
    /// The array of counts, whose bonus says the rest; none yet where nothing was ever cloned.
    array: Option<ObjectId>,
    entries: Option<Zap>,
    header: CloneTable,
    range_counts: Vec<u16>,
    counts_dirty: bool,
    pending: BTreeMap<u64, RefCount>,
}

/// References of a block beyond the first.
#[derive(Clone, Copy)]
struct RefCount {
    stored: u64,
    current: u64,
}

impl CloneTables {
    /// Reads what a pool's directory tells of its vdevs.
    pub fn load(mos: &Objset, vdevs: impl Iterator<Item = VdevId>) -> Result<Self, Error> {
        let directory = PoolDirectory::open(mos.clone())?;
        let mut tops = BTreeMap::new();
        for vdev in vdevs {
            if let Some(array) = directory.object(&clone_table_name(vdev))? {
                tops.insert(vdev, VdevCloneTable::load(mos, vdev, &array)?);
            }
        }
        Ok(Self { mos: mos.clone(), tops: Mutex::new(tops) })
    }

    /// How many references there are to a block beyond the first.
    pub fn references(&self, block: &ClonedBlock) -> Result<u64, Error> {
        match self.tops.lock().get(&block.vdev) {
            Some(top) => Ok(top.ref_count(block)?.current),
            None => Ok(0),
        }
    }

    /// Notes that there are so many references more to a block.
    pub fn add_references(&self, block: &ClonedBlock, references: u64) -> Result<(), Error> {
        let mut tops = self.tops.lock();
        let top = tops.entry(block.vdev).or_insert_with(VdevCloneTable::new);
        let count = top.ref_count(block)?;
        let rule = "the references of a block fit 64 bits";
        let wrong = Error::CloneTable { vdev: block.vdev, rule };
        let current = count.current.checked_add(references).ok_or(wrong)?;
        top.set_ref_count(block, RefCount { current, ..count })
    }

    /// Notes that there is a reference less to a block. Gives whether there is another one left;
    /// if not, the block is free.
    pub fn release_reference(&self, block: &ClonedBlock) -> Result<bool, Error> {
        let mut tops = self.tops.lock();
        let Some(top) = tops.get_mut(&block.vdev) else { return Ok(false) };
        let count = top.ref_count(block)?;
        let Some(now) = count.current.checked_sub(1) else { return Ok(false) };
        top.set_ref_count(block, RefCount { current: now, ..count })?;
        Ok(true)
    }

    /// Bytes of the cloned blocks, and bytes that the clones did not take.
    pub fn space_totals(&self) -> (u64, u64) {
        let tops = self.tops.lock();
        let sum = |of: fn(&CloneTable) -> u64| {
            tops.values().map(|top| of(&top.header)).fold(0, u64::saturating_add)
        };
        (sum(|facts| facts.used), sum(|facts| facts.saved))
    }

    /// Writes what has changed. Tables are made with `random`, and are gone when nothing is left in
    /// them. Gives by how many the vdevs have become more that have tables: what the feature's
    /// count of uses is to be changed by.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn sync(&self, tx: &Tx, random: &mut dyn FnMut() -> u64) -> Result<i64, Error> {
        let directory = PoolDirectory::open(self.mos.clone())?;
        let mut more = 0_i64;
        let mut tops = self.tops.lock();
        for (vdev, top) in tops.iter_mut().filter(|(_, top)| !top.pending.is_empty()) {
            let name = clone_table_name(*vdev);
            if top.array.is_none() && top.header.total > 0 {
                let array = top.create_tables(&self.mos, tx, random())?;
                directory.zap().insert_u64(tx, name.as_bytes(), array.get())?;
                more += 1;
            }
            top.write_entries(tx)?;
            assert!(
                top.pending.is_empty(),
                "each changed count of clones on vdev {vdev} is written"
            );
            if top.header.total > 0 {
                top.write_counts(&self.mos, tx)?;
            } else if top.destroy_tables(&self.mos, tx)? {
                directory.zap().remove(tx, name.as_bytes())?;
                more -= 1;
            }
        }
        Ok(more)
    }
}

impl VdevCloneTable {
    fn new() -> Self {
        let header = CloneTable {
            entries: ObjectId::new(0),
            ranges: 0,
            counts_order: Order::Little,
            total: 0,
            range_size: RANGE_SIZE,
            used: 0,
            saved: 0,
        };
        let (range_counts, pending) = (Vec::new(), BTreeMap::new());
        Self { array: None, entries: None, header, range_counts, counts_dirty: false, pending }
    }

    fn load(mos: &Objset, vdev: VdevId, array: &Object) -> Result<Self, Error> {
        let mut bonus = Reader::new("clone table", array.bonus(), array.bonus_order());
        let facts = CloneTable::read(&mut bonus)?;
        let held = array.max_block().get() + 1;
        let held = held * u64::from(array.block_size());
        // an array with holes may say that it is of any length
        if facts.ranges > held / 2 || facts.ranges > MAX_RANGES || facts.range_size == 0 {
            return Err(Error::CloneTable { vdev, rule: "its counts are in their array" });
        }
        let mut bytes = vec![0; units::to_usize(facts.ranges * 2)];
        array.read(0, &mut bytes)?;
        let mut reader = Reader::new("clone counts", &bytes, facts.counts_order);
        let counts = (0..facts.ranges).map(|_| reader.u16()).collect::<Result<_, _>>()?;
        let table = Some(Zap::open(mos.object(facts.entries)?)?);
        let (array, changed) = (Some(array.id()), BTreeMap::new());
        Ok(Self {
            array,
            entries: table,
            header: facts,
            range_counts: counts,
            counts_dirty: false,
            pending: changed,
        })
    }

    /// The place of a block's range among the counts.
    fn range_index(&self, block: &ClonedBlock) -> usize {
        let range = block.offset.checked_div(self.header.range_size).unwrap_or(u64::MAX);
        units::to_usize(range)
    }

    fn ref_count(&self, block: &ClonedBlock) -> Result<RefCount, Error> {
        if let Some(known) = self.pending.get(&block.offset) {
            return Ok(*known);
        }
        let none = self.range_counts.get(self.range_index(block)).is_none_or(|count| *count == 0);
        let found = match self.entries.as_ref().filter(|_| !none) {
            Some(table) => table.lookup_key64(&[block.offset])?,
            None => None,
        };
        let stored = match found {
            Some(value) => clone_count(value.bytes(), Order::Little)?,
            None => 0,
        };
        Ok(RefCount { stored, current: stored })
    }

    /// Changes the count of a block, and all that is counted of it.
    fn set_ref_count(&mut self, block: &ClonedBlock, count: RefCount) -> Result<(), Error> {
        let before = self.ref_count(block)?.current;
        let wrong =
            || Error::CloneTable { vdev: block.vdev, rule: "its sums are those of its blocks" };
        let size = block.size;
        // what these are for is to be shown: that others counted otherwise keeps nobody from freeing
        let change = |sum: u64, from: u64, to: u64| {
            let blocks = i128::from(to) - i128::from(from);
            let after = i128::from(sum) + i128::from(size) * blocks;
            units::narrow(after.clamp(0, u64::MAX.into()))
        };
        let there = |count: u64| u64::from(count > 0);
        let saved = change(self.header.saved, before, count.current);
        let used = change(self.header.used, there(before), there(count.current));
        let total = self.header.total.checked_add(there(count.current));
        let total = total.and_then(|total| total.checked_sub(there(before))).ok_or_else(wrong)?;
        if there(before) != there(count.current) {
            let range = self.range_index(block);
            if u64::try_from(range).is_ok_and(|range| range >= MAX_RANGES) {
                return Err(wrong());
            }
            if range >= self.range_counts.len() {
                self.range_counts.resize(range + 1, 0);
            }
            let slot = self.range_counts.get_mut(range).ok_or_else(wrong)?;
            let changed = if count.current > 0 { slot.checked_add(1) } else { slot.checked_sub(1) };
            *slot = changed.ok_or_else(wrong)?;
            self.counts_dirty = true;
        }
        (self.header.saved, self.header.used, self.header.total) = (saved, used, total);
        self.pending.insert(block.offset, count);
        Ok(())
    }

    fn create_tables(&mut self, mos: &Objset, tx: &Tx, salt: u64) -> Result<ObjectId, Error> {
        let flags = Flags(3);
        let new = NewZap { flags, salt, block_shift: 12, indirect_shift: 12, ..NewZap::default() };
        let table = Zap::create(mos, tx, ZAP_METADATA, &new)?;
        self.header.entries = table.object().id();
        self.entries = Some(table);
        let array = NewObject::new(U64_METADATA, COUNTS_BLOCK_SIZE)
            .with_bonus(U64_METADATA, self.header.encode().to_vec());
        let array = mos.create(tx, &array)?.id();
        self.array = Some(array);
        self.counts_dirty = true;
        Ok(array)
    }

    fn write_entries(&mut self, tx: &Tx) -> Result<(), Error> {
        let Some(table) = &self.entries else {
            self.pending.clear();
            return Ok(());
        };
        for (offset, count) in std::mem::take(&mut self.pending) {
            let key = [offset];
            match count.current {
                now if now == count.stored => {}
                0 => drop(table.remove_key64(tx, &key)?),
                now => {
                    let value = ZapValue::new(1, now.to_le_bytes().to_vec());
                    table.update_key64(tx, &key, &value)?;
                }
            }
        }
        Ok(())
    }

    fn write_counts(&mut self, mos: &Objset, tx: &Tx) -> Result<(), Error> {
        let Some(array) = self.array else { return Ok(()) };
        let array = mos.object(array)?;
        if self.counts_dirty {
            let order = self.header.counts_order;
            let bytes = self.range_counts.iter().flat_map(|count| match order {
                Order::Little => count.to_le_bytes(),
                Order::Big => count.to_be_bytes(),
            });
            array.write(tx, 0, &bytes.collect::<Vec<u8>>())?;
            self.counts_dirty = false;
        }
        self.header.ranges = units::to_u64(self.range_counts.len());
        Ok(array.set_bonus(tx, U64_METADATA, &self.header.encode())?)
    }

    /// Takes the tables away; gives whether there were any.
    fn destroy_tables(&mut self, mos: &Objset, tx: &Tx) -> Result<bool, Error> {
        let (array, entries) = (self.array, self.header.entries);
        *self = Self::new();
        let Some(array) = array else { return Ok(false) };
        mos.free(tx, entries)?;
        mos.free(tx, array)?;
        Ok(true)
    }
}
