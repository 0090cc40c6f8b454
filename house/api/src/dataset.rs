//! File systems and volumes, and the properties of all datasets.

use engine::dataset::{Dataset, DatasetQuery, OwnerUsage};
use engine::pool::FilesystemUpgrade;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, Mounting, NeededPermission, Secret, pool_of, property_permission};

/// Lists datasets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListDatasets {
    /// These, and their descendants; none: all of all pools.
    #[serde(default)]
    pub names: Vec<String>,
    /// Only these kinds (filesystem, volume, snapshot, bookmark); none: all.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// The number of levels below `names`; none: all.
    #[serde(default)]
    pub depth: Option<usize>,
    /// Only these properties; none: all.
    #[serde(default)]
    pub properties: Vec<String>,
}

impl ListDatasets {
    /// Lists `names` according to `query`.
    pub fn new(names: Vec<String>, query: DatasetQuery) -> Self {
        let DatasetQuery { kinds, depth, properties } = query;
        Self { names, kinds, depth, properties }
    }

    /// The same in the engine's type.
    pub fn query(&self) -> DatasetQuery {
        let (kinds, properties) = (self.kinds.clone(), self.properties.clone());
        DatasetQuery { kinds, depth: self.depth, properties }
    }
}

impl Call for ListDatasets {
    type Response = Vec<Dataset>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/datasets";
    const CHANGES: bool = false;

    fn response_without_daemon(&self) -> Option<Vec<Dataset>> {
        self.names.is_empty().then(Vec::new)
    }
}

/// A kind of owners of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OwnerKind {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

impl From<OwnerKind> for engine::dataset::OwnerKind {
    fn from(kind: OwnerKind) -> Self {
        match kind {
            OwnerKind::User => Self::User,
            OwnerKind::Group => Self::Group,
            OwnerKind::Project => Self::Project,
        }
    }
}

/// Lists the space and the quotas of all owners of a kind in a file system or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListOwnerUsage {
    /// The file system or snapshot.
    pub dataset: String,
    /// The kind of owners.
    pub kind: OwnerKind,
}

impl Call for ListOwnerUsage {
    type Response = Vec<OwnerUsage>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/owner-usage";
    const CHANGES: bool = false;
}

/// Creates a file system, and mounts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateFilesystem {
    /// Its full name.
    pub name: String,
    /// Its properties.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// Create missing parents; succeed if it exists.
    #[serde(default)]
    pub parents: bool,
    /// Do not mount it.
    #[serde(default)]
    pub no_mount: bool,
    /// The user's key of a new encryption root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Check only.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for CreateFilesystem {
    type Response = Mounting;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/filesystems";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("create '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        if self.parents { None } else { NeededPermission::create(&self.name, &self.properties) }
    }

    fn changed_pools(&self, _answer: &Mounting) -> Vec<String> {
        if self.dry_run { Vec::new() } else { vec![pool_of(&self.name).to_owned()] }
    }
}

/// Creates a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateVolume {
    /// Its full name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// The size of its blocks in bytes.
    pub block_size: u32,
    /// Reserve no space for it.
    #[serde(default)]
    pub sparse: bool,
    /// Its properties.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// Create missing parents; succeed if it exists.
    #[serde(default)]
    pub parents: bool,
    /// The user's key of a new encryption root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Check only.
    #[serde(default)]
    pub dry_run: bool,
}

/// A volume that was created, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedVolume {
    /// Bytes that are reserved for it; none: it is sparse, or its properties say so, or it existed.
    pub refreservation: Option<u64>,
}

impl Call for CreateVolume {
    type Response = CreatedVolume;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/volumes";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("create '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        if self.parents {
            return None;
        }
        let mut properties = self.properties.clone();
        if !self.sparse {
            properties.push(("refreservation".to_owned(), "auto".to_owned()));
        }
        NeededPermission::create(&self.name, &properties)
    }

    fn changed_pools(&self, _answer: &CreatedVolume) -> Vec<String> {
        if self.dry_run { Vec::new() } else { vec![pool_of(&self.name).to_owned()] }
    }
}

/// Destroys datasets, snapshots or bookmarks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub struct DestroyDatasets {
    /// `FS`, `FS@SNAP,SNAP%SNAP` or `FS#BOOKMARK`.
    pub name: String,
    /// Also children; for a snapshot those of the same name of all descendants.
    #[serde(default)]
    pub recursive: bool,
    /// Also clones, wherever they are.
    #[serde(default)]
    pub clones: bool,
    /// Destroy snapshots that are in use as soon as they are not.
    #[serde(default)]
    pub defer: bool,
    /// Also while programs have files open.
    #[serde(default)]
    pub force: bool,
    /// Only list what would be destroyed.
    #[serde(default)]
    pub dry_run: bool,
    /// Compute the space that snapshots give back. With thousands of them this takes long.
    #[serde(default)]
    pub measure: bool,
}

impl Call for DestroyDatasets {
    type Response = DestroyedDatasets;
    // a list of snapshots may be longer than a path can be
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/datasets/destroy";
    const CHANGES: bool = true;
    const FREES_MEMORY: bool = true;

    fn action(&self) -> String {
        format!("destroy '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        // clones may be anywhere
        if self.clones || self.force {
            return None;
        }
        let is_snapshot = self.name.contains('@') && !self.recursive;
        let needs = |permission| {
            if is_snapshot {
                NeededPermission::on(&self.name, permission)
            } else {
                NeededPermission::on_head(&self.name, permission, self.recursive)
            }
        };
        Some(vec![needs("destroy"), needs("mount")])
    }

    fn changed_pools(&self, _answer: &DestroyedDatasets) -> Vec<String> {
        if self.dry_run { Vec::new() } else { vec![pool_of(&self.name).to_owned()] }
    }
}

/// The datasets, snapshots and bookmarks that were destroyed, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyedDatasets {
    /// Their names, in the order of destruction.
    pub names: Vec<String>,
    /// Of snapshots, the bytes that the pool gets back.
    #[serde(default)]
    pub reclaimed: Option<u64>,
}

/// Sets properties of datasets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetProperties {
    /// The datasets.
    pub names: Vec<String>,
    /// Names and values.
    pub properties: Vec<(String, String)>,
    /// Neither mount nor unmount anything.
    #[serde(default)]
    pub keep_mounts: bool,
}

impl Call for SetProperties {
    type Response = Mounting;
    const METHOD: Method = Method::Patch;
    const PATH: &'static str = "/dataset-properties";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("set property for '{}'", self.names.join("', '"))
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        let pairs = self.names.iter().flat_map(|name| {
            self.properties.iter().map(move |(property, _)| (name, property_permission(property)))
        });
        Some(pairs.map(|(name, permission)| NeededPermission::on(name, permission)).collect())
    }

    fn changed_pools(&self, _answer: &Mounting) -> Vec<String> {
        self.names.first().map(|name| pool_of(name).to_owned()).into_iter().collect()
    }
}

/// Clears a property of datasets, so that they inherit it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InheritProperty {
    /// The datasets.
    pub names: Vec<String>,
    /// The property.
    pub property: String,
    /// Also in their children.
    #[serde(default)]
    pub recursive: bool,
    /// Revert to the received value, if any.
    #[serde(default)]
    pub received: bool,
}

impl Call for InheritProperty {
    type Response = Mounting;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/dataset-properties/inherit";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("inherit {} for '{}'", self.property, self.names.join("', '"))
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        let permission = property_permission(&self.property);
        let needs = |name: &String| {
            if name.contains('@') {
                NeededPermission::on(name, permission)
            } else {
                NeededPermission::on_head(name, permission, self.recursive)
            }
        };
        Some(self.names.iter().map(needs).collect())
    }

    fn changed_pools(&self, _answer: &Mounting) -> Vec<String> {
        self.names.first().map(|name| pool_of(name).to_owned()).into_iter().collect()
    }
}

/// Promotes a clone so that it no longer depends on its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromoteClone {
    /// The clone.
    pub name: String,
}

impl Call for PromoteClone {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/datasets/{name}/promote";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("promote '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        // the daemon also checks the origin, which the call does not name
        let needs = |permission| NeededPermission::on(&self.name, permission);
        Some(vec![needs("promote"), needs("mount")])
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.name).to_owned()]
    }
}

/// Renames a dataset or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub struct RenameDataset {
    /// Its name.
    pub name: String,
    /// Its new name; of a snapshot the part after the @.
    pub to: String,
    /// Also snapshots of that name below.
    #[serde(default)]
    pub recursive: bool,
    /// Create missing parents of the new name.
    #[serde(default)]
    pub parents: bool,
    /// Also while programs have files open.
    #[serde(default)]
    pub force: bool,
    /// Leave mounted file systems mounted where they are.
    #[serde(default)]
    pub keep_mounts: bool,
}

impl Call for RenameDataset {
    type Response = Mounting;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/datasets/{name}/rename";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("rename '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        if self.parents || self.force {
            return None;
        }
        if self.name.contains('@') {
            return Some(vec![NeededPermission::on_head(&self.name, "rename", self.recursive)]);
        }
        let (parent, _) = self.to.rsplit_once('/')?;
        Some(vec![
            NeededPermission::on(&self.name, "rename"),
            NeededPermission::on(&self.name, "mount"),
            NeededPermission::on(parent, "create"),
            NeededPermission::on(parent, "mount"),
        ])
    }

    fn changed_pools(&self, _answer: &Mounting) -> Vec<String> {
        vec![pool_of(&self.name).to_owned()]
    }
}

/// Upgrades a file system to a newer version. It is unmounted for a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeFilesystem {
    /// The file system.
    pub name: String,
    /// The version, 1 to 5; none: the newest.
    #[serde(default)]
    pub version: Option<u64>,
}

impl Call for UpgradeFilesystem {
    type Response = FilesystemUpgrade;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/datasets/{name}/upgrade";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("upgrade '{}'", self.name)
    }

    fn changed_pools(&self, _answer: &FilesystemUpgrade) -> Vec<String> {
        vec![pool_of(&self.name).to_owned()]
    }
}

/// Whether a file system has removed files whose space is not freed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetDeleteQueue {
    /// The file system.
    pub name: String,
}

impl Call for GetDeleteQueue {
    type Response = bool;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/datasets/{name}/delete-queue";
    const CHANGES: bool = false;
}
