//! The space of all file systems and volumes for metrics, read by a thread of its own while a program asks for metrics.
//!
//! A pool is read again when it has a new txg, and at most every 30 seconds. A pool with a sleeping drive is not read:
//! metrics wake no drive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{ListDatasets, Overview};
use engine::dataset::Dataset;
use parking_lot::{Condvar, Mutex};

use crate::context::Context;

/// The properties that metrics have.
const PROPERTIES: [&str; 9] = [
    "available",
    "logicalused",
    "quota",
    "referenced",
    "used",
    "usedbydataset",
    "usedbysnapshots",
    "volsize",
    "written",
];
/// The time between two readings of a pool.
const INTERVAL: Duration = Duration::from_secs(30);
/// The time without a request after which nothing is read.
const UNUSED: Duration = Duration::from_mins(10);

/// The datasets of all pools at their last reading.
#[derive(Default)]
pub(crate) struct DatasetCache {
    state: Mutex<State>,
    /// Wakes the thread.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pools: BTreeMap<String, PoolDatasets>,
    /// When metrics were asked for last.
    asked: Option<Instant>,
    is_stopped: bool,
}

struct PoolDatasets {
    guid: u64,
    txg: u64,
    list: Arc<Vec<Dataset>>,
}

impl DatasetCache {
    /// The datasets of all pools. The first request gets none, and has the thread read them.
    pub(crate) fn latest(&self) -> Vec<Arc<Vec<Dataset>>> {
        let mut state = self.state.lock();
        let is_first = state.asked.replace(Instant::now()).is_none();
        if is_first {
            self.changed.notify_all();
        }
        state.pools.values().map(|pool| Arc::clone(&pool.list)).collect()
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Reads the pools until [`Self::stop`].
    pub(crate) fn run(&self, context: &Context) {
        while self.wait() {
            self.read_pools(context);
        }
    }

    /// Waits until a program uses metrics and the interval is over. Returns false when the daemon ends.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        if state.asked.is_some() {
            self.changed.wait_for(&mut state, INTERVAL);
        }
        while !state.is_stopped {
            if state.asked.is_some_and(|asked| asked.elapsed() < UNUSED) {
                return true;
            }
            (state.asked, state.pools) = (None, BTreeMap::new());
            self.changed.wait(&mut state);
        }
        false
    }

    fn read_pools(&self, context: &Context) {
        let overview = context.overview.latest();
        let pools = context.pools.all();
        self.state
            .lock()
            .pools
            .retain(|name, _| pools.iter().any(|pool| pool.handle.name() == name));
        for pool in pools {
            let (name, txg, guid) =
                (pool.handle.name().to_owned(), pool.handle.txg(), pool.handle.guid());
            let is_read = self.state.lock().pools.get(&name).is_some_and(|known| {
                known.guid == guid && (known.txg == txg || has_sleeping_drive(&overview, &name))
            });
            if is_read {
                continue;
            }
            let call = ListDatasets {
                names: vec![name.clone()],
                kinds: ["filesystem", "volume"].map(str::to_owned).to_vec(),
                depth: None,
                properties: PROPERTIES.map(str::to_owned).to_vec(),
            };
            drop(pool);
            // a pool that is exported meanwhile has no datasets
            let Ok(reply) = context.pools.list_datasets(&call) else { continue };
            let found = PoolDatasets { guid, txg, list: Arc::new(reply.value) };
            self.state.lock().pools.insert(name, found);
        }
    }
}

fn has_sleeping_drive(overview: &Overview, pool: &str) -> bool {
    let is_of_pool = |drive: &&api::Drive| drive.place.as_ref().is_some_and(|it| it.pool == pool);
    overview.drives.drives.iter().filter(is_of_pool).any(|drive| drive.is_asleep)
}
