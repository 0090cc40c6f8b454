//! What a daemon answers: plain data, the same on both ends of the socket.

use std::path::PathBuf;

use engine::pool::{PoolStatus, RewindTarget};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a daemon answers when it did what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// What was asked for.
    #[serde(default)]
    pub value: Value,
    /// What the user should know besides.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
}

/// A pool that could be imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportablePool {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub guid: u64,
    /// "exported", "active" or "destroyed".
    pub state: String,
    /// The host that had it last.
    pub host: Option<String>,
    /// ONLINE, DEGRADED, UNAVAIL.
    pub health: String,
    /// Why it cannot be imported, if it cannot.
    pub reason: Option<String>,
    /// Its vdevs: how deep, name, state.
    pub vdevs: Vec<(usize, String, String)>,
}

/// What was received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedStream {
    /// The snapshot.
    pub snapshot: String,
    /// The target was there before.
    pub is_incremental: bool,
    /// Bytes of the stream.
    pub bytes: u64,
    /// A sentence for each file system that could not be mounted. It was received all the same.
    pub not_mounted: Vec<String>,
}

/// How the file systems were mounted that a command makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounting {
    /// A sentence for each that could not be mounted. It is there all the same.
    pub failed: Vec<String>,
}

/// What came of taking pools over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportResult {
    /// The names of those that are here now.
    pub imported: Vec<String>,
    /// Of each of the others, and of each key that is wrong, a sentence that says so.
    pub failures: Vec<String>,
    /// Those that were taken back to an earlier state, or would be.
    #[serde(default)]
    pub rewound: Vec<(String, RewindTarget)>,
    /// A sentence for each file system that could not be mounted.
    #[serde(default)]
    pub not_mounted: Vec<String>,
}

/// How a pool is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolReport {
    /// What the engine says.
    #[serde(flatten)]
    pub status: PoolStatus,
    /// What stands before all its mountpoints.
    pub altroot: Option<PathBuf>,
}

/// What was destroyed, or would be, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyedDatasets {
    /// Datasets, snapshots, bookmarks.
    pub names: Vec<String>,
}
