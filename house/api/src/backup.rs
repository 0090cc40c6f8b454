//! Backups: snapshots of a pool go into a repository.
//!
//! Only the daemon reads an imported pool, so it makes backups, as jobs. A repository is read, verified and
//! pruned without the daemon.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Starts a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartBackup {
    /// The repository's address: `file:///FOLDER`.
    pub location: String,
    /// `FS@SNAPSHOT` is that snapshot; `FS` is all its snapshots that are newer than those in the repository.
    pub targets: Vec<String>,
    /// The same for the datasets below.
    #[serde(default)]
    pub recursive: bool,
}

/// A backup that was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedBackup {
    /// The number of its job.
    pub job: u64,
}

impl Call for StartBackup {
    type Answer = StartedBackup;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/backups";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("back up '{}' to {}", self.targets.join("', '"), self.location)
    }
}
