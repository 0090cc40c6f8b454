//! Sequential rebuild (`zpool replace -s`, `zpool attach -s`): a mirror or a dRAID gets its redundancy back in the
//! order of its space, and a scrub verifies it afterwards.
//!
//! ```text
//! 1  attach     one txg: the new leaf with `rebuild_txg`, the record in the vdev's ZAP, the feature's count
//! 2  rebuild    batches of allocated ranges (`vdev::rebuild`); a sync task records the end of the last one
//! 3  complete   one txg: the DTLs of the new leaves end at the record's last txg, the record is complete
//! ```
//!
//! The leaves are flushed before the uberblock that leads to a record. So all before its offset is on the new
//! leaves, and an import goes on there, here or with OpenZFS. What a leaf missed after the record's last txg stays
//! in its DTL, for a resilver. Where a range could not be rebuilt, all of the DTL stays.
//!
//! Learnt from: `vdev_rebuild.c` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/rebuild.rs`, and `zdb`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::thread::Builder;

use dsl::write::SyncTaskContext;
use lock::{Mutex, rank};
use ondisk::history::Entry;
use ondisk::label::VdevConfig;
use ondisk::rebuild::{REBUILD_ENTRY, RebuildPhase, RebuildPhys};
use ondisk::scan::ScanFunction;
use units::{Guid, MinusOrZero as _, ObjectId, Txg, VdevId};
use vdev::{Leaf, NodeKind, RebuildObstacle, RebuiltChunk, TxgRanges};
use zap::{Zap, ZapValue};

use super::ActivePool;
use super::attach::edit_vdev;
use super::device_change::DeviceChangeError;
use crate::create::INITIAL_TXG;
use crate::features::{self, RefcountChange};
use crate::scan::ScanProgress;
use crate::{Error, Pool, PoolDirectory};

/// The feature that counts the rebuilds that go on.
const FEATURE: &str = "org.openzfs:device_rebuild";
/// Allocated bytes of a batch, after which the record may advance.
const BATCH_BYTES: u64 = 64 << 20;
/// Seconds after which the record is written to the pool.
const RECORD_INTERVAL: u64 = 5;
/// Threads that rebuild.
const MAX_WORKERS: usize = 4;

/// The rebuilds of a pool, by top-level vdev.
#[derive(Default)]
pub(super) struct Rebuilds(Mutex<BTreeMap<VdevId, Rebuild>, { rank::REBUILDS }>);

#[derive(Clone, Debug, Default)]
struct Rebuild {
    phys: RebuildPhys,
    /// How many times it was begun anew: a thread that works on an earlier one stops.
    epoch: u64,
}

/// How the rebuild of a vdev goes on, or how the last went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuildStatus {
    /// The vdev.
    pub vdev: VdevId,
    /// Its record.
    pub record: RebuildPhys,
}

/// How a batch ended.
enum BatchEnd {
    /// All of the vdev is rebuilt.
    EndOfVdev,
    /// There is more.
    More,
    /// It stops for now.
    Stopped,
}

impl Rebuilds {
    /// Reads the records of a pool. A record that cannot be read counts as none, as with OpenZFS.
    pub(super) fn load(pool: &Pool) -> Self {
        let mut all = BTreeMap::new();
        let tops = pool.config.tree.iter().flat_map(|root| &root.children);
        for top in tops {
            let Some(mut phys) = read_record(&pool.mos, top) else { continue };
            if pool.uberblock.txg <= phys.max_txg {
                // a new leaf may lack blocks of this txg, which are before the offset
                phys.last_offset = 0;
            }
            all.insert(top.id, Rebuild { phys, epoch: 0 });
        }
        Self(Mutex::new(all))
    }
}

fn read_record(mos: &dmu::Objset, top: &VdevConfig) -> Option<RebuildPhys> {
    let table = Zap::open(mos.object(top.top_zap?).ok()?).ok()?;
    let value = table.lookup(REBUILD_ENTRY.as_bytes()).ok()??;
    RebuildPhys::from_words(&value.u64s()).ok().filter(|phys| phys.phase != RebuildPhase::None)
}

impl ActivePool {
    /// The vdevs whose rebuild goes on.
    pub fn rebuilding_vdevs(&self) -> Vec<VdevId> {
        let all = self.rebuilds.0.lock();
        let active = all.iter().filter(|(_, rebuild)| rebuild.phys.phase == RebuildPhase::Active);
        active.map(|(vdev, _)| *vdev).collect()
    }

    /// The rebuild that goes on; without one, the last.
    pub fn rebuild_status(&self) -> Option<RebuildStatus> {
        let all = self.rebuilds.0.lock();
        let order = |rebuild: &Rebuild| {
            (rebuild.phys.phase == RebuildPhase::Active, rebuild.phys.start_time)
        };
        let last = all.iter().max_by_key(|(_, rebuild)| order(rebuild))?;
        Some(RebuildStatus { vdev: *last.0, record: last.1.phys.clone() })
    }

    /// Refuses a rebuild that cannot be begun beside a leaf.
    pub(super) fn check_rebuild(&self, top: &VdevConfig) -> Result<(), DeviceChangeError> {
        let is_enabled = PoolDirectory::open(self.mos.clone())
            .and_then(|directory| features::read(&directory))
            .is_ok_and(|all| all.iter().any(|feature| feature.guid == FEATURE));
        if !is_enabled || top.top_zap.is_none() {
            return Err(DeviceChangeError::RebuildDisabled);
        }
        let scan = self.scan_record();
        if scan.is_running() && scan.function == ScanFunction::Resilver {
            return Err(DeviceChangeError::Resilvering);
        }
        let node = self.tree.top(top.id).ok_or(DeviceChangeError::NotInPool)?;
        if matches!(node.kind, NodeKind::Leaf(_)) {
            return Ok(());
        }
        match self.tree.rebuild_targets(top.id, INITIAL_TXG) {
            Ok(_) | Err(RebuildObstacle::NothingToDo) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }

    /// Begins the rebuild of a vdev, to which a leaf was attached in this txg. One that goes on begins anew.
    pub(super) fn start_rebuild_sync(
        &self,
        change: &SyncTaskContext<'_>,
        top: &VdevConfig,
    ) -> Result<(), Error> {
        let targets =
            self.tree.rebuild_targets(top.id, INITIAL_TXG).map_err(DeviceChangeError::from)?;
        let last = targets.iter().filter_map(|leaf| leaf.dtl().last()).max();
        let phys = RebuildPhys {
            phase: RebuildPhase::Active,
            min_txg: Txg::new(INITIAL_TXG.get() - 1),
            max_txg: last.unwrap_or(change.tx.txg()),
            start_time: change.now.seconds,
            bytes_est: self.vdev_space_usage(top.id).2,
            ..RebuildPhys::default()
        };
        let mut all = self.rebuilds.0.lock();
        let rebuild = all.entry(top.id).or_default();
        let was_active = rebuild.phys.phase == RebuildPhase::Active;
        *rebuild = Rebuild { phys: phys.clone(), epoch: rebuild.epoch + 1 };
        drop(all);
        if !was_active {
            features::update_refcount(change.mos, change.tx, FEATURE, RefcountChange::Delta(1))?;
        }
        write_rebuild(change, top, &phys)?;
        self.log_rebuild(change, top, if was_active { "reset" } else { "started" });
        Ok(())
    }

    /// Rebuilds all vdevs that are to be, and returns whether that came to its end. To be called by one thread at
    /// a time; txgs are written meanwhile.
    pub fn rebuild(&self, watch: &ScanProgress) -> Result<bool, Error> {
        let scan = self.scan_record();
        let vdevs = self.rebuilding_vdevs();
        if !vdevs.is_empty() && scan.is_running() && scan.function == ScanFunction::Scrub {
            self.cancel_scan()?;
        }
        for vdev in vdevs {
            // its leaves may change meanwhile, and it begins anew
            while !self.rebuild_vdev(vdev, watch)? {
                if watch.job().cancel.is_cancelled() || self.txgs.is_stopped() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn rebuild_vdev(&self, vdev: VdevId, watch: &ScanProgress) -> Result<bool, Error> {
        let known = self.rebuilds.0.lock().get(&vdev).cloned();
        let active = known.filter(|known| known.phys.phase == RebuildPhase::Active);
        let Some(rebuild) = active else { return Ok(true) };
        let Ok(targets) = self.tree.rebuild_targets(vdev, INITIAL_TXG) else {
            // the new leaf is gone
            self.end_rebuild(vdev, RebuildPhase::Canceled)?;
            return Ok(true);
        };
        let guids: Vec<Guid> = targets.iter().map(|leaf| leaf.guid()).collect();
        let lapses: Vec<u64> = targets.iter().map(|leaf| leaf.miss_count()).collect();
        let working = self.working_leaves(vdev);
        self.tree.begin_rebuild(vdev);
        let end = self.rebuild_batches((vdev, &rebuild), &guids, watch);
        self.tree.end_rebuild(vdev);
        if !end? {
            return Ok(false);
        }
        let is_flushed = self.tree.flush(&mut Vec::new()).is_ok();
        let errors = self.rebuilds.0.lock().get(&vdev).map_or(0, |known| known.phys.errors);
        let has_missed = working.iter().any(|(leaf, misses)| leaf.miss_count() != *misses);
        if is_flushed && errors == 0 && !has_missed {
            let gained = TxgRanges::new([(INITIAL_TXG, rebuild.phys.max_txg)]);
            for (leaf, lapses) in targets.iter().zip(lapses) {
                leaf.shrink_dtl(&gained, &TxgRanges::default(), lapses);
            }
        }
        self.end_rebuild(vdev, RebuildPhase::Complete)?;
        Ok(true)
    }

    /// The leaves of a vdev that work, and how many times each missed something. A drive of a dRAID that misses
    /// more may have lost what it holds of a distributed spare.
    fn working_leaves(&self, vdev: VdevId) -> Vec<(Arc<Leaf>, u64)> {
        let Some(node) = self.tree.top(vdev) else { return Vec::new() };
        let leaves = node.leaves().into_iter();
        let working = leaves.filter(|leaf| leaf.is_writable() && !leaf.is_failing());
        working.map(|leaf| (Arc::clone(leaf), leaf.miss_count())).collect()
    }

    /// Rebuilds batch after batch; returns whether it reached the end of the vdev.
    fn rebuild_batches(
        &self,
        (vdev, rebuild): (VdevId, &Rebuild),
        targets: &[Guid],
        watch: &ScanProgress,
    ) -> Result<bool, Error> {
        let begun = (self.environment.now)().seconds;
        let mut recorded = begun;
        let progress = &watch.job().progress;
        progress.add(rebuild.phys.bytes_scanned, 0);
        progress.set_bytes_total(rebuild.phys.bytes_est);
        let mut next = rebuild.phys.last_offset;
        loop {
            let end = self.rebuild_batch(vdev, &mut next, targets, watch)?;
            let now = (self.environment.now)().seconds;
            let time = rebuild.phys.scan_time + 1000 * now.minus_or_zero(begun);
            let is_current = self.edit_rebuild(vdev, rebuild.epoch, |phys| {
                (phys.last_offset, phys.scan_time) = (next, time);
            });
            let now_targets = self.tree.rebuild_targets(vdev, INITIAL_TXG);
            let has_all = now_targets.is_ok_and(|now| {
                now.len() == targets.len() && now.iter().all(|leaf| targets.contains(&leaf.guid()))
            });
            match end {
                BatchEnd::EndOfVdev if is_current && has_all => return Ok(true),
                BatchEnd::More if is_current && has_all => {}
                _ => {
                    if is_current && !self.txgs.is_stopped() {
                        self.record_rebuild(vdev)?;
                    }
                    return Ok(false);
                }
            }
            if now.abs_diff(recorded) >= RECORD_INTERVAL {
                recorded = now;
                self.record_rebuild(vdev)?;
            }
        }
    }

    /// Rebuilds what is allocated from `next` on, up to a batch, and advances it.
    fn rebuild_batch(
        &self,
        vdev: VdevId,
        next: &mut u64,
        targets: &[Guid],
        watch: &ScanProgress,
    ) -> Result<BatchEnd, Error> {
        let Some(ranges) = self.plan_rebuild(vdev, *next)? else { return Ok(BatchEnd::EndOfVdev) };
        let end = ranges.end;
        let queue = parking_lot::Mutex::new(ranges.allocated.into_iter());
        let failed = parking_lot::Mutex::new(None);
        let work = || {
            loop {
                let Some(mut range) = queue.lock().next() else { return };
                while range.start < range.end {
                    let is_ended = || watch.job().cancel.is_cancelled() || self.txgs.is_stopped();
                    watch.wait_at_gate(&is_ended);
                    if is_ended() {
                        *failed.lock() = Some(Ok(()));
                        return;
                    }
                    match self.tree.rebuild_chunk(vdev, &range, INITIAL_TXG, targets) {
                        Ok(chunk) => {
                            let end = chunk.end;
                            assert!(end > range.start, "a chunk of {range:?} ends at {end}");
                            self.count_chunk(vdev, range.start, chunk, watch);
                            range.start = chunk.end;
                        }
                        Err(error) => {
                            *failed.lock() = Some(Err(error));
                            return;
                        }
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.environment.workers.min(MAX_WORKERS) {
                // where the system has no more threads to give, there are fewer
                let _ = Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        match failed.into_inner() {
            None => *next = end,
            Some(Ok(())) => return Ok(BatchEnd::Stopped),
            Some(Err(error)) => return Err(error.into()),
        }
        Ok(BatchEnd::More)
    }

    fn count_chunk(&self, vdev: VdevId, start: u64, chunk: RebuiltChunk, watch: &ScanProgress) {
        let scanned = chunk.end - start;
        watch.job().progress.add(scanned, 0);
        watch.count_read(chunk.read);
        watch.count_written(chunk.written);
        if let Some(rebuild) = self.rebuilds.0.lock().get_mut(&vdev) {
            let phys = &mut rebuild.phys;
            phys.bytes_scanned += scanned;
            phys.bytes_issued += scanned;
            phys.bytes_rebuilt += chunk.written;
            phys.errors += u64::from(!chunk.is_complete);
        }
        if !chunk.is_complete {
            watch.count_error();
        }
    }

    /// The allocated ranges of the next batch, and its end; none behind the last metaslab.
    fn plan_rebuild(&self, vdev: VdevId, from: u64) -> Result<Option<RebuildPlan>, Error> {
        let allocator = self.space.allocator();
        let unit = match self.tree.top(vdev).as_deref().map(|node| &node.kind) {
            Some(NodeKind::Draid(draid, _)) => draid.row_size(),
            _ => 1,
        };
        let mut plan = RebuildPlan { allocated: Vec::new(), end: from };
        let mut bytes = 0;
        for metaslab in allocator.metaslabs(vdev)? {
            let extent = allocator.extent(vdev, metaslab)?;
            let part = extent.start.max(from)..extent.end;
            if part.start >= part.end {
                continue;
            }
            // of a map that cannot be read, all counts as allocated
            let _ = allocator.load_range(vdev, &part, self.txgs.open_txg());
            for range in allocator.allocated_ranges(vdev, &part)? {
                // a dRAID has no block in a row that the vdev does not have in full
                let start = range.start / unit * unit;
                let end = (range.end.div_ceil(unit) * unit).min(extent.end / unit * unit);
                let end = end.min(start + (BATCH_BYTES - bytes).next_multiple_of(unit));
                if start < end {
                    bytes += end - start;
                    plan.allocated.push(start..end);
                    plan.end = end.max(from);
                }
                if bytes >= BATCH_BYTES {
                    return Ok(Some(plan));
                }
            }
            plan.end = extent.end;
        }
        Ok((plan.end > from).then_some(plan))
    }

    /// Changes the record in memory, unless it was begun anew; returns whether that is so.
    fn edit_rebuild(&self, vdev: VdevId, epoch: u64, edit: impl FnOnce(&mut RebuildPhys)) -> bool {
        let mut all = self.rebuilds.0.lock();
        let known = all.get_mut(&vdev).filter(|known| known.epoch == epoch);
        let Some(known) = known.filter(|known| known.phys.phase == RebuildPhase::Active) else {
            return false;
        };
        edit(&mut known.phys);
        true
    }

    /// Writes the record to the pool. What it says is rebuilt was written before.
    fn record_rebuild(&self, vdev: VdevId) -> Result<(), Error> {
        self.run_sync_task(move |active, change| {
            let phys = active.rebuilds.0.lock().get(&vdev).map(|known| known.phys.clone());
            match phys.filter(|phys| phys.phase == RebuildPhase::Active) {
                Some(phys) => write_rebuild(change, &active.top_config(vdev)?, &phys),
                None => Ok(()),
            }
        })?
    }

    fn end_rebuild(&self, vdev: VdevId, phase: RebuildPhase) -> Result<(), Error> {
        self.run_sync_task(move |active, change| active.end_rebuild_sync(change, vdev, phase))?
    }

    pub(super) fn end_rebuild_sync(
        &self,
        change: &SyncTaskContext<'_>,
        vdev: VdevId,
        phase: RebuildPhase,
    ) -> Result<(), Error> {
        let mut all = self.rebuilds.0.lock();
        let known = all.get_mut(&vdev).filter(|known| known.phys.phase == RebuildPhase::Active);
        let Some(known) = known else { return Ok(()) };
        (known.phys.phase, known.phys.end_time) = (phase, change.now.seconds);
        let phys = known.phys.clone();
        drop(all);
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let top = root.children.iter().find(|top| top.id == vdev).cloned();
        let top = top.ok_or(DeviceChangeError::NotInPool)?;
        for leaf in top.leaves().filter(|leaf| leaf.rebuild_txg.is_some()) {
            edit_vdev(root, leaf.guid, &mut |entry| entry.rebuild_txg = None);
        }
        self.set_vdev_tree(root.clone());
        features::update_refcount(change.mos, change.tx, FEATURE, RefcountChange::Delta(-1))?;
        write_rebuild(change, &top, &phys)?;
        let word = if phase == RebuildPhase::Complete { "complete" } else { "canceled" };
        self.log_rebuild(change, &top, word);
        let is_last = self.rebuilding_vdevs().is_empty();
        if phase == RebuildPhase::Complete && is_last && !self.scan_record().is_running() {
            // no checksum was verified
            self.start_scrub_sync(change)?;
        }
        Ok(())
    }

    fn log_rebuild(&self, change: &SyncTaskContext<'_>, top: &VdevConfig, word: &str) {
        let detail = format!("vdev_id={} vdev_guid={} {word}", top.id, top.guid);
        self.log_history(change, &Entry::Event { name: "rebuild", detail: &detail, dataset: None });
    }
}

/// Writes the record of a rebuild to the ZAP of its vdev.
fn write_rebuild(
    change: &SyncTaskContext<'_>,
    top: &VdevConfig,
    phys: &RebuildPhys,
) -> Result<(), Error> {
    let table: ObjectId = top.top_zap.ok_or(DeviceChangeError::RebuildDisabled)?;
    let table = Zap::open(change.mos.object(table)?)?;
    let bytes = phys.to_words().iter().flat_map(|word| word.to_be_bytes()).collect();
    Ok(table.update(change.tx, REBUILD_ENTRY.as_bytes(), &ZapValue::new(8, bytes))?)
}

/// The ranges of a batch.
struct RebuildPlan {
    allocated: Vec<Range<u64>>,
    /// All before it is in this batch or an earlier one.
    end: u64,
}
