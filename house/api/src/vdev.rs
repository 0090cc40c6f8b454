//! Devices of a pool: added, removed, replaced, attached, detached.

use std::path::PathBuf;

use engine::pool::{RemovalMemory, SplitVdev};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// The layout of a top-level vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VdevLayout {
    /// One device.
    Single,
    /// Every device holds the same.
    Mirror,
    /// RAID-Z with this many parity columns.
    Raidz(u32),
    /// dRAID.
    Draid {
        /// Parity columns of a group.
        parity: u32,
        /// Data columns of a group.
        data: u32,
        /// Distributed spares.
        spares: u32,
    },
}

/// The allocation class of a top-level vdev, or its auxiliary use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VdevRole {
    /// Normal data.
    #[default]
    Data,
    /// The intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Deduplication tables.
    Dedup,
    /// A hot spare.
    Spare,
    /// The L2ARC.
    Cache,
}

/// Adds top-level vdevs, cache devices and spares to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub struct AddDevices {
    /// The pool.
    pub name: String,
    /// Layout, role and paths of each vdev.
    #[schema(value_type = Vec<(VdevLayout, VdevRole, Vec<String>)>)]
    pub vdevs: Vec<(VdevLayout, VdevRole, Vec<PathBuf>)>,
    /// All of the next three.
    #[serde(default)]
    pub force: bool,
    /// Also devices that hold data.
    #[serde(default)]
    pub allow_in_use: bool,
    /// Also vdevs with another redundancy than those of the pool.
    #[serde(default)]
    pub allow_replication_mismatch: bool,
    /// Also vdevs with another sector size than those of the pool.
    #[serde(default)]
    pub allow_ashift_mismatch: bool,
    /// log2 of the sector size; none: that of the pool.
    #[serde(default)]
    pub ashift: Option<u64>,
    /// Check only.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for AddDevices {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/devices";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("add to '{}'", self.name)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        if self.dry_run { Vec::new() } else { vec![self.name.clone()] }
    }
}

/// Removes cache devices, spares and log vdevs from a pool, or begins to remove a vdev with data. The answer
/// is the memory that the mapping of each vdev with data takes afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemoveDevices {
    /// The pool.
    pub name: String,
    /// Their paths, guids or names.
    pub devices: Vec<String>,
    /// Check only.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for RemoveDevices {
    type Response = Vec<RemovalMemory>;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/devices/remove";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("remove {}", self.devices.join(" "))
    }

    fn changed_pools(&self, _: &Self::Response) -> Vec<String> {
        if self.dry_run { Vec::new() } else { vec![self.name.clone()] }
    }
}

/// Cancels the removal of a vdev with data: the vdev is used again as before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelRemoval {
    /// The pool.
    pub name: String,
}

impl Call for CancelRemoval {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/devices/remove/cancel";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("cancel the removal of a vdev of '{}'", self.name)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Splits one device off each mirror of a pool: they become a pool of another name, which is exported. The
/// answer names the devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SplitPool {
    /// The pool.
    pub name: String,
    /// The name of the new pool.
    pub new_name: String,
    /// The devices for it, by path or guid; of a mirror without one, the last.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Pool properties of the new pool.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// Check only.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for SplitPool {
    type Response = Vec<SplitVdev>;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/split";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("split '{}' into '{}'", self.name, self.new_name)
    }

    fn changed_pools(&self, _: &Self::Response) -> Vec<String> {
        if self.dry_run { Vec::new() } else { vec![self.name.clone()] }
    }
}

/// Replaces a device by another, and resilvers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplaceDevice {
    /// The pool.
    pub name: String,
    /// The path or guid of the old device.
    pub old: String,
    /// The path of the new device; none: the old device's path.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub new: Option<PathBuf>,
    /// Also a device that holds data.
    #[serde(default)]
    pub force: bool,
    /// By a sequential rebuild, which a scrub follows: of a mirror or a dRAID.
    #[serde(default)]
    pub sequential: bool,
    /// log2 of the new device's sectors, which may not be larger than those of its vdev.
    #[serde(default)]
    pub ashift: Option<u64>,
}

impl Call for ReplaceDevice {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/devices/replace";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        match &self.new {
            Some(new) => format!("replace {} with {}", self.old, new.display()),
            None => format!("replace {}", self.old),
        }
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Attaches a device to a mirror or to a single device, and resilvers it; or expands a raidz by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachDevice {
    /// The pool.
    pub name: String,
    /// The path or guid of a device of the pool, or the name of a raidz: `raidz1-0`.
    pub existing: String,
    /// The path of the new device.
    #[schema(value_type = String)]
    pub new: PathBuf,
    /// Also a device that holds data.
    #[serde(default)]
    pub force: bool,
    /// By a sequential rebuild, which a scrub follows.
    #[serde(default)]
    pub sequential: bool,
    /// log2 of the new device's sectors, which may not be larger than those of its vdev.
    #[serde(default)]
    pub ashift: Option<u64>,
}

impl Call for AttachDevice {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/devices/attach";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("attach {} to {}", self.new.display(), self.existing)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Detaches a device from a mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DetachDevice {
    /// The pool.
    pub name: String,
    /// The path or guid of the device.
    pub device: String,
}

impl Call for DetachDevice {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/devices/detach";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("detach {}", self.device)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Takes a device out of service. Refused where no valid replicas are left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OfflineDevice {
    /// The pool.
    pub name: String,
    /// The path or guid of the device.
    pub device: String,
    /// Only until the pool is exported.
    #[serde(default)]
    pub temporary: bool,
    /// Fault it, until `zpool clear`.
    #[serde(default)]
    pub fault: bool,
}

impl Call for OfflineDevice {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/devices/offline";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

    fn action(&self) -> String {
        format!("offline {}", self.device)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Brings a device back that is offline or missing, and resilvers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OnlineDevice {
    /// The pool.
    pub name: String,
    /// The path or guid of the device.
    pub device: String,
    /// Have its vdev use all space of its devices.
    #[serde(default)]
    pub expand: bool,
}

impl Call for OnlineDevice {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/devices/online";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

    fn action(&self) -> String {
        format!("online {}", self.device)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// Opens devices again that are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReopenPools {
    /// The pools; none: all.
    #[serde(default)]
    pub names: Vec<String>,
}

impl Call for ReopenPools {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/reopen";
    const CHANGES: bool = true;

    fn changed_pools(&self, (): &()) -> Vec<String> {
        self.names.clone()
    }
}

/// Clears the labels of a device that no pool uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearLabels {
    /// The path of the device.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Also those of an exported pool, or of one that another host may use.
    #[serde(default)]
    pub force: bool,
}

impl Call for ClearLabels {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/devices/labelclear";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("clear the labels of {}", self.path.display())
    }
}
