//! The list of an incremental stream of `zfs send -R`: promoted and renamed file systems, and file systems and
//! snapshots that were destroyed on the sender.
//!
//! File systems are identified by the guids of their snapshots. Promotions and renames are always followed,
//! destructions only with -F.

use std::collections::HashSet;

use api::{DestroyDatasets, ReceiveStream, RenameDataset};
use engine::dataset::DatasetQuery;
use engine::pool::{Package, PackagedDataset, StreamInput};

use super::receive::Naming;
use super::{ManagedPool, Pools};
use crate::Result;
use crate::auth::Caller;

/// A local file system or volume below the target, with its snapshots, the oldest first.
struct LocalDataset {
    name: String,
    snapshots: Vec<(String, u64)>,
}

impl LocalDataset {
    fn has_guid(&self, guid: u64) -> bool {
        self.snapshots.iter().any(|(_, known)| *known == guid)
    }
}

impl Pools {
    /// Renames and destroys according to the list of an incremental stream. Returns whether a file system waits for a new
    /// parent, which comes with the stream.
    pub(super) fn follow_package(
        &self,
        pool: &ManagedPool,
        call: &ReceiveStream,
        (input, naming): (&StreamInput<'_>, &Naming<'_>),
        caller: &Caller,
    ) -> Result<bool> {
        let Some(package) = input.package() else { return Ok(false) };
        let Some((from, top)) = base_and_top(package, naming)? else { return Ok(false) };
        self.follow_promotions(pool, package, from, &top)?;
        let is_waiting = self.follow_renames(pool, package, naming)?;
        if call.force {
            self.follow_destructions(pool, package, (from, &top), caller)?;
        }
        Ok(is_waiting)
    }

    /// Promotes the clones whose origin is older on the sender, or that are no clones there any more.
    fn follow_promotions(
        &self,
        pool: &ManagedPool,
        package: &Package,
        from: &str,
        top: &str,
    ) -> Result<()> {
        // a promotion moves the origins of others; each one brings a clone nearer to its sender's state
        for _ in 0..=package.datasets.len() {
            let local = local_datasets(pool, top)?;
            let origins = origins(pool, top)?;
            let is_younger = |sent: &PackagedDataset| {
                let (_, guid) = sent.snapshots.iter().find(|(name, _)| name == from)?;
                let found = local.iter().find(|it| it.has_guid(*guid))?;
                let (_, ours) = origins.iter().find(|(name, _)| *name == found.name)?;
                let theirs = match sent.origin {
                    Some(theirs) => created(pool, &local, |_, known| known == theirs)?,
                    None => 0,
                };
                let ours = created(pool, &local, |name, _| name == ours)?;
                (theirs < ours).then(|| found.name.clone())
            };
            let Some(name) = package.datasets.iter().find_map(is_younger) else { return Ok(()) };
            self.promote_clone(&name)?;
        }
        Ok(())
    }

    /// Gives file systems the places that they have on the sender. One whose parent the stream is still to bring, or
    /// that has the name of another one, is set aside. Returns whether a parent is missing.
    pub(super) fn follow_renames(
        &self,
        pool: &ManagedPool,
        package: &Package,
        naming: &Naming<'_>,
    ) -> Result<bool> {
        let Some((from, top)) = base_and_top(package, naming)? else { return Ok(false) };
        let mut is_waiting = false;
        // parents come before their children
        for sent in package.datasets.iter().skip(1) {
            let wanted = naming.local_name(&sent.name)?;
            let base = sent.snapshots.iter().find(|(name, _)| name == from);
            let Some((_, guid)) = base else { continue };
            let local = local_datasets(pool, &top)?;
            let Some(found) = local.iter().find(|it| it.has_guid(*guid)) else { continue };
            if found.name == wanted {
                continue;
            }
            let parent = wanted.rsplit_once('/').map_or("", |(parent, _)| parent);
            if !local.iter().any(|it| it.name == parent) {
                is_waiting = true;
                // where it is, the destruction of its old parent would destroy it
                self.move_received(&found.name, &set_aside_name(&top, *guid))?;
                continue;
            }
            if let Some((_, other)) = local.iter().find_map(|it| {
                it.snapshots.iter().find(|(name, _)| it.name == wanted && name == from)
            }) {
                self.move_received(&wanted, &set_aside_name(&top, *other))?;
            }
            self.move_received(&found.name, &wanted)?;
        }
        Ok(is_waiting)
    }

    fn move_received(&self, name: &str, to: &str) -> Result<()> {
        if name == to {
            return Ok(());
        }
        let rename = RenameDataset {
            name: name.to_owned(),
            to: to.to_owned(),
            recursive: false,
            parents: false,
            force: false,
            keep_mounts: false,
        };
        self.rename_dataset(&rename).map(drop)
    }

    fn follow_destructions(
        &self,
        pool: &ManagedPool,
        package: &Package,
        (from, top): (&str, &str),
        caller: &Caller,
    ) -> Result<()> {
        let sent: HashSet<u64> = package
            .datasets
            .iter()
            .flat_map(|dataset| dataset.snapshots.iter().map(|(_, guid)| *guid))
            .collect();
        let mut gone: Vec<String> = Vec::new();
        for local in local_datasets(pool, top)? {
            let below_gone = |it: &String| local.name.starts_with(&format!("{it}/"));
            let Some(base) = local.snapshots.iter().position(|(name, _)| name == from) else {
                continue;
            };
            if gone.iter().any(below_gone) {
                continue;
            }
            let later = local.snapshots.get(base..).unwrap_or_default();
            if !later.iter().any(|(_, guid)| sent.contains(guid)) && local.name != top {
                // the sender no longer has the file system
                gone.push(local.name.clone());
                continue;
            }
            let stale = later.iter().filter(|(_, guid)| !sent.contains(guid));
            for (name, _) in stale {
                self.destroy_received(&format!("{}@{name}", local.name), caller)?;
            }
        }
        gone.iter().try_for_each(|name| self.destroy_received(name, caller))
    }

    fn destroy_received(&self, name: &str, caller: &Caller) -> Result<()> {
        let call = DestroyDatasets {
            name: name.to_owned(),
            recursive: !name.contains('@'),
            force: true,
            ..DestroyDatasets::default()
        };
        self.destroy(&call, caller).map(drop)
    }
}

/// The base of an incremental list of a tree, and the local name of its first file system; none: it is another list.
fn base_and_top<'a>(
    package: &'a Package,
    naming: &Naming<'_>,
) -> Result<Option<(&'a str, String)>> {
    let from = package.from_snapshot.as_deref().filter(|_| package.is_recursive);
    let (Some(from), Some(first)) = (from, package.datasets.first()) else { return Ok(None) };
    Ok(Some((from, naming.local_name(&first.name)?)))
}

/// The name of a file system until its own is free; the guid is that of its base snapshot.
fn set_aside_name(top: &str, guid: u64) -> String {
    format!("{top}/recv-{guid:016x}")
}

/// The clones below a target, each with its origin's full name.
fn origins(pool: &ManagedPool, top: &str) -> Result<Vec<(String, String)>> {
    let property = "origin".to_owned();
    let query = DatasetQuery { properties: vec![property.clone()], ..DatasetQuery::default() };
    let mut found = Vec::new();
    let add = &mut |dataset: engine::dataset::Dataset| {
        let origin = dataset.property_value(&property).filter(|origin| origin.contains('@'));
        found.extend(origin.map(|origin| (dataset.name.clone(), origin.to_owned())));
    };
    match pool.handle.datasets().list(top, &query, add, &mut |_| ()) {
        Err(engine::Error::NoSuchDataset { .. }) => Ok(Vec::new()),
        listed => Ok(listed.map(|()| found)?),
    }
}

/// The txg of the snapshot that is meant, by its full name or guid.
fn created(
    pool: &ManagedPool,
    local: &[LocalDataset],
    is_meant: impl Fn(&str, u64) -> bool,
) -> Option<u64> {
    for dataset in local {
        for (name, guid) in &dataset.snapshots {
            let full = format!("{}@{name}", dataset.name);
            if is_meant(&full, *guid) {
                let all = pool.handle.snapshots().list(&dataset.name).ok()?;
                return all.iter().find(|it| it.guid == *guid).map(|it| it.txg);
            }
        }
    }
    None
}

/// The file systems and volumes below a target, with their snapshots.
fn local_datasets(pool: &ManagedPool, top: &str) -> Result<Vec<LocalDataset>> {
    // all of it is new
    if matches!(pool.handle.snapshots().list(top), Err(engine::Error::NoSuchDataset { .. })) {
        return Ok(Vec::new());
    }
    let names = super::datasets::list_head_names(&pool.handle, top)?;
    let mut found = Vec::new();
    for name in names {
        let snapshots = pool.handle.snapshots().list(&name)?;
        let snapshots = snapshots.into_iter().map(|it| (it.name, it.guid)).collect();
        found.push(LocalDataset { name, snapshots });
    }
    Ok(found)
}
