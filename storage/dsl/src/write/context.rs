//! The context of changes to the pool's datasets, and their primitive accesses to the MOS.
//!
//! The txg sync thread makes all changes to datasets, one after the other. Everything else that an
//! operation needs comes in with [`SyncTaskContext`].

use std::sync::Arc;

use dmu::{NewObject, Object, Objset};
use ondisk::dsl::{Dataset as DatasetPhys, Dir as DirPhys};
use ondisk::object_type::Content;
use ondisk::objset::LogHeader;
use ondisk::{Blkptr, Dva, ObjectType};
use txg::Tx;
use units::{Guid, ObjectId, ObjsetId, Txg};
use zap::{NewZap, Normalization, Zap, ZapEntry, ZapValue};
use zio::Source;

use super::features::{self, guid};
use crate::dir::read_zap_field;
use crate::{Error, Result};

/// The time at which something happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: u64,
    /// Nanoseconds since then.
    pub nanoseconds: u64,
}

/// The context of changes to datasets.
pub struct SyncTaskContext<'a> {
    /// The pool's own object set.
    pub mos: &'a Objset,
    /// The group that is being written.
    pub tx: &'a Tx,
    /// The pool's name, with which all names of datasets begin.
    pub pool: &'a str,
    /// The pool's version.
    pub version: u64,
    /// When this is.
    pub now: Moment,
    /// The space of the root directory: the pool's deflated space minus slop.
    pub usable_space: u64,
    /// The reader of destroyed datasets' trees, whose keys are gone: it reads dnodes as they are
    /// stored.
    pub raw_source: &'a Arc<dyn Source>,
    /// Any number.
    pub random: &'a (dyn Fn() -> u64 + Sync),
    /// Frees a block.
    pub free_block: &'a (dyn Fn(&Blkptr) + Sync),
    /// Marks an address on a removed vdev as obsolete.
    pub mark_obsolete: &'a (dyn Fn(Dva) + Sync),
    /// Frees the blocks of a dataset's intent log, which no account includes.
    pub free_log: &'a (dyn Fn(ObjsetId, &LogHeader) + Sync),
    /// Bytes that a block takes of the pool's deflated space, all its copies together.
    pub dsize: &'a (dyn Fn(&Blkptr) -> u64 + Sync),
    /// Tells a running scan that a dataset's content moved to another dataset, or is gone.
    pub dataset_event: &'a (dyn Fn(DatasetEvent) + Sync),
}

/// A change of datasets that a running scan follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetEvent {
    /// The content of a head is also that of a new snapshot.
    Snapshotted {
        /// The head.
        head: ObjsetId,
        /// The snapshot.
        snapshot: ObjsetId,
    },
    /// A snapshot is destroyed; the blocks that it shared belong to the next dataset.
    SnapshotDestroyed {
        /// The snapshot.
        snapshot: ObjsetId,
        /// The next snapshot, or the head.
        next: ObjsetId,
    },
    /// A head is destroyed.
    HeadDestroyed {
        /// The head.
        head: ObjsetId,
    },
    /// Two heads exchange their content.
    HeadsSwapped {
        /// One head.
        first: ObjsetId,
        /// The other head.
        second: ObjsetId,
    },
}

impl std::fmt::Debug for SyncTaskContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Change({} in txg {})", self.pool, self.tx.txg())
    }
}

/// The table of the pool's directory, in every pool.
pub(crate) const POOL_DIRECTORY: ObjectId = ObjectId::new(1);
/// The type of an object that is a table of metadata.
pub(crate) const ZAP_METADATA: ObjectType = ObjectType(0x80 | 0x40 | 4);
/// The type of an object that is an array of numbers.
pub(crate) const U64_METADATA: ObjectType = ObjectType(0x80 | 0x40 | 3);
/// Bytes of a block of a list.
pub(crate) const BPOBJ_BLOCK_SIZE: u32 = 128 << 10;
/// Bytes of a block of an object that has no use for more.
const MIN_BLOCK_SIZE: u32 = 512;
/// The first txg of a pool; objects that it creates count as older than any.
const INITIAL_TXG: u64 = 4;

impl<'a> SyncTaskContext<'a> {
    /// The same in a pool of another version.
    pub(crate) const fn with_version(&self, version: u64) -> SyncTaskContext<'a> {
        SyncTaskContext {
            version,
            mos: self.mos,
            tx: self.tx,
            pool: self.pool,
            now: self.now,
            usable_space: self.usable_space,
            raw_source: self.raw_source,
            random: self.random,
            free_block: self.free_block,
            mark_obsolete: self.mark_obsolete,
            free_log: self.free_log,
            dsize: self.dsize,
            dataset_event: self.dataset_event,
        }
    }
}

impl SyncTaskContext<'_> {
    /// Fails if the pool's version is too old.
    pub(crate) fn require_version(&self, needed: u64) -> Result<()> {
        let version = self.version;
        if version < needed {
            Err(Error::UnsupportedPoolVersion { version, needed })
        } else {
            Ok(())
        }
    }

    /// The group that is being written.
    pub(crate) fn txg(&self) -> Txg {
        self.tx.txg()
    }

    /// The creation txg of a dataset that is created now.
    pub(crate) fn creation_txg(&self) -> Txg {
        if self.txg().get() == INITIAL_TXG { Txg::new(1) } else { self.txg() }
    }

    /// A dataset's root block.
    pub fn dataset_root(&self, dataset: ObjsetId) -> Result<Blkptr> {
        Ok(self.dataset_phys(ObjectId::new(dataset.get()))?.root)
    }

    /// An identity for something new.
    pub(crate) fn new_guid(&self) -> Guid {
        Guid::new((self.random)().max(1))
    }

    /// 56 bits that identify a file system to a kernel.
    pub(crate) fn new_fsid(&self) -> u64 {
        ((self.random)() >> 8).max(1)
    }

    pub(crate) fn object(&self, id: ObjectId) -> Result<Object> {
        Ok(self.mos.object(id)?)
    }

    /// Makes an object with a bonus and no content.
    pub(crate) fn create_object(
        &self,
        kind: ObjectType,
        block_size: u32,
        bonus_kind: ObjectType,
        bonus: Vec<u8>,
    ) -> Result<ObjectId> {
        let new = NewObject::new(kind, block_size).with_bonus(bonus_kind, bonus);
        Ok(self.mos.create(self.tx, &new)?.id())
    }

    /// Creates an object that has only a bonus.
    pub(crate) fn create_bonus_object(&self, kind: ObjectType, bonus: Vec<u8>) -> Result<ObjectId> {
        self.create_object(kind, MIN_BLOCK_SIZE, kind, bonus)
    }

    /// Makes an empty table.
    pub(crate) fn create_zap(&self, kind: ObjectType) -> Result<ObjectId> {
        let new = NewZap { salt: (self.random)(), ..NewZap::default() };
        Ok(Zap::create(self.mos, self.tx, kind, &new)?.object().id())
    }

    /// Makes an empty table of names that may be compared without case.
    pub(crate) fn create_case_insensitive_zap(&self, kind: ObjectType) -> Result<ObjectId> {
        let normalization = Normalization::UPPER;
        let new = NewZap { normalization, salt: (self.random)(), ..NewZap::default() };
        Ok(Zap::create(self.mos, self.tx, kind, &new)?.object().id())
    }

    /// Makes an empty table with a bonus.
    pub(crate) fn create_zap_with_bonus(
        &self,
        kind: ObjectType,
        bonus_kind: ObjectType,
        bonus: Vec<u8>,
    ) -> Result<ObjectId> {
        let new = NewZap { bonus_kind, bonus, salt: (self.random)(), ..NewZap::default() };
        Ok(Zap::create(self.mos, self.tx, kind, &new)?.object().id())
    }

    /// Creates a table with a bonus and the names of another, all with the value `number`. Returns
    /// it with the number of its names; `None` if the other has another byte order.
    pub(crate) fn copy_zap_with_bonus(
        &self,
        other: ObjectId,
        (kind, bonus_kind): (ObjectType, ObjectType),
        bonus: Vec<u8>,
        number: u64,
    ) -> Result<Option<(ObjectId, u64)>> {
        let other = self.open_zap(other)?;
        if !other.is_little_endian()? {
            return Ok(None);
        }
        let new = NewZap { bonus_kind, bonus, ..NewZap::default() };
        let copy = other.copy_with_number(self.tx, kind, &new, number)?;
        Ok(Some((copy.object().id(), other.count()?)))
    }

    /// Makes an empty table and names it in another.
    pub(crate) fn create_named_zap(
        &self,
        kind: ObjectType,
        within: ObjectId,
        name: &str,
    ) -> Result<ObjectId> {
        let table = self.create_zap(kind)?;
        self.insert_u64(within, name, table.get())?;
        Ok(table)
    }

    pub(crate) fn free_object(&self, id: ObjectId) -> Result<()> {
        Ok(self.mos.free(self.tx, id)?)
    }

    /// Frees an object if the field that names it is set.
    pub(crate) fn free_object_if_set(&self, id: ObjectId) -> Result<()> {
        if id.exists() { self.free_object(id) } else { Ok(()) }
    }

    /// Frees a directory or dataset, which may have become a table of newer fields.
    pub(crate) fn free_zapified(&self, id: ObjectId) -> Result<()> {
        if is_zapified(&self.object(id)?) {
            features::decrement(self, guid::EXTENSIBLE_DATASET)?;
        }
        self.free_object(id)
    }

    // ---- tables ----

    fn open_zap(&self, id: ObjectId) -> Result<Zap> {
        Ok(Zap::open(self.object(id)?)?)
    }

    /// A number by its name; `None` also if the table is missing.
    pub(crate) fn lookup_u64(&self, table: ObjectId, name: &str) -> Result<Option<u64>> {
        if !table.exists() {
            return Ok(None);
        }
        Ok(self.open_zap(table)?.lookup_u64(name.as_bytes())?)
    }

    pub(crate) fn lookup(&self, table: ObjectId, name: &str) -> Result<Option<ZapValue>> {
        if !table.exists() {
            return Ok(None);
        }
        Ok(self.open_zap(table)?.lookup(name.as_bytes())?)
    }

    /// All entries; none if the table is missing.
    pub(crate) fn zap_entries(&self, table: ObjectId) -> Result<Vec<ZapEntry>> {
        if !table.exists() {
            return Ok(Vec::new());
        }
        Ok(self.open_zap(table)?.entries().collect::<zap::Result<_>>()?)
    }

    /// The numbers of all entries.
    pub(crate) fn zap_u64s(&self, table: ObjectId) -> Result<Vec<u64>> {
        Ok(self.zap_entries(table)?.iter().filter_map(|entry| entry.value.u64()).collect())
    }

    pub(crate) fn zap_count(&self, table: ObjectId) -> Result<u64> {
        if table.exists() { Ok(self.open_zap(table)?.count()?) } else { Ok(0) }
    }

    /// Adds a name that is not there.
    pub(crate) fn insert_u64(&self, table: ObjectId, name: &str, number: u64) -> Result<()> {
        Ok(self.open_zap(table)?.insert_u64(self.tx, name.as_bytes(), number)?)
    }

    /// Adds names that are not there.
    pub(crate) fn insert_all(&self, table: ObjectId, entries: &[(String, u64)]) -> Result<()> {
        Ok(self.open_zap(table)?.insert_all_u64(self.tx, entries)?)
    }

    /// Sets a name's value, new or existing.
    pub(crate) fn update(&self, table: ObjectId, name: &str, value: &ZapValue) -> Result<()> {
        Ok(self.open_zap(table)?.update(self.tx, name.as_bytes(), value)?)
    }

    pub(crate) fn update_u64(&self, table: ObjectId, name: &str, number: u64) -> Result<()> {
        self.update(table, name, &ZapValue::from_u64(number))
    }

    /// Removes a name; false if it was not there.
    pub(crate) fn remove(&self, table: ObjectId, name: &str) -> Result<bool> {
        Ok(self.open_zap(table)?.remove(self.tx, name.as_bytes())?)
    }

    /// Removes names, of which none must be there.
    pub(crate) fn remove_all(
        &self,
        table: ObjectId,
        names: impl Iterator<Item = String>,
    ) -> Result<()> {
        let mut open = None;
        for name in names {
            let table = match &open {
                Some(table) => table,
                None => open.insert(self.open_zap(table)?),
            };
            table.remove(self.tx, name.as_bytes())?;
        }
        Ok(())
    }

    /// Adds a number to a set of numbers.
    pub(crate) fn insert_member(&self, table: ObjectId, number: u64) -> Result<()> {
        self.insert_u64(table, &hex_name(number), number)
    }

    /// Removes a number from a set of numbers; false if it was not there.
    pub(crate) fn remove_member(&self, table: ObjectId, number: u64) -> Result<bool> {
        self.remove(table, &hex_name(number))
    }

    // ---- directories and datasets ----

    pub(crate) fn dir_phys(&self, id: ObjectId) -> Result<DirPhys> {
        let object = self.object(id)?;
        let parsed = DirPhys::parse(object.bonus(), object.bonus_order());
        parsed.map_err(|error| Error::Corrupt { object: id, why: error })
    }

    pub(crate) fn dataset_phys(&self, id: ObjectId) -> Result<DatasetPhys> {
        let object = self.object(id)?;
        let parsed = DatasetPhys::parse(object.bonus(), object.bonus_order());
        parsed.map_err(|error| Error::Corrupt { object: id, why: error })
    }

    pub(crate) fn update_dir<T>(
        &self,
        id: ObjectId,
        change: impl FnOnce(&mut DirPhys) -> T,
    ) -> Result<T> {
        let mut dir = self.dir_phys(id)?;
        let told = change(&mut dir);
        self.object(id)?.set_bonus(self.tx, ObjectType::DSL_DIR, &dir.encode())?;
        Ok(told)
    }

    pub(crate) fn update_dataset<T>(
        &self,
        id: ObjectId,
        change: impl FnOnce(&mut DatasetPhys) -> T,
    ) -> Result<T> {
        let mut dataset = self.dataset_phys(id)?;
        let told = change(&mut dataset);
        self.object(id)?.set_bonus(self.tx, ObjectType::DSL_DATASET, &dataset.encode())?;
        Ok(told)
    }

    /// The table in a field of a directory or dataset, made if there is none yet.
    pub(crate) fn zap_or_create(&self, field: ObjectId, kind: ObjectType) -> Result<ObjectId> {
        if field.exists() { Ok(field) } else { self.create_zap(kind) }
    }

    // ---- newer fields ----

    /// One of the newer fields of a directory or dataset.
    pub(crate) fn zap_field(&self, of: ObjectId, name: &str) -> Result<Option<ZapValue>> {
        read_zap_field(&self.object(of)?, name)
    }

    /// The number in one of the newer fields.
    pub(crate) fn zap_field_u64(&self, of: ObjectId, name: &str) -> Result<Option<u64>> {
        Ok(self.zap_field(of, name)?.and_then(|value| value.u64()))
    }

    /// The object in one of the newer fields.
    pub(crate) fn zap_field_object(&self, of: ObjectId, name: &str) -> Result<Option<ObjectId>> {
        let id = self.zap_field_u64(of, name)?.map(ObjectId::new);
        Ok(id.filter(|id| id.exists()))
    }

    /// Sets one of the newer fields; the first makes a table of the object.
    pub(crate) fn set_zap_field(&self, of: ObjectId, name: &str, numbers: &[u64]) -> Result<()> {
        self.zapify(of)?;
        self.update(of, name, &u64_value(numbers))
    }

    /// Removes one of the newer fields; false if it was not there.
    pub(crate) fn remove_zap_field(&self, of: ObjectId, name: &str) -> Result<bool> {
        if is_zapified(&self.object(of)?) { self.remove(of, name) } else { Ok(false) }
    }

    /// Makes a table for newer fields of a directory or dataset, if it is none yet.
    fn zapify(&self, id: ObjectId) -> Result<()> {
        let object = self.object(id)?;
        if is_zapified(&object) {
            return Ok(());
        }
        let new = NewZap { salt: (self.random)(), ..NewZap::default() };
        Zap::create_in(&object, self.tx, &new)?;
        object.set_kind(self.tx, ZAP_METADATA)?;
        features::increment(self, guid::EXTENSIBLE_DATASET)
    }
}

/// The intent log of a dataset; `None` if it has none, or its root block cannot be read.
pub(crate) fn log_header(change: &SyncTaskContext<'_>, id: ObjectId) -> Result<Option<LogHeader>> {
    let root = change.dataset_phys(id)?.root;
    let source = Arc::clone(change.raw_source);
    let Ok(objset) = Objset::open(source, ObjsetId::new(id.get()), &root, None) else {
        return Ok(None);
    };
    let log = objset.header().log.clone();
    Ok(Some(log).filter(|log| !log.chain.is_hole()))
}

/// Frees the intent log of a head that is destroyed, or goes back.
pub(crate) fn free_log(change: &SyncTaskContext<'_>, head: ObjectId) -> Result<()> {
    if let Some(log) = log_header(change, head)? {
        (change.free_log)(ObjsetId::new(head.get()), &log);
    }
    Ok(())
}

/// Whether a directory or dataset is a table of newer fields.
pub(crate) fn is_zapified(object: &Object) -> bool {
    object.dnode().kind.content() == Content::Zap
}

/// Numbers as a table has them.
pub(crate) fn u64_value(numbers: &[u64]) -> ZapValue {
    ZapValue::new(8, numbers.iter().flat_map(|number| number.to_be_bytes()).collect())
}

/// A number as a name: hexadecimal digits.
pub(crate) fn hex_name(number: u64) -> String {
    format!("{number:x}")
}
