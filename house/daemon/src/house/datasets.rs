//! Datasets: listed, made, destroyed, changed.

use std::sync::Arc;

use engine::dataset::{Dataset, Wanted, is_for};
use engine::files::Partial;
use engine::held::{Held, NewDataset};

use super::mounts::{Change, Effect, Unmount, effect, is_within, mount_together};
use super::{House, Pool, done, give, warn};
use crate::{Answer, Ask, Error, Listing, MountWish, Mounting, Result, Secret};

fn bytes(secret: Option<&Secret>) -> Option<&[u8]> {
    secret.map(|secret| secret.0.as_slice())
}

/// Locks what has its key from the same encryption root, unless any of that is mounted.
fn unload_key(pool: &Pool, name: &str) -> Result<Vec<String>> {
    let own: Vec<String> = pool.held.encryption_root(name)?.into_iter().collect();
    if let Some((mounted, _)) = with_key_of(pool, &own, |_| true)? {
        return Err(Error::refused(format!("'{mounted}' is mounted; unmount it first")));
    }
    pool.held.unload_key(name)?;
    Ok(Vec::new())
}

/// What is mounted, and chosen, and has its key from one of those roots; and from which.
fn with_key_of(
    pool: &Pool,
    roots: &[String],
    chosen: impl Fn(&str) -> bool,
) -> Result<Option<(String, String)>> {
    // each look takes a while where there are many
    let mounted = if roots.is_empty() { Vec::new() } else { pool.mounted() };
    for (name, _) in mounted.into_iter().filter(|(name, _)| chosen(name)) {
        let root = pool.held.encryption_root(&name)?;
        if let Some(root) = root.filter(|root| roots.contains(root)) {
            return Ok(Some((name, root)));
        }
    }
    Ok(None)
}

impl House {
    pub(super) fn answer_of_datasets(&self, ask: Ask) -> Result<Answer> {
        match ask {
            Ask::Datasets(listing) => self.datasets(&listing),
            Ask::Set { names, properties, stays } => self.set(&names, &properties, stays),
            Ask::Inherit { names, property, recursive, received } => {
                let effect = effect(&property, None);
                let change = Change { effect, properties: vec![&property], force: false };
                each(&names, |name| {
                    self.moving(name, name, &change, |pool| {
                        inherit(pool, name, (&property, received), recursive)
                    })
                })
            }
            Ask::Snapshot { names, recursive, properties } => {
                self.snapshot(&names, recursive, &properties)
            }
            Ask::Bookmark { snapshot, mark } => self.in_pool(&mark, |pool| {
                pool.held.bookmark(&snapshot, &mark)?;
                Ok(Vec::new())
            }),
            Ask::Rollback { snapshot, newer, clones, force } => {
                self.rollback(&snapshot, newer, clones, force)
            }
            Ask::Clone { snapshot, name, properties, parents } => self.mounting(&name, |pool| {
                if parents && exists(&pool.held, &name)? {
                    return Ok(Vec::new());
                }
                make_parents(&pool.held, &name, parents)?;
                let new = NewDataset { name: name.clone(), properties };
                pool.held.clone_snapshot(&snapshot, &new)?;
                Ok(pool.mount_below(&name))
            }),
            Ask::Promote { name } => self.in_pool(&name, |pool| {
                pool.held.promote(&name)?;
                Ok(Vec::new())
            }),
            Ask::Rename { from, to, recursive, parents, force } => {
                let is_head = !from.contains('@');
                let effect = if is_head { Effect::Again } else { Effect::None };
                let change = Change { effect, properties: Vec::new(), force };
                let done = self.moving(&from, &to, &change, |pool| {
                    make_parents(&pool.held, &to, parents && is_head)?;
                    Ok(pool.held.rename(&from, &to, recursive)?)
                });
                warn(done?)
            }
            other => self.answer_of_new(other),
        }
    }

    /// What makes datasets, and what locks and unlocks them.
    fn answer_of_new(&self, ask: Ask) -> Result<Answer> {
        match ask {
            Ask::CreateFilesystem { name, properties, parents, unmounted, secret } => {
                let new = NewDataset { name, properties };
                self.create(&new, secret.as_ref(), parents, unmounted)
            }
            Ask::CreateVolume { name, size, block_size, sparse, properties, parents, secret } => {
                let new = NewDataset { name, properties };
                self.in_pool(&new.name, |pool| {
                    if parents && is_a(&pool.held, &new.name, "volume")? {
                        return Ok(Vec::new());
                    }
                    make_parents(&pool.held, &new.name, parents)?;
                    let (shape, secret) = ((size, block_size), bytes(secret.as_ref()));
                    pool.held.create_volume_with(&new, shape, sparse, secret)?;
                    Ok(Vec::new())
                })
            }
            Ask::LoadKey { name, secret } => self.in_pool(&name, |pool| {
                pool.held.load_key(&name, &secret.0)?;
                Ok(Vec::new())
            }),
            Ask::UnloadKey { name } => self.in_pool(&name, |pool| unload_key(pool, &name)),
            Ask::ChangeKey { name, properties, secret } => self.in_pool(&name, |pool| {
                pool.held.change_key(&name, &properties, &secret.0)?;
                Ok(Vec::new())
            }),
            Ask::InheritKey { name } => self.in_pool(&name, |pool| {
                pool.held.inherit_key(&name)?;
                Ok(Vec::new())
            }),
            other => Err(Error::usage(format!("nobody knows what {other:?} is"))),
        }
    }

    /// Changes datasets of the pool in which `name` is, one at a time; the work gives warnings.
    pub(super) fn in_pool(
        &self,
        name: &str,
        work: impl FnOnce(&Pool) -> Result<Vec<String>>,
    ) -> Result<Answer> {
        let pool = self.pool_of(name)?;
        let _changing = pool.changing.lock();
        warn(work(&pool)?)
    }

    /// The same of work that mounts what it makes. It gives why it could not.
    fn mounting(
        &self,
        name: &str,
        work: impl FnOnce(&Pool) -> Result<Vec<String>>,
    ) -> Result<Answer> {
        let pool = self.pool_of(name)?;
        let _changing = pool.changing.lock();
        give(&Mounting { failed: work(&pool)? })
    }

    /// `stays`: what is mounted stays where it is.
    fn set(
        &self,
        names: &[String],
        properties: &[(String, String)],
        stays: bool,
    ) -> Result<Answer> {
        let effects = properties.iter().map(|(property, value)| effect(property, Some(value)));
        let most = if stays { Effect::Options } else { Effect::Anew };
        let effect = effects.max().unwrap_or(Effect::None).min(most);
        let names_of = properties.iter().map(|(property, _)| property.as_str());
        let change = Change { effect, properties: names_of.collect(), force: false };
        each(names, |name| {
            self.moving(name, name, &change, |pool| {
                let set = |(property, value): &(String, String)| {
                    Ok(pool.held.set(name, property, value)?)
                };
                properties.iter().try_for_each(set)
            })
        })
    }

    /// Changes a dataset `from`, which is `to` afterwards, and what is mounted of it. Gives warnings.
    fn moving(
        &self,
        from: &str,
        to: &str,
        change: &Change<'_>,
        work: impl FnOnce(&Pool) -> Result<()>,
    ) -> Result<Vec<String>> {
        let pool = self.pool_of(from)?;
        let _changing = pool.changing.lock();
        match change.effect {
            Effect::None => return work(&pool).map(|()| Vec::new()),
            Effect::Options => {
                let done = work(&pool);
                let warnings = pool.follow(from, change);
                return done.map(|()| warnings);
            }
            Effect::Again | Effect::Anew => (),
        }
        let how = Unmount { force: change.force, keeps_folders: false };
        let mut gone = pool.unmount(&|dataset| is_within(dataset, from), how)?;
        if let Err(why) = work(&pool) {
            pool.mount_again(&gone);
            return Err(why);
        }
        for one in &mut gone {
            one.dataset = one.dataset.replacen(from, to, 1);
        }
        Ok(pool.mount_moved(&gone, to, change))
    }

    fn create(
        &self,
        new: &NewDataset,
        secret: Option<&Secret>,
        parents: bool,
        unmounted: bool,
    ) -> Result<Answer> {
        let name = new.name.as_str();
        self.mounting(name, |pool| {
            if parents && is_a(&pool.held, name, "filesystem")? {
                return Ok(Vec::new());
            }
            let made = make_parents(&pool.held, name, parents)?;
            pool.held.create_filesystem_with(new, bytes(secret))?;
            for name in made.iter().map(String::as_str).chain([name]) {
                pool.belong(name)?;
            }
            if unmounted {
                return Ok(Vec::new());
            }
            let new: Vec<String> = made.into_iter().chain([name.to_owned()]).collect();
            Ok(pool.mount_new(&new))
        })
    }

    pub(super) fn mount(&self, names: &[String], below: bool, wish: &MountWish) -> Result<Answer> {
        wish.check()?;
        let mut failed = Vec::new();
        if names.is_empty() {
            let pools: Vec<_> = self.pools.lock().values().cloned().collect();
            failed.extend(mount_together(&pools, wish));
        }
        for name in names {
            let pool = self.pool_of(name)?;
            let _changing = pool.changing.lock();
            if wish.is_of_mounted() {
                pool.remount(name, wish)?;
                continue;
            }
            if !below || !pool.is_mounted(name) {
                pool.mount_one(name, wish)?;
            }
            if below {
                failed.extend(pool.mount_as_wished(name, wish));
            }
        }
        // what was locked when its pool was imported has its log done again only now
        let pools: Vec<_> = self.pools.lock().values().cloned().collect();
        let told = self.tell_broken(&pools);
        if failed.is_empty() { warn(told) } else { Err(Error::refused(failed.join("\n"))) }
    }

    /// `locks`: they are to be locked afterwards.
    pub(super) fn unmount(&self, names: &[String], force: bool, locks: bool) -> Result<Answer> {
        let pools: Vec<_> = self.pools.lock().values().cloned().collect();
        let how = Unmount { force, keeps_folders: true };
        if names.is_empty() {
            return unmount_all(&pools, how);
        }
        let mounted: Vec<_> = pools.iter().flat_map(|pool| pool.mounted()).collect();
        let mut chosen = Vec::new();
        for name in names {
            let found = mounted
                .iter()
                .find(|(dataset, dir)| dataset == name || dir.as_os_str() == name.as_str());
            let Some((dataset, _)) = found else {
                return Err(Error::refused(format!("'{name}' is not mounted")));
            };
            chosen.push(dataset.as_str());
        }
        let goes = |dataset: &str| chosen.iter().any(|chosen| is_within(dataset, chosen));
        for pool in pools {
            let _changing = pool.changing.lock();
            if locks {
                may_be_locked(&pool, &goes)?;
            }
            pool.unmount(&goes, how)?;
        }
        done(())
    }

    fn datasets(&self, listing: &Listing) -> Result<Answer> {
        let names = if listing.names.is_empty() {
            self.pools.lock().keys().cloned().collect()
        } else {
            listing.names.clone()
        };
        let (mut found, mut warnings) = (Vec::new(), Vec::new());
        for name in &names {
            let pool = self.pool_of(name)?;
            let mut more = Vec::new();
            pool.held.list(
                name,
                &listing.wanted,
                &mut |dataset| more.push(dataset),
                &mut |event| warnings.push(event.to_string()),
            )?;
            pool.tell_mounts(&mut more);
            found.append(&mut more);
        }
        Ok(Answer { warnings, ..give(&found)? })
    }

    fn snapshot(
        &self,
        names: &[String],
        recursive: bool,
        properties: &[(String, String)],
    ) -> Result<Answer> {
        let Some(first) = names.first() else {
            return Err(Error::usage("no snapshot is named"));
        };
        self.in_pool(first, |pool| {
            let mut all = Vec::new();
            for name in names {
                let Some((head, part)) = name.split_once('@') else {
                    return Err(Error::usage(format!(
                        "'{name}' is no name for a snapshot: FS@NAME"
                    )));
                };
                if head.split('/').next() != Some(pool.held.name()) {
                    return Err(Error::refused("snapshots of one moment are all of one pool"));
                }
                if recursive {
                    let below = list_heads(&pool.held, head)?;
                    // there are no snapshots of what was received in part
                    let received = |it: &Dataset| {
                        matches!(pool.held.partial(&it.name), Ok(Some(Partial::Received)))
                    };
                    let heads = below.iter().filter(|it| is_head(it) && !received(it));
                    all.extend(heads.map(|dataset| format!("{}@{part}", dataset.name)));
                } else {
                    all.push(name.clone());
                }
            }
            pool.held.snapshot_with(&all, properties)?;
            Ok(Vec::new())
        })
    }
}

/// Does the same to each of several datasets. One to which it cannot be done keeps no other from it.
fn each(names: &[String], mut work: impl FnMut(&str) -> Result<Vec<String>>) -> Result<Answer> {
    let (mut warnings, mut failed) = (Vec::new(), Vec::new());
    for name in names {
        match work(name) {
            Ok(more) => warnings.extend(more),
            Err(why) => failed.push(why),
        }
    }
    match &failed[..] {
        [] => warn(warnings),
        [one] if names.len() == 1 => Err(one.clone()),
        [first, ..] => {
            let said = warnings.into_iter().chain(failed.iter().map(ToString::to_string));
            let what = said.collect::<Vec<_>>().join("\n");
            Err(Error::Said { what, status: first.status() })
        }
    }
}

/// Refuses if what stays mounted has its key from what goes and is to be locked.
fn may_be_locked(pool: &Pool, goes: &dyn Fn(&str) -> bool) -> Result<()> {
    let going = pool.mounted().into_iter().map(|(name, _)| name).filter(|name| goes(name));
    match with_key_of(pool, &going.collect::<Vec<_>>(), |name| !goes(name))? {
        None => Ok(()),
        Some((other, root)) => Err(Error::refused(format!(
            "'{root}' cannot be locked: '{other}', which is mounted, has its key"
        ))),
    }
}

/// Unmounts all that can be of what mounts itself, what was mounted last first, as it may lie over
/// others.
fn unmount_all(pools: &[Arc<Pool>], how: Unmount) -> Result<Answer> {
    let mut all: Vec<_> = pools
        .iter()
        .flat_map(|pool| pool.in_order().into_iter().map(move |(order, name)| (order, pool, name)))
        .collect();
    all.sort_by_key(|(order, ..)| std::cmp::Reverse(*order));
    let mut busy = Vec::new();
    for (_, pool, dataset) in all {
        let _changing = pool.changing.lock();
        if let Err(why) = pool.unmount_this(&dataset, how) {
            busy.push(why.to_string());
        }
    }
    if busy.is_empty() { done(()) } else { Err(Error::refused(busy.join("\n"))) }
}

fn inherit(
    pool: &Pool,
    name: &str,
    (property, received): (&str, bool),
    recursive: bool,
) -> Result<()> {
    let unset = |name: &str| {
        let held = &pool.held;
        let done =
            if received { held.revert(name, property) } else { held.inherit(name, property) };
        Ok(done?)
    };
    if !recursive {
        return unset(name);
    }
    let heads = list_heads(&pool.held, name)?;
    // below there may be volumes, which have not all that file systems have
    let has_it = |it: &&Dataset| it.name == name || is_for(property, &it.kind);
    let mut heads = heads.iter().filter(|dataset| is_head(dataset)).filter(has_it);
    heads.try_for_each(|dataset| unset(&dataset.name))
}

fn is_head(dataset: &Dataset) -> bool {
    matches!(dataset.kind.as_str(), "filesystem" | "volume")
}

/// A file system or volume and all those below it, but no snapshots: there may be thousands.
fn list_heads(held: &Held, target: &str) -> Result<Vec<Dataset>> {
    let kinds = ["filesystem", "volume"].map(str::to_owned).to_vec();
    list_wanted(held, target, &Wanted { kinds, properties: vec!["type".to_owned()], depth: None })
}

/// A dataset and all that is in and below it, with what tells who depends on whom.
pub(super) fn list(held: &Held, target: &str) -> Result<Vec<Dataset>> {
    let properties = ["createtxg", "clones", "origin"].map(str::to_owned).to_vec();
    list_wanted(held, target, &Wanted { properties, ..Wanted::default() })
}

fn list_wanted(held: &Held, target: &str, wanted: &Wanted) -> Result<Vec<Dataset>> {
    let (mut found, mut trouble) = (Vec::new(), None);
    held.list(target, wanted, &mut |dataset| found.push(dataset), &mut |event| {
        trouble = Some(event.to_string());
    })?;
    // what cannot be seen cannot be judged
    trouble.map_or(Ok(found), |why| Err(Error::refused(why)))
}

fn exists(held: &Held, name: &str) -> Result<bool> {
    Ok(kind_of(held, name)?.is_some())
}

/// Whether there is a dataset of that name and kind.
fn is_a(held: &Held, name: &str, kind: &str) -> Result<bool> {
    Ok(kind_of(held, name)?.is_some_and(|found| found == kind))
}

/// What kind of a dataset has that name; none: none has it.
fn kind_of(held: &Held, name: &str) -> Result<Option<String>> {
    let wanted =
        Wanted { depth: Some(0), properties: vec!["type".to_owned()], ..Wanted::default() };
    let mut kind = None;
    match held.list(name, &wanted, &mut |it| kind = Some(it.kind), &mut |_| ()) {
        Ok(()) => Ok(kind),
        Err(engine::Error::NoSuchDataset { .. }) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// Makes the file systems above that are not there, and gives their names.
fn make_parents(held: &Held, name: &str, wanted: bool) -> Result<Vec<String>> {
    let mut made = Vec::new();
    for (at, _) in name.match_indices('/').filter(|_| wanted) {
        let above = name.get(..at).unwrap_or(name).to_owned();
        if !exists(held, &above)? {
            held.create_filesystem(&NewDataset { name: above.clone(), properties: Vec::new() })?;
            made.push(above);
        }
    }
    Ok(made)
}
