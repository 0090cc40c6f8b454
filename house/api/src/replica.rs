//! Replicas: copies of datasets in another pool, here or on another host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Brings the copy of a dataset up to date, as a job. The answer comes when the job ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Replicate {
    /// The file system or volume: `POOL/FILESYSTEM` here, or `ssh://USER@HOST/POOL/FILESYSTEM`.
    pub source: String,
    /// `POOL/FILESYSTEM` here, or `ssh://USER@HOST/POOL/FILESYSTEM`.
    pub target: String,
    /// Also the descendants of the source.
    #[serde(default)]
    pub recursive: bool,
}

impl Call for Replicate {
    type Response = Vec<ReplicatedDataset>;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/replicas/replicate";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("replicate '{}'", self.source)
    }
}

/// Brings configured replicas up to date, now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunReplicas {
    /// The name of one; none: all.
    #[serde(default)]
    pub name: Option<String>,
}

impl Call for RunReplicas {
    type Response = Vec<ReplicatedDataset>;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/replicas/run";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

    fn action(&self) -> String {
        "run replicas".to_owned()
    }
}

/// Reads copies of configured replicas back and compares them with their sources, as a job. The answer comes when the job
/// ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestReplicas {
    /// The name of one; none: all.
    #[serde(default)]
    pub name: Option<String>,
}

impl Call for TestReplicas {
    type Response = Vec<TestedCopy>;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/replicas/test";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        "test replicas".to_owned()
    }
}

/// A copy that was read back and has what its source has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedCopy {
    /// The dataset of the source.
    pub source: String,
    /// The dataset of the target.
    pub target: String,
    /// The snapshot that was compared, behind the `@`; none: the source has no snapshots.
    pub snapshot: Option<String>,
    /// Bytes of file content and attributes that were compared.
    pub bytes: u64,
}

/// A dataset whose copy was brought up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicatedDataset {
    /// The dataset of the source.
    pub source: String,
    /// The dataset of the target.
    pub target: String,
    /// The newest snapshot of the copy, behind the `@`; none: the source has no snapshots.
    pub snapshot: Option<String>,
}

/// Lists the configured replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetReplicaStatus {}

impl Call for GetReplicaStatus {
    type Response = Vec<ReplicaStatus>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/replicas";
    const CHANGES: bool = false;
}

/// A configured replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub target: String,
    /// When it was last brought up to date, in seconds since 1970.
    pub succeeded: Option<u64>,
    /// Why the last try failed; none: it succeeded, or there was none.
    pub error: Option<String>,
    /// When its copies were last read back and found equal, in seconds since 1970.
    #[serde(default)]
    pub tested: Option<u64>,
    /// Why the last test failed; none: it succeeded, or there was none.
    #[serde(default)]
    pub test_error: Option<String>,
    /// Its datasets.
    pub copies: Vec<CopyStatus>,
}

/// The copy of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyStatus {
    /// The dataset of the source.
    pub source: String,
    /// The newest snapshot that the copy has, behind the `@`.
    pub snapshot: Option<String>,
    /// When that was taken, in seconds since 1970.
    pub snapshot_time: Option<u64>,
    /// Snapshots of the source that the copy does not have yet; none: the source is another host, so it is not known.
    pub missing: Option<usize>,
}
