//! Pools that the daemon had when it ended: taken over again when it starts, or when their drives
//! are there, which some machines find late. Drives that a pool lacks are taken back likewise.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use engine::held::{Held, PoolStatus, TakeOver};
use engine::summary::VdevState;

use super::mounts::mount_together;
use super::{House, Pool, done};
use crate::memory::{self, Remembered};
use crate::{Answer, Error, MountWish, PoolReport, Result};

/// So often it is looked whether drives have come.
const AGAIN: Duration = Duration::from_secs(2);
/// So often it is looked whether the daemon is to end.
const LOOK: Duration = Duration::from_millis(100);

/// A pool that cannot be taken over now. It stays remembered until it is imported or exported.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) pool: Remembered,
    /// Why it cannot be.
    pub(super) why: String,
    /// What was at the drives' paths, and when something beside them came or went, as that was tried.
    seen: Seen,
}

/// What is at paths, and in which folders something came or went when.
type Seen = Vec<Option<(u64, u64, u64, SystemTime)>>;

impl Waiting {
    pub(super) fn new(pool: Remembered, why: &engine::Error) -> Self {
        let seen = seen_by(why, look(&pool.drives));
        Self { pool, why: why.to_string(), seen }
    }
}

impl House {
    /// Takes over again what it had; what cannot be had yet is tried again now and then.
    pub(crate) fn take_over(self: &Arc<Self>) -> Result<()> {
        let mut taken = Vec::new();
        for pool in memory::load(&self.place)? {
            match self.take_again(&pool) {
                Ok(pool) => taken.push(pool),
                Err(why) => {
                    self.log.say(&format!("pool '{}' cannot be taken over: {why}", pool.name));
                    self.waiting.lock().push(Waiting::new(pool, &why));
                }
            }
        }
        self.mount_taken(&taken);
        let house = Arc::clone(self);
        let thread = std::thread::Builder::new().name("late pools".to_owned());
        match thread.spawn(move || house.keep_trying()) {
            Ok(thread) => *self.trying.lock() = Some(thread),
            Err(why) => self.log.say(&format!("pools that come late are not seen: {why}")),
        }
        Ok(())
    }

    /// What is in it is not mounted yet.
    fn take_again(self: &Arc<Self>, pool: &Remembered) -> engine::Result<Arc<Pool>> {
        if self.has(&pool.name) {
            return Err(engine::Error::NameTaken { pool: pool.name.clone() });
        }
        let held = self.hold_again(pool)?;
        held.note_taken("open");
        self.log.say(&format!("pool '{}' is taken over again", held.name()));
        let taken = self.keep(held, pool.altroot.clone());
        self.tell_broken(&[Arc::clone(&taken)]);
        Ok(taken)
    }

    fn mount_taken(&self, pools: &[Arc<Pool>]) {
        for warning in mount_together(pools, &MountWish::default()) {
            self.log.say(&warning);
        }
    }

    /// Until the daemon ends.
    fn keep_trying(self: &Arc<Self>) {
        let mut waited = Duration::ZERO;
        let mut seen = HashMap::new();
        while !self.leaving.load(Ordering::Acquire) {
            std::thread::sleep(LOOK);
            waited += LOOK;
            if waited >= AGAIN {
                waited = Duration::ZERO;
                self.try_again();
                self.take_drives_back(&mut seen);
            }
        }
    }

    fn try_again(self: &Arc<Self>) {
        let waiting = self.waiting.lock().clone();
        for Waiting { pool, why, seen } in waiting {
            // drives that are somebody else's are not touched again and again
            let now = look(&pool.drives);
            if now == seen {
                continue;
            }
            let _moving = self.moving.lock();
            let still = self.waiting.lock().iter().any(|other| other.pool.guid == pool.guid);
            if !still || self.leaving.load(Ordering::Acquire) {
                continue;
            }
            let guid = pool.guid;
            let still = match self.take_again(&pool) {
                Ok(taken) => {
                    self.waiting.lock().retain(|other| other.pool.guid != guid);
                    self.mount_taken(&[taken]);
                    continue;
                }
                Err(still) => still,
            };
            let seen = seen_by(&still, now);
            let still = still.to_string();
            if still != why {
                self.log.say(&format!("pool '{}' cannot be taken over: {still}", pool.name));
            }
            for other in self.waiting.lock().iter_mut().filter(|other| other.pool.guid == guid) {
                (other.why, other.seen) = (still.clone(), seen.clone());
            }
        }
    }

    /// Has pools use drives that were missing, or went away, and are there now. `seen`: what was there
    /// before.
    fn take_drives_back(&self, seen: &mut HashMap<u64, Seen>) {
        let pools: Vec<_> = self.pools.lock().values().cloned().collect();
        for pool in pools {
            let now = look(&pool.held.lost_drives());
            let before = seen.insert(pool.held.guid(), now.clone());
            if now.is_empty() || before == Some(now) || pool.held.is_standing_still() {
                continue;
            }
            let _moving = self.moving.lock();
            let _changing = pool.changing.lock();
            let taken = pool.held.take_back();
            for drive in &taken {
                self.log.say(&format!("pool '{}': drive '{drive}' is back", pool.held.name()));
            }
            if !taken.is_empty() {
                pool.held.start_resilver();
                if let Err(why) = self.remember() {
                    self.log.say(&why.to_string());
                }
            }
        }
    }

    /// Takes over a pool that it had. Keys that files tell are read, if the pool cannot be had without.
    fn hold_again(&self, pool: &Remembered) -> engine::Result<Held> {
        let drives = found_again(&pool.drives, pool.guid);
        let (guid, read_only) = (pool.guid.to_string(), pool.read_only);
        let others = self.names_in_use();
        let how = TakeOver { read_only, rewind: pool.rewind, others, ..named(pool) };
        let without = engine::held::hold_as(&drives, &guid, &how, &self.world);
        let Err(engine::Error::LockedLog { .. }) = &without else { return without };
        let roots = engine::held::encryption_roots(&drives, &guid, (false, pool.rewind))?;
        let told = roots.into_iter().filter_map(|root| {
            let path = root.location.strip_prefix("file://")?;
            Some((root.name.clone(), std::fs::read(path).ok()?))
        });
        let keys: Vec<_> = told.collect();
        if keys.is_empty() {
            return without;
        }
        let how = TakeOver { keys, ..how };
        engine::held::hold_as(&drives, &guid, &how, &self.world)
    }

    /// How those are that wait, of these names; none: all.
    pub(super) fn waiting_reports(&self, names: &[String]) -> Vec<PoolReport> {
        let waiting = self.waiting.lock();
        let wanted =
            waiting.iter().filter(|one| names.is_empty() || names.contains(&one.pool.name));
        let report = |one: &Waiting| PoolReport {
            status: PoolStatus::of_absent(&one.pool.name, one.pool.guid, &one.why),
            altroot: one.pool.altroot.clone(),
        };
        wanted.map(report).collect()
    }

    /// Why a pool is not there, if it is one that is waited for.
    pub(super) fn why_waiting(&self, name: &str) -> Option<Error> {
        let waiting = self.waiting.lock();
        let one = waiting.iter().find(|one| one.pool.name == name)?;
        let what = format!(
            "pool '{name}' could not be taken over again: {}; it is tried again as soon as \
             drives come, and `zpool export {name}` ends that",
            one.why
        );
        Some(Error::Said { status: 3, what })
    }

    /// Waits no more for a pool; none if it is not waited for, or another of that name is here.
    pub(super) fn forget_waiting(&self, name: &str) -> Option<Result<Answer>> {
        let is_awaited =
            || !self.has(name) && self.waiting.lock().iter().any(|one| one.pool.name == name);
        if !is_awaited() {
            return None;
        }
        let _moving = match self.begin_move() {
            Ok(moving) => moving,
            Err(why) => return Some(Err(why)),
        };
        // it may just have been taken over
        is_awaited().then(|| {
            self.waiting.lock().retain(|one| one.pool.name != name);
            self.log.say(&format!("pool '{name}' is not waited for any more"));
            self.remember()?;
            done(())
        })
    }
}

/// What counts as seen after a pool could not be taken over: one whose name is taken is tried again
/// though nothing comes or goes.
fn seen_by(why: &engine::Error, now: Seen) -> Seen {
    if matches!(why, engine::Error::NameTaken { .. }) { Seen::new() } else { now }
}

/// The folders that drives are in.
fn folders(drives: &[PathBuf]) -> BTreeSet<&Path> {
    drives.iter().filter_map(|drive| drive.parent()).collect()
}

/// What is at paths, and when something came or went in the folders that they are in.
fn look(drives: &[PathBuf]) -> Seen {
    let paths = drives.iter().map(PathBuf::as_path).chain(folders(drives));
    let facts = |path: &Path| {
        let facts = std::fs::metadata(path).ok()?;
        Some((facts.ino(), facts.rdev(), facts.len(), facts.modified().ok()?))
    };
    paths.map(facts).collect()
}

/// Where a pool's drives are now: where they were or, if not all are there, beside that, as names of
/// disks may change when a machine starts.
fn found_again(drives: &[PathBuf], guid: u64) -> Vec<PathBuf> {
    let found = engine::search(drives).summaries(&engine::OpenOptions::default());
    let mut vdevs = found.iter().filter(|pool| pool.guid == guid).flat_map(|pool| &pool.vdevs);
    let whole = found.iter().any(|pool| pool.guid == guid)
        && vdevs.all(|vdev| matches!(vdev.state, VdevState::Online | VdevState::Removed));
    if whole {
        return drives.to_vec();
    }
    drives.iter().cloned().chain(folders(drives).into_iter().map(Path::to_path_buf)).collect()
}

/// A pool with a name that it has until it is exported gets that again.
fn named(pool: &Remembered) -> TakeOver {
    let new_name = pool.temporary.then(|| pool.name.clone());
    TakeOver { new_name, temporary: pool.temporary, ..TakeOver::default() }
}
