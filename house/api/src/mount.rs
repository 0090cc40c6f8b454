//! Mounts of file systems.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Lists the mounts: datasets and directories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListMounts {}

impl Call for ListMounts {
    type Response = Vec<(String, PathBuf)>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/mounts";
    const CHANGES: bool = false;
}

/// Mounts file systems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mount {
    /// Their names; none: all with canmount=on.
    #[serde(default)]
    pub names: Vec<String>,
    /// Also those below with canmount=on.
    #[serde(default)]
    pub recursive: bool,
    /// Options that hold until they are unmounted.
    #[serde(default)]
    pub overrides: MountOverrides,
}

impl Call for Mount {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/mounts";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        match &self.names[..] {
            [] => "mount filesystems".to_owned(),
            names => format!("mount '{}'", names.join("', '")),
        }
    }
}

/// Unmounts file systems, and those below them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unmount {
    /// Their names or directories; none: all.
    #[serde(default)]
    pub names: Vec<String>,
    /// Also while programs have files open.
    #[serde(default)]
    pub force: bool,
    /// The caller unloads their keys next: refuse if another mounted file system uses one of them.
    #[serde(default)]
    pub unload_keys: bool,
}

impl Call for Unmount {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/mounts/unmount";
    const CHANGES: bool = true;
    const FREES_MEMORY: bool = true;

    fn action(&self) -> String {
        match &self.names[..] {
            [] => "unmount filesystems".to_owned(),
            names => format!("unmount '{}'", names.join("', '")),
        }
    }
}

/// Mount options for one time that take precedence over the properties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MountOverrides {
    /// Words of mount(8): ro, rw, exec, noexec, suid, nosuid, dev, nodev, atime, noatime, remount.
    #[serde(default)]
    pub options: Vec<String>,
    /// Mount on directories that are not empty, even with overlay=off.
    #[serde(default)]
    pub overlay: bool,
    /// Mount there in place of the mountpoint: `mount -t zfs`, for a file system with mountpoint=legacy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub directory: Option<PathBuf>,
}

/// The mounts of file systems that a command created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounting {
    /// A sentence for each file system that exists now and could not be mounted.
    pub failed: Vec<String>,
}
