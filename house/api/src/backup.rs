//! Backups: snapshots of a pool go into a repository.
//!
//! Only the daemon reads an imported pool, so it makes backups, as jobs. A repository is read, verified and
//! pruned without the daemon.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, Secret};

/// How a bucket is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BucketAccess {
    /// The address of the service, as `https://s3.example.org`; none: AWS.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The region.
    pub region: String,
    /// The access key's ID.
    pub key_id: String,
    /// The secret access key.
    pub secret: Secret,
    /// The token of temporary credentials.
    #[serde(default)]
    pub token: Option<Secret>,
    /// A file with certificates in PEM that are trusted; none: those of the system.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub ca_file: Option<PathBuf>,
}

/// Starts a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartBackup {
    /// The repository's address: `file:///FOLDER`, `s3://BUCKET/FOLDER`.
    pub location: String,
    /// `FS@SNAPSHOT` is that snapshot; `FS` means all its snapshots that are newer than those in
    /// the repository.
    pub targets: Vec<String>,
    /// Also the same of the descendants.
    #[serde(default)]
    pub recursive: bool,
    /// A folder in which the daemon keeps what it reads from the store.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub cache: Option<PathBuf>,
    /// Bytes that the cache may take.
    #[serde(default)]
    pub cache_bytes: u64,
    /// Days from now for which all that the snapshots need is protected from deletion (object lock).
    #[serde(default)]
    pub protect_days: Option<u64>,
    /// How the bucket is reached, if the repository is in one.
    #[serde(default)]
    pub access: Option<BucketAccess>,
}

/// A backup that was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedBackup {
    /// The number of its job.
    pub job: u64,
}

impl Call for StartBackup {
    type Response = StartedBackup;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/backups";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("back up '{}' to {}", self.targets.join("', '"), self.location)
    }
}
