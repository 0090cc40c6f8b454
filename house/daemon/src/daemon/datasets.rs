//! Datasets: listed, made, destroyed, changed.

use std::sync::Arc;

use engine::dataset::{Dataset, DatasetQuery, is_settable};
use engine::files::IncompleteKind;
use engine::pool::{NewDataset, Pool};

use super::mounts::{
    MountChange, MountEffect, UnmountOptions, is_within, mount_all_pools, mount_effect,
};
use super::{Daemon, ManagedPool, empty_response, value_response, warning_response};
use crate::{Error, ListRequest, MountOverrides, Mounting, Request, Response, Result, Secret};

fn secret_bytes(secret: Option<&Secret>) -> Option<&[u8]> {
    secret.map(|secret| secret.0.as_slice())
}

/// Locks what has its key from the same encryption root, unless any of that is mounted.
fn unload_key(pool: &ManagedPool, name: &str) -> Result<Vec<String>> {
    let own: Vec<String> = pool.handle.encryption_root(name)?.into_iter().collect();
    if let Some((mounted, _)) = find_mounted_with_key(pool, &own, |_| true)? {
        return Err(Error::refused_error(format!("'{mounted}' is mounted; unmount it first")));
    }
    pool.handle.unload_key(name)?;
    Ok(Vec::new())
}

/// What is mounted, and chosen, and has its key from one of those roots; and from which.
fn find_mounted_with_key(
    pool: &ManagedPool,
    roots: &[String],
    chosen: impl Fn(&str) -> bool,
) -> Result<Option<(String, String)>> {
    // each look takes a while where there are many
    let mounted = if roots.is_empty() { Vec::new() } else { pool.mounted_filesystems() };
    for (name, _) in mounted.into_iter().filter(|(name, _)| chosen(name)) {
        let root = pool.handle.encryption_root(&name)?;
        if let Some(root) = root.filter(|root| roots.contains(root)) {
            return Ok(Some((name, root)));
        }
    }
    Ok(None)
}

impl Daemon {
    pub(super) fn handle_dataset_request(&self, ask: Request) -> Result<Response> {
        match ask {
            Request::Datasets(listing) => self.list_datasets(&listing),
            Request::Set { names, properties, keep_mounts: stays } => {
                self.set_properties(&names, &properties, stays)
            }
            Request::Inherit { names, property, recursive, received } => {
                let effect = mount_effect(&property, None);
                let change = MountChange { effect, properties: vec![&property], force: false };
                for_each_dataset(&names, |name| {
                    self.change_and_remount(name, name, &change, |pool| {
                        inherit_property(pool, name, (&property, received), recursive)
                    })
                })
            }
            Request::Snapshot { names, recursive, properties } => {
                self.create_snapshots(&names, recursive, &properties)
            }
            Request::Bookmark { snapshot, bookmark: mark } => {
                self.change_pool_datasets(&mark, |pool| {
                    pool.handle.create_bookmark(&snapshot, &mark)?;
                    Ok(Vec::new())
                })
            }
            Request::Rollback { snapshot, destroy_newer: newer, destroy_clones: clones, force } => {
                self.rollback(&snapshot, newer, clones, force)
            }
            Request::Clone { snapshot, name, properties, parents } => {
                self.mounting(&name, |pool| {
                    if parents && dataset_exists(&pool.handle, &name)? {
                        return Ok(Vec::new());
                    }
                    create_parents(&pool.handle, &name, parents)?;
                    let new = NewDataset { name: name.clone(), properties };
                    pool.handle.clone_snapshot(&snapshot, &new)?;
                    Ok(pool.mount_subtree(&name))
                })
            }
            Request::Promote { name } => self.change_pool_datasets(&name, |pool| {
                pool.handle.promote_clone(&name)?;
                Ok(Vec::new())
            }),
            Request::Rename { from, to, recursive, parents, force } => {
                let is_head = !from.contains('@');
                let effect = if is_head { MountEffect::Remount } else { MountEffect::None };
                let change = MountChange { effect, properties: Vec::new(), force };
                let done = self.change_and_remount(&from, &to, &change, |pool| {
                    create_parents(&pool.handle, &to, parents && is_head)?;
                    Ok(pool.handle.rename_dataset(&from, &to, recursive)?)
                });
                warning_response(done?)
            }
            other => self.handle_create_request(other),
        }
    }

    /// What makes datasets, and what locks and unlocks them.
    fn handle_create_request(&self, ask: Request) -> Result<Response> {
        match ask {
            Request::CreateFilesystem {
                name,
                properties,
                parents,
                no_mount: unmounted,
                secret,
            } => {
                let new = NewDataset { name, properties };
                self.create_filesystem(&new, secret.as_ref(), parents, unmounted)
            }
            Request::CreateVolume {
                name,
                size,
                block_size,
                sparse,
                properties,
                parents,
                secret,
            } => {
                let new = NewDataset { name, properties };
                self.change_pool_datasets(&new.name, |pool| {
                    if parents && has_kind(&pool.handle, &new.name, "volume")? {
                        return Ok(Vec::new());
                    }
                    create_parents(&pool.handle, &new.name, parents)?;
                    let (shape, secret) = ((size, block_size), secret_bytes(secret.as_ref()));
                    pool.handle.create_volume_with(&new, shape, sparse, secret)?;
                    Ok(Vec::new())
                })
            }
            Request::LoadKey { name, secret } => self.change_pool_datasets(&name, |pool| {
                pool.handle.load_key(&name, &secret.0)?;
                Ok(Vec::new())
            }),
            Request::UnloadKey { name } => {
                self.change_pool_datasets(&name, |pool| unload_key(pool, &name))
            }
            Request::ChangeKey { name, properties, secret } => {
                self.change_pool_datasets(&name, |pool| {
                    pool.handle.change_key(&name, &properties, &secret.0)?;
                    Ok(Vec::new())
                })
            }
            Request::InheritKey { name } => self.change_pool_datasets(&name, |pool| {
                pool.handle.inherit_key(&name)?;
                Ok(Vec::new())
            }),
            other => Err(Error::usage_error(format!("nobody knows what {other:?} is"))),
        }
    }

    /// Changes datasets of the pool in which `name` is, one at a time; the work gives warnings.
    pub(super) fn change_pool_datasets(
        &self,
        name: &str,
        work: impl FnOnce(&ManagedPool) -> Result<Vec<String>>,
    ) -> Result<Response> {
        let pool = self.pool_of_dataset(name)?;
        let _changing = pool.dataset_lock.lock();
        warning_response(work(&pool)?)
    }

    /// The same of work that mounts what it makes. It gives why it could not.
    fn mounting(
        &self,
        name: &str,
        work: impl FnOnce(&ManagedPool) -> Result<Vec<String>>,
    ) -> Result<Response> {
        let pool = self.pool_of_dataset(name)?;
        let _changing = pool.dataset_lock.lock();
        value_response(&Mounting { failed: work(&pool)? })
    }

    /// `stays`: what is mounted stays where it is.
    fn set_properties(
        &self,
        names: &[String],
        properties: &[(String, String)],
        stays: bool,
    ) -> Result<Response> {
        let effects =
            properties.iter().map(|(property, value)| mount_effect(property, Some(value)));
        let most = if stays { MountEffect::Reconfigure } else { MountEffect::RemountAll };
        let effect = effects.max().unwrap_or(MountEffect::None).min(most);
        let names_of = properties.iter().map(|(property, _)| property.as_str());
        let change = MountChange { effect, properties: names_of.collect(), force: false };
        for_each_dataset(names, |name| {
            self.change_and_remount(name, name, &change, |pool| {
                let set = |(property, value): &(String, String)| {
                    Ok(pool.handle.set_property(name, property, value)?)
                };
                properties.iter().try_for_each(set)
            })
        })
    }

    /// Changes a dataset `from`, which is `to` afterwards, and what is mounted of it. Gives warnings.
    fn change_and_remount(
        &self,
        from: &str,
        to: &str,
        change: &MountChange<'_>,
        work: impl FnOnce(&ManagedPool) -> Result<()>,
    ) -> Result<Vec<String>> {
        let pool = self.pool_of_dataset(from)?;
        let _changing = pool.dataset_lock.lock();
        match change.effect {
            MountEffect::None => return work(&pool).map(|()| Vec::new()),
            MountEffect::Reconfigure => {
                let done = work(&pool);
                let warnings = pool.refresh_mounts(from, change);
                return done.map(|()| warnings);
            }
            MountEffect::Remount | MountEffect::RemountAll => (),
        }
        let how = UnmountOptions { force: change.force, keep_dirs: false };
        let mut gone = pool.unmount_selected(&|dataset| is_within(dataset, from), how)?;
        if let Err(why) = work(&pool) {
            pool.restore_mounts(&gone);
            return Err(why);
        }
        for one in &mut gone {
            one.dataset = one.dataset.replacen(from, to, 1);
        }
        Ok(pool.restore_changed_mounts(&gone, to, change))
    }

    fn create_filesystem(
        &self,
        new: &NewDataset,
        secret: Option<&Secret>,
        parents: bool,
        unmounted: bool,
    ) -> Result<Response> {
        let name = new.name.as_str();
        self.mounting(name, |pool| {
            if parents && has_kind(&pool.handle, name, "filesystem")? {
                return Ok(Vec::new());
            }
            let made = create_parents(&pool.handle, name, parents)?;
            pool.handle.create_filesystem_with(new, secret_bytes(secret))?;
            for name in made.iter().map(String::as_str).chain([name]) {
                pool.chown_root(name)?;
            }
            if unmounted {
                return Ok(Vec::new());
            }
            let new: Vec<String> = made.into_iter().chain([name.to_owned()]).collect();
            Ok(pool.mount_created(&new))
        })
    }

    pub(super) fn mount(
        &self,
        names: &[String],
        below: bool,
        wish: &MountOverrides,
    ) -> Result<Response> {
        wish.validate()?;
        let mut failed = Vec::new();
        if names.is_empty() {
            let pools: Vec<_> = self.pools.lock().values().cloned().collect();
            failed.extend(mount_all_pools(&pools, wish));
        }
        for name in names {
            let pool = self.pool_of_dataset(name)?;
            let _changing = pool.dataset_lock.lock();
            if wish.is_remount() {
                pool.remount(name, wish)?;
                continue;
            }
            if !below || !pool.is_mounted(name) {
                pool.mount_filesystem(name, wish)?;
            }
            if below {
                failed.extend(pool.mount_subtree_with(name, wish));
            }
        }
        // what was locked when its pool was imported has its log done again only now
        let pools: Vec<_> = self.pools.lock().values().cloned().collect();
        let told = self.log_import_events(&pools);
        if failed.is_empty() {
            warning_response(told)
        } else {
            Err(Error::refused_error(failed.join("\n")))
        }
    }

    /// `locks`: they are to be locked afterwards.
    pub(super) fn unmount(&self, names: &[String], force: bool, locks: bool) -> Result<Response> {
        let pools: Vec<_> = self.pools.lock().values().cloned().collect();
        let how = UnmountOptions { force, keep_dirs: true };
        if names.is_empty() {
            return unmount_all(&pools, how);
        }
        let mounted: Vec<_> = pools.iter().flat_map(|pool| pool.mounted_filesystems()).collect();
        let mut chosen = Vec::new();
        for name in names {
            let found = mounted
                .iter()
                .find(|(dataset, dir)| dataset == name || dir.as_os_str() == name.as_str());
            let Some((dataset, _)) = found else {
                return Err(Error::refused_error(format!("'{name}' is not mounted")));
            };
            chosen.push(dataset.as_str());
        }
        let goes = |dataset: &str| chosen.iter().any(|chosen| is_within(dataset, chosen));
        for pool in pools {
            let _changing = pool.dataset_lock.lock();
            if locks {
                check_keys_unused(&pool, &goes)?;
            }
            pool.unmount_selected(&goes, how)?;
        }
        empty_response(())
    }

    fn list_datasets(&self, listing: &ListRequest) -> Result<Response> {
        let names = if listing.names.is_empty() {
            self.pools.lock().keys().cloned().collect()
        } else {
            listing.names.clone()
        };
        let (mut found, mut warnings) = (Vec::new(), Vec::new());
        for name in &names {
            let pool = self.pool_of_dataset(name)?;
            let mut more = Vec::new();
            pool.handle.list_datasets(
                name,
                &listing.query,
                &mut |dataset| more.push(dataset),
                &mut |event| warnings.push(event.to_string()),
            )?;
            pool.fill_mount_properties(&mut more);
            found.append(&mut more);
        }
        Ok(Response { warnings, ..value_response(&found)? })
    }

    fn create_snapshots(
        &self,
        names: &[String],
        recursive: bool,
        properties: &[(String, String)],
    ) -> Result<Response> {
        let Some(first) = names.first() else {
            return Err(Error::usage_error("no snapshot is named"));
        };
        self.change_pool_datasets(first, |pool| {
            let mut all = Vec::new();
            for name in names {
                let Some((head, part)) = name.split_once('@') else {
                    return Err(Error::usage_error(format!(
                        "'{name}' is no name for a snapshot: FS@NAME"
                    )));
                };
                if head.split('/').next() != Some(pool.handle.name()) {
                    return Err(Error::refused_error(
                        "snapshots of one moment are all of one pool",
                    ));
                }
                if recursive {
                    let below = list_heads(&pool.handle, head)?;
                    // there are no snapshots of what was received in part
                    let received = |it: &Dataset| {
                        matches!(
                            pool.handle.incomplete_kind(&it.name),
                            Ok(Some(IncompleteKind::Received))
                        )
                    };
                    let heads = below.iter().filter(|it| is_head(it) && !received(it));
                    all.extend(heads.map(|dataset| format!("{}@{part}", dataset.name)));
                } else {
                    all.push(name.clone());
                }
            }
            pool.handle.create_snapshots_with(&all, properties)?;
            Ok(Vec::new())
        })
    }
}

/// Does the same to each of several datasets. One to which it cannot be done keeps no other from it.
fn for_each_dataset(
    names: &[String],
    mut work: impl FnMut(&str) -> Result<Vec<String>>,
) -> Result<Response> {
    let (mut warnings, mut failed) = (Vec::new(), Vec::new());
    for name in names {
        match work(name) {
            Ok(more) => warnings.extend(more),
            Err(why) => failed.push(why),
        }
    }
    match &failed[..] {
        [] => warning_response(warnings),
        [one] if names.len() == 1 => Err(one.clone()),
        [first, ..] => {
            let said = warnings.into_iter().chain(failed.iter().map(ToString::to_string));
            let what = said.collect::<Vec<_>>().join("\n");
            Err(Error::Reported { message: what, status: first.status() })
        }
    }
}

/// Refuses if what stays mounted has its key from what goes and is to be locked.
fn check_keys_unused(pool: &ManagedPool, goes: &dyn Fn(&str) -> bool) -> Result<()> {
    let going =
        pool.mounted_filesystems().into_iter().map(|(name, _)| name).filter(|name| goes(name));
    match find_mounted_with_key(pool, &going.collect::<Vec<_>>(), |name| !goes(name))? {
        None => Ok(()),
        Some((other, root)) => Err(Error::refused_error(format!(
            "'{root}' cannot be locked: '{other}', which is mounted, has its key"
        ))),
    }
}

/// Unmounts all that can be of what mounts itself, what was mounted last first, as it may lie over
/// others.
fn unmount_all(pools: &[Arc<ManagedPool>], how: UnmountOptions) -> Result<Response> {
    let mut all: Vec<_> = pools
        .iter()
        .flat_map(|pool| {
            pool.mount_order().into_iter().map(move |(order, name)| (order, pool, name))
        })
        .collect();
    all.sort_by_key(|(order, ..)| std::cmp::Reverse(*order));
    let mut busy = Vec::new();
    for (_, pool, dataset) in all {
        let _changing = pool.dataset_lock.lock();
        if let Err(why) = pool.unmount_dataset(&dataset, how) {
            busy.push(why.to_string());
        }
    }
    if busy.is_empty() { empty_response(()) } else { Err(Error::refused_error(busy.join("\n"))) }
}

fn inherit_property(
    pool: &ManagedPool,
    name: &str,
    (property, received): (&str, bool),
    recursive: bool,
) -> Result<()> {
    let unset = |name: &str| {
        let held = &pool.handle;
        let done = if received {
            held.revert_property(name, property)
        } else {
            held.inherit_property(name, property)
        };
        Ok(done?)
    };
    if !recursive {
        return unset(name);
    }
    let heads = list_heads(&pool.handle, name)?;
    // below there may be volumes, which have not all that file systems have
    let has_it = |it: &&Dataset| it.name == name || is_settable(property, &it.kind);
    let mut heads = heads.iter().filter(|dataset| is_head(dataset)).filter(has_it);
    heads.try_for_each(|dataset| unset(&dataset.name))
}

fn is_head(dataset: &Dataset) -> bool {
    matches!(dataset.kind.as_str(), "filesystem" | "volume")
}

/// A file system or volume and all those below it, but no snapshots: there may be thousands.
fn list_heads(held: &Pool, target: &str) -> Result<Vec<Dataset>> {
    let kinds = ["filesystem", "volume"].map(str::to_owned).to_vec();
    list_wanted(
        held,
        target,
        &DatasetQuery { kinds, properties: vec!["type".to_owned()], depth: None },
    )
}

/// A dataset and all that is in and below it, with what tells who depends on whom.
pub(super) fn list_subtree(held: &Pool, target: &str) -> Result<Vec<Dataset>> {
    let properties = ["createtxg", "clones", "origin"].map(str::to_owned).to_vec();
    list_wanted(held, target, &DatasetQuery { properties, ..DatasetQuery::default() })
}

fn list_wanted(held: &Pool, target: &str, wanted: &DatasetQuery) -> Result<Vec<Dataset>> {
    let (mut found, mut trouble) = (Vec::new(), None);
    held.list_datasets(target, wanted, &mut |dataset| found.push(dataset), &mut |event| {
        trouble = Some(event.to_string());
    })?;
    // what cannot be seen cannot be judged
    trouble.map_or(Ok(found), |why| Err(Error::refused_error(why)))
}

fn dataset_exists(held: &Pool, name: &str) -> Result<bool> {
    Ok(dataset_kind(held, name)?.is_some())
}

/// Whether there is a dataset of that name and kind.
fn has_kind(held: &Pool, name: &str, kind: &str) -> Result<bool> {
    Ok(dataset_kind(held, name)?.is_some_and(|found| found == kind))
}

/// What kind of a dataset has that name; none: none has it.
fn dataset_kind(held: &Pool, name: &str) -> Result<Option<String>> {
    let wanted = DatasetQuery {
        depth: Some(0),
        properties: vec!["type".to_owned()],
        ..DatasetQuery::default()
    };
    let mut kind = None;
    match held.list_datasets(name, &wanted, &mut |it| kind = Some(it.kind), &mut |_| ()) {
        Ok(()) => Ok(kind),
        Err(engine::Error::NoSuchDataset { .. }) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// Makes the file systems above that are not there, and gives their names.
fn create_parents(held: &Pool, name: &str, wanted: bool) -> Result<Vec<String>> {
    let mut made = Vec::new();
    for (at, _) in name.match_indices('/').filter(|_| wanted) {
        let above = name.get(..at).unwrap_or(name).to_owned();
        if !dataset_exists(held, &above)? {
            held.create_filesystem(&NewDataset { name: above.clone(), properties: Vec::new() })?;
            made.push(above);
        }
    }
    Ok(made)
}
