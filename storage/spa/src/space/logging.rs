//! Changes written to a log: one space map a txg for all metaslabs, instead of a write to each
//! metaslab's own map.
//!
//! With each txg the metaslabs whose changes have been in the log for longest get them written to
//! their own maps; so no log lives for long, and reading them all at an import is quick. What was
//! logged before a metaslab's unflushed txg is in its own map; the log of that txg is there as
//! long as a metaslab names it, and the logs before the oldest that is named are freed.

use metaslab::MetaslabChange;
use ondisk::ObjectType;
use ondisk::spacemap::{Action, Appendix};
use units::{MetaslabId, ObjectId, Txg, VdevId};
use zap::{NewZap, Zap};

use crate::Error;
use crate::features::{self, Uses};
use crate::space::load::Space;
use crate::space::log;
use crate::space::map::MapWriter;
use crate::space::write::{
    DIRECTORY, HISTOGRAM, LOG, LOG_BLOCK, Writing, bytes, change_of, free_map,
};

/// A metaslab's changes stay in the log for so many txgs, about.
const STAY: usize = 64;
/// So many metaslabs without changes are passed over in a txg at most.
const MOST_PASSED: usize = 256;
/// Ranges that the log may hold in memory before metaslabs leave it earlier.
const MOST_RANGES: usize = 1 << 20;
/// The type of the table of logs: a ZAP of metadata.
const TABLE_KIND: ObjectType = ObjectType(0xc4);
/// The type of the array of unflushed txgs: 64-bit metadata.
const ARRAY_KIND: ObjectType = ObjectType(0xc3);

type Key = (VdevId, MetaslabId);

impl Space {
    /// Logs what the txg changed since this was last called for it. Gives whether there was
    /// anything.
    pub(crate) fn log_changes(&self, writing: &Writing<'_>) -> Result<bool, Error> {
        let txg = writing.tx.txg();
        if !self.allocator.has_changes(txg) {
            return Ok(false);
        }
        // before anything of this txg is in the log: own maps have what was before it
        let map = match self.log_of(txg) {
            Some(map) => map,
            None => self.begin_log(writing)?,
        };
        let changes = self.allocator.drain_changes(txg);
        append_to_log(writing, map, &changes)?;
        for change in &changes {
            self.write_head(writing, change)?;
            let key = (change.vdev, change.metaslab);
            if !self.maps.log.lock().since.contains_key(&key) {
                self.set_since(writing, key)?;
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

    fn log_of(&self, txg: Txg) -> Option<ObjectId> {
        self.maps.log.lock().maps.get(&txg).copied()
    }

    /// Makes the txg's log, moves some metaslabs' changes to their own maps, and frees logs that
    /// nobody needs any more.
    fn begin_log(&self, writing: &Writing<'_>) -> Result<ObjectId, Error> {
        let Writing { mos, tx, .. } = writing;
        let table = self.log_table(writing)?;
        let map = MapWriter::create(mos, tx, LOG_BLOCK, self.histograms)?;
        let id = map.id();
        map.finish(tx)?;
        if self.histograms {
            features::count(mos, tx, HISTOGRAM, Uses::More(1))?;
        }
        let table = Zap::open(mos.object(table)?)?;
        table.insert_u64(tx, name(tx.txg()).as_bytes(), id.get())?;
        self.maps.log.lock().maps.insert(tx.txg(), id);
        for key in self.oldest() {
            self.move_to_own_map(writing, key)?;
        }
        let old = {
            let mut log = self.maps.log.lock();
            let oldest = log.since.values().min().copied().unwrap_or_else(|| tx.txg());
            let kept = log.maps.split_off(&oldest);
            std::mem::replace(&mut log.maps, kept)
        };
        for (txg, map) in old {
            free_map(mos, tx, map)?;
            table.remove(tx, name(txg).as_bytes())?;
        }
        Ok(id)
    }

    fn log_table(&self, writing: &Writing<'_>) -> Result<ObjectId, Error> {
        let Writing { mos, tx, .. } = writing;
        if let Some(table) = self.maps.log.lock().table {
            return Ok(table);
        }
        let table = Zap::create(mos, tx, TABLE_KIND, &NewZap::default())?.object().id();
        let directory = Zap::open(mos.object(DIRECTORY)?)?;
        directory.insert_u64(tx, log::TABLE.as_bytes(), table.get())?;
        features::count(mos, tx, LOG, Uses::More(1))?;
        self.maps.log.lock().table = Some(table);
        Ok(table)
    }

    /// The metaslabs that leave the log now: those that have been in it for longest.
    fn oldest(&self) -> Vec<Key> {
        let log = self.maps.log.lock();
        let ranges =
            |logged: &log::Logged| logged.allocated.len().saturating_add(logged.freed.len());
        let all: usize = log.changes.values().map(ranges).sum();
        let (mut wanted, mut excess) =
            (log.changes.len().div_ceil(STAY), all.saturating_sub(MOST_RANGES));
        let mut order: Vec<(Txg, Key)> = log.since.iter().map(|(key, txg)| (*txg, *key)).collect();
        order.sort_unstable();
        let mut chosen = Vec::new();
        let mut passed = 0;
        for (_, key) in order {
            match log.changes.get(&key) {
                Some(logged) if wanted > 0 || excess > 0 => {
                    wanted = wanted.saturating_sub(1);
                    excess = excess.saturating_sub(ranges(logged));
                }
                None if passed < MOST_PASSED => passed += 1,
                _ => break,
            }
            chosen.push(key);
        }
        chosen
    }

    /// Writes what is logged of a metaslab to its own map. From this txg on it is logged anew.
    fn move_to_own_map(&self, writing: &Writing<'_>, key: Key) -> Result<(), Error> {
        let logged = self.maps.log.lock().changes.get(&key).cloned();
        if let Some(logged) = logged {
            self.write_one(writing, &change_of(key, &logged))?;
            let mut log = self.maps.log.lock();
            log.changes.remove(&key);
            log.settling.insert(key, logged);
        }
        self.set_since(writing, key)
    }

    /// Notes that what is logged of a metaslab counts from this txg on.
    fn set_since(&self, writing: &Writing<'_>, key: Key) -> Result<(), Error> {
        let Writing { mos, tx, .. } = writing;
        let (vdev, metaslab) = key;
        let top_zap = self.maps.tops.lock().get(&vdev).and_then(|top| top.top_zap);
        let top_zap = top_zap.ok_or(Error::SpaceMap { vdev, metaslab })?;
        let top_zap = Zap::open(mos.object(top_zap)?)?;
        let array = if let Some(array) = top_zap.lookup_u64(log::UNFLUSHED)? {
            mos.object(ObjectId::new(array))?
        } else {
            let array = mos.create(tx, &dmu::NewObject::new(ARRAY_KIND, LOG_BLOCK))?;
            top_zap.insert_u64(tx, log::UNFLUSHED, array.id().get())?;
            array
        };
        let at = u64::from(metaslab.get()).saturating_mul(8);
        array.write(tx, at, &tx.txg().get().to_le_bytes())?;
        self.maps.log.lock().since.insert(key, tx.txg());
        Ok(())
    }
}

fn append_to_log(
    writing: &Writing<'_>,
    map: ObjectId,
    changes: &[MetaslabChange],
) -> Result<(), Error> {
    let Writing { mos, tx, pass } = writing;
    let mut map = MapWriter::open(mos, map)?;
    let mut appendix: Appendix = map.appendix(true);
    let mut growth = 0_i64;
    for change in changes {
        let kinds = [(Action::Allocated, &change.allocated), (Action::Freed, &change.freed)];
        for (action, ranges) in kinds {
            let units = ranges.iter().map(|r| r.start >> log::SHIFT..r.end >> log::SHIFT);
            appendix.ranges((action, tx.txg(), *pass), Some(change.vdev), units)?;
        }
        growth = growth.saturating_add(bytes(&change.allocated) - bytes(&change.freed));
    }
    map.append(tx, &appendix, growth)?;
    map.finish(tx)
}

/// The name of a txg's log in the table.
fn name(txg: Txg) -> String {
    format!("{:x}", txg.get())
}
