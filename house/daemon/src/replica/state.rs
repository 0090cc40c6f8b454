//! The state of replicas: the newest copy of each dataset, kept over restarts in `replicas.json`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::ReplicaConfig;
use crate::log::Log;
use crate::{Error, Result, StateDir, state_file};

/// The newest snapshot of a dataset that a replica has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SafeCopy {
    /// The snapshot's name behind the `@`.
    pub(crate) snapshot: String,
    pub(crate) guid: u64,
    /// The txg in which it was taken at the source.
    pub(crate) txg: u64,
    /// When it was taken, in seconds since 1970.
    pub(crate) created: u64,
}

/// The known facts of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplicaState {
    /// Since when the replica is known, in seconds since 1970.
    pub(crate) since: Option<u64>,
    /// When it was last brought up to date, in seconds since 1970.
    pub(crate) succeeded: Option<u64>,
    /// When that was last tried.
    pub(crate) tried: Option<u64>,
    /// Why the last try failed.
    pub(crate) error: Option<String>,
    /// When all copies were last read back and found equal.
    pub(crate) tested: Option<u64>,
    /// When that was last tried.
    pub(crate) test_tried: Option<u64>,
    /// Why the last test failed.
    pub(crate) test_error: Option<String>,
    /// The last test read a copy that differs from its source.
    #[serde(default)]
    pub(crate) is_different: bool,
    /// The newest copies, by dataset of the source.
    pub(crate) copies: BTreeMap<String, SafeCopy>,
}

/// The states of all replicas.
pub(crate) struct ReplicaStates {
    path: PathBuf,
    states: Mutex<BTreeMap<String, ReplicaState>>,
    log: Arc<Log>,
}

impl ReplicaStates {
    /// Reads the file. Without it nothing is known to be safe, so that nothing is pruned.
    pub(crate) fn load(state_dir: &StateDir, log: Arc<Log>) -> Result<Self> {
        let path = state_dir.replicas();
        let states = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|why| {
                log.write_line(&format!("'{}' cannot be read: {why}", path.display()));
                BTreeMap::new()
            }),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(why) => return Err(Error::file_error(&path, &why)),
        };
        Ok(Self { path, states: Mutex::new(states), log })
    }

    /// The state of a replica.
    pub(crate) fn state(&self, name: &str) -> ReplicaState {
        self.states.lock().get(name).cloned().unwrap_or_default()
    }

    /// Changes the state of a replica, and writes the file.
    pub(crate) fn update(&self, name: &str, change: impl FnOnce(&mut ReplicaState)) {
        let mut states = self.states.lock();
        change(states.entry(name.to_owned()).or_default());
        let saved = serde_json::to_vec_pretty(&*states)
            .map_err(|why| Error::file_error(&self.path, &why.into()))
            .and_then(|bytes| state_file::replace(&self.path, &bytes));
        if let Err(why) = saved {
            self.log.write_line(&why.to_string());
        }
    }

    /// Remembers since when each replica is known.
    pub(crate) fn note(&self, replicas: &[ReplicaConfig], now: u64) {
        for replica in replicas {
            let name = &replica.name.0;
            if self.states.lock().get(name).is_none_or(|state| state.since.is_none()) {
                self.update(name, |state| state.since = Some(state.succeeded.unwrap_or(now)));
            }
        }
    }

    /// The last txg of a dataset that all its replicas have, but those that are away; 0: one of them has nothing;
    /// `None`: no replica needs the dataset's snapshots.
    pub(crate) fn replicated_txg(
        &self,
        replicas: &[ReplicaConfig],
        dataset: &str,
        now: u64,
    ) -> Option<u64> {
        let states = self.states.lock();
        let copy = |replica: &ReplicaConfig| {
            states.get(&replica.name.0).and_then(|state| state.copies.get(dataset))
        };
        let is_away = |replica: &ReplicaConfig| {
            let state = states.get(&replica.name.0);
            state.is_some_and(|state| replica.is_away(state, copy(replica).is_some(), now))
        };
        let covering = replicas.iter().filter(|replica| replica.covers(dataset));
        let covering = covering.filter(|replica| !is_away(replica));
        let txg = |replica: &ReplicaConfig| copy(replica).map_or(0, |copy| copy.txg);
        covering.map(txg).min()
    }
}
