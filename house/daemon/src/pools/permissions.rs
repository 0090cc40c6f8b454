//! Delegated permissions (`zfs allow`): listed, changed, and honoured for calls of ordinary users.

use std::collections::BTreeSet;

use api::{
    AllowPermissions, Call as _, DatasetPermissions, GetPermissions, NeededPermission,
    PermissionTarget, PromoteClone, RemovePermissions,
};
use engine::dataset::DatasetQuery;
use engine::pool::{DelegationEntries, DelegationKey, DelegationTarget, DelegationUser};
use posix::{Credentials, SetAttributes};
use vfs::{Context, FileSystem};

use super::{ManagedPool, Pools};
use crate::auth::Peer;
use crate::{Error, Result};

impl Pools {
    pub(crate) fn permissions(&self, call: &GetPermissions) -> Result<Vec<DatasetPermissions>> {
        let pool = self.pool_of_dataset(&call.name)?;
        let levels = pool.handle.permissions().list(&call.name)?.into_iter();
        let shown = |(key, names): (DelegationKey, BTreeSet<String>)| {
            (key.to_string(), names.into_iter().collect())
        };
        let level = |level: engine::pool::Delegations| DatasetPermissions {
            dataset: level.dataset,
            entries: level.entries.into_iter().map(shown).collect(),
        };
        Ok(levels.map(level).collect())
    }

    pub(crate) fn allow(&self, call: &AllowPermissions) -> Result<()> {
        let entries = parse_entries(&call.entries)?;
        self.change_dataset(&call.name, |pool| {
            Ok(pool.handle.permissions().allow(&call.name, &entries)?)
        })
    }

    pub(crate) fn unallow(&self, call: &RemovePermissions) -> Result<()> {
        let entries = parse_entries(&call.entries)?;
        self.change_dataset(&call.name, |pool| {
            let names = if call.recursive {
                pool.heads_within(&call.name)?
            } else {
                vec![call.name.clone()]
            };
            Ok(pool.handle.permissions().unallow(&names, &entries)?)
        })
    }

    /// Whether an ordinary user has all permissions that a call needs.
    pub(crate) fn is_permitted(&self, peer: Peer, needed: &[NeededPermission]) -> Result<bool> {
        self.is_user_permitted(&peer.delegation_user(), needed)
    }

    /// The same for a user whose groups are known.
    pub(super) fn is_user_permitted(
        &self,
        user: &DelegationUser,
        needed: &[NeededPermission],
    ) -> Result<bool> {
        for NeededPermission { dataset, target, permission } in needed {
            let pool = self.pool_of_dataset(dataset)?;
            let (names, target) = match target {
                PermissionTarget::Recursive => {
                    (pool.heads_within(dataset)?, DelegationTarget::Dataset)
                }
                PermissionTarget::Dataset => (vec![dataset.clone()], DelegationTarget::Dataset),
                PermissionTarget::Snapshot => (vec![dataset.clone()], DelegationTarget::Snapshot),
                PermissionTarget::NewDataset => {
                    (vec![dataset.clone()], DelegationTarget::NewDataset)
                }
            };
            for name in &names {
                if !pool.handle.permissions().is_granted(name, target, user, permission)? {
                    return Ok(false);
                }
            }
        }
        Ok(!needed.is_empty())
    }

    /// Refuses to promote a clone for an ordinary user who lacks the permission on the file system of its origin.
    pub(crate) fn check_promote(&self, call: &PromoteClone, peer: Peer) -> Result<()> {
        if peer.is_owner {
            return Ok(());
        }
        let pool = self.pool_of_dataset(&call.name)?;
        let query = DatasetQuery {
            depth: Some(0),
            properties: vec!["origin".to_owned()],
            ..DatasetQuery::default()
        };
        let mut origin = None;
        pool.handle.datasets().list(
            &call.name,
            &query,
            &mut |dataset| origin = dataset.property_value("origin").map(str::to_owned),
            &mut |_| (),
        )?;
        let Some(origin) = origin.filter(|origin| origin.contains('@')) else { return Ok(()) };
        let needed = [NeededPermission::on_head(&origin, "promote", false)];
        if self.is_permitted(peer, &needed)? {
            Ok(())
        } else {
            Err(Error::PermissionDenied { action: call.action() })
        }
    }

    /// Gives the creator of a dataset the permissions that the datasets above delegate to creators.
    pub(crate) fn allow_creator(&self, name: &str, peer: Peer) -> Result<()> {
        Ok(self
            .pool_of_dataset(name)?
            .handle
            .permissions()
            .allow_creator(name, u64::from(peer.uid))?)
    }

    /// Gives the creator of a file system those permissions, and an ordinary user the root directory.
    pub(crate) fn finish_creation(&self, name: &str, peer: Peer) -> Result<()> {
        self.allow_creator(name, peer)?;
        let pool = self.pool_of_dataset(name)?;
        if peer.is_owner {
            return Ok(());
        }
        let said = |why: vfs::Error| Error::refused_error(format!("'{name}': {why}"));
        let door = pool.filesystems.open_door(name, "the daemon")?;
        let set =
            SetAttributes { uid: Some(peer.uid), gid: Some(peer.gid), ..SetAttributes::default() };
        let (context, fs) = (Context::new(&Credentials::ROOT, door.id()), door.filesystem());
        fs.set_attributes(&context, fs.root_ino(), &set).map(drop).map_err(said)
    }
}

impl ManagedPool {
    /// A file system or volume and all below it.
    fn heads_within(&self, name: &str) -> Result<Vec<String>> {
        let query = DatasetQuery {
            kinds: ["filesystem", "volume"].map(str::to_owned).to_vec(),
            depth: None,
            properties: vec!["guid".to_owned()],
        };
        let mut found = Vec::new();
        self.handle.datasets().list(
            name,
            &query,
            &mut |dataset| found.push(dataset.name),
            &mut |_| (),
        )?;
        Ok(found)
    }
}

fn parse_entries(entries: &[(String, Vec<String>)]) -> Result<DelegationEntries> {
    let mut parsed = DelegationEntries::new();
    for (key, names) in entries {
        let found = DelegationKey::parse(key).ok_or_else(|| {
            Error::usage_error(format!("'{key}' does not name a subject of permissions"))
        })?;
        parsed.entry(found).or_default().extend(names.iter().cloned());
    }
    Ok(parsed)
}

impl Peer {
    /// The user with the groups of the program at the other end.
    fn delegation_user(self) -> DelegationUser {
        let groups = self.pid.and_then(|pid| groups_of(pid, self.uid)).unwrap_or_default();
        let mut groups: Vec<u64> = groups.into_iter().map(u64::from).collect();
        groups.push(u64::from(self.gid));
        DelegationUser { uid: u64::from(self.uid), groups }
    }
}

/// The groups of a process, if it still is one of that user.
fn groups_of(pid: i32, uid: u32) -> Option<Vec<u32>> {
    parse_status(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?, uid)
}

fn parse_status(status: &str, uid: u32) -> Option<Vec<u32>> {
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let effective: u32 = line("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
    let groups = line("Groups:")?.split_whitespace();
    (effective == uid).then(|| groups.filter_map(|group| group.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::parse_status;

    #[test]
    fn groups_are_those_of_the_same_user() {
        let status = "Name:\tzfs\nUid:\t1000\t1001\t1000\t1000\nGroups:\t4 24 1000 \n";
        assert_eq!(parse_status(status, 1001), Some(vec![4, 24, 1000]));
        assert_eq!(parse_status(status, 1000), None, "another program has the number now");
        assert_eq!(parse_status("", 0), None);
    }
}
