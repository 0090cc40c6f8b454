//! Pools: listed, created, imported, exported, destroyed, scrubbed.

use std::path::PathBuf;

use engine::EncryptionRoot;
use engine::inspect::Facts;
use engine::pool::{
    PoolProperty, PoolStatus, Rewind, RewindProgress, RewindTarget, VdevProperties,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, MountOverrides, Mounting, Secret, VdevLayout, VdevRole};

/// Lists the pools and their status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListPools {
    /// Only these; none: all.
    #[serde(default)]
    pub names: Vec<String>,
    /// Look up the names of damaged files anew. Without it they may be half a minute old.
    #[serde(default)]
    pub verbose: bool,
}

impl Call for ListPools {
    type Response = Vec<PoolReport>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/pools";
    const CHANGES: bool = false;

    fn response_without_daemon(&self) -> Option<Vec<PoolReport>> {
        self.names.is_empty().then(Vec::new)
    }
}

/// The status of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolReport {
    /// The engine's part.
    #[serde(flatten)]
    pub status: PoolStatus,
    /// The directory in front of all its mountpoints.
    pub altroot: Option<PathBuf>,
}

/// Creates a pool, and mounts its root file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatePool {
    /// Its name.
    pub name: String,
    /// Its name until it is exported, if that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_name: Option<String>,
    /// Layout, role and paths of each top-level vdev.
    #[schema(value_type = Vec<(VdevLayout, VdevRole, Vec<String>)>)]
    pub vdevs: Vec<(VdevLayout, VdevRole, Vec<PathBuf>)>,
    /// log2 of the smallest write in bytes.
    #[serde(default)]
    pub ashift: Option<u64>,
    /// Properties of the pool, `feature@NAME` among them.
    #[serde(default)]
    pub pool_properties: Vec<(String, String)>,
    /// Enable only the features in `pool_properties`.
    #[serde(default)]
    pub no_default_features: bool,
    /// Properties of its root file system.
    #[serde(default)]
    pub filesystem_properties: Vec<(String, String)>,
    /// The directory in front of all its mountpoints.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub altroot: Option<PathBuf>,
    /// Use devices of other pools, and vdevs of different redundancy.
    #[serde(default)]
    pub force: bool,
    /// The user's key of its root file system, if that is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Check only.
    #[serde(default)]
    pub dry_run: bool,
}

impl CreatePool {
    /// The name of the pool until it is exported.
    pub fn current_name(&self) -> &str {
        self.temporary_name.as_ref().unwrap_or(&self.name)
    }
}

impl Call for CreatePool {
    type Response = Mounting;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("create '{}'", self.name)
    }

    fn changed_pools(&self, _answer: &Mounting) -> Vec<String> {
        if self.dry_run { Vec::new() } else { vec![self.current_name().to_owned()] }
    }
}

/// Searches devices for pools that could be imported. The daemon reads them with its own rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FindImportablePools {
    /// Directories, image files, devices.
    #[schema(value_type = Vec<String>)]
    pub paths: Vec<PathBuf>,
    /// Destroyed pools instead of the others.
    #[serde(default)]
    pub destroyed: bool,
}

impl Call for FindImportablePools {
    type Response = Vec<ImportablePool>;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/imports/search";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        "discover pools".to_owned()
    }
}

/// A pool that could be imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportablePool {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// "exported", "active" or "destroyed".
    pub state: String,
    /// The host that imported it last.
    pub host: Option<String>,
    /// ONLINE, DEGRADED, UNAVAIL.
    pub health: String,
    /// The reason why it cannot be imported.
    pub reason: Option<String>,
    /// Its vdevs: depth, name, state.
    pub vdevs: Vec<(usize, String, String)>,
}

/// Lists encryption roots of pools that could be imported. The daemon reads them with its own rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FindEncryptionRoots {
    /// Directories, image files, devices.
    #[schema(value_type = Vec<String>)]
    pub paths: Vec<PathBuf>,
    /// Name or guid of the pool; none: all.
    #[serde(default)]
    pub name: Option<String>,
    /// Destroyed pools instead of the others.
    #[serde(default)]
    pub destroyed: bool,
    /// The rewind policy of the import.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub rewind: Rewind,
}

impl Call for FindEncryptionRoots {
    type Response = Vec<EncryptionRoot>;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/imports/encryption-roots";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        "discover pools".to_owned()
    }
}

/// Imports pools, and mounts their file systems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub struct ImportPools {
    /// Directories, image files, devices.
    #[schema(value_type = Vec<String>)]
    pub paths: Vec<PathBuf>,
    /// Name or guid; none: all that are found.
    #[serde(default)]
    pub name: Option<String>,
    /// Its new name.
    #[serde(default)]
    pub new_name: Option<String>,
    /// The new name holds until it is exported.
    #[serde(default)]
    pub temporary: bool,
    /// Also a pool that another host imported and did not export.
    #[serde(default)]
    pub force: bool,
    /// Destroyed pools instead of the others.
    #[serde(default)]
    pub destroyed: bool,
    /// Mount nothing.
    #[serde(default)]
    pub no_mount: bool,
    /// Mount options that hold until the file systems are unmounted.
    #[serde(default)]
    pub overrides: MountOverrides,
    /// Pool properties to set.
    #[serde(default)]
    pub pool_properties: Vec<(String, String)>,
    /// Import without missing log devices; their records are lost.
    #[serde(default)]
    pub allow_missing_logs: bool,
    /// Write nothing.
    #[serde(default)]
    pub read_only: bool,
    /// The rewind policy.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub rewind: Rewind,
    /// Import nothing; return the txg to which the pool would be rewound.
    #[serde(default)]
    pub dry_run: bool,
    /// The directory in front of all mountpoints.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub altroot: Option<PathBuf>,
    /// Encryption roots and their keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<(String, Secret)>,
}

impl Call for ImportPools {
    type Response = ImportResult;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/imports";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        match &self.name {
            Some(name) => format!("import '{name}'"),
            None => "import pools".to_owned(),
        }
    }

    fn changed_pools(&self, answer: &ImportResult) -> Vec<String> {
        answer.imported.clone()
    }
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportResult {
    /// The names of the imported pools.
    pub imported: Vec<String>,
    /// A sentence for each pool that could not be imported, and for each key that is wrong.
    pub failures: Vec<String>,
    /// Pools that were rewound, or would be.
    #[serde(default)]
    pub rewound: Vec<(String, RewindTarget)>,
    /// A sentence for each file system that could not be mounted.
    #[serde(default)]
    pub not_mounted: Vec<String>,
}

/// Gets the progress of the rewind probe of a running import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetRewindProgress {}

impl Call for GetRewindProgress {
    type Response = Option<RewindProgress>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/imports/rewind-probe";
    const CHANGES: bool = false;
}

/// Stops the rewind probe of a running import; the pool stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StopRewindProbe {}

impl Call for StopRewindProbe {
    type Response = ();
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/imports/rewind-probe";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        "stop the import".to_owned()
    }
}

/// Exports a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportPool {
    /// Its name.
    pub name: String,
    /// Also while programs have files open.
    #[serde(default)]
    pub force: bool,
}

impl Call for ExportPool {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/export";
    const CHANGES: bool = true;
    const FREES_MEMORY: bool = true;

    fn action(&self) -> String {
        format!("export '{}'", self.name)
    }

    fn removed_pool(&self) -> Option<&str> {
        Some(&self.name)
    }
}

/// Destroys a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestroyPool {
    /// Its name.
    pub name: String,
    /// Also while programs have files open.
    #[serde(default)]
    pub force: bool,
}

impl Call for DestroyPool {
    type Response = ();
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/pools/{name}";
    const CHANGES: bool = true;
    const FREES_MEMORY: bool = true;

    fn action(&self) -> String {
        format!("destroy '{}'", self.name)
    }

    fn removed_pool(&self) -> Option<&str> {
        Some(&self.name)
    }
}

/// Lists the properties of pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetPoolProperties {
    /// The pools; none: all.
    #[serde(default)]
    pub names: Vec<String>,
}

impl Call for GetPoolProperties {
    type Response = Vec<(String, Vec<PoolProperty>)>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/pool-properties";
    const CHANGES: bool = false;
}

/// Lists the properties of vdevs of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetVdevProperties {
    /// The pool.
    pub name: String,
    /// The vdevs: paths, guids, names such as "raidz2-0", "root", or "all-vdevs".
    pub vdevs: Vec<String>,
}

impl Call for GetVdevProperties {
    type Response = Vec<VdevProperties>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/pools/{name}/vdev-properties";
    const CHANGES: bool = false;
}

/// Sets a property of a vdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetVdevProperty {
    /// The pool.
    pub name: String,
    /// The vdev: a path, a guid, a name such as "raidz2-0", or "root".
    pub vdev: String,
    /// The property: "comment", or one of a user's own.
    pub property: String,
    /// Its new value; an empty one removes it.
    pub value: String,
}

impl Call for SetVdevProperty {
    type Response = ();
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/pools/{name}/vdev-properties/{property}";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("set property for '{}' of '{}'", self.vdev, self.name)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Sets a property of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetPoolProperty {
    /// The pool.
    pub name: String,
    /// The property.
    pub property: String,
    /// Its new value.
    pub value: String,
}

impl Call for SetPoolProperty {
    type Response = ();
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/pools/{name}/properties/{property}";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("set property for '{}'", self.name)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Writes all changes of pools to their devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncPools {
    /// The pools; none: all.
    #[serde(default)]
    pub names: Vec<String>,
}

impl Call for SyncPools {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/sync";
    const CHANGES: bool = true;
    const OWNER_ONLY: bool = false;
}

/// Reads the history of pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetPoolHistory {
    /// The pools; none: all.
    #[serde(default)]
    pub names: Vec<String>,
    /// Include internal records.
    #[serde(default)]
    pub internal: bool,
}

impl Call for GetPoolHistory {
    type Response = Vec<Facts>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/pool-history";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        let names = self.names.iter().map(|name| format!("'{name}'"));
        format!("get history for {}", names.collect::<Vec<_>>().join(", "))
    }
}

/// Starts, resumes, pauses or stops a scrub of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "options of zpool scrub")]
pub struct ScrubPool {
    /// The pool.
    pub name: String,
    /// Stop the running scrub or error scrub.
    #[serde(default)]
    pub stop: bool,
    /// Pause the running scrub or error scrub.
    #[serde(default)]
    pub pause: bool,
    /// Read only the blocks of the error log.
    #[serde(default)]
    pub errors_only: bool,
    /// Read only what was written since the last scrub that finished.
    #[serde(default)]
    pub since_last_scrub: bool,
}

impl Call for ScrubPool {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/scrub";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

    fn action(&self) -> String {
        match (self.stop, self.pause) {
            (true, _) => format!("cancel scrubbing '{}'", self.name),
            (_, true) => format!("pause scrubbing '{}'", self.name),
            _ => format!("scrub '{}'", self.name),
        }
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Resets the error counters of a pool's devices, and resumes a suspended pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearPool {
    /// The pool.
    pub name: String,
    /// Only the counters of this device, by path or guid.
    #[serde(default)]
    pub device: Option<String>,
}

impl Call for ClearPool {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/clear";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

    fn action(&self) -> String {
        format!("clear errors for '{}'", self.name)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}
