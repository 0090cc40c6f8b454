//! Pools that were imported when the daemon ended: imported again when it starts, or when their devices
//! appear, which some machines find late. Missing devices of a pool are reopened likewise.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use api::{Event, PoolReport};
use engine::pool::{ImportOptions, Pool, PoolStatus};
use engine::summary::VdevState;

use super::{ManagedPool, Pools};
use crate::events::ChangeOptions;
use crate::pool_cache::{self, SavedPool};
use crate::{Error, Result};

/// A pool that cannot be imported now. It stays in the list until it is imported or exported.
#[derive(Clone, Debug)]
pub(super) struct UnavailablePool {
    pub(super) saved: SavedPool,
    /// Why it cannot be imported.
    pub(super) reason: String,
    /// The devices at the last try.
    fingerprint: DeviceFingerprint,
}

/// The identity of the devices at some paths, and the times at which their directories changed.
pub(super) type DeviceFingerprint = Vec<Option<(u64, u64, u64, SystemTime)>>;

impl UnavailablePool {
    pub(super) fn new(saved: SavedPool, why: &engine::Error) -> Self {
        let fingerprint = fingerprint_after(why, fingerprint_devices(&saved.drives));
        Self { saved, reason: why.to_string(), fingerprint }
    }

    /// A pool that the daemon closed. It is not imported again before [`Self::retry_soon`].
    pub(super) fn closed(saved: SavedPool, reason: &str) -> Self {
        let fingerprint = fingerprint_devices(&saved.drives);
        Self { saved, reason: reason.to_owned(), fingerprint }
    }

    /// Has the next look of the watch thread import it, though no device changed.
    pub(super) fn retry_soon(&mut self) {
        self.fingerprint.clear();
    }
}

impl Pools {
    /// Imports the saved pools again, and starts the thread that retries those that cannot be imported.
    pub(crate) fn reimport_pools(self: &Arc<Self>) -> Result<()> {
        let mut taken = Vec::new();
        for pool in pool_cache::load(&self.state_dir)? {
            match self.reimport_pool(&pool) {
                Ok(pool) => taken.push(pool),
                Err(why) => {
                    self.log.write_line(&format!("pool '{}' cannot be imported: {why}", pool.name));
                    self.unavailable.lock().push(UnavailablePool::new(pool, &why));
                }
            }
        }
        self.follow_reimported(&taken);
        let pools = Arc::clone(self);
        let thread = std::thread::Builder::new().name("pool watch".to_owned());
        match thread.spawn(move || pools.watch()) {
            Ok(thread) => *self.watch_thread.lock() = Some(thread),
            Err(why) => self.log.write_line(&format!("nothing watches the pools: {why}")),
        }
        Ok(())
    }

    /// Imports a saved pool. Nothing of it is mounted yet.
    fn reimport_pool(self: &Arc<Self>, pool: &SavedPool) -> engine::Result<Arc<ManagedPool>> {
        if self.has_pool(&pool.name) {
            return Err(engine::Error::NameTaken { pool: pool.name.clone() });
        }
        let held = self.open_saved_pool(pool)?;
        held.history().record_import("open");
        self.log.write_line(&format!("pool '{}' is imported again", held.name()));
        let taken = self.add_pool(held, pool.altroot.clone(), pool.cachefile.clone());
        self.log_import_events(&[Arc::clone(&taken)]);
        Ok(taken)
    }

    /// Has the services follow pools that are imported again: their file systems are mounted.
    fn follow_reimported(&self, pools: &[Arc<ManagedPool>]) {
        let imported =
            |pool: &Arc<ManagedPool>| Event::PoolImported { pool: pool.handle.name().to_owned() };
        let events: Vec<_> = pools.iter().map(imported).collect();
        for warning in self.events.publish(&events, &ChangeOptions::default()) {
            self.log.write_line(&warning);
        }
    }

    /// Imports unavailable pools whose devices changed since the last try.
    pub(super) fn retry_unavailable(self: &Arc<Self>) {
        if self.is_power_failing.load(Ordering::Acquire) {
            return;
        }
        let waiting = self.unavailable.lock().clone();
        for UnavailablePool { saved: pool, reason: why, fingerprint: seen } in waiting {
            // devices of another program are not opened again and again
            let now = fingerprint_devices(&pool.drives);
            if now == seen {
                continue;
            }
            let _importing = self.import_lock.lock();
            let still = self.unavailable.lock().iter().any(|other| other.saved.guid == pool.guid);
            if !still || self.shutting_down.load(Ordering::Acquire) {
                continue;
            }
            let guid = pool.guid;
            let still = match self.reimport_pool(&pool) {
                Ok(taken) => {
                    self.unavailable.lock().retain(|other| other.saved.guid != guid);
                    self.follow_reimported(&[taken]);
                    continue;
                }
                Err(still) => still,
            };
            let seen = fingerprint_after(&still, now);
            let still = still.to_string();
            if still != why {
                self.log.write_line(&format!("pool '{}' cannot be imported: {still}", pool.name));
            }
            for other in self.unavailable.lock().iter_mut().filter(|other| other.saved.guid == guid)
            {
                (other.reason, other.fingerprint) = (still.clone(), seen.clone());
            }
        }
    }

    /// Reopens devices of pools that were missing and are there now. `seen`: the devices at the last look.
    pub(super) fn reopen_drives(&self, seen: &mut HashMap<u64, DeviceFingerprint>) {
        let pools: Vec<_> = self.imported.lock().values().cloned().collect();
        for pool in pools {
            let now = fingerprint_devices(&pool.handle.drives().unavailable());
            let before = seen.insert(pool.handle.guid(), now.clone());
            if now.is_empty() || before == Some(now) || pool.handle.is_suspended() {
                continue;
            }
            let _importing = self.import_lock.lock();
            self.reopen_drives_of(&pool);
        }
    }

    /// Reopens missing devices of a pool, and resilvers them.
    pub(super) fn reopen_drives_of(&self, pool: &ManagedPool) {
        let _changing = pool.dataset_lock.lock();
        let taken = pool.handle.drives().reopen();
        for drive in &taken {
            self.log.write_line(&format!("pool '{}': drive '{drive}' is back", pool.handle.name()));
        }
        let replaced = pool.handle.drives().replace_missing().unwrap_or_else(|why| {
            self.log.write_line(&why.to_string());
            Vec::new()
        });
        for drive in &replaced {
            let name = pool.handle.name();
            self.log.write_line(&format!(
                "pool '{name}': the new drive '{drive}' takes the place of the one that is missing"
            ));
        }
        if !taken.is_empty() || !replaced.is_empty() {
            pool.handle.scans().start_resilver();
            self.save_pools();
        }
    }

    /// Imports a saved pool. If its log is encrypted, keys are read from the files that keylocation names.
    fn open_saved_pool(&self, pool: &SavedPool) -> engine::Result<Pool> {
        let drives = search_paths(&pool.drives, pool.guid);
        let (guid, read_only) = (pool.guid.to_string(), pool.read_only);
        let others = self.imported_names();
        let how = ImportOptions {
            read_only,
            rewind: pool.rewind,
            imported_pools: others,
            ..import_options(pool)
        };
        let without = engine::pool::import_with(&drives, &guid, &how, &self.environment);
        let Err(engine::Error::LockedLog { .. }) = &without else { return without };
        let roots = engine::pool::encryption_roots(&drives, &guid, (false, pool.rewind))?;
        let told = roots.into_iter().filter_map(|root| {
            let path = root.location.strip_prefix("file://")?;
            Some((root.name.clone(), std::fs::read(path).ok()?))
        });
        let keys: Vec<_> = told.collect();
        if keys.is_empty() {
            return without;
        }
        let how = ImportOptions { keys, ..how };
        engine::pool::import_with(&drives, &guid, &how, &self.environment)
    }

    /// The status of unavailable pools; without names of all.
    pub(super) fn unavailable_reports(&self, names: &[String]) -> Vec<PoolReport> {
        let waiting = self.unavailable.lock();
        let wanted =
            waiting.iter().filter(|one| names.is_empty() || names.contains(&one.saved.name));
        let report = |one: &UnavailablePool| PoolReport {
            status: PoolStatus::unavailable(&one.saved.name, one.saved.guid, &one.reason),
            altroot: one.saved.altroot.clone(),
        };
        wanted.map(report).collect()
    }

    /// The error for a pool that is unavailable.
    pub(super) fn unavailable_error(&self, name: &str) -> Option<Error> {
        let waiting = self.unavailable.lock();
        let one = waiting.iter().find(|one| one.saved.name == name)?;
        let what = format!(
            "pool '{name}' could not be imported again: {}; the daemon tries again when devices \
             appear, and `zpool export {name}` ends that",
            one.reason
        );
        Some(Error::Reported { status: 3, message: what })
    }

    /// Removes an unavailable pool from the list. None: it is not in the list, or a pool of that
    /// name is imported.
    pub(super) fn forget_unavailable(&self, name: &str) -> Option<Result<()>> {
        let is_awaited = || {
            !self.has_pool(name) && self.unavailable.lock().iter().any(|one| one.saved.name == name)
        };
        if !is_awaited() {
            return None;
        }
        let _importing = match self.lock_imports() {
            Ok(importing) => importing,
            Err(why) => return Some(Err(why)),
        };
        // it may just have been imported
        is_awaited().then(|| {
            let gone: Vec<_> =
                self.unavailable.lock().extract_if(.., |one| one.saved.name == name).collect();
            for one in &gone {
                self.forget_cachefile(&one.saved);
            }
            self.log.write_line(&format!("pool '{name}' is no longer in the list"));
            self.save_pools();
            Ok(())
        })
    }
}

/// The devices to compare with at the next try. A pool whose name was in use is tried again though
/// no device changed.
fn fingerprint_after(why: &engine::Error, now: DeviceFingerprint) -> DeviceFingerprint {
    if matches!(why, engine::Error::NameTaken { .. }) { DeviceFingerprint::new() } else { now }
}

/// The directories of devices.
fn parent_dirs(drives: &[PathBuf]) -> BTreeSet<&Path> {
    drives.iter().filter_map(|drive| drive.parent()).collect()
}

/// The identity of devices, and the times at which their directories changed.
fn fingerprint_devices(drives: &[PathBuf]) -> DeviceFingerprint {
    let paths = drives.iter().map(PathBuf::as_path).chain(parent_dirs(drives));
    let facts = |path: &Path| {
        let facts = std::fs::metadata(path).ok()?;
        Some((facts.ino(), facts.rdev(), facts.len(), facts.modified().ok()?))
    };
    paths.map(facts).collect()
}

/// Where to search for a pool: its known paths and, if devices are missing, their directories. Names of disks
/// may change when a machine starts.
fn search_paths(drives: &[PathBuf], guid: u64) -> Vec<PathBuf> {
    let found = engine::search(drives).summaries(&engine::OpenOptions::default());
    let mut vdevs = found.iter().filter(|pool| pool.guid == guid).flat_map(|pool| &pool.vdevs);
    let whole = found.iter().any(|pool| pool.guid == guid)
        && vdevs.all(|vdev| matches!(vdev.state, VdevState::Online | VdevState::Removed));
    if whole {
        return drives.to_vec();
    }
    drives.iter().cloned().chain(parent_dirs(drives).into_iter().map(Path::to_path_buf)).collect()
}

/// The import options that keep a temporary name.
fn import_options(pool: &SavedPool) -> ImportOptions {
    let new_name = pool.temporary.then(|| pool.name.clone());
    ImportOptions { new_name, temporary: pool.temporary, ..ImportOptions::default() }
}
