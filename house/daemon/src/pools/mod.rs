//! The imported pools of the daemon, and their operations.
//!
//! Each pool has threads of its own, among them the one that writes its txgs. Imports and exports run one at
//! a time. Changes of a pool's datasets run one at a time, too.

pub(crate) mod cachefile;
mod damage_paths;
pub(crate) mod datasets;
mod destroy;
mod destroy_plan;
mod devices;
mod diff;
mod files;
mod filesystem_upgrade;
pub(crate) mod filesystems;
mod folder_restore;
mod holds;
mod import;
mod importable;
mod keys;
mod maintenance;
mod mount_calls;
mod mount_change;
pub(crate) mod mounts;
mod options;
mod permissions;
mod policies;
mod power;
mod receive;
mod receive_package;
mod received_properties;
mod rollback;
mod share_facts;
mod snapshot_admin;
mod streams;
mod unavailable;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use api::{Event, pool_of};
use cachefile::{Cachefile, WrittenCachefiles};
use engine::pool::{Environment, Pool, Rewind, RewindProbe, RewindTarget};
use filesystems::FileSystemTable;
use mounts::UnmountOptions;
use parking_lot::{Mutex, MutexGuard};
use unavailable::UnavailablePool;

use crate::events::{ChangeOptions, Events};
use crate::jobs::Jobs;
use crate::log::Log;
use crate::pool_cache::{self, SavedPool};
use crate::{Error, Result, StateDir};

pub(crate) use files::list as list_files;

/// The exit status where no pool of a name is imported.
const NO_SUCH_POOL: u8 = 3;

/// The time between two txgs, unless a program asks for one sooner.
const TXG_INTERVAL: Duration = Duration::from_secs(5);

/// The same where the kernel does not forward sync(2) to mounts: programs that call it rely on this alone.
const INTERVAL_WITHOUT_SYNC: Duration = Duration::from_secs(1);

/// The time between two MMP heartbeats of a pool with multihost=on.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two feeds of the L2ARC.
const L2ARC_FEED_INTERVAL: Duration = Duration::from_secs(1);

/// The work of a pool's thread, which runs until the flag is set.
type Duty = Box<dyn Fn(&Pool, &AtomicBool) + Send>;

/// The pools that the daemon imported.
pub(crate) struct Pools {
    state_dir: StateDir,
    log: Arc<Log>,
    environment: Environment,
    pub(crate) events: Arc<Events>,
    pub(crate) jobs: Arc<Jobs>,
    imported: Mutex<BTreeMap<String, Arc<ManagedPool>>>,
    /// Pools that were imported when the daemon ended and cannot be imported now.
    unavailable: Mutex<Vec<UnavailablePool>>,
    /// Retries those imports, and watches the pools.
    watch_thread: Mutex<Option<JoinHandle<()>>>,
    shutting_down: AtomicBool,
    /// Set while the pools stay closed because the battery of the UPS is nearly empty.
    is_power_failing: AtomicBool,
    /// Locked while a pool is imported or exported.
    import_lock: Mutex<()>,
    /// Why the list of pools could not be written, if so. Locked while it is written, so that the
    /// last writer writes the last state.
    unsaved: Mutex<Option<String>>,
    cachefiles: Mutex<WrittenCachefiles>,
    /// The probe of the latest import with a rewind.
    rewind_probe: Mutex<Arc<RewindProbe>>,
    /// Changes snapshots by `.zfs/snapshot`, if the configuration allows it.
    snapshot_admin: Mutex<Option<Arc<dyn vfs::SnapshotAdmin>>>,
}

/// An imported pool with its threads.
pub(crate) struct ManagedPool {
    pub(crate) handle: Pool,
    altroot: Option<PathBuf>,
    cachefile: Mutex<Cachefile>,
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Locked while a dataset is changed.
    pub(crate) dataset_lock: Mutex<()>,
    /// The file systems that mounts and protocol servers have open.
    pub(crate) filesystems: Arc<FileSystemTable>,
    mounts: Mutex<Vec<mounts::ActiveMount>>,
    /// File systems that a change in progress unmounted, and that are mounted again after it.
    prepared_mounts: Mutex<Vec<mounts::SavedMount>>,
    events: Arc<Events>,
}

impl Pools {
    pub(crate) fn new(
        state_dir: StateDir,
        log: Arc<Log>,
        environment: Environment,
        events: Arc<Events>,
        jobs: Arc<Jobs>,
    ) -> Self {
        Self {
            state_dir,
            log,
            environment,
            events,
            jobs,
            imported: Mutex::default(),
            unavailable: Mutex::default(),
            watch_thread: Mutex::default(),
            shutting_down: AtomicBool::new(false),
            is_power_failing: AtomicBool::new(false),
            import_lock: Mutex::default(),
            unsaved: Mutex::default(),
            cachefiles: Mutex::default(),
            rewind_probe: Mutex::default(),
            snapshot_admin: Mutex::default(),
        }
    }

    /// Adds an imported pool: starts its threads.
    fn add_pool(
        self: &Arc<Self>,
        handle: Pool,
        altroot: Option<PathBuf>,
        cachefile: Cachefile,
    ) -> Arc<ManagedPool> {
        let stop = Arc::new(AtomicBool::new(false));
        let name = handle.name().to_owned();
        crate::parameters::apply(&handle);
        let threads = self.start_threads(&handle, &stop);
        let pool = Arc::new(ManagedPool {
            filesystems: FileSystemTable::new(handle.clone(), self.snapshot_admin.lock().clone()),
            handle,
            altroot,
            cachefile: Mutex::new(cachefile),
            stop,
            threads: Mutex::new(threads),
            dataset_lock: Mutex::default(),
            mounts: Mutex::default(),
            prepared_mounts: Mutex::default(),
            events: Arc::clone(&self.events),
        });
        self.imported.lock().insert(name, Arc::clone(&pool));
        pool
    }

    fn start_threads(
        self: &Arc<Self>,
        handle: &Pool,
        stop: &Arc<AtomicBool>,
    ) -> Vec<JoinHandle<()>> {
        let interval = if fuse::forwards_sync() { TXG_INTERVAL } else { INTERVAL_WITHOUT_SYNC };
        let log = Arc::clone(&self.log);
        let sync = move |pool: &Pool, stop: &AtomicBool| {
            if let Err(why) = pool.background().run_txg_sync(interval, stop) {
                log.write_line(&why.to_string());
            }
        };
        let heartbeat = |pool: &Pool, stop: &AtomicBool| {
            pool.background().run_mmp_heartbeat(HEARTBEAT_INTERVAL, stop);
        };
        let feed = |pool: &Pool, stop: &AtomicBool| {
            pool.background().run_l2arc_feed(L2ARC_FEED_INTERVAL, stop);
        };
        let activities = |pool: &Pool, stop: &AtomicBool| pool.background().run_activities(stop);
        let duties: [(&str, Duty); 4] = [
            ("txg sync", Box::new(sync)),
            ("MMP heartbeat", Box::new(heartbeat)),
            ("L2ARC feed", Box::new(feed)),
            ("activities", Box::new(activities)),
        ];
        let mut threads = Vec::new();
        for (duty, run) in duties {
            let (pool, stop) = (handle.clone(), Arc::clone(stop));
            let thread = std::thread::Builder::new().name(format!("{duty} {}", pool.name()));
            match thread.spawn(move || run(&pool, &stop)) {
                Ok(thread) => threads.push(thread),
                // commands still sync the pool
                Err(why) => {
                    let name = handle.name();
                    self.log.write_line(&format!("pool '{name}' has no {duty} thread: {why}"));
                }
            }
        }
        threads
    }

    /// Writes the list of pools, and the cache files that pools name.
    fn save_pools(&self) {
        self.save_list();
        self.write_cachefiles();
    }

    /// Writes the list of imported and unavailable pools. Imported ones come first: on a conflict of names the
    /// unavailable pool has to wait.
    ///
    /// A list that cannot be written stops no pool: [`Self::unsaved_warning`] reports it, and the
    /// watch thread tries again.
    fn save_list(&self) {
        let mut unsaved = self.unsaved.lock();
        let mut all: Vec<_> = self.imported.lock().values().map(|pool| pool.to_saved()).collect();
        all.extend(self.unavailable.lock().iter().map(|one| one.saved.clone()));
        match pool_cache::save(&self.state_dir, all) {
            Ok(()) => {
                if unsaved.take().is_some() {
                    self.log.write_line("the list of pools is written again");
                }
            }
            Err(why) => {
                let why = why.to_string();
                if unsaved.as_ref() != Some(&why) {
                    self.log.write_line(&format!("the list of pools cannot be written: {why}"));
                }
                *unsaved = Some(why);
            }
        }
    }

    /// A warning if the list of pools could not be written.
    pub(crate) fn unsaved_warning(&self) -> Option<String> {
        let why = self.unsaved.lock().clone()?;
        Some(format!(
            "{why}: the list of imported pools could not be written. The pools stay imported; but a daemon that starts again now imports the pools of the old list. It writes the list as soon as the folder has space and can \
             be written"
        ))
    }

    /// Writes all changes and closes the pools. They stay this host's.
    pub(crate) fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Release);
        if let Some(thread) = self.watch_thread.lock().take() {
            let _ = thread.join();
        }
        let _importing = self.import_lock.lock();
        // they stay in the list: a later save includes them
        let pools = self.imported.lock().clone();
        for (name, pool) in pools {
            match pool.close(Pool::close) {
                Ok(()) => {
                    self.log.write_line(&format!("pool '{name}' is closed until the next start"));
                }
                Err(why) => self.log.write_line(&format!("pool '{name}' is closed, and {why}")),
            }
        }
    }

    /// Takes the lock for imports and exports. Refused when the daemon ends: no thread would write the changes
    /// of a pool that is imported then.
    fn lock_imports(&self) -> Result<MutexGuard<'_, ()>> {
        let importing = self.import_lock.lock();
        if self.shutting_down.load(Ordering::Acquire) {
            return Err(Error::refused_error("the daemon is shutting down"));
        }
        Ok(importing)
    }

    /// Whether a pool of that name is imported.
    fn has_pool(&self, name: &str) -> bool {
        self.imported.lock().contains_key(name)
    }

    /// The pool with that name.
    pub(crate) fn pool(&self, name: &str) -> Result<Arc<ManagedPool>> {
        if let Some(pool) = self.imported.lock().get(name) {
            return Ok(Arc::clone(pool));
        }
        Err(self.unavailable_error(name).unwrap_or_else(|| Error::Reported {
            status: NO_SUCH_POOL,
            message: format!("cannot open '{name}': no such pool"),
        }))
    }

    /// The pool with that name, unless it is imported read-only.
    fn writable_pool(&self, name: &str) -> Result<Arc<ManagedPool>> {
        let pool = self.pool(name)?;
        pool.handle.check_writable()?;
        Ok(pool)
    }

    /// The pool of a dataset.
    pub(crate) fn pool_of_dataset(&self, dataset: &str) -> Result<Arc<ManagedPool>> {
        let pool = pool_of(dataset);
        self.pool(pool).map_err(|why| match why {
            Error::Reported { status: NO_SUCH_POOL, .. }
                if self.unavailable_error(pool).is_none() =>
            {
                engine::Error::NoSuchDataset { name: dataset.to_owned() }.into()
            }
            other => other,
        })
    }

    /// All pools.
    pub(crate) fn all(&self) -> Vec<Arc<ManagedPool>> {
        self.imported.lock().values().cloned().collect()
    }

    /// Records a command in the history of a pool. The command is done whether that succeeds or not.
    pub(crate) fn record_command(&self, pool: &str, line: &str, uid: u32) {
        let found = self.imported.lock().get(pool).cloned();
        if let Some(pool) = found {
            pool.handle.history().record(line, uid);
        }
    }

    /// Makes a change of a pool that the services prepare and follow. Returns the value and a sentence for
    /// each thing that a service could not do.
    pub(crate) fn change<T>(
        &self,
        coming: &[Event],
        options: &ChangeOptions,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Vec<String>)> {
        self.prepare_changes(coming, options)?;
        match work() {
            Ok(value) => Ok((value, self.events.publish(coming, options))),
            Err(why) => {
                self.events.abandon(coming);
                Err(why)
            }
        }
    }
}

impl ManagedPool {
    /// The entry in the list of pools, by which it is imported again.
    fn to_saved(&self) -> SavedPool {
        SavedPool {
            name: self.handle.name().to_owned(),
            guid: self.handle.guid(),
            drives: self.handle.drives().known(),
            altroot: self.altroot.clone(),
            cachefile: self.cachefile.lock().clone(),
            read_only: self.handle.is_read_only(),
            temporary: self.handle.has_temporary_name(),
            rewind: self.saved_rewind(),
        }
    }

    /// The rewind that leads to the same state again. A writable pool is at its newest state.
    fn saved_rewind(&self) -> Rewind {
        let rewound = self.handle.rewind_target().filter(|_| self.handle.is_read_only());
        rewound.as_ref().map_or(Rewind::No, RewindTarget::as_rewind)
    }

    /// Unmounts its file systems, ends its threads, and closes it by `way`.
    fn close(&self, way: impl FnOnce(&Pool) -> engine::Result<()>) -> engine::Result<()> {
        let _changing = self.dataset_lock.lock();
        // programs that have files open get errors
        let _ = self.unmount_selected(&|_| true, UnmountOptions { force: true, keep_dirs: false });
        self.stop.store(true, Ordering::Release);
        let done = way(&self.handle);
        for thread in self.threads.lock().drain(..) {
            // the thread logged its error
            let _ = thread.join();
        }
        done
    }
}

#[cfg(test)]
mod tests;
