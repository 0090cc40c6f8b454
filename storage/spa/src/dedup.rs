//! The tables of dedup: what blocks of a content there are, and how many references to each.
//!
//! Each checksum that dedup goes by has a table of the blocks that are referred to once and one of
//! those referred to more often; a block moves from one to the other. Sums over a table are kept in
//! `DDT-statistics`. With `fast_dedup` a directory holds a checksum's tables and two logs of what
//! is not in them yet; we take over what the real system left there, and write to the tables
//! straight. What a txg changes is held in memory until its sync.

use std::collections::BTreeMap;

use dmu::Objset;
use lock::{Mutex, rank};
use ondisk::dedup::{
    Class, DedupKey, DedupValue, LogHeader, Shape, Sums, TableName, histogram_words,
};
use ondisk::zap::fat::Flags;
use ondisk::{Blkptr, Checksum, Dva, ObjectType, Reader};
use txg::Tx;
use units::{ObjectId, Txg};
use zap::{NewZap, Zap, ZapValue};

use crate::{DedupLogs, Error, PoolDirectory};

/// A table that is metadata (DMU_OTN_ZAP_METADATA).
const ZAP_METADATA: ObjectType = ObjectType(0xc4);
/// What a directory of `fast_dedup` says: its version, and that values are flat and there are logs.
const FAST_DEDUP_ENTRIES: [(&[u8], u64); 2] = [(b"version", 1), (b"flags", 3)];

/// The words of a key.
type KeyWords = [u64; 5];

/// Gives the bytes that a copy takes, as space is counted.
pub type DsizeOf<'a> = &'a dyn Fn(&Dva) -> u64;

/// The tables of dedup of a pool.
pub struct DedupTables {
    mos: Objset,
    is_fast: bool,
    checksums: Mutex<BTreeMap<u8, ChecksumTables>, { rank::DEDUP_TABLES }>,
}

/// What is kept of one checksum.
struct ChecksumTables {
    checksum: Checksum,
    /// The directory of `fast_dedup`; the others are in the pool's.
    directory: Option<Zap>,
    value_format: Shape,
    tables: BTreeMap<Class, ClassTable>,
    logs: Vec<ObjectId>,
    pending: BTreeMap<KeyWords, PendingEntry>,
    /// Blocks in the logs that nobody refers to: the real system frees them with the log.
    unreferenced: Vec<Blkptr>,
}

struct ClassTable {
    zap: Zap,
    histogram: Vec<Sums>,
}

/// A block that has changed.
struct PendingEntry {
    current: DedupValue,
    /// Where it is now, and what is counted there of it. What was only in a log is not counted.
    stored: Option<(Class, DedupValue)>,
    from_log: bool,
}

impl DedupTables {
    /// Reads what a pool's directory tells. `fast`: new tables are those of `fast_dedup`.
    pub fn load(mos: &Objset, fast: bool) -> Result<Self, Error> {
        let directory = PoolDirectory::open(mos.clone())?;
        let mut families = BTreeMap::new();
        for number in 0..u8::MAX {
            let Some(checksum) = Checksum::from_number(number) else { break };
            if let Some(family) = ChecksumTables::load(mos, &directory, checksum)? {
                families.insert(number, family);
            }
        }
        Ok(Self { mos: mos.clone(), is_fast: fast, checksums: Mutex::new(families) })
    }

    /// What is known of a block; `None` if there is none of that content.
    pub fn lookup(&self, checksum: Checksum, key: &DedupKey) -> Result<Option<DedupValue>, Error> {
        let families = self.checksums.lock();
        let Some(family) = families.get(&checksum.number()) else { return Ok(None) };
        let words = key.to_words();
        if let Some(entry) = family.pending.get(&words) {
            return Ok(Some(entry.current.clone()).filter(|value| value.references() > 0));
        }
        Ok(family.lookup_stored(&words)?.map(|(_, value)| value))
    }

    /// The form that the values of a checksum have.
    pub fn value_format(&self, checksum: Checksum) -> Shape {
        match self.checksums.lock().get(&checksum.number()) {
            Some(family) => family.value_format,
            None if self.is_fast => Shape::Flat,
            None => Shape::Traditional,
        }
    }

    /// Says what is now true of a block; one without references is forgotten.
    pub fn update(&self, checksum: Checksum, key: &DedupKey, now: DedupValue) -> Result<(), Error> {
        let mut families = self.checksums.lock();
        let new = || ChecksumTables::new(checksum, self.is_fast);
        let family = families.entry(checksum.number()).or_insert_with(new);
        let words = key.to_words();
        if let Some(entry) = family.pending.get_mut(&words) {
            entry.current = now;
            return Ok(());
        }
        let stored = family.lookup_stored(&words)?;
        family.pending.insert(words, PendingEntry { current: now, stored, from_log: false });
        Ok(())
    }

    /// Bytes that the tables save, as they were last written.
    pub fn saved_bytes(&self) -> u64 {
        let families = self.checksums.lock();
        let tables = families.values().flat_map(|family| family.tables.values());
        let sums = tables.flat_map(|table| &table.histogram);
        let saved = sums.map(|sums| sums.referenced_dsize.wrapping_sub(sums.dsize));
        saved.fold(0, u64::wrapping_add)
    }

    /// Takes the blocks that nobody referred to any more when the tables were read, and that the real
    /// system had not freed yet: the group that empties the logs is to free them.
    pub fn drain_unreferenced(&self) -> Vec<Blkptr> {
        let mut families = self.checksums.lock();
        families.values_mut().flat_map(|family| std::mem::take(&mut family.unreferenced)).collect()
    }

    /// Writes what has changed. Gives by how many the directories of `fast_dedup` have become more:
    /// what the feature's count of uses is to be changed by.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn sync(
        &self,
        tx: &Tx,
        size_of: DsizeOf<'_>,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<i64, Error> {
        let mut families = self.checksums.lock();
        if families.values().all(|family| family.pending.is_empty()) {
            return Ok(0);
        }
        let mut work = DedupSync { mos: &self.mos, tx, size_of, random, uses_delta: 0 };
        let root = PoolDirectory::open(self.mos.clone())?;
        let statistics = work.open_statistics(&root)?;
        for family in families.values_mut().filter(|family| !family.pending.is_empty()) {
            family.sync(&mut work, &root, &statistics)?;
            assert!(
                family.pending.is_empty(),
                "each changed block of {:?} is written",
                family.checksum
            );
        }
        families.retain(|_, family| family.directory.is_some() || !family.tables.is_empty());
        Ok(work.uses_delta)
    }
}

/// What every step of a sync needs.
struct DedupSync<'a> {
    mos: &'a Objset,
    tx: &'a Tx,
    size_of: DsizeOf<'a>,
    random: &'a mut dyn FnMut() -> u64,
    uses_delta: i64,
}

impl DedupSync<'_> {
    fn create_zap(&mut self, kind: ObjectType) -> Result<Zap, Error> {
        let new = NewZap { salt: (self.random)(), ..NewZap::default() };
        Ok(Zap::create(self.mos, self.tx, kind, &new)?)
    }

    /// The table of sums; one is made if there is none yet.
    fn open_statistics(&mut self, root: &PoolDirectory) -> Result<Zap, Error> {
        let name = TableName::Statistics.to_string();
        if let Some(object) = root.object(&name)? {
            return Ok(Zap::open(object)?);
        }
        let table = self.create_zap(ObjectType::DDT_STATS)?;
        root.zap().insert_u64(self.tx, name.as_bytes(), table.object().id().get())?;
        Ok(table)
    }

    /// Adds a block to the sums of its table, or takes it out of them.
    fn update_histogram(
        &self,
        table: &mut ClassTable,
        words: &KeyWords,
        value: &DedupValue,
        add: bool,
    ) -> Result<(), Error> {
        let key = DedupKey::from_words(words)?;
        let sums = entry_stats(&key, value, self.size_of);
        let Some(bucket) = sums.referenced_blocks.checked_ilog2() else { return Ok(()) };
        if let Some(bucket) = table.histogram.get_mut(units::to_usize(bucket)) {
            let by = if add { u64::saturating_add } else { u64::saturating_sub };
            *bucket = bucket.combined(&sums, by);
        }
        Ok(())
    }
}

impl ChecksumTables {
    fn new(checksum: Checksum, fast: bool) -> Self {
        let value_format = if fast { Shape::Flat } else { Shape::Traditional };
        let (tables, pending) = (BTreeMap::new(), BTreeMap::new());
        let (logs, unreferenced) = (Vec::new(), Vec::new());
        Self { checksum, directory: None, value_format, tables, logs, pending, unreferenced }
    }

    fn load(mos: &Objset, root: &PoolDirectory, checksum: Checksum) -> Result<Option<Self>, Error> {
        let mut family = Self::new(checksum, false);
        if let Some(object) = root.object(&TableName::Directory(checksum).to_string())? {
            let directory = Zap::open(object)?;
            family.value_format = Shape::from_flags(directory.lookup_u64(b"flags")?.unwrap_or(0));
            family.directory = Some(directory);
        }
        let statistics = root.object(&TableName::Statistics.to_string())?;
        let statistics = statistics.map(Zap::open).transpose()?;
        for class in Class::ALL {
            let name = TableName::Table(checksum, class).to_string();
            let Some(id) = family.parent_zap(root).lookup_u64(name.as_bytes())? else { continue };
            let sums = match &statistics {
                Some(table) => table.lookup(name.as_bytes())?,
                None => None,
            };
            let bytes: Vec<u8> =
                sums.iter().flat_map(ZapValue::integers).flat_map(u64::to_le_bytes).collect();
            let sums = ondisk::dedup::histogram(&bytes, ondisk::Order::Little)?;
            let zap = Zap::open(mos.object(ObjectId::new(id))?)?;
            family.tables.insert(class, ClassTable { zap, histogram: sums });
        }
        family.load_logs(mos)?;
        Ok((family.directory.is_some() || !family.tables.is_empty()).then_some(family))
    }

    /// Takes over what is in the logs.
    fn load_logs(&mut self, mos: &Objset) -> Result<(), Error> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let mut logs = DedupLogs::read(mos, directory)?;
        self.unreferenced = logs.drain_unreferenced(self.checksum)?;
        self.logs = logs.objects;
        let entries = logs.entries.into_iter();
        let logged =
            |(words, now)| (words, PendingEntry { current: now, stored: None, from_log: true });
        self.pending = entries.map(logged).collect();
        Ok(())
    }

    /// The directory in which its tables are named.
    fn parent_zap<'a>(&'a self, root: &'a PoolDirectory) -> &'a Zap {
        self.directory.as_ref().unwrap_or_else(|| root.zap())
    }

    /// Where a block is, and what is said of it there.
    fn lookup_stored(&self, words: &KeyWords) -> Result<Option<(Class, DedupValue)>, Error> {
        for (class, table) in &self.tables {
            if let Some(value) = table.zap.lookup_key64(words)? {
                return Ok(Some((*class, DedupValue::parse(value.bytes(), self.value_format)?)));
            }
        }
        Ok(None)
    }

    fn sync(
        &mut self,
        work: &mut DedupSync<'_>,
        root: &PoolDirectory,
        statistics: &Zap,
    ) -> Result<(), Error> {
        if self.value_format == Shape::Flat && self.directory.is_none() {
            let directory = work.create_zap(ZAP_METADATA)?;
            for (name, number) in FAST_DEDUP_ENTRIES {
                directory.insert_u64(work.tx, name, number)?;
            }
            let name = TableName::Directory(self.checksum).to_string();
            root.zap().insert_u64(work.tx, name.as_bytes(), directory.object().id().get())?;
            self.directory = Some(directory);
            work.uses_delta += 1;
        }
        for (words, entry) in std::mem::take(&mut self.pending) {
            self.write_entry(work, root, &words, &entry)?;
        }
        self.empty_logs(work)?;
        let mut left = 0_u64;
        for (class, table) in &self.tables {
            let name = TableName::Table(self.checksum, *class).to_string();
            let words = histogram_words(&table.histogram);
            let bytes = words.into_iter().flat_map(u64::to_be_bytes).collect();
            statistics.update(work.tx, name.as_bytes(), &ZapValue::new(8, bytes))?;
            left += table.zap.count()?;
        }
        if left == 0 { self.destroy_tables(work, root, statistics) } else { Ok(()) }
    }

    /// Puts a block into the table that it belongs to, and takes it out of others.
    fn write_entry(
        &mut self,
        work: &mut DedupSync<'_>,
        root: &PoolDirectory,
        words: &KeyWords,
        entry: &PendingEntry,
    ) -> Result<(), Error> {
        let references = entry.current.references();
        let class = if references > 1 { Class::Duplicate } else { Class::Unique };
        let wanted = (references > 0).then_some(class);
        let was = entry.stored.as_ref().map(|(class, _)| *class);
        for (class, table) in &mut self.tables {
            if wanted != Some(*class) && (entry.from_log || was == Some(*class)) {
                table.zap.remove_key64(work.tx, words)?;
            }
        }
        if let Some((class, value)) = &entry.stored
            && let Some(table) = self.tables.get_mut(class)
        {
            work.update_histogram(table, words, value, false)?;
        }
        if references == 0 {
            return Ok(());
        }
        if !self.tables.contains_key(&class) {
            let table = self.create_table(work, root, class)?;
            self.tables.insert(class, table);
        }
        if let Some(table) = self.tables.get_mut(&class) {
            let value = ZapValue::new(1, entry.current.pack());
            table.zap.update_key64(work.tx, words, &value)?;
            work.update_histogram(table, words, &entry.current, true)?;
        }
        Ok(())
    }

    fn create_table(
        &self,
        work: &mut DedupSync<'_>,
        root: &PoolDirectory,
        class: Class,
    ) -> Result<ClassTable, Error> {
        // of all these checksums but one the first word is as good as any hash
        let flags = if self.checksum == Checksum::EdonR { 3 } else { 7 };
        let (salt, flags) = ((work.random)(), Flags(flags));
        let new = NewZap { flags, salt, block_shift: 15, indirect_shift: 15, ..NewZap::default() };
        let zap = Zap::create(work.mos, work.tx, ObjectType::DDT_ZAP, &new)?;
        let name = TableName::Table(self.checksum, class).to_string();
        self.parent_zap(root).insert_u64(work.tx, name.as_bytes(), zap.object().id().get())?;
        Ok(ClassTable { zap, histogram: vec![Sums::default(); 64] })
    }

    /// Says that nothing is in the logs. One of the two stays the one that is being emptied: the
    /// real system goes by that.
    fn empty_logs(&self, work: &DedupSync<'_>) -> Result<(), Error> {
        for id in &self.logs {
            let object = work.mos.object(*id)?;
            let mut bonus = Reader::new("dedup log", object.bonus(), object.bonus_order());
            let header = LogHeader::read(&mut bonus)?;
            if header.length > 0 || header.checkpoint.is_some() {
                let header = LogHeader {
                    flushing: header.flushing,
                    length: 0,
                    first_txg: Txg::new(work.tx.txg().get()),
                    checkpoint: None,
                };
                object.free_range(work.tx, 0..u64::MAX)?;
                object.set_bonus(work.tx, object.dnode().bonus_kind, &header.encode())?;
            }
        }
        Ok(())
    }

    /// Takes away the tables, which are empty, and all that goes with them.
    fn destroy_tables(
        &mut self,
        work: &mut DedupSync<'_>,
        root: &PoolDirectory,
        statistics: &Zap,
    ) -> Result<(), Error> {
        for (class, table) in std::mem::take(&mut self.tables) {
            let name = TableName::Table(self.checksum, class).to_string();
            self.parent_zap(root).remove(work.tx, name.as_bytes())?;
            statistics.remove(work.tx, name.as_bytes())?;
            work.mos.free(work.tx, table.zap.object().id())?;
        }
        for id in std::mem::take(&mut self.logs) {
            work.mos.free(work.tx, id)?;
        }
        if let Some(directory) = self.directory.take() {
            let name = TableName::Directory(self.checksum).to_string();
            root.zap().remove(work.tx, name.as_bytes())?;
            work.mos.free(work.tx, directory.object().id())?;
            work.uses_delta -= 1;
        }
        Ok(())
    }
}

/// What a block adds to the sums of its table.
pub(crate) fn entry_stats(key: &DedupKey, value: &DedupValue, size_of: DsizeOf<'_>) -> Sums {
    let (lsize, psize) = (u64::from(key.lsize), u64::from(key.psize));
    let mut sums = Sums::default();
    for (_, copies) in value.sets() {
        // with encryption the third is not an address
        let places = if key.encrypted { 2 } else { 3 };
        let dsize = copies.dvas.iter().take(places).flatten().map(size_of);
        let dsize = dsize.sum();
        let references = copies.references;
        let this = Sums {
            blocks: 1,
            lsize,
            psize,
            dsize,
            referenced_blocks: references,
            referenced_lsize: lsize.saturating_mul(references),
            referenced_psize: psize.saturating_mul(references),
            referenced_dsize: dsize.saturating_mul(references),
        };
        sums = sums.combined(&this, u64::saturating_add);
    }
    sums
}
