//! The pools that the daemon has, and what it does with them.
//!
//! A pool has a thread of its own that writes what was changed. Pools come and go one at a time;
//! what changes the datasets of one waits for what did before it.

mod datasets;
mod destroy;
mod destroy_plan;
mod drives;
mod mounts;
mod options;
mod pools;
mod rollback;
mod streams;
mod unavailable;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use destroy_plan::DestroyScope;
use engine::pool::{Environment, Pool, Rewind, RewindProbe, RewindTarget};
use mounts::UnmountOptions;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::Value;
use unavailable::UnavailablePool;

use crate::cancel::Cancel;
use crate::log::Log;
use crate::pool_cache::{self, SavedPool};
use crate::{DaemonInfo, Error, Request, Response, Result, StateDir};

/// How often a txg is written, if nobody asks for it.
const TXG_INTERVAL: Duration = Duration::from_secs(5);

/// The same where the kernel does not forward sync(2) to mounts: programs that call it rely on this alone.
const INTERVAL_WITHOUT_SYNC: Duration = Duration::from_secs(1);

/// How often a pool under multihost protection gives a sign of life.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// How often what was read is written to a pool's cache drives.
const L2ARC_FEED_INTERVAL: Duration = Duration::from_secs(1);

/// The pools that the daemon has.
pub(crate) struct Daemon {
    state_dir: StateDir,
    pub(crate) log: Log,
    environment: Environment,
    pools: Mutex<BTreeMap<String, Arc<ManagedPool>>>,
    /// Pools that were there when the daemon ended and cannot be taken over now.
    unavailable: Mutex<Vec<UnavailablePool>>,
    /// Tries to take those over.
    reimport_thread: Mutex<Option<JoinHandle<()>>>,
    shutting_down: AtomicBool,
    /// Pools come and go one at a time.
    import_lock: Mutex<()>,
    /// What is remembered is written by one at a time, so that the last one writes what is true last.
    state_file_lock: Mutex<()>,
    /// What is read before a pool is taken back.
    rewind_probe: Mutex<Arc<RewindProbe>>,
}

/// A pool with its threads.
struct ManagedPool {
    handle: Pool,
    altroot: Option<PathBuf>,
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Its datasets are changed by one at a time.
    dataset_lock: Mutex<()>,
    mounts: Mutex<Vec<mounts::ActiveMount>>,
}

impl Daemon {
    pub(crate) fn new(state_dir: StateDir, log: Log, environment: Environment) -> Self {
        let (pools, unavailable, reimport_thread, import_lock, state_file_lock, rewind_probe) =
            Default::default();
        let shutting_down = AtomicBool::new(false);
        Self {
            state_dir,
            log,
            environment,
            pools,
            unavailable,
            reimport_thread,
            shutting_down,
            import_lock,
            state_file_lock,
            rewind_probe,
        }
    }

    /// Has a pool from now on: starts its threads.
    fn add_pool(self: &Arc<Self>, held: Pool, altroot: Option<PathBuf>) -> Arc<ManagedPool> {
        let stop = Arc::new(AtomicBool::new(false));
        let name = held.name().to_owned();
        let (house, writer, ends) = (Arc::downgrade(self), held.clone(), Arc::clone(&stop));
        let interval = if fuse::forwards_sync() { TXG_INTERVAL } else { INTERVAL_WITHOUT_SYNC };
        let writes = std::thread::Builder::new().name(format!("pool {name}")).spawn(move || {
            if let Err(why) = writer.run_txg_sync(interval, &ends)
                && let Some(house) = house.upgrade()
            {
                house.log.write_line(&why.to_string());
            }
        });
        let (living, ends) = (held.clone(), Arc::clone(&stop));
        let signs = std::thread::Builder::new().name(format!("signs {name}"));
        let signs = signs.spawn(move || living.run_mmp_heartbeat(HEARTBEAT_INTERVAL, &ends));
        let mut threads = Vec::new();
        let (keeper, ends) = (held.clone(), Arc::clone(&stop));
        let caches = std::thread::Builder::new().name(format!("cache {name}"));
        let caches = caches.spawn(move || keeper.run_l2arc_feed(L2ARC_FEED_INTERVAL, &ends));
        let (mender, ends) = (held.clone(), Arc::clone(&stop));
        let mends = std::thread::Builder::new().name(format!("mends {name}"));
        let mends = mends.spawn(move || mender.run_scans(&ends));
        for (started, what) in [
            (writes, "write its changes"),
            (signs, "give signs of life"),
            (caches, "write to its cache drives"),
            (mends, "mend its drives"),
        ] {
            match started {
                Ok(thread) => threads.push(thread),
                // what is changed is still written whenever a command asks for it
                Err(why) => {
                    self.log.write_line(&format!("pool '{name}' has no thread to {what}: {why}"));
                }
            }
        }
        let threads = Mutex::new(threads);
        let (changing, mounts) = Default::default();
        let pool = Arc::new(ManagedPool {
            handle: held,
            altroot,
            stop,
            threads,
            dataset_lock: changing,
            mounts,
        });
        self.pools.lock().insert(name, Arc::clone(&pool));
        pool
    }

    /// Remembers the pools that it has, and those that it waits for, which have to stand back where one
    /// of these has their name.
    fn save_pools(&self) -> Result<()> {
        let remembered = |pool: &Arc<ManagedPool>| SavedPool {
            name: pool.handle.name().to_owned(),
            guid: pool.handle.guid(),
            drives: pool.handle.known_drives(),
            altroot: pool.altroot.clone(),
            read_only: pool.handle.is_read_only(),
            temporary: pool.handle.has_temporary_name(),
            // what is written to is its newest state now
            rewind: pool.saved_rewind(),
        };
        let _remembering = self.state_file_lock.lock();
        let mut all: Vec<_> = self.pools.lock().values().map(remembered).collect();
        all.extend(self.unavailable.lock().iter().map(|one| one.saved.clone()));
        pool_cache::save(&self.state_dir, all)
    }

    /// Ends: all that was changed is written, and the pools stay this host's.
    pub(crate) fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Release);
        if let Some(thread) = self.reimport_thread.lock().take() {
            let _ = thread.join();
        }
        let _moving = self.import_lock.lock();
        // they stay among its pools: whatever is remembered from now on has them, too
        let pools = self.pools.lock().clone();
        for (name, pool) in pools {
            match pool.close(Pool::close) {
                Ok(()) => {
                    self.log.write_line(&format!("pool '{name}' is left until the next start"));
                }
                Err(why) => self.log.write_line(&format!("pool '{name}' is left, and {why}")),
            }
        }
    }

    /// Has pools come and go for one alone, unless it ends: nothing would write what a pool that comes
    /// then is given.
    fn lock_imports(&self) -> Result<MutexGuard<'_, ()>> {
        let moving = self.import_lock.lock();
        if self.shutting_down.load(Ordering::Acquire) {
            return Err(Error::refused_error("the daemon ends"));
        }
        Ok(moving)
    }

    /// Whether a pool of that name is here.
    fn has_pool(&self, name: &str) -> bool {
        self.pools.lock().contains_key(name)
    }

    /// The pool with that name.
    fn pool(&self, name: &str) -> Result<Arc<ManagedPool>> {
        if let Some(pool) = self.pools.lock().get(name) {
            return Ok(Arc::clone(pool));
        }
        Err(self.unavailable_error(name).unwrap_or_else(|| Error::Reported {
            status: 3,
            message: format!("no pool '{name}' is imported"),
        }))
    }

    /// The pool with that name, which is not just to be looked at.
    fn writable_pool(&self, name: &str) -> Result<Arc<ManagedPool>> {
        let pool = self.pool(name)?;
        pool.handle.check_writable()?;
        Ok(pool)
    }

    /// The pool in which a dataset is.
    fn pool_of_dataset(&self, dataset: &str) -> Result<Arc<ManagedPool>> {
        self.pool(dataset.split(['/', '@', '#']).next().unwrap_or(dataset))
    }

    /// Does what is asked for. What takes long looks from time to time whether it is cancelled.
    pub(crate) fn handle_request(
        self: &Arc<Self>,
        request: Request,
        cancel: &Cancel,
    ) -> Result<Response> {
        match request {
            Request::Hello {} => value_response(&DaemonInfo {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
            }),
            // whoever listens has seen it before, and ends
            Request::Stop {} => empty_response(()),
            Request::Pools { names } => value_response(&self.pool_reports(&names)?),
            Request::CreatePool(new) => value_response(&self.create_pool(&new)?),
            Request::Importable { paths, destroyed } => {
                value_response(&self.find_importable(&paths, destroyed))
            }
            Request::EncryptionRoots { paths, name, destroyed, rewind } => value_response(
                &self.list_encryption_roots(&paths, name.as_deref(), (destroyed, rewind))?,
            ),
            Request::History { names, internal } => {
                value_response(&self.pool_histories(&names, internal)?)
            }
            Request::ImportPool(import) => {
                let (imported, warnings) = self.import_pools(&import)?;
                Ok(Response { warnings, ..value_response(&imported)? })
            }
            Request::RewindProgress {} => value_response(&self.rewind_probe.lock().progress()),
            Request::StopRewindProbe {} => {
                self.rewind_probe.lock().stop();
                empty_response(())
            }
            Request::Mounts {} => {
                let pools: Vec<_> = self.pools.lock().values().cloned().collect();
                value_response(
                    &pools.iter().flat_map(|pool| pool.mounted_filesystems()).collect::<Vec<_>>(),
                )
            }
            Request::Mount { names, recursive, overrides } => {
                self.mount(&names, recursive, &overrides)
            }
            Request::Unmount { names, force, unload_keys } => {
                self.unmount(&names, force, unload_keys)
            }
            Request::ExportPool { name, force } => match self.forget_unavailable(&name) {
                Some(forgotten) => forgotten,
                None => self.export_pool(&name, force).map(empty_response)?,
            },
            Request::DestroyPool { name, force } => {
                self.destroy_pool(&name, force).map(empty_response)?
            }
            Request::PoolProperties { names } => value_response(&self.pool_properties(&names)?),
            Request::SetPool { name, property, value } => {
                self.set_pool_property(&name, &property, &value).map(empty_response)?
            }
            Request::SyncPools { names } => self.sync_pools(&names).map(empty_response)?,
            Request::RecordCommand { pool, command, uid } => {
                self.pool(&pool)?.handle.record_command(&command, uid);
                empty_response(())
            }
            Request::Destroy { name, recursive, clones, defer, force, dry_run } => {
                let scope = DestroyScope { recursive: recursive || clones, clones, defer };
                self.destroy(&name, scope, (force, dry_run), cancel)
            }
            Request::Send(wanted) => self.send_stream(&wanted, cancel),
            Request::Receive(wanted) => self.receive_stream(&wanted, cancel),
            other => self.handle_device_request(other),
        }
    }

    /// Handles a request that concerns the devices of a pool.
    fn handle_device_request(self: &Arc<Self>, request: Request) -> Result<Response> {
        match request {
            Request::AddDrives { name, vdevs, force } => {
                self.add_drives(&name, &vdevs, force).map(empty_response)?
            }
            Request::ReplaceDrive { name, old, new, force } => {
                self.replace_drive(&name, &old, new.as_deref(), force).map(empty_response)?
            }
            Request::AttachDrive { name, existing, new, force } => {
                self.attach_drive(&name, &existing, &new, force).map(empty_response)?
            }
            Request::DetachDrive { name, drive } => {
                self.detach_drive(&name, &drive).map(empty_response)?
            }
            Request::ScrubPool { name, stop } => self.scrub(&name, stop).map(empty_response)?,
            Request::RemoveDrives { name, drives } => {
                self.remove_drives(&name, &drives).map(empty_response)?
            }
            Request::ClearPool { name, drive } => {
                self.clear_pool(&name, drive.as_deref()).and_then(warning_response)
            }
            other => self.handle_dataset_request(other),
        }
    }
}

impl ManagedPool {
    /// As of when it is looked at. What is written to is its newest state.
    fn saved_rewind(&self) -> Rewind {
        let rewound = self.handle.rewind_target().filter(|_| self.handle.is_read_only());
        rewound.as_ref().map_or(Rewind::No, RewindTarget::as_rewind)
    }

    /// Ends what goes on in it, and leaves it as `way` says.
    fn close(&self, way: impl FnOnce(&Pool) -> engine::Result<()>) -> engine::Result<()> {
        let _changing = self.dataset_lock.lock();
        // nobody mounts it from now on; whoever is in it gets errors
        let _ = self.unmount_selected(&|_| true, UnmountOptions { force: true, keep_dirs: false });
        self.stop.store(true, Ordering::Release);
        let done = way(&self.handle);
        for thread in self.threads.lock().drain(..) {
            // it said itself what went wrong
            let _ = thread.join();
        }
        done
    }
}

fn value_response(value: &impl Serialize) -> Result<Response> {
    let value = serde_json::to_value(value).map_err(|why| Error::refused_error(why.to_string()))?;
    Ok(Response { value, warnings: Vec::new() })
}

fn empty_response((): ()) -> Result<Response> {
    warning_response(Vec::new())
}

/// It is done, and the user should know these things.
#[expect(clippy::unnecessary_wraps, reason = "one of several that give an answer")]
fn warning_response(warnings: Vec<String>) -> Result<Response> {
    Ok(Response { value: Value::Null, warnings })
}

#[cfg(test)]
mod tests;
