//! Usage and quotas of users, groups and projects of a file system, as properties: `userused@1000`,
//! `groupobjquota@100`. Owners are numbers here.

use dsl::DatasetKind;
use zpl::QuotaOwner;

use crate::dataset::Property;
use crate::{Error, Result};

/// The kind of such a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnerProperty {
    pub(crate) owner: QuotaOwner,
    /// Objects, and not bytes.
    pub(crate) is_objects: bool,
    /// Whether it is a quota, and not the usage.
    pub(crate) is_quota: bool,
}

/// The kinds of owners of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

/// The space and the quotas of one owner of files in a file system.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OwnerUsage {
    /// Its type in the words of zfs-userspace(8): "POSIX User".
    #[serde(rename = "type")]
    pub kind: String,
    /// Its number; of a Windows identity the domain and the number.
    pub name: String,
    /// Bytes of its files.
    pub used: Option<u64>,
    /// The quota in bytes; 0: none.
    pub quota: Option<u64>,
    /// Its objects; none: the file system does not count them.
    pub objects_used: Option<u64>,
    /// The quota in objects; 0: none.
    pub object_quota: Option<u64>,
}

impl From<dsl::OwnerUsage> for OwnerUsage {
    fn from(usage: dsl::OwnerUsage) -> Self {
        Self {
            kind: usage.kind.name().to_owned(),
            name: usage.name,
            used: usage.used,
            quota: usage.quota,
            objects_used: usage.objects,
            object_quota: usage.object_quota,
        }
    }
}

/// Parses the name of such a property; `None`: it is another property.
pub(crate) fn parse(property: &str) -> Option<OwnerProperty> {
    let (what, id) = property.split_once('@')?;
    let id = id.parse().ok()?;
    let (what, limit) = match what.strip_suffix("quota") {
        Some(what) => (what, true),
        None => (what.strip_suffix("used")?, false),
    };
    let (kind, objects) = match what.strip_suffix("obj") {
        Some(kind) => (kind, true),
        None => (what, false),
    };
    let owner = match kind {
        "user" => QuotaOwner::User(id),
        "group" => QuotaOwner::Group(id),
        "project" => QuotaOwner::Project(id),
        _ => return None,
    };
    Some(OwnerProperty { owner, is_objects: objects, is_quota: limit })
}

/// The property of a dataset, as of the last synced txg; `None` if it has no files, or is locked.
pub(crate) fn read_owner_property(
    dataset: &dsl::Dataset,
    name: &str,
    fact: OwnerProperty,
) -> Result<Option<Property>> {
    let Some(objset) = open_files(dataset)? else { return Ok(None) };
    let OwnerProperty { owner, is_objects: objects, is_quota: limit } = fact;
    let read = if limit { zpl::read_quota } else { zpl::read_usage };
    let number = read(&objset, owner, objects).map_err(|why| Error::Unreadable {
        subject: format!("'{}'", dataset.name()),
        why: why.to_string(),
    })?;
    let source = "local".to_owned();
    let (name, value) = (name.to_owned(), number.to_string());
    Ok(Some(Property { name, value, source, received: None }))
}

/// The object set of a file system or of a snapshot of one; `None`: it is of another kind, or locked.
fn open_files(dataset: &dsl::Dataset) -> Result<Option<dmu::Objset>> {
    let failed = |error: dsl::Error| Error::from_dsl_error(&dataset.name(), &error);
    let locked = dataset.key_status().map_err(failed)? == Some(dsl::KeyStatus::Unavailable);
    let has_files = dataset.kind().map_err(failed)? != DatasetKind::Bookmark
        && dataset.objset_kind().map_err(failed)? == ondisk::objset::Kind::Filesystem;
    if locked || !has_files { Ok(None) } else { dataset.open_objset().map(Some).map_err(failed) }
}

/// Lists the space of all owners of a kind, as of the last txg that was synced.
pub(crate) fn list_owner_usage(dataset: &dsl::Dataset, kind: OwnerKind) -> Result<Vec<OwnerUsage>> {
    let name = dataset.name();
    if open_files(dataset)?.is_none() {
        let why = "it is not a file system, or its key is not loaded";
        return Err(Error::Refused { what: format!("cannot get used/quota for {name}: {why}") });
    }
    let owners = dataset.space_by_owner().map_err(|error| Error::from_dsl_error(&name, &error))?;
    let owners = match kind {
        OwnerKind::User => owners.users,
        OwnerKind::Group => owners.groups,
        OwnerKind::Project => owners.projects,
    };
    Ok(owners.into_iter().map(OwnerUsage::from).collect())
}

#[cfg(test)]
mod tests {
    use super::{OwnerProperty, parse};
    use zpl::QuotaOwner;

    #[test]
    fn property_names_are_parsed() {
        let fact = |owner, objects, limit| {
            Some(OwnerProperty { owner, is_objects: objects, is_quota: limit })
        };
        assert_eq!(parse("userused@0"), fact(QuotaOwner::User(0), false, false));
        assert_eq!(parse("groupobjquota@100"), fact(QuotaOwner::Group(100), true, true));
        assert_eq!(parse("projectquota@7"), fact(QuotaOwner::Project(7), false, true));
        for name in ["quota", "userquota", "userquota@root", "quota@1", "objused@1"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
