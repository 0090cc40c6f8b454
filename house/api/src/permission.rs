//! Delegated permissions (`zfs allow`), and which of them calls need.
//!
//! The subject of a delegation is a key in OpenZFS's form: `ul$1000` is the user 1000 on this
//! dataset, `ud$1000` on its descendants, `gl$`/`gd$` a group, `el$`/`ed$` everyone, `c-$` the
//! creator of a descendant, `s-$@name` a permission set. With an upper-case first letter the names
//! are those of permission sets.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, pool_of};

/// A delegated permission that a call needs of an ordinary user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededPermission {
    /// The dataset.
    pub dataset: String,
    /// Where it is needed.
    pub target: PermissionTarget,
    /// The name of the permission.
    pub permission: String,
}

/// Where a permission is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionTarget {
    /// On the dataset.
    Dataset,
    /// On the dataset and all below.
    Recursive,
    /// On a snapshot of the dataset.
    Snapshot,
    /// On a dataset that the user creates below it.
    NewDataset,
}

impl NeededPermission {
    /// A permission on a dataset or, by a full name with `@`, on a snapshot.
    pub fn on(name: &str, permission: &str) -> Self {
        let (dataset, target) = match name.split_once('@') {
            Some((head, _)) => (head, PermissionTarget::Snapshot),
            None => (name, PermissionTarget::Dataset),
        };
        let dataset = dataset.split('#').next().unwrap_or(dataset);
        Self { dataset: dataset.to_owned(), target, permission: permission.to_owned() }
    }

    /// A permission on the file system or volume of a name, with all below if `recursive`.
    pub fn on_head(name: &str, permission: &str, recursive: bool) -> Self {
        let dataset = name.split(['@', '#']).next().unwrap_or(name).to_owned();
        let target =
            if recursive { PermissionTarget::Recursive } else { PermissionTarget::Dataset };
        Self { dataset, target, permission: permission.to_owned() }
    }

    /// The permissions that creating a dataset with properties needs. `None`: only the owner may create it.
    pub fn create(name: &str, properties: &[(String, String)]) -> Option<Vec<Self>> {
        let (parent, _) = name.rsplit_once('/')?;
        let mut needed = vec![Self::on(parent, "create"), Self::on(parent, "mount")];
        needed.extend(properties.iter().map(|(property, _)| Self {
            dataset: parent.to_owned(),
            target: PermissionTarget::NewDataset,
            permission: property_permission(property).to_owned(),
        }));
        Some(needed)
    }
}

/// The permission to set a property.
pub fn property_permission(property: &str) -> &str {
    match property.split_once('@') {
        // userquota@anna
        Some((kind, _)) => kind,
        None if property.contains(':') => "userprop",
        None => property,
    }
}

/// Lists the permissions that are delegated at a dataset and above it, upwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetPermissions {
    /// The dataset.
    pub name: String,
}

impl Call for GetPermissions {
    type Response = Vec<DatasetPermissions>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/datasets/{name}/permissions";
    const CHANGES: bool = false;
}

/// The permissions that are delegated at a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetPermissions {
    /// The dataset.
    pub dataset: String,
    /// The subjects, and the names of permissions.
    pub entries: Vec<(String, Vec<String>)>,
}

/// Delegates permissions at a dataset, in addition to the existing ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllowPermissions {
    /// The dataset.
    pub name: String,
    /// The subjects, and the names of permissions.
    pub entries: Vec<(String, Vec<String>)>,
}

impl Call for AllowPermissions {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/datasets/{name}/permissions";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("set permissions on '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        let mut needed = vec![NeededPermission::on(&self.name, "allow")];
        for permission in self.entries.iter().flat_map(|(_, permissions)| permissions) {
            // the right to delegate does not include passing on that right
            if permission == "allow" {
                return None;
            }
            needed.push(NeededPermission::on(&self.name, permission));
        }
        Some(needed)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.name).to_owned()]
    }
}

/// Takes delegated permissions back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovePermissions {
    /// The dataset.
    pub name: String,
    /// The subjects, and the names of permissions; without names all of them.
    pub entries: Vec<(String, Vec<String>)>,
    /// Also in all datasets below.
    #[serde(default)]
    pub recursive: bool,
}

impl Call for RemovePermissions {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/datasets/{name}/permissions/remove";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("remove permissions on '{}'", self.name)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.name).to_owned()]
    }
}
