//! Changes written to a log: one space map a txg for all metaslabs, instead of a write to each
//! metaslab's own map.
//!
//! Each txg flushes the metaslabs whose changes have been in the log for longest to
//! their own maps. So no log lives for long, and reading them all at an import is quick. Changes
//! before a metaslab's unflushed txg are in its own map. The log of that txg lives as
//! long as a metaslab names it, and the logs before the oldest named one are freed.

use metaslab::MetaslabChange;
use ondisk::ObjectType;
use ondisk::spacemap::{Action, SpaceMapAppender};
use units::{MetaslabId, MinusOrZero, ObjectId, Txg, VdevId};
use zap::{NewZap, Zap};

use crate::Error;
use crate::features::{self, RefcountChange};
use crate::space::load::PoolSpace;
use crate::space::log;
use crate::space::map::SpaceMapWriter;
use crate::space::write::{
    HISTOGRAM_FEATURE, LARGE_BLOCK_SIZE, LOG_FEATURE, MapSyncContext, POOL_DIRECTORY,
    free_space_map, to_change, total_bytes,
};

/// A metaslab's changes stay in the log for about this many txgs.
const TARGET_LOG_TXGS: usize = 64;
/// The most metaslabs without changes that a txg skips.
const MAX_SKIPPED: usize = 256;
/// Ranges that the log may hold in memory before metaslabs leave it earlier.
const MAX_LOGGED_RANGES: usize = 1 << 20;
/// The type of the table of logs: a ZAP of metadata.
const LOG_ZAP_TYPE: ObjectType = ObjectType(0xc4);
/// The type of the array of unflushed txgs: 64-bit metadata.
const UNFLUSHED_ARRAY_TYPE: ObjectType = ObjectType(0xc3);

type MetaslabKey = (VdevId, MetaslabId);

impl PoolSpace {
    /// Logs the changes of the txg since the last call for it. Returns whether there was
    /// any.
    pub(crate) fn log_changes(&self, writing: &MapSyncContext<'_>) -> Result<bool, Error> {
        let txg = writing.tx.txg();
        if !self.allocator.has_changes(txg) {
            return Ok(false);
        }
        // Rule: metaslabs are flushed before anything of this txg is in the log. Their unflushed txg is this one, and
        // an import applies the logs from it on: a change that is in both would be applied twice.
        let map = match self.txg_log(txg) {
            Some(map) => map,
            None => self.create_txg_log(writing)?,
        };
        let changes = self.allocator.drain_changes(txg);
        self.freed.record(&changes);
        append_to_log(writing, map, &changes)?;
        for change in &changes {
            self.write_map_header(writing, change)?;
            let key = (change.vdev, change.metaslab);
            if !self.maps.log.lock().unflushed_since.contains_key(&key) {
                self.set_unflushed_txg(writing, key)?;
            }
            let mut log = self.maps.log.lock();
            let logged = log.changes.entry(key).or_default();
            for range in &change.allocated {
                logged.apply(Action::Allocated, range.clone());
            }
            for range in &change.freed {
                logged.apply(Action::Freed, range.clone());
            }
        }
        Ok(true)
    }

    fn txg_log(&self, txg: Txg) -> Option<ObjectId> {
        self.maps.log.lock().logs.get(&txg).copied()
    }

    /// Creates the txg's log, flushes some metaslabs, and frees logs that are no longer needed.
    fn create_txg_log(&self, writing: &MapSyncContext<'_>) -> Result<ObjectId, Error> {
        let MapSyncContext { mos, tx, .. } = writing;
        let table = self.open_log_zap(writing)?;
        let map = SpaceMapWriter::create(mos, tx, LARGE_BLOCK_SIZE, self.has_histograms)?;
        let id = map.id();
        map.finish(tx)?;
        if self.has_histograms {
            features::update_refcount(mos, tx, HISTOGRAM_FEATURE, RefcountChange::Delta(1))?;
        }
        let table = Zap::open(mos.object(table)?)?;
        table.insert_u64(tx, log_name(tx.txg()).as_bytes(), id.get())?;
        self.maps.log.lock().logs.insert(tx.txg(), id);
        for key in self.metaslabs_to_flush() {
            self.flush_metaslab(writing, key)?;
        }
        let old = {
            let mut log = self.maps.log.lock();
            // whatever a drive has for an unflushed txg, the log of this txg stays
            let oldest = log.unflushed_since.values().copied().min();
            let oldest = oldest.map_or_else(|| tx.txg(), |oldest| oldest.min(tx.txg()));
            let kept = log.logs.split_off(&oldest);
            assert!(kept.contains_key(&tx.txg()), "the log of txg {} is in use", tx.txg());
            std::mem::replace(&mut log.logs, kept)
        };
        // Rule: a log is freed once no metaslab names it or an older one. Earlier, an import after a crash would
        // miss changes, and have allocated space as free.
        for (txg, map) in old {
            free_space_map(mos, tx, map)?;
            table.remove(tx, log_name(txg).as_bytes())?;
        }
        Ok(id)
    }

    fn open_log_zap(&self, writing: &MapSyncContext<'_>) -> Result<ObjectId, Error> {
        let MapSyncContext { mos, tx, .. } = writing;
        if let Some(table) = self.maps.log.lock().zap {
            return Ok(table);
        }
        let table = Zap::create(mos, tx, LOG_ZAP_TYPE, &NewZap::default())?.object().id();
        let directory = Zap::open(mos.object(POOL_DIRECTORY)?)?;
        directory.insert_u64(tx, log::LOG_ZAP_ENTRY.as_bytes(), table.get())?;
        features::update_refcount(mos, tx, LOG_FEATURE, RefcountChange::Delta(1))?;
        self.maps.log.lock().zap = Some(table);
        Ok(table)
    }

    /// The metaslabs to flush: those that have been in the log for longest.
    fn metaslabs_to_flush(&self) -> Vec<MetaslabKey> {
        let log = self.maps.log.lock();
        let ranges = |logged: &log::LoggedChanges| logged.allocated.len() + logged.freed.len();
        let all: usize = log.changes.values().map(ranges).sum();
        let (mut wanted, mut excess) =
            (log.changes.len().div_ceil(TARGET_LOG_TXGS), all.minus_or_zero(MAX_LOGGED_RANGES));
        let mut order: Vec<(Txg, MetaslabKey)> =
            log.unflushed_since.iter().map(|(key, txg)| (*txg, *key)).collect();
        order.sort_unstable();
        let mut chosen = Vec::new();
        let mut passed = 0;
        for (_, key) in order {
            match log.changes.get(&key) {
                Some(logged) if wanted > 0 || excess > 0 => {
                    wanted = wanted.minus_or_zero(1);
                    excess = excess.minus_or_zero(ranges(logged));
                }
                None if passed < MAX_SKIPPED => passed += 1,
                _ => break,
            }
            chosen.push(key);
        }
        chosen
    }

    /// Flushes a metaslab's logged changes to its own map. From this txg on it is logged again.
    fn flush_metaslab(&self, writing: &MapSyncContext<'_>, key: MetaslabKey) -> Result<(), Error> {
        let logged = self.maps.log.lock().changes.get(&key).cloned();
        if let Some(logged) = logged {
            self.write_metaslab(writing, &to_change(key, &logged))?;
            let mut log = self.maps.log.lock();
            log.changes.remove(&key);
            let earlier = log.flushing.insert(key, logged);
            assert!(earlier.is_none(), "the changes of {key:?} are flushed once in a txg");
        }
        self.set_unflushed_txg(writing, key)
    }

    /// Marks this txg as the metaslab's unflushed txg.
    fn set_unflushed_txg(
        &self,
        writing: &MapSyncContext<'_>,
        key: MetaslabKey,
    ) -> Result<(), Error> {
        let MapSyncContext { mos, tx, .. } = writing;
        let (vdev, metaslab) = key;
        let top_zap = self.maps.vdevs.lock().get(&vdev).and_then(|top| top.top_zap);
        let top_zap = top_zap.ok_or(Error::SpaceMap { vdev, metaslab })?;
        let top_zap = Zap::open(mos.object(top_zap)?)?;
        let array = if let Some(array) = top_zap.lookup_u64(log::UNFLUSHED_TXGS_ENTRY)? {
            mos.object(ObjectId::new(array))?
        } else {
            let array =
                mos.create(tx, &dmu::NewObject::new(UNFLUSHED_ARRAY_TYPE, LARGE_BLOCK_SIZE))?;
            top_zap.insert_u64(tx, log::UNFLUSHED_TXGS_ENTRY, array.id().get())?;
            array
        };
        let at = u64::from(metaslab.get()) * 8;
        array.write(tx, at, &tx.txg().get().to_le_bytes())?;
        self.maps.log.lock().unflushed_since.insert(key, tx.txg());
        Ok(())
    }
}

fn append_to_log(
    writing: &MapSyncContext<'_>,
    map: ObjectId,
    changes: &[MetaslabChange],
) -> Result<(), Error> {
    let MapSyncContext { mos, tx, pass } = writing;
    let mut map = SpaceMapWriter::open(mos, map)?;
    let mut appendix: SpaceMapAppender = map.appendix(true);
    let mut growth = 0_i64;
    for change in changes {
        let kinds = [(Action::Allocated, &change.allocated), (Action::Freed, &change.freed)];
        for (action, ranges) in kinds {
            let units = ranges.iter().map(|r| r.start >> log::LOG_SHIFT..r.end >> log::LOG_SHIFT);
            appendix.push_ranges((action, tx.txg(), *pass), Some(change.vdev), units)?;
        }
        growth += total_bytes(&change.allocated) - total_bytes(&change.freed);
    }
    map.append(tx, &appendix, growth)?;
    map.finish(tx)
}

/// The name of a txg's log in the table.
fn log_name(txg: Txg) -> String {
    format!("{:x}", txg.get())
}
