//! The pools that the daemon has, and what it does with them.
//!
//! A pool has a thread of its own that writes what was changed. Pools come and go one at a time;
//! what changes the datasets of one waits for what did before it.

mod datasets;
mod destroy;
mod doomed;
mod drives;
mod mounts;
mod options;
mod pools;
mod rollback;
mod waiting;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use doomed::Doom;
use engine::held::{Held, Judging, Rewind, Rewound, World};
use mounts::Unmount;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::Value;
use waiting::Waiting;

use crate::cancel::Cancel;
use crate::log::Log;
use crate::memory::{self, Remembered};
use crate::{Answer, Ask, Error, Hello, Place, Result};

/// How often a txg is written, if nobody asks for it.
const INTERVAL: Duration = Duration::from_secs(5);

/// The same where the kernel does not forward sync(2) to mounts: programs that call it rely on this alone.
const INTERVAL_WITHOUT_SYNC: Duration = Duration::from_secs(1);

/// How often a pool under multihost protection gives a sign of life.
const SIGNS: Duration = Duration::from_secs(1);

/// How often what was read is written to a pool's cache drives.
const CACHING: Duration = Duration::from_secs(1);

/// The pools that the daemon has.
pub(crate) struct House {
    place: Place,
    pub(crate) log: Log,
    world: World,
    pools: Mutex<BTreeMap<String, Arc<Pool>>>,
    /// Pools that were there when the daemon ended and cannot be taken over now.
    waiting: Mutex<Vec<Waiting>>,
    /// Tries to take those over.
    trying: Mutex<Option<JoinHandle<()>>>,
    leaving: AtomicBool,
    /// Pools come and go one at a time.
    moving: Mutex<()>,
    /// What is remembered is written by one at a time, so that the last one writes what is true last.
    remembering: Mutex<()>,
    /// What is read before a pool is taken back.
    judging: Mutex<Arc<Judging>>,
}

/// A pool with its threads.
struct Pool {
    held: Held,
    altroot: Option<PathBuf>,
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Its datasets are changed by one at a time.
    changing: Mutex<()>,
    mounts: Mutex<Vec<mounts::Mount>>,
}

impl House {
    pub(crate) fn new(place: Place, log: Log, world: World) -> Self {
        let (pools, waiting, trying, moving, remembering, judging) = Default::default();
        let leaving = AtomicBool::new(false);
        Self { place, log, world, pools, waiting, trying, leaving, moving, remembering, judging }
    }

    /// Has a pool from now on: starts its threads.
    fn keep(self: &Arc<Self>, held: Held, altroot: Option<PathBuf>) -> Arc<Pool> {
        let stop = Arc::new(AtomicBool::new(false));
        let name = held.name().to_owned();
        let (house, writer, ends) = (Arc::downgrade(self), held.clone(), Arc::clone(&stop));
        let interval = if fuse::forwards_sync() { INTERVAL } else { INTERVAL_WITHOUT_SYNC };
        let writes = std::thread::Builder::new().name(format!("pool {name}")).spawn(move || {
            if let Err(why) = writer.run(interval, &ends)
                && let Some(house) = house.upgrade()
            {
                house.log.say(&why.to_string());
            }
        });
        let (living, ends) = (held.clone(), Arc::clone(&stop));
        let signs = std::thread::Builder::new().name(format!("signs {name}"));
        let signs = signs.spawn(move || living.give_signs(SIGNS, &ends));
        let mut threads = Vec::new();
        let (keeper, ends) = (held.clone(), Arc::clone(&stop));
        let caches = std::thread::Builder::new().name(format!("cache {name}"));
        let caches = caches.spawn(move || keeper.keep_cache(CACHING, &ends));
        let (mender, ends) = (held.clone(), Arc::clone(&stop));
        let mends = std::thread::Builder::new().name(format!("mends {name}"));
        let mends = mends.spawn(move || mender.keep_mended(&ends));
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
                    self.log.say(&format!("pool '{name}' has no thread to {what}: {why}"));
                }
            }
        }
        let threads = Mutex::new(threads);
        let (changing, mounts) = Default::default();
        let pool = Arc::new(Pool { held, altroot, stop, threads, changing, mounts });
        self.pools.lock().insert(name, Arc::clone(&pool));
        pool
    }

    /// Remembers the pools that it has, and those that it waits for, which have to stand back where one
    /// of these has their name.
    fn remember(&self) -> Result<()> {
        let remembered = |pool: &Arc<Pool>| Remembered {
            name: pool.held.name().to_owned(),
            guid: pool.held.guid(),
            drives: pool.held.known_drives(),
            altroot: pool.altroot.clone(),
            read_only: pool.held.is_read_only(),
            temporary: pool.held.is_name_temporary(),
            // what is written to is its newest state now
            rewind: pool.as_of(),
        };
        let _remembering = self.remembering.lock();
        let mut all: Vec<_> = self.pools.lock().values().map(remembered).collect();
        all.extend(self.waiting.lock().iter().map(|one| one.pool.clone()));
        memory::save(&self.place, all)
    }

    /// Ends: all that was changed is written, and the pools stay this host's.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
        if let Some(thread) = self.trying.lock().take() {
            let _ = thread.join();
        }
        let _moving = self.moving.lock();
        // they stay among its pools: whatever is remembered from now on has them, too
        let pools = self.pools.lock().clone();
        for (name, pool) in pools {
            match pool.end(Held::release) {
                Ok(()) => self.log.say(&format!("pool '{name}' is left until the next start")),
                Err(why) => self.log.say(&format!("pool '{name}' is left, and {why}")),
            }
        }
    }

    /// Has pools come and go for one alone, unless it ends: nothing would write what a pool that comes
    /// then is given.
    fn begin_move(&self) -> Result<MutexGuard<'_, ()>> {
        let moving = self.moving.lock();
        if self.leaving.load(Ordering::Acquire) {
            return Err(Error::refused("the daemon ends"));
        }
        Ok(moving)
    }

    /// Whether a pool of that name is here.
    fn has(&self, name: &str) -> bool {
        self.pools.lock().contains_key(name)
    }

    /// The pool with that name.
    fn pool(&self, name: &str) -> Result<Arc<Pool>> {
        if let Some(pool) = self.pools.lock().get(name) {
            return Ok(Arc::clone(pool));
        }
        Err(self.why_waiting(name).unwrap_or_else(|| Error::Said {
            status: 3,
            what: format!("no pool '{name}' is imported"),
        }))
    }

    /// The pool with that name, which is not just to be looked at.
    fn pool_to_change(&self, name: &str) -> Result<Arc<Pool>> {
        let pool = self.pool(name)?;
        pool.held.judge_change()?;
        Ok(pool)
    }

    /// The pool in which a dataset is.
    fn pool_of(&self, dataset: &str) -> Result<Arc<Pool>> {
        self.pool(dataset.split(['/', '@', '#']).next().unwrap_or(dataset))
    }

    /// Does what is asked for. What takes long looks from time to time whether it is cancelled.
    pub(crate) fn answer(self: &Arc<Self>, ask: Ask, cancel: &Cancel) -> Result<Answer> {
        match ask {
            Ask::Hello {} => give(&Hello {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
            }),
            // whoever listens has seen it before, and ends
            Ask::Stop {} => done(()),
            Ask::Pools { names } => give(&self.reports(&names)?),
            Ask::CreatePool(new) => give(&self.create_pool(&new)?),
            Ask::Importable { paths, destroyed } => give(&self.importable(&paths, destroyed)),
            Ask::KeysWanted { paths, name, destroyed, rewind } => {
                give(&self.keys_wanted(&paths, name.as_deref(), (destroyed, rewind))?)
            }
            Ask::History { names, internal } => give(&self.histories(&names, internal)?),
            Ask::ImportPool(import) => {
                let (imported, warnings) = self.import(&import)?;
                Ok(Answer { warnings, ..give(&imported)? })
            }
            Ask::Judged {} => give(&self.judging.lock().so_far()),
            Ask::StopJudging {} => {
                self.judging.lock().stop();
                done(())
            }
            Ask::Mounts {} => {
                let pools: Vec<_> = self.pools.lock().values().cloned().collect();
                give(&pools.iter().flat_map(|pool| pool.mounted()).collect::<Vec<_>>())
            }
            Ask::Mount { names, below, wish } => self.mount(&names, below, &wish),
            Ask::Unmount { names, force, locks } => self.unmount(&names, force, locks),
            Ask::ExportPool { name, force } => match self.forget_waiting(&name) {
                Some(forgotten) => forgotten,
                None => self.export(&name, force).map(done)?,
            },
            Ask::DestroyPool { name, force } => self.destroy_pool(&name, force).map(done)?,
            Ask::PoolProperties { names } => give(&self.pool_properties(&names)?),
            Ask::SetPool { name, property, value } => {
                self.set_pool(&name, &property, &value).map(done)?
            }
            Ask::SyncPools { names } => self.sync(&names).map(done)?,
            Ask::Note { pool, line, user } => {
                self.pool(&pool)?.held.note_command(&line, user);
                done(())
            }
            Ask::AddDrives { name, vdevs, force } => {
                self.add_drives(&name, &vdevs, force).map(done)?
            }
            Ask::ReplaceDrive { name, old, new, force } => {
                self.replace_drive(&name, &old, new.as_deref(), force).map(done)?
            }
            Ask::AttachDrive { name, beside, new, force } => {
                self.attach_drive(&name, &beside, &new, force).map(done)?
            }
            Ask::DetachDrive { name, drive } => self.detach_drive(&name, &drive).map(done)?,
            Ask::ScrubPool { name, stop } => self.scrub(&name, stop).map(done)?,
            Ask::RemoveDrives { name, drives } => self.remove_drives(&name, &drives).map(done)?,
            Ask::ClearPool { name, drive } => self.clear(&name, drive.as_deref()).and_then(warn),
            Ask::Destroy { name, recursive, clones, later, force, dry } => {
                let doom = Doom { recursive: recursive || clones, clones, later };
                self.destroy(&name, doom, (force, dry), cancel)
            }
            other => self.answer_of_datasets(other),
        }
    }
}

impl Pool {
    /// As of when it is looked at. What is written to is its newest state.
    fn as_of(&self) -> Rewind {
        let rewound = self.held.rewound().filter(|_| self.held.is_read_only());
        rewound.as_ref().map_or(Rewind::No, Rewound::again)
    }

    /// Ends what goes on in it, and leaves it as `way` says.
    fn end(&self, way: impl FnOnce(&Held) -> engine::Result<()>) -> engine::Result<()> {
        let _changing = self.changing.lock();
        // nobody mounts it from now on; whoever is in it gets errors
        let _ = self.unmount(&|_| true, Unmount { force: true, keeps_folders: false });
        self.stop.store(true, Ordering::Release);
        let done = way(&self.held);
        for thread in self.threads.lock().drain(..) {
            // it said itself what went wrong
            let _ = thread.join();
        }
        done
    }
}

fn give(value: &impl Serialize) -> Result<Answer> {
    let value = serde_json::to_value(value).map_err(|why| Error::refused(why.to_string()))?;
    Ok(Answer { value, warnings: Vec::new() })
}

fn done((): ()) -> Result<Answer> {
    warn(Vec::new())
}

/// It is done, and the user should know these things.
#[expect(clippy::unnecessary_wraps, reason = "one of several that give an answer")]
fn warn(warnings: Vec<String>) -> Result<Answer> {
    Ok(Answer { value: Value::Null, warnings })
}

#[cfg(test)]
mod tests;
