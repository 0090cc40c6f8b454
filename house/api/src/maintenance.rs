//! Maintenance of pools: checkpoints, guids, upgrades, and the requests of their drives.

use engine::pool::{ActivityCommand, ActivityKind, PoolIoStats, UpgradeResult, UpgradeStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Makes a checkpoint of a pool, or discards it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointPool {
    /// The pool.
    pub name: String,
    /// Discard the checkpoint.
    #[serde(default)]
    pub discard: bool,
}

impl Call for CheckpointPool {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/checkpoint";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        let verb = if self.discard { "discard checkpoint in" } else { "checkpoint" };
        format!("{verb} '{}'", self.name)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Gives a pool another guid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangePoolGuid {
    /// The pool.
    pub name: String,
    /// The guid; none: a random one.
    #[serde(default)]
    pub guid: Option<u64>,
}

impl Call for ChangePoolGuid {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/guid";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("reguid '{}'", self.name)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Lists what pools could be upgraded to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListUpgrades {
    /// The pools; none: all.
    #[serde(default)]
    pub names: Vec<String>,
}

impl Call for ListUpgrades {
    type Response = Vec<UpgradeStatus>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/upgrades";
    const CHANGES: bool = false;

    fn response_without_daemon(&self) -> Option<Vec<UpgradeStatus>> {
        self.names.is_empty().then(Vec::new)
    }
}

/// Upgrades a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradePool {
    /// The pool.
    pub name: String,
    /// Only to this legacy version.
    #[serde(default)]
    pub version: Option<u64>,
}

impl Call for UpgradePool {
    type Response = UpgradeResult;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/upgrade";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("upgrade '{}'", self.name)
    }

    fn changed_pools(&self, _answer: &UpgradeResult) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Reads the counts of the requests of the drives of pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetIoStats {
    /// The pools; none: all.
    #[serde(default)]
    pub names: Vec<String>,
}

impl Call for GetIoStats {
    type Response = Vec<PoolIoStats>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/io-stats";
    const CHANGES: bool = false;

    fn response_without_daemon(&self) -> Option<Vec<PoolIoStats>> {
        self.names.is_empty().then(Vec::new)
    }
}

/// Starts, stops or ends work over the free space of drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SweepDrives {
    /// The pool.
    pub name: String,
    /// The paths or guids of the drives; none: all of the pool.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Which work.
    #[schema(value_type = String)]
    pub kind: ActivityKind,
    /// Start, suspend, cancel or reset.
    #[schema(value_type = String)]
    pub command: ActivityCommand,
    /// Bytes a second of each drive at most; 0: no limit.
    #[serde(default)]
    pub rate: u64,
}

impl Call for SweepDrives {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/devices/sweep";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        let verb = if self.kind == ActivityKind::Trim { "trim" } else { "initialize" };
        format!("{verb} '{}'", self.name)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}
