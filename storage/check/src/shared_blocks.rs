//! Blocks that may have several references: those in dedup tables, and cloned ones.
//!
//! Their counts are kept in memory, about 64 bytes for each such block, and compared with the
//! references found by the walk.

use std::collections::HashMap;

use dmu::Objset;
use ondisk::dedup::{
    CloneTable, Copies, DedupKey, DedupValue, Shape, TableName, clone_count, clone_table_name,
};
use ondisk::{Dva, Reader};
use parking_lot::Mutex;
use spa::{DedupLogs, Pool, PoolDirectory};
use units::{ObjectId, VdevId};
use zap::Zap;

use crate::Error;

/// The entry of a block in a table, and the found references.
#[derive(Clone, Copy, Debug, Default)]
struct RefCounts {
    /// References as a table counts them.
    expected: u64,
    found: u64,
}

/// The blocks that may be referred to more than once, by their first address.
#[derive(Default)]
pub(crate) struct RefcountedBlocks {
    blocks: Mutex<HashMap<(VdevId, u64), RefCounts>>,
    is_empty: bool,
}

/// A block in a dedup table: its key and its entry.
type DedupEntries = HashMap<DedupKey, Vec<((VdevId, u64), u64)>>;

impl RefcountedBlocks {
    /// Reads all tables.
    pub(crate) fn load(pool: &Pool) -> Result<Self, Error> {
        let mut blocks = HashMap::new();
        load_dedup_tables(pool.mos(), pool.directory(), &mut blocks)?;
        for (vdev, _) in pool.tree().tops() {
            load_clone_table(pool, vdev, &mut blocks)?;
        }
        let is_empty = blocks.is_empty();
        Ok(Self { blocks: Mutex::new(blocks), is_empty })
    }

    /// Notes a reference to a block; gives whether the block may be shared, and how many references
    /// there were before.
    pub(crate) fn add_reference(&self, dva: Dva) -> Option<u64> {
        if self.is_empty {
            return None;
        }
        let mut blocks = self.blocks.lock();
        let sharing = blocks.get_mut(&(dva.vdev, dva.offset))?;
        sharing.found += 1;
        Some(sharing.found - 1)
    }

    /// The number of blocks whose count in a table differs from the found references, and
    /// one of them: its vdev and offset, the recorded count, the found one.
    pub(crate) fn mismatches(&self) -> (u64, Option<(VdevId, u64, u64, u64)>) {
        let blocks = self.blocks.lock();
        let mut wrong = blocks.iter().filter(|(_, sharing)| sharing.expected != sharing.found);
        let first = wrong.next().map(|((vdev, offset), s)| (*vdev, *offset, s.expected, s.found));
        (u64::from(first.is_some()) + wrong.count() as u64, first)
    }
}

type RefCountMap = HashMap<(VdevId, u64), RefCounts>;

fn load_clone_table(pool: &Pool, vdev: VdevId, blocks: &mut RefCountMap) -> Result<(), Error> {
    let Some(object) = pool.directory().object(&clone_table_name(vdev))? else { return Ok(()) };
    let mut bonus = Reader::new("clone table", object.bonus(), object.bonus_order());
    let table = CloneTable::read(&mut bonus)?;
    if !table.entries.exists() {
        return Ok(());
    }
    for entry in Zap::open(pool.mos().object(table.entries)?)?.entries() {
        let entry = entry?;
        let Some(&[offset]) = entry.key64.as_deref() else { continue };
        let count = match entry.value.u64() {
            Some(count) => count,
            None => clone_count(entry.value.bytes(), object.bonus_order())?,
        };
        // the table counts the references beyond the first
        blocks.entry((vdev, offset)).or_default().expected += count.saturating_add(1);
    }
    Ok(())
}

fn load_dedup_tables(
    mos: &Objset,
    directory: &PoolDirectory,
    blocks: &mut RefCountMap,
) -> Result<(), Error> {
    for entry in directory.zap().entries() {
        let entry = entry?;
        let name = String::from_utf8_lossy(&entry.name);
        let Some(id) = entry.value.u64().map(ObjectId::new) else { continue };
        let mut known = DedupEntries::new();
        match TableName::parse(&name) {
            Some(TableName::Table(..)) => {
                load_dedup_table(mos, id, Shape::Traditional, &mut known)?;
            }
            Some(TableName::Directory(_)) => load_checksum_tables(mos, id, &mut known)?,
            _ => continue,
        }
        for (at, references) in known.into_values().flatten() {
            blocks.entry(at).or_default().expected += references;
        }
    }
    Ok(())
}

/// The tables and logs of a checksum.
fn load_checksum_tables(mos: &Objset, id: ObjectId, known: &mut DedupEntries) -> Result<(), Error> {
    let directory = Zap::open(mos.object(id)?)?;
    let shape = Shape::from_flags(directory.lookup_u64(b"flags")?.unwrap_or(0));
    for entry in directory.entries() {
        let entry = entry?;
        let name = String::from_utf8_lossy(&entry.name);
        if let (Some(TableName::Table(..)), Some(id)) = (TableName::parse(&name), entry.value.u64())
        {
            load_dedup_table(mos, ObjectId::new(id), shape, known)?;
        }
    }
    for (words, value) in &DedupLogs::read(mos, &directory)?.entries {
        known.insert(DedupKey::from_words(words)?, copy_addresses(value));
    }
    Ok(())
}

fn load_dedup_table(
    mos: &Objset,
    id: ObjectId,
    shape: Shape,
    known: &mut DedupEntries,
) -> Result<(), Error> {
    for entry in Zap::open(mos.object(id)?)?.entries() {
        let entry = entry?;
        let Some(key) = entry.key64.as_deref().and_then(|words| <[u64; 5]>::try_from(words).ok())
        else {
            continue;
        };
        let key = DedupKey::from_words(&key)?;
        let value = DedupValue::parse(entry.value.bytes(), shape)?;
        known.insert(key, copy_addresses(&value));
    }
    Ok(())
}

fn copy_addresses(value: &DedupValue) -> Vec<((VdevId, u64), u64)> {
    let address = |copies: &Copies| {
        let dva = copies.dvas.first().copied().flatten()?;
        (copies.references > 0).then_some(((dva.vdev, dva.offset), copies.references))
    };
    value.sets().filter_map(|(_, copies)| address(copies)).collect()
}
