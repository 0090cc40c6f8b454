//! Repositories of backups that the daemon knows: those of the sections `[[repository]]`.
//!
//! The daemon has their access keys, so that the dashboard and scheduled work need none. No answer shows a key.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Lists the repositories of the configuration, each as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListRepositories {}

impl Call for ListRepositories {
    type Response = Vec<RepositoryState>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/repositories";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        "list the repositories of backups".to_owned()
    }
}

/// A repository of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryState {
    /// The address: `file:///FOLDER`, `s3://BUCKET/FOLDER`.
    pub location: String,
    /// Why it cannot be read; none: it can be.
    pub problem: Option<String>,
    /// Bytes of blocks in it.
    pub stored: u64,
    /// The number of snapshots.
    pub snapshots: usize,
    /// When the newest of them was taken, in seconds since 1970.
    pub newest: Option<u64>,
}

/// Creates a repository at an address of the configuration. The answer is its ID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateRepository {
    /// The address.
    pub location: String,
}

impl Call for CreateRepository {
    type Response = String;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/repositories";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("create a repository at {}", self.location)
    }
}

/// Lists the snapshots in a repository, by dataset and age.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListRepositorySnapshots {
    /// The address.
    pub location: String,
}

impl Call for ListRepositorySnapshots {
    type Response = Vec<RepositorySnapshot>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/repositories/snapshots";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        format!("list the snapshots in {}", self.location)
    }
}

/// A snapshot in a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositorySnapshot {
    /// The file system or volume.
    pub dataset: String,
    /// The name behind the `@`.
    pub name: String,
    /// When it was taken, in seconds since 1970.
    pub creation: u64,
    /// Bytes that it references.
    pub referenced: u64,
    /// Bytes that its backup added.
    pub added: u64,
    /// Whether its files are read with a key only.
    pub is_encrypted: bool,
    /// Whether it is of a volume, which has no files.
    pub is_volume: bool,
}
