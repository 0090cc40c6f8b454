//! Delegated permissions (`zfs allow` and `zfs unallow`).

use std::collections::{BTreeMap, BTreeSet};

use ondisk::dsl::{DelegationKey, DelegationScope, Grantee};
use ondisk::{ObjectType, version};
use units::ObjectId;

use super::SyncTaskContext;
use crate::Result;

/// Names of permissions, or of permission sets, by key.
pub type DelegationEntries = BTreeMap<DelegationKey, BTreeSet<String>>;

/// Delegates permissions at a dataset, in addition to the existing ones.
pub fn allow(
    change: &SyncTaskContext<'_>,
    dataset: &str,
    entries: &DelegationEntries,
) -> Result<()> {
    change.require_version(version::DELEGATED_PERMISSIONS)?;
    add_entries(change, change.find_head(dataset)?.dir, entries)
}

/// Takes delegated permissions back; a key without names loses all of them.
pub fn unallow(
    change: &SyncTaskContext<'_>,
    dataset: &str,
    entries: &DelegationEntries,
) -> Result<()> {
    change.require_version(version::DELEGATED_PERMISSIONS)?;
    let table = change.dir_phys(change.find_head(dataset)?.dir)?.delegations;
    for (key, names) in entries {
        let key = key.to_string();
        let Some(permissions) = change.lookup_u64(table, &key)?.map(ObjectId::new) else {
            continue;
        };
        for name in names {
            change.remove(permissions, name)?;
        }
        if names.is_empty() || change.zap_count(permissions)? == 0 {
            change.remove(table, &key)?;
            change.free_object(permissions)?;
        }
    }
    Ok(())
}

/// Gives the user who created a dataset the permissions that the datasets above delegate to creators.
pub fn allow_creator(change: &SyncTaskContext<'_>, dataset: &str, uid: u64) -> Result<()> {
    if change.version < version::DELEGATED_PERMISSIONS {
        return Ok(());
    }
    let own = change.find_head(dataset)?.dir;
    let mut entries = DelegationEntries::new();
    let mut above = change.dir_phys(own)?.parent;
    while above.exists() {
        let dir = change.dir_phys(above)?;
        for holds_sets in [false, true] {
            let key = |grantee, scope| DelegationKey { grantee, scope, holds_sets };
            let created = key(Grantee::Creator, DelegationScope::None).to_string();
            let Some(names) = change.lookup_u64(dir.delegations, &created)? else { continue };
            let names = change.zap_entries(ObjectId::new(names))?;
            let names = names.iter().map(|it| String::from_utf8_lossy(&it.name).into_owned());
            let user = key(Grantee::User(uid), DelegationScope::Local);
            entries.entry(user).or_default().extend(names);
        }
        above = dir.parent;
    }
    if entries.is_empty() { Ok(()) } else { add_entries(change, own, &entries) }
}

fn add_entries(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    entries: &DelegationEntries,
) -> Result<()> {
    let kind = ObjectType::DSL_PERMS;
    let before = change.dir_phys(dir)?.delegations;
    let table = change.zap_or_create(before, kind)?;
    if table != before {
        change.update_dir(dir, |it| it.delegations = table)?;
    }
    for (key, names) in entries {
        let key = key.to_string();
        let permissions = match change.lookup_u64(table, &key)? {
            Some(known) => ObjectId::new(known),
            None => change.create_named_zap(kind, table, &key)?,
        };
        for name in names {
            change.update_u64(permissions, name, 0)?;
        }
    }
    Ok(())
}
