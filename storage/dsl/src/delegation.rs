//! Delegated permissions (`zfs allow`): the stored form, and the check of a user's permission.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::dsl::{DelegationKey, DelegationScope, Grantee};
use units::ObjectId;
use zap::Zap;

use crate::dir::open_zap;
use crate::{DatasetTree, Result};

/// The permissions that are delegated at one dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delegations {
    /// The full name of the dataset.
    pub dataset: String,
    /// Names of permissions, or of permission sets, by key.
    pub entries: BTreeMap<DelegationKey, BTreeSet<String>>,
}

/// A user, with the ids of the groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationUser {
    /// The user id.
    pub uid: u64,
    /// The ids of all groups, the primary one among them.
    pub groups: Vec<u64>,
}

/// The dataset on which a permission is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationTarget {
    /// The first dataset of the list.
    Dataset,
    /// A snapshot of the first dataset: only permissions for datasets below count.
    Snapshot,
    /// A dataset that the user creates below the first one.
    NewDataset,
}

impl DatasetTree {
    /// The delegations at a dataset and at those above it, upwards. Datasets without any are left out.
    pub fn delegations(&self, dataset: &str) -> Result<Vec<Delegations>> {
        let found = self.find(dataset)?;
        let mut all = Vec::new();
        for dir in found.dir().ancestors() {
            let entries = self.read_delegations(dir.phys().delegations)?;
            all.push(Delegations { dataset: dir.path().to_owned(), entries });
        }
        Ok(all)
    }

    fn read_delegations(
        &self,
        table: ObjectId,
    ) -> Result<BTreeMap<DelegationKey, BTreeSet<String>>> {
        let mut entries = BTreeMap::new();
        for entry in open_zap(self.mos(), table)?.iter().flat_map(Zap::entries) {
            let entry = entry?;
            let key = DelegationKey::parse(&String::from_utf8_lossy(&entry.name));
            // a key of another kind grants nothing
            let (Some(key), Some(names)) = (key, entry.value.u64()) else { continue };
            let mut permissions = BTreeSet::new();
            let names = open_zap(self.mos(), ObjectId::new(names))?;
            for permission in names.iter().flat_map(Zap::entries) {
                permissions.insert(String::from_utf8_lossy(&permission?.name).into_owned());
            }
            entries.insert(key, permissions);
        }
        Ok(entries)
    }
}

/// Whether a user has a permission on `target`. `levels` are the delegations at the dataset and at those above it,
/// upwards, with the datasets that have none.
pub fn is_permitted(
    levels: &[Delegations],
    target: DelegationTarget,
    user: &DelegationUser,
    permission: &str,
) -> bool {
    // sets that the user has, and whether their permissions are known not to have this one
    let mut sets: BTreeMap<String, bool> = BTreeMap::new();
    for (at, level) in levels.iter().enumerate() {
        let is_local = at == 0 && target == DelegationTarget::Dataset;
        let scope = if is_local { DelegationScope::Local } else { DelegationScope::Descendent };
        let grants =
            Grants { level, scope, user, is_creator: target == DelegationTarget::NewDataset };
        for set in grants.names(true) {
            sets.entry(set.clone()).or_insert(false);
        }
        if is_in_sets(level, &mut sets, permission)
            || grants.names(false).any(|name| name == permission)
        {
            return true;
        }
    }
    false
}

/// The permissions that a user has at one dataset.
struct Grants<'a> {
    level: &'a Delegations,
    scope: DelegationScope,
    user: &'a DelegationUser,
    /// The user creates the dataset.
    is_creator: bool,
}

impl<'a> Grants<'a> {
    /// The names of permissions, or of permission sets.
    fn names(&self, holds_sets: bool) -> impl Iterator<Item = &'a String> + '_ {
        let own = move |(key, _): &(&DelegationKey, &BTreeSet<String>)| {
            let is_user = match &key.grantee {
                Grantee::User(uid) => *uid == self.user.uid,
                Grantee::Group(gid) => self.user.groups.contains(gid),
                Grantee::Everyone => true,
                Grantee::Creator => return self.is_creator && key.holds_sets == holds_sets,
                Grantee::Set(_) => false,
            };
            is_user && key.scope == self.scope && key.holds_sets == holds_sets
        };
        self.level.entries.iter().filter(own).flat_map(|(_, names)| names)
    }
}

/// Whether one of the sets has a permission, as the sets are defined at this dataset. Sets that they name are added.
fn is_in_sets(level: &Delegations, sets: &mut BTreeMap<String, bool>, permission: &str) -> bool {
    let defined = |name: &str, holds_sets| {
        let (grantee, scope) = (Grantee::Set(name.to_owned()), DelegationScope::None);
        level.entries.get(&DelegationKey { grantee, scope, holds_sets })
    };
    loop {
        let mut found = Vec::new();
        for (name, is_done) in sets.iter_mut().filter(|(_, is_done)| !**is_done) {
            match defined(name, false) {
                Some(permissions) if permissions.contains(permission) => return true,
                Some(_) => *is_done = true,
                None => (),
            }
            if let Some(named) = defined(name, true) {
                *is_done = true;
                found.extend(named.iter().cloned());
            }
        }
        let count = sets.len();
        for name in found {
            sets.entry(name).or_insert(false);
        }
        if sets.len() == count {
            return false;
        }
    }
}

#[cfg(test)]
mod tests;
