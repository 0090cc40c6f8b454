//! The error log: blocks that could not be repaired, kept in the pool until a scrub finds them whole.
//!
//! ```text
//! MOS directory   errlog_last    ZAP of what the last finished scan, and reads since, found
//!                 errlog_scrub   ZAP of what the running scan finds; becomes the last one at its end
//! ```
//!
//! With the feature head_errlog each is a ZAP from head datasets to ZAPs, whose names are
//! object:level:block:birth; without it the names are objset:object:level:block.
//!
//! Learnt from: `spa_errlog.c` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/scan_state.rs`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use dmu::Objset;
use dsl::write::{PromotedHeads, SyncTaskContext};
use lock::{Mutex, rank};
use ondisk::dsl::{Dataset, Dir};
use ondisk::feature::Feature;
use ondisk::history::{parse_error, parse_head_error};
use ondisk::{Blkptr, ObjectType};
use units::{Level, ObjectId, ObjsetId, Txg, Zbookmark};
use zap::{NewZap, Zap, ZapValue};
use zio::Source;

use super::log::LOG_LEVEL;
use super::targets::ScanDatasets;
use crate::directory::POOL_DIRECTORY;
use crate::{ActivePool, Error, PoolDirectory};

const LAST_ENTRY: &str = "errlog_last";
const SCRUB_ENTRY: &str = "errlog_scrub";
const HEAD_ERRLOG: &str = "com.delphix:head_errlog";
/// No log that is read has more entries.
const MAX_ENTRIES: usize = 100_000;

/// A damaged block of the error log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LoggedError {
    /// Its place: in a head if its birth is known.
    pub(crate) zbookmark: Zbookmark,
    /// When it was born; zero: that is not known.
    pub(crate) birth: Txg,
}

/// Blocks that wait for the next txg.
#[derive(Default)]
pub(crate) struct ErrorLog(Mutex<PendingErrors, { rank::ERROR_LOG }>);

#[derive(Default)]
struct PendingErrors {
    scan: BTreeMap<Zbookmark, Txg>,
    last: BTreeMap<Zbookmark, Txg>,
    is_scanning: bool,
    end: Option<LogEnd>,
}

/// What becomes of the log of a scan that ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogEnd {
    /// It replaces the last log: the scan read everything.
    Replace,
    /// It is added to the last log.
    Merge,
}

impl ErrorLog {
    /// Records that a block, born in a txg, could not be read or repaired. A block past the limit is found again
    /// by the next reader, or a scrub.
    pub(crate) fn record(&self, zbookmark: Zbookmark, birth: Txg) {
        let mut pending = self.0.lock();
        let list = if pending.is_scanning { &mut pending.scan } else { &mut pending.last };
        if list.len() < MAX_ENTRIES {
            list.entry(zbookmark).or_insert(birth);
        }
    }

    /// From now on blocks go to the log of the scan.
    pub(super) fn begin_scan(&self) {
        self.0.lock().is_scanning = true;
    }

    /// The scan ended, with the txg that is written. Its log replaces the last one if it read everything.
    /// Otherwise it is added: damage elsewhere is still there.
    pub(super) fn end_scan(&self, has_read_all: bool) {
        let mut pending = self.0.lock();
        let end = if has_read_all { LogEnd::Replace } else { LogEnd::Merge };
        (pending.is_scanning, pending.end) = (false, Some(end));
    }

    /// Writes what waits, with the txg.
    pub(crate) fn write(&self, change: &SyncTaskContext<'_>) -> Result<(), Error> {
        let pending = {
            let mut pending = self.0.lock();
            let is_scanning = pending.is_scanning;
            std::mem::replace(&mut *pending, PendingErrors { is_scanning, ..Default::default() })
        };
        if pending.scan.is_empty() && pending.last.is_empty() && pending.end.is_none() {
            return Ok(());
        }
        let directory = Zap::open(change.mos.object(POOL_DIRECTORY)?)?;
        let number = |name: &str| directory.lookup_u64(name.as_bytes());
        let mut last = ObjectId::new(number(LAST_ENTRY)?.unwrap_or(0));
        let mut scan = ObjectId::new(number(SCRUB_ENTRY)?.unwrap_or(0));
        let by_head = has_head_errlog(change.mos)?;
        add_errors(change, by_head, &mut last, &pending.last)?;
        add_errors(change, by_head, &mut scan, &pending.scan)?;
        match pending.end {
            None => {}
            Some(LogEnd::Merge) if last.exists() => {
                let found = log_entries(change.mos, by_head, scan)?;
                let found = found.into_iter().map(|error| (error.zbookmark, error.birth));
                add_errors(change, by_head, &mut last, &found.collect())?;
                free_log(change, by_head, scan)?;
                scan = ObjectId::META;
            }
            Some(_) => {
                free_log(change, by_head, last)?;
                (last, scan) = (scan, ObjectId::META);
            }
        }
        directory.update_u64(change.tx, LAST_ENTRY.as_bytes(), last.get())?;
        Ok(directory.update_u64(change.tx, SCRUB_ENTRY.as_bytes(), scan.get())?)
    }
}

fn has_head_errlog(mos: &Objset) -> Result<bool, Error> {
    let features = crate::features::read(&PoolDirectory::open(mos.clone())?)?;
    Ok(features.iter().any(|feature| feature.guid == HEAD_ERRLOG))
}

fn add_errors(
    change: &SyncTaskContext<'_>,
    by_head: bool,
    log: &mut ObjectId,
    errors: &BTreeMap<Zbookmark, Txg>,
) -> Result<(), Error> {
    let empty = ZapValue::new(1, vec![0]);
    for (place, birth) in errors {
        let table = open_or_create(change, log)?;
        let (object, level, block) = (place.object.get(), level_number(place.level), place.block);
        if !by_head {
            let objset = place.objset.get();
            let name = format!("{objset:x}:{object:x}:{level:x}:{:x}", block.get());
            table.update(change.tx, name.as_bytes(), &empty)?;
            continue;
        }
        let head = head_of(change.mos, place.objset).unwrap_or(place.objset);
        let key = format!("{:x}", head.get());
        let known = table.lookup_u64(key.as_bytes())?;
        let mut of_head = ObjectId::new(known.unwrap_or(0));
        let errors = open_or_create(change, &mut of_head)?;
        if known.is_none() {
            table.insert_u64(change.tx, key.as_bytes(), of_head.get())?;
        }
        let name = format!("{object:x}:{level:x}:{:x}:{:x}", block.get(), birth.get());
        errors.update(change.tx, name.as_bytes(), &empty)?;
    }
    Ok(())
}

/// The level as OpenZFS writes it: blocks of intent logs have level −2.
fn level_number(level: Level) -> u64 {
    if level == LOG_LEVEL { u64::MAX - 1 } else { u64::from(level.get()) }
}

fn open_or_create(change: &SyncTaskContext<'_>, log: &mut ObjectId) -> Result<Zap, Error> {
    if log.exists() {
        return Ok(Zap::open(change.mos.object(*log)?)?);
    }
    let new = NewZap::default();
    let table = Zap::create(change.mos, change.tx, ObjectType::ERROR_LOG, &new)?;
    *log = table.object().id();
    Ok(table)
}

fn free_log(change: &SyncTaskContext<'_>, by_head: bool, log: ObjectId) -> Result<(), Error> {
    if !log.exists() {
        return Ok(());
    }
    if by_head {
        let heads: Vec<_> = Zap::open(change.mos.object(log)?)?.entries().collect();
        for entry in heads {
            if let Some(of_head) = entry?.value.u64() {
                change.mos.free(change.tx, ObjectId::new(of_head))?;
            }
        }
    }
    Ok(change.mos.free(change.tx, log)?)
}

fn dataset_record(mos: &Objset, id: ObjsetId) -> Option<Dataset> {
    let object = mos.object(ObjectId::new(id.get())).ok()?;
    let dnode = object.dnode();
    let is_dataset = dnode.bonus_kind == ObjectType::DSL_DATASET;
    let mut bonus = ondisk::Reader::new("dataset", &dnode.bonus, dnode.order);
    Dataset::read(&mut bonus).ok().filter(|_| is_dataset)
}

/// The head of the file system or volume that a dataset is of.
fn head_of(mos: &Objset, id: ObjsetId) -> Option<ObjsetId> {
    let object = mos.object(dataset_record(mos, id)?.dir).ok()?;
    let dnode = object.dnode();
    let dir = Dir::read(&mut ondisk::Reader::new("directory", &dnode.bonus, dnode.order)).ok()?;
    Some(ObjsetId::new(dir.head.get()))
}

/// All blocks of both logs of a pool.
fn read_logs(mos: &Objset) -> Result<Vec<LoggedError>, Error> {
    let directory = PoolDirectory::open(mos.clone())?;
    let by_head = has_head_errlog(mos)?;
    let mut all = Vec::new();
    for name in [LAST_ENTRY, SCRUB_ENTRY] {
        let object = ObjectId::new(directory.lookup_u64(name)?.unwrap_or(0));
        all.append(&mut log_entries(mos, by_head, object)?);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The blocks of a log.
fn log_entries(mos: &Objset, by_head: bool, log: ObjectId) -> Result<Vec<LoggedError>, Error> {
    let mut all = Vec::new();
    if !log.exists() {
        return Ok(all);
    }
    for entry in Zap::open(mos.object(log)?)?.entries().take(MAX_ENTRIES) {
        let entry = entry?;
        let Ok(name) = std::str::from_utf8(&entry.name) else { continue };
        if !by_head {
            let zbookmark = parse_error(name).ok();
            all.extend(zbookmark.map(|zbookmark| LoggedError { zbookmark, birth: Txg::ZERO }));
            continue;
        }
        let head = u64::from_str_radix(name, 16).ok().map(ObjsetId::new);
        if let (Some(head), Some(errors)) = (head, entry.value.u64()) {
            read_head_log(mos, head, ObjectId::new(errors), &mut all)?;
        }
    }
    Ok(all)
}

fn read_head_log(
    mos: &Objset,
    head: ObjsetId,
    errors: ObjectId,
    all: &mut Vec<LoggedError>,
) -> Result<(), Error> {
    for entry in Zap::open(mos.object(errors)?)?.entries().take(MAX_ENTRIES) {
        let entry = entry?;
        let name = std::str::from_utf8(&entry.name).ok();
        if let Some((zbookmark, birth)) = name.and_then(|it| parse_head_error(head, it).ok()) {
            all.push(LoggedError { zbookmark, birth });
        }
    }
    Ok(())
}

/// Moves the entries of a log that a promotion moved to another head: those of blocks before the origin.
fn move_entries(
    change: &SyncTaskContext<'_>,
    log: ObjectId,
    heads: PromotedHeads,
) -> Result<(), Error> {
    if !log.exists() {
        return Ok(());
    }
    let table = Zap::open(change.mos.object(log)?)?;
    let key = |head: ObjectId| format!("{:x}", head.get());
    let of_head = |head| table.lookup_u64(key(head).as_bytes());
    let Some(from) = of_head(heads.demoted)? else { return Ok(()) };
    let objset = ObjsetId::new(heads.demoted.get());
    let mut shared = Vec::new();
    for entry in Zap::open(change.mos.object(ObjectId::new(from))?)?.entries().take(MAX_ENTRIES) {
        let name = entry?.name;
        let parsed = std::str::from_utf8(&name).ok().map(|name| parse_head_error(objset, name));
        if matches!(parsed, Some(Ok((_, birth))) if birth <= heads.origin_txg) {
            shared.push(name);
        }
    }
    if shared.is_empty() {
        return Ok(());
    }
    let known = of_head(heads.promoted)?;
    let mut to = ObjectId::new(known.unwrap_or(0));
    let target = open_or_create(change, &mut to)?;
    if known.is_none() {
        table.insert_u64(change.tx, key(heads.promoted).as_bytes(), to.get())?;
    }
    let source = Zap::open(change.mos.object(ObjectId::new(from))?)?;
    for name in shared {
        target.update(change.tx, &name, &ZapValue::new(1, vec![0]))?;
        source.remove(change.tx, &name)?;
    }
    Ok(())
}

/// Moves entries of the error log from the head of a clone's origin to the promoted clone.
pub fn move_logged_errors(change: &SyncTaskContext<'_>, heads: PromotedHeads) -> Result<(), Error> {
    if !has_head_errlog(change.mos)? {
        return Ok(());
    }
    let directory = PoolDirectory::open(change.mos.clone())?;
    for name in [LAST_ENTRY, SCRUB_ENTRY] {
        let log = ObjectId::new(directory.lookup_u64(name)?.unwrap_or(0));
        move_entries(change, log, heads)?;
    }
    Ok(())
}

impl ActivePool {
    /// Enables a feature. The logs get the form of head_errlog, if it is that one; entries of blocks that are gone are
    /// left out.
    pub fn enable_feature(
        &self,
        change: &SyncTaskContext<'_>,
        feature: &Feature,
    ) -> Result<(), Error> {
        let is_new_form = feature.guid == HEAD_ERRLOG && !has_head_errlog(change.mos)?;
        let mut kept = Vec::new();
        if is_new_form {
            let directory = PoolDirectory::open(change.mos.clone())?;
            for name in [LAST_ENTRY, SCRUB_ENTRY] {
                let log = ObjectId::new(directory.lookup_u64(name)?.unwrap_or(0));
                let errors = log_entries(change.mos, false, log)?;
                kept.push((name, self.find_births(change.mos, errors)));
            }
        }
        dsl::write::features::enable(change, feature)?;
        for (name, errors) in kept {
            let mut log = ObjectId::META;
            add_errors(change, true, &mut log, &errors)?;
            let directory = Zap::open(change.mos.object(POOL_DIRECTORY)?)?;
            directory.update_u64(change.tx, name.as_bytes(), log.get())?;
        }
        Ok(())
    }

    /// When the blocks at the places of errors were born.
    fn find_births(&self, mos: &Objset, errors: Vec<LoggedError>) -> BTreeMap<Zbookmark, Txg> {
        let datasets = ScanDatasets::read(mos, &mut |_| {});
        let source = Arc::new(self.reader().with_raw_dnodes()) as Arc<dyn Source>;
        let open = |id: ObjsetId| {
            let root = datasets.get(id)?.root();
            Objset::open(Arc::clone(&source), id, root, None).ok()
        };
        let mut objsets = HashMap::from([(ObjsetId::MOS, Some(mos.clone()))]);
        let birth = |error: LoggedError| {
            let place = error.zbookmark;
            let objset = objsets.entry(place.objset).or_insert_with(|| open(place.objset));
            let block = objset.as_ref().and_then(|objset| pointer_at(objset, place));
            block.map(|block| (place, block.birth()))
        };
        errors.into_iter().filter_map(birth).collect()
    }

    /// Whether the error log has the blocks by their heads.
    pub(super) fn has_head_errlog(&self) -> Result<bool, Error> {
        has_head_errlog(&self.synced_mos())
    }

    /// The places of all blocks of the error log: in each snapshot, head and clone that refers to them still.
    /// A block that nothing refers to any more is left out.
    pub fn damaged_places(&self) -> Result<Vec<Zbookmark>, Error> {
        let mos = self.synced_mos();
        let logged = read_logs(&mos)?;
        if logged.is_empty() {
            return Ok(Vec::new());
        }
        let mut places = Vec::new();
        let mut families = Families::default();
        for error in logged.iter().take(MAX_ENTRIES) {
            let place = error.zbookmark;
            if error.birth.is_zero() || place.objset == ObjsetId::MOS {
                places.push(place);
                continue;
            }
            let family = families.of(self, &mos, place.objset);
            for (id, objset) in family {
                let place = Zbookmark { objset: *id, ..place };
                if pointer_at(objset, place).is_some_and(|block| block.birth() == error.birth) {
                    places.push(place);
                }
            }
        }
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }

    /// How many blocks the error log has.
    pub fn logged_error_count(&self) -> Result<u64, Error> {
        let logged = read_logs(&self.synced_mos())?;
        Ok(units::to_u64(logged.len()))
    }
}

/// The pointer to the block at a place; none if there is no block.
pub(super) fn pointer_at(objset: &Objset, place: Zbookmark) -> Option<Blkptr> {
    if place.level == LOG_LEVEL {
        return None;
    }
    let pointer = if place == Zbookmark::root(place.objset) {
        objset.root().clone()
    } else if place.object == ObjectId::META {
        let meta = objset.special_object(dmu::SpecialObject::Meta)?;
        meta.pointer(place.level, place.block).ok()?
    } else {
        let object = objset.object(place.object).ok()?;
        if place.block == dmu::SPILL_BLOCK {
            object.dnode().spill.clone()?
        } else {
            object.pointer(place.level, place.block).ok()?
        }
    };
    (!pointer.is_hole()).then_some(pointer)
}

/// The snapshots, heads and clones that may share blocks with a head.
#[derive(Default)]
struct Families(HashMap<ObjsetId, Vec<(ObjsetId, Objset)>>);

impl Families {
    fn of(&mut self, pool: &ActivePool, mos: &Objset, head: ObjsetId) -> &[(ObjsetId, Objset)] {
        let load = || {
            let datasets = ScanDatasets::read(mos, &mut |_| {});
            let ids = datasets.family(head);
            let source = Arc::new(pool.reader().with_raw_dnodes()) as Arc<dyn Source>;
            let open = |id: ObjsetId| {
                let root = datasets.get(id)?.root();
                Objset::open(Arc::clone(&source), id, root, None).ok()
            };
            ids.into_iter().filter_map(|id| Some((id, open(id)?))).collect()
        };
        self.0.entry(head).or_insert_with(load)
    }
}
