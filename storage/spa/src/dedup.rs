//! The tables of dedup: what blocks of a content there are, and how many references to each.
//!
//! Each checksum that dedup goes by has a table of the blocks that are referred to once and one of
//! those referred to more often; a block moves from one to the other. Sums over a table are kept in
//! `DDT-statistics`. With `fast_dedup` a directory holds a checksum's tables and two logs of what
//! is not in them yet; we take over what the real system left there, and write to the tables
//! straight. What a txg changes is held in memory until its sync.

use std::collections::BTreeMap;

use dmu::Objset;
use ondisk::dedup::{
    Class, DedupKey, DedupValue, LogHeader, Shape, Sums, TableName, histogram_words,
};
use ondisk::zap::fat::Flags;
use ondisk::{Blkptr, Checksum, Dva, ObjectType, Reader};
use parking_lot::Mutex;
use txg::Tx;
use units::{ObjectId, Txg};
use zap::{NewZap, Zap, ZapValue};

use crate::{DedupLogs, Directory, Error};

/// A table that is metadata (DMU_OTN_ZAP_METADATA).
const DIRECTORY: ObjectType = ObjectType(0xc4);
/// What a directory of `fast_dedup` says: its version, and that values are flat and there are logs.
const FAST: [(&[u8], u64); 2] = [(b"version", 1), (b"flags", 3)];

/// The words of a key.
type Words = [u64; 5];

/// Gives the bytes that a copy takes, as space is counted.
pub type SizeOf<'a> = &'a dyn Fn(&Dva) -> u64;

/// The tables of dedup of a pool.
pub struct Dedup {
    mos: Objset,
    fast: bool,
    families: Mutex<BTreeMap<u8, Family>>,
}

/// What is kept of one checksum.
struct Family {
    checksum: Checksum,
    /// The directory of `fast_dedup`; the others are in the pool's.
    directory: Option<Zap>,
    shape: Shape,
    tables: BTreeMap<Class, Table>,
    logs: Vec<ObjectId>,
    changed: BTreeMap<Words, Entry>,
    /// Blocks in the logs that nobody refers to: the real system frees them with the log.
    unreferenced: Vec<Blkptr>,
}

struct Table {
    zap: Zap,
    sums: Vec<Sums>,
}

/// A block that has changed.
struct Entry {
    now: DedupValue,
    /// Where it is now, and what is counted there of it. What was only in a log is not counted.
    stored: Option<(Class, DedupValue)>,
    logged: bool,
}

impl Dedup {
    /// Reads what a pool's directory tells. `fast`: new tables are those of `fast_dedup`.
    pub fn load(mos: &Objset, fast: bool) -> Result<Self, Error> {
        let directory = Directory::open(mos.clone())?;
        let mut families = BTreeMap::new();
        for number in 0..u8::MAX {
            let Some(checksum) = Checksum::from_number(number) else { break };
            if let Some(family) = Family::load(mos, &directory, checksum)? {
                families.insert(number, family);
            }
        }
        Ok(Self { mos: mos.clone(), fast, families: Mutex::new(families) })
    }

    /// What is known of a block; `None` if there is none of that content.
    pub fn find(&self, checksum: Checksum, key: &DedupKey) -> Result<Option<DedupValue>, Error> {
        let families = self.families.lock();
        let Some(family) = families.get(&checksum.number()) else { return Ok(None) };
        let words = key.to_words();
        if let Some(entry) = family.changed.get(&words) {
            return Ok(Some(entry.now.clone()).filter(|value| value.references() > 0));
        }
        Ok(family.stored(&words)?.map(|(_, value)| value))
    }

    /// The form that the values of a checksum have.
    pub fn shape(&self, checksum: Checksum) -> Shape {
        match self.families.lock().get(&checksum.number()) {
            Some(family) => family.shape,
            None if self.fast => Shape::Flat,
            None => Shape::Traditional,
        }
    }

    /// Says what is now true of a block; one without references is forgotten.
    pub fn put(&self, checksum: Checksum, key: &DedupKey, now: DedupValue) -> Result<(), Error> {
        let mut families = self.families.lock();
        let new = || Family::new(checksum, self.fast);
        let family = families.entry(checksum.number()).or_insert_with(new);
        let words = key.to_words();
        if let Some(entry) = family.changed.get_mut(&words) {
            entry.now = now;
            return Ok(());
        }
        let stored = family.stored(&words)?;
        family.changed.insert(words, Entry { now, stored, logged: false });
        Ok(())
    }

    /// Bytes that the tables save, as they were last written.
    pub fn saved(&self) -> u64 {
        let families = self.families.lock();
        let tables = families.values().flat_map(|family| family.tables.values());
        let sums = tables.flat_map(|table| &table.sums);
        let saved = sums.map(|sums| sums.referenced_dsize.wrapping_sub(sums.dsize));
        saved.fold(0, u64::wrapping_add)
    }

    /// Takes the blocks that nobody referred to any more when the tables were read, and that the real
    /// system had not freed yet: the group that empties the logs is to free them.
    pub fn take_unreferenced(&self) -> Vec<Blkptr> {
        let mut families = self.families.lock();
        families.values_mut().flat_map(|family| std::mem::take(&mut family.unreferenced)).collect()
    }

    /// Writes what has changed. Gives by how many the directories of `fast_dedup` have become more:
    /// what the feature's count of uses is to be changed by.
    pub fn sync(
        &self,
        tx: &Tx,
        size_of: SizeOf<'_>,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<i64, Error> {
        let mut families = self.families.lock();
        if families.values().all(|family| family.changed.is_empty()) {
            return Ok(0);
        }
        let mut work = Work { mos: &self.mos, tx, size_of, random, more: 0 };
        let root = Directory::open(self.mos.clone())?;
        let statistics = work.statistics(&root)?;
        for family in families.values_mut().filter(|family| !family.changed.is_empty()) {
            family.sync(&mut work, &root, &statistics)?;
        }
        families.retain(|_, family| family.directory.is_some() || !family.tables.is_empty());
        Ok(work.more)
    }
}

/// What every step of a sync needs.
struct Work<'a> {
    mos: &'a Objset,
    tx: &'a Tx,
    size_of: SizeOf<'a>,
    random: &'a mut dyn FnMut() -> u64,
    more: i64,
}

impl Work<'_> {
    fn plain_table(&mut self, kind: ObjectType) -> Result<Zap, Error> {
        let new = NewZap { salt: (self.random)(), ..NewZap::default() };
        Ok(Zap::create(self.mos, self.tx, kind, &new)?)
    }

    /// The table of sums; one is made if there is none yet.
    fn statistics(&mut self, root: &Directory) -> Result<Zap, Error> {
        let name = TableName::Statistics.to_string();
        if let Some(object) = root.object(&name)? {
            return Ok(Zap::open(object)?);
        }
        let table = self.plain_table(ObjectType::DDT_STATS)?;
        root.table().insert_u64(self.tx, name.as_bytes(), table.object().id().get())?;
        Ok(table)
    }

    /// Adds a block to the sums of its table, or takes it out of them.
    fn count(
        &self,
        table: &mut Table,
        words: &Words,
        value: &DedupValue,
        add: bool,
    ) -> Result<(), Error> {
        let key = DedupKey::from_words(words)?;
        let sums = sums_of(&key, value, self.size_of);
        let Some(bucket) = sums.referenced_blocks.checked_ilog2() else { return Ok(()) };
        if let Some(bucket) = table.sums.get_mut(usize::try_from(bucket).unwrap_or(usize::MAX)) {
            let by = if add { u64::saturating_add } else { u64::saturating_sub };
            *bucket = bucket.combined(&sums, by);
        }
        Ok(())
    }
}

impl Family {
    fn new(checksum: Checksum, fast: bool) -> Self {
        let shape = if fast { Shape::Flat } else { Shape::Traditional };
        let (tables, changed) = (BTreeMap::new(), BTreeMap::new());
        let (logs, unreferenced) = (Vec::new(), Vec::new());
        Self { checksum, directory: None, shape, tables, logs, changed, unreferenced }
    }

    fn load(mos: &Objset, root: &Directory, checksum: Checksum) -> Result<Option<Self>, Error> {
        let mut family = Self::new(checksum, false);
        if let Some(object) = root.object(&TableName::Directory(checksum).to_string())? {
            let directory = Zap::open(object)?;
            family.shape = Shape::from_flags(directory.lookup_u64(b"flags")?.unwrap_or(0));
            family.directory = Some(directory);
        }
        let statistics = root.object(&TableName::Statistics.to_string())?;
        let statistics = statistics.map(Zap::open).transpose()?;
        for class in Class::ALL {
            let name = TableName::Table(checksum, class).to_string();
            let Some(id) = family.home(root).lookup_u64(name.as_bytes())? else { continue };
            let sums = match &statistics {
                Some(table) => table.lookup(name.as_bytes())?,
                None => None,
            };
            let bytes: Vec<u8> =
                sums.iter().flat_map(ZapValue::integers).flat_map(u64::to_le_bytes).collect();
            let sums = ondisk::dedup::histogram(&bytes, ondisk::Order::Little)?;
            let zap = Zap::open(mos.object(ObjectId::new(id))?)?;
            family.tables.insert(class, Table { zap, sums });
        }
        family.load_logs(mos)?;
        Ok((family.directory.is_some() || !family.tables.is_empty()).then_some(family))
    }

    /// Takes over what is in the logs.
    fn load_logs(&mut self, mos: &Objset) -> Result<(), Error> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let mut logs = DedupLogs::read(mos, directory)?;
        self.unreferenced = logs.take_unreferenced(self.checksum)?;
        self.logs = logs.objects;
        let entries = logs.entries.into_iter();
        let logged = |(words, now)| (words, Entry { now, stored: None, logged: true });
        self.changed = entries.map(logged).collect();
        Ok(())
    }

    /// The directory in which its tables are named.
    fn home<'a>(&'a self, root: &'a Directory) -> &'a Zap {
        self.directory.as_ref().unwrap_or_else(|| root.table())
    }

    /// Where a block is, and what is said of it there.
    fn stored(&self, words: &Words) -> Result<Option<(Class, DedupValue)>, Error> {
        for (class, table) in &self.tables {
            if let Some(value) = table.zap.lookup_key64(words)? {
                return Ok(Some((*class, DedupValue::parse(value.bytes(), self.shape)?)));
            }
        }
        Ok(None)
    }

    fn sync(
        &mut self,
        work: &mut Work<'_>,
        root: &Directory,
        statistics: &Zap,
    ) -> Result<(), Error> {
        if self.shape == Shape::Flat && self.directory.is_none() {
            let directory = work.plain_table(DIRECTORY)?;
            for (name, number) in FAST {
                directory.insert_u64(work.tx, name, number)?;
            }
            let name = TableName::Directory(self.checksum).to_string();
            root.table().insert_u64(work.tx, name.as_bytes(), directory.object().id().get())?;
            self.directory = Some(directory);
            work.more = work.more.saturating_add(1);
        }
        for (words, entry) in std::mem::take(&mut self.changed) {
            self.write(work, root, &words, &entry)?;
        }
        self.empty_logs(work)?;
        let mut left = 0_u64;
        for (class, table) in &self.tables {
            let name = TableName::Table(self.checksum, *class).to_string();
            let words = histogram_words(&table.sums);
            let bytes = words.into_iter().flat_map(u64::to_be_bytes).collect();
            statistics.update(work.tx, name.as_bytes(), &ZapValue::new(8, bytes))?;
            left = left.saturating_add(table.zap.count()?);
        }
        if left == 0 { self.destroy(work, root, statistics) } else { Ok(()) }
    }

    /// Puts a block into the table that it belongs to, and takes it out of others.
    fn write(
        &mut self,
        work: &mut Work<'_>,
        root: &Directory,
        words: &Words,
        entry: &Entry,
    ) -> Result<(), Error> {
        let references = entry.now.references();
        let class = if references > 1 { Class::Duplicate } else { Class::Unique };
        let wanted = (references > 0).then_some(class);
        let was = entry.stored.as_ref().map(|(class, _)| *class);
        for (class, table) in &mut self.tables {
            if wanted != Some(*class) && (entry.logged || was == Some(*class)) {
                table.zap.remove_key64(work.tx, words)?;
            }
        }
        if let Some((class, value)) = &entry.stored
            && let Some(table) = self.tables.get_mut(class)
        {
            work.count(table, words, value, false)?;
        }
        if references == 0 {
            return Ok(());
        }
        if !self.tables.contains_key(&class) {
            let table = self.create(work, root, class)?;
            self.tables.insert(class, table);
        }
        if let Some(table) = self.tables.get_mut(&class) {
            let value = ZapValue::new(1, entry.now.pack());
            table.zap.update_key64(work.tx, words, &value)?;
            work.count(table, words, &entry.now, true)?;
        }
        Ok(())
    }

    fn create(&self, work: &mut Work<'_>, root: &Directory, class: Class) -> Result<Table, Error> {
        // of all these checksums but one the first word is as good as any hash
        let flags = if self.checksum == Checksum::EdonR { 3 } else { 7 };
        let (salt, flags) = ((work.random)(), Flags(flags));
        let new = NewZap { flags, salt, block_shift: 15, indirect_shift: 15, ..NewZap::default() };
        let zap = Zap::create(work.mos, work.tx, ObjectType::DDT_ZAP, &new)?;
        let name = TableName::Table(self.checksum, class).to_string();
        self.home(root).insert_u64(work.tx, name.as_bytes(), zap.object().id().get())?;
        Ok(Table { zap, sums: vec![Sums::default(); 64] })
    }

    /// Says that nothing is in the logs. One of the two stays the one that is being emptied: the
    /// real system goes by that.
    fn empty_logs(&self, work: &Work<'_>) -> Result<(), Error> {
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
    fn destroy(
        &mut self,
        work: &mut Work<'_>,
        root: &Directory,
        statistics: &Zap,
    ) -> Result<(), Error> {
        for (class, table) in std::mem::take(&mut self.tables) {
            let name = TableName::Table(self.checksum, class).to_string();
            self.home(root).remove(work.tx, name.as_bytes())?;
            statistics.remove(work.tx, name.as_bytes())?;
            work.mos.free(work.tx, table.zap.object().id())?;
        }
        for id in std::mem::take(&mut self.logs) {
            work.mos.free(work.tx, id)?;
        }
        if let Some(directory) = self.directory.take() {
            let name = TableName::Directory(self.checksum).to_string();
            root.table().remove(work.tx, name.as_bytes())?;
            work.mos.free(work.tx, directory.object().id())?;
            work.more = work.more.saturating_sub(1);
        }
        Ok(())
    }
}

/// What a block adds to the sums of its table.
pub(crate) fn sums_of(key: &DedupKey, value: &DedupValue, size_of: SizeOf<'_>) -> Sums {
    let (lsize, psize) = (u64::from(key.lsize), u64::from(key.psize));
    let mut sums = Sums::default();
    for (_, copies) in value.sets() {
        // with encryption the third is no address
        let places = if key.encrypted { 2 } else { 3 };
        let dsize = copies.dvas.iter().take(places).flatten().map(size_of);
        let dsize = dsize.fold(0, u64::saturating_add);
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
