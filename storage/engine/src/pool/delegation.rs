//! Delegated permissions (`zfs allow`): lists, changes and checks them.

use dsl::write::{self, DelegationEntries};
use dsl::{DatasetKind, DelegationTarget, DelegationUser, Delegations, is_permitted};

use super::Pool;
use super::history::record_dataset_event;
use crate::pool::handles::Permissions;
use crate::{Error, Result};

/// Permissions that are not names of properties.
const PERMISSIONS: [&str; 32] = [
    "allow",
    "bookmark",
    "change-key",
    "clone",
    "create",
    "destroy",
    "diff",
    "groupobjquota",
    "groupobjused",
    "groupquota",
    "groupused",
    "hold",
    "load-key",
    "mount",
    "projectobjquota",
    "projectobjused",
    "projectquota",
    "projectused",
    "promote",
    "receive",
    "receive:append",
    "release",
    "rename",
    "rollback",
    "send",
    "share",
    "snapshot",
    "userobjquota",
    "userobjused",
    "userprop",
    "userquota",
    "userused",
];

/// The longest name of a permission set, with the `@`.
const MAX_SET_NAME: usize = 64;

/// Refuses a name that is neither that of a permission nor that of a set (`@name`).
pub fn check_permission_name(name: &str) -> Result<()> {
    let is_set = name.strip_prefix('@').is_some_and(|rest| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.: ".contains(&byte);
        !rest.is_empty() && name.len() < MAX_SET_NAME && rest.bytes().all(is_allowed)
    });
    let settable = |kind| dsl::property::is_settable(name, kind).is_ok();
    let is_property = !name.contains(':')
        && (settable(DatasetKind::Filesystem)
            || settable(DatasetKind::Volume)
            || dsl::property::is_create_only(name)
            || name == "version");
    if is_set || is_property || PERMISSIONS.contains(&name) {
        return Ok(());
    }
    Err(Error::Usage {
        what: format!(
            "invalid permission '{name}': `zfs allow --help` names the permissions; a set begins with @"
        ),
    })
}

impl Permissions<'_> {
    /// The permissions that are delegated at a dataset and above it, upwards. Datasets without any are left out.
    pub fn list(self, dataset: &str) -> Result<Vec<Delegations>> {
        let mut levels = self.pool.delegation_levels(dataset)?;
        levels.retain(|level| !level.entries.is_empty());
        Ok(levels)
    }
}

impl Pool {
    fn delegation_levels(&self, dataset: &str) -> Result<Vec<Delegations>> {
        let levels = self.tree()?.delegations(dataset);
        levels.map_err(|why| Error::from_dsl_error(dataset, &why))
    }
}

impl Permissions<'_> {
    /// Delegates permissions at a dataset.
    pub fn allow(self, dataset: &str, entries: &DelegationEntries) -> Result<()> {
        check_entries(entries)?;
        let (name, entries) = (dataset.to_owned(), entries.clone());
        self.pool.run_sync_task(move |active, change| {
            write::allow(change, &name, &entries)
                .map_err(|why| Error::from_dsl_error(&name, &why))?;
            for (key, permissions) in &entries {
                for permission in permissions {
                    let what = format!("{key} {permission}");
                    record_dataset_event(active, change, "permission update", &name, &what);
                }
            }
            Ok(())
        })
    }

    /// Takes delegated permissions of datasets back, in one txg; a key without names loses all of them.
    pub fn unallow(self, datasets: &[String], entries: &DelegationEntries) -> Result<()> {
        check_entries(entries)?;
        let (datasets, entries) = (datasets.to_vec(), entries.clone());
        self.pool.run_sync_task(move |active, change| {
            for name in &datasets {
                write::unallow(change, name, &entries)
                    .map_err(|why| Error::from_dsl_error(name, &why))?;
                for (key, permissions) in &entries {
                    if permissions.is_empty() {
                        let (event, what) = ("permission who remove", key.to_string());
                        record_dataset_event(active, change, event, name, &what);
                    }
                    for permission in permissions {
                        let what = format!("{key} {permission}");
                        record_dataset_event(active, change, "permission remove", name, &what);
                    }
                }
            }
            Ok(())
        })
    }

    /// Gives the user who created a dataset the permissions that are delegated to creators above it.
    pub fn allow_creator(self, dataset: &str, uid: u64) -> Result<()> {
        let is_creator = |level: &Delegations| {
            level.entries.keys().any(|key| key.grantee == ondisk::dsl::Grantee::Creator)
        };
        if !self.pool.delegation_levels(dataset)?.iter().skip(1).any(is_creator) {
            return Ok(());
        }
        let name = dataset.to_owned();
        self.pool.run_sync_task(move |_, change| {
            write::allow_creator(change, &name, uid)
                .map_err(|why| Error::from_dsl_error(&name, &why))
        })
    }

    /// Whether a user has a delegated permission. With [`DelegationTarget::NewDataset`] `dataset` is the one above.
    pub fn is_granted(
        self,
        dataset: &str,
        target: DelegationTarget,
        user: &DelegationUser,
        permission: &str,
    ) -> Result<bool> {
        let properties = self.pool.properties().of_pool()?;
        let is_off = properties.iter().any(|it| it.name == "delegation" && it.value == "off");
        if is_off {
            return Ok(false);
        }
        Ok(is_permitted(&self.pool.delegation_levels(dataset)?, target, user, permission))
    }
}

/// Refuses names of permissions and sets that there cannot be.
fn check_entries(entries: &DelegationEntries) -> Result<()> {
    for (key, names) in entries {
        for name in names {
            check_permission_name(name)?;
            if name.starts_with('@') != key.holds_sets {
                let what =
                    format!("{name}: names of sets and of permissions have keys of their own");
                return Err(Error::Usage { what });
            }
        }
    }
    Ok(())
}
