//! Where the file systems of a pool are mounted.
//!
//! Each is mounted by itself at its `mountpoint`, the outer ones first. What a program has open
//! cannot be unmounted, unless by force: then it gets errors.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::KeyState;
use engine::dataset::{self, Dataset, Property};
use engine::files::Time;
use engine::held::Set;
use fuse::{Beside, LiveOptions, MountTable, Mounted};
use parking_lot::MutexGuard;
use vfs::{Credentials, FileSystem};

use super::Pool;
use super::options::{may_cover, options_of, value_of};
use crate::{Error, MountWish, Result};

/// A file system that is mounted.
pub(super) struct Mount {
    dataset: String,
    dir: PathBuf,
    options: LiveOptions,
    wish: MountWish,
    live: FileSystem,
    mounted: Mounted,
    beside: Beside,
    /// The folder was made for it, perhaps by an earlier mount, and goes with it.
    made: bool,
    /// Those with higher numbers were mounted later, perhaps over it.
    order: u64,
}

/// One that was mounted, and how.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    pub(super) dataset: String,
    wish: MountWish,
}

/// One that is to be mounted: where, and how.
struct Wanted {
    dir: PathBuf,
    dataset: Dataset,
    wish: MountWish,
}

/// How many were mounted.
static MOUNTED: AtomicU64 = AtomicU64::new(0);

/// What decides where and how a file system is mounted.
const PROPERTIES: [&str; 8] =
    ["mountpoint", "canmount", "overlay", "readonly", "exec", "setuid", "devices", "atime"];

/// What a change of a dataset does to what is mounted, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// Something else may be done in it.
    Options,
    /// It is unmounted meanwhile; what was mounted is afterwards, if it may be.
    Again,
    /// The same, and what was not mounted is as well, as somebody says where it belongs.
    Anew,
}

/// A change of a dataset, as far as mounts are concerned.
#[derive(Clone, Debug)]
pub(super) struct Change<'a> {
    pub(super) effect: Effect,
    /// These get other values.
    pub(super) properties: Vec<&'a str>,
    /// Whoever is in what is unmounted gets errors.
    pub(super) force: bool,
}

impl Change<'_> {
    /// Whether `dataset`, which is `target` or below it, follows `target` in a property that is
    /// changed.
    fn counts(&self, target: &str, dataset: &Dataset, property: &str) -> bool {
        let of = |it: &&Property| it.name == property;
        let has_its_own =
            || dataset.properties.iter().find(of).is_some_and(|it| it.source == "local");
        self.properties.contains(&property) && (dataset.name == target || !has_its_own())
    }
}

/// What it does to mounts that a property gets a value; none: that it has one no more.
pub(super) fn effect(property: &str, value: Option<&str>) -> Effect {
    match (property, value) {
        ("mountpoint", _) => Effect::Anew,
        ("canmount", Some("off")) => Effect::Again,
        ("readonly" | "exec" | "setuid" | "devices" | "atime", _) => Effect::Options,
        _ => Effect::None,
    }
}

/// Whether a dataset is `target` or below it.
pub(super) fn is_within(dataset: &str, target: &str) -> bool {
    dataset.strip_prefix(target).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Pool {
    /// What is mounted: datasets and folders. What somebody else unmounted is not any more.
    pub(super) fn mounted(&self) -> Vec<(String, PathBuf)> {
        let mounts = self.still_mounted();
        mounts.iter().map(|mount| (mount.dataset.clone(), mount.dir.clone())).collect()
    }

    fn still_mounted(&self) -> MutexGuard<'_, Vec<Mount>> {
        let (mut mounts, table) = (self.mounts.lock(), MountTable::now());
        mounts.retain_mut(|mount| mount.mounted.is_mounted(&table));
        mounts
    }

    /// Whether a file system is mounted.
    pub(super) fn is_mounted(&self, name: &str) -> bool {
        self.mounted().iter().any(|(dataset, _)| dataset == name)
    }

    /// The way to a file system that is mounted; none: it is not.
    pub(super) fn beside(&self, name: &str) -> Option<Beside> {
        let mounts = self.still_mounted();
        mounts.iter().find(|mount| mount.dataset == name).map(|mount| mount.beside.clone())
    }

    /// How what is mounted of a file system and those below it is.
    pub(super) fn wishes(&self, target: &str) -> Vec<Gone> {
        let mounts = self.still_mounted();
        let within = mounts.iter().filter(|mount| is_within(&mount.dataset, target));
        let gone =
            |mount: &Mount| Gone { dataset: mount.dataset.clone(), wish: mount.wish.clone() };
        within.map(gone).collect()
    }

    /// Says of datasets of this pool whether they are mounted, and how, and where they are with the
    /// altroot.
    pub(super) fn tell_mounts(&self, datasets: &mut [Dataset]) {
        let mounts = self.still_mounted();
        for dataset in datasets {
            let mount = mounts.iter().find(|mount| mount.dataset == dataset.name);
            for fact in &mut dataset.properties {
                match fact.name.as_str() {
                    "mounted" if mount.is_some() => "yes".clone_into(&mut fact.value),
                    "mountpoint" => {
                        if let Some(dir) = self.behind_root(&fact.value) {
                            fact.value = dir.display().to_string();
                        }
                    }
                    _ => {
                        let now = mount.and_then(|mount| value_of(&fact.name, &mount.options));
                        if let Some(now) = now.filter(|now| *now != fact.value) {
                            now.clone_into(&mut fact.value);
                            "temporary".clone_into(&mut fact.source);
                        }
                    }
                }
            }
        }
    }

    /// A mountpoint behind the altroot; none: it is no path.
    fn behind_root(&self, point: &str) -> Option<PathBuf> {
        behind(self.altroot.as_deref(), point)
    }

    /// Mounts `target` and all below it that are to be mounted. What could not be is told.
    pub(super) fn mount_below(&self, target: &str) -> Vec<String> {
        self.mount_as_wished(target, &MountWish::default())
    }

    /// The same, as somebody wishes.
    pub(super) fn mount_as_wished(&self, target: &str, wish: &MountWish) -> Vec<String> {
        self.mount_chosen(target, &|dataset| mounts_itself(dataset).then(|| wish.clone()))
    }

    /// Mounts what is new, if it is to be.
    pub(super) fn mount_new(&self, names: &[String]) -> Vec<String> {
        let chosen = |dataset: &Dataset| mounts_itself(dataset).then(MountWish::default);
        let mut places = Vec::new();
        for name in names {
            match self.places(name, Some(0), &chosen) {
                Ok(found) => places.extend(found),
                Err(why) => return vec![why.to_string()],
            }
        }
        self.mount_places(places)
    }

    /// Mounts again what was mounted before, by itself or because somebody asked for it, as it was and
    /// if it may still be.
    pub(super) fn mount_again(&self, gone: &[Gone]) -> Vec<String> {
        if gone.is_empty() {
            return Vec::new();
        }
        let none = Change { effect: Effect::Again, properties: Vec::new(), force: false };
        self.mount_moved(gone, self.held.name(), &none)
    }

    /// The same, after `target` and what is below it changed.
    pub(super) fn mount_moved(
        &self,
        gone: &[Gone],
        target: &str,
        change: &Change<'_>,
    ) -> Vec<String> {
        self.mount_chosen(self.held.name(), &|dataset| {
            let was = gone.iter().find(|gone| gone.dataset == dataset.name);
            let wish = was.map(|gone| gone.wish.without(|it| change.counts(target, dataset, it)));
            let anew = change.effect == Effect::Anew && is_within(&dataset.name, target);
            match dataset.value("canmount") {
                Some("off") => None,
                Some("on") if anew => Some(wish.unwrap_or_default()),
                _ => wish,
            }
        })
    }

    /// Mounts those file systems at and below `target` for which there is a wish, the outer ones first.
    fn mount_chosen(
        &self,
        target: &str,
        chosen: &dyn Fn(&Dataset) -> Option<MountWish>,
    ) -> Vec<String> {
        match self.places(target, None, chosen) {
            Ok(places) => self.mount_places(places),
            Err(why) => vec![why.to_string()],
        }
    }

    /// Mounts file systems on their folders, the outer ones first.
    fn mount_places(&self, mut places: Vec<Wanted>) -> Vec<String> {
        places.sort_by(|one, other| one.dir.cmp(&other.dir));
        places.iter().filter_map(|place| self.mount_place(place)).collect()
    }

    /// Where those file systems at and, as deep as `depth` says, below `target` belong for which there is
    /// a wish, and which are not mounted. What is there in part only belongs nowhere.
    fn places(
        &self,
        target: &str,
        depth: Option<usize>,
        chosen: &dyn Fn(&Dataset) -> Option<MountWish>,
    ) -> Result<Vec<Wanted>> {
        let here: HashSet<String> = self.mounted().into_iter().map(|(name, _)| name).collect();
        let found = self.filesystems(target, depth)?.into_iter();
        let found = found.filter(|it| !here.contains(&it.name));
        let wanted = found.filter_map(|dataset| {
            let (wish, dir) = (chosen(&dataset)?, self.folder(&dataset)?);
            let is_whole = !matches!(self.held.partial(&dataset.name), Ok(Some(_)));
            is_whole.then_some(Wanted { dir, dataset, wish })
        });
        Ok(wanted.collect())
    }

    /// Mounts a file system; gives why it could not, in zfs(8)'s words.
    fn mount_place(&self, place: &Wanted) -> Option<String> {
        let why = self.mount_at(&place.dir, &place.dataset, &place.wish).err()?;
        Some(format!("cannot mount '{}': {why}", place.dataset.name))
    }

    /// Has what is mounted at and below `target` follow its properties after a change, even while it is
    /// in use. What could not be done is told.
    pub(super) fn follow(&self, target: &str, change: &Change<'_>) -> Vec<String> {
        let found = match self.filesystems(target, None) {
            Ok(found) => found,
            Err(why) => return vec![why.to_string()],
        };
        self.apply(&found, &|wish, dataset| {
            wish.without(|property| change.counts(target, dataset, property))
        })
    }

    /// How a file system is to be mounted: of a pool that is looked at only nothing is changed.
    fn options(&self, dataset: &Dataset, wish: &MountWish) -> LiveOptions {
        let options = options_of(dataset, wish);
        LiveOptions { read_only: options.read_only || self.held.is_read_only(), ..options }
    }

    /// Has one that is mounted be mounted otherwise.
    pub(super) fn remount(&self, name: &str, more: &MountWish) -> Result<()> {
        if !self.is_mounted(name) {
            return Err(Error::refused(format!("'{name}' is not mounted")));
        }
        let failed = self.apply(&self.filesystems(name, Some(0))?, &|wish, _| wish.and(more));
        if failed.is_empty() { Ok(()) } else { Err(Error::refused(failed.join("\n"))) }
    }

    /// Gives what is mounted of some file systems the wishes that it is to have, and the options that
    /// follow. What could not be done is told.
    fn apply(
        &self,
        found: &[Dataset],
        wished: &dyn Fn(&MountWish, &Dataset) -> MountWish,
    ) -> Vec<String> {
        let mut stale = Vec::new();
        for mount in self.mounts.lock().iter_mut() {
            let Some(dataset) = found.iter().find(|it| it.name == mount.dataset) else { continue };
            mount.wish = wished(&mount.wish, dataset);
            let options = self.options(dataset, &mount.wish);
            if options == mount.options {
                continue;
            }
            // that reading is not noted the kernel only shows
            let only_shown = LiveOptions { no_atime: options.no_atime, ..mount.options.clone() };
            if mount.mounted.change(&options) || only_shown == options {
                mount.live.set_read_only(is_still(&options));
                mount.options = options;
            } else {
                stale.push(mount.dataset.clone());
            }
        }
        if stale.is_empty() {
            return Vec::new();
        }
        // who may not change what is mounted mounts it once more
        let how = Unmount { force: false, keeps_folders: true };
        match self.unmount(&|dataset| stale.iter().any(|it| it == dataset), how) {
            Ok(gone) => self.mount_again(&gone),
            Err(why) => {
                vec![format!("what is mounted stays as it was until it is unmounted: {why}")]
            }
        }
    }

    /// Mounts one file system because somebody asks for it.
    pub(super) fn mount_one(&self, name: &str, wish: &MountWish) -> Result<()> {
        if self.is_mounted(name) {
            return Err(Error::refused(format!("'{name}' is mounted already")));
        }
        let found = self.filesystems(name, Some(0))?;
        let Some(dataset) = found.first() else {
            return Err(Error::refused(format!("'{name}' is no file system")));
        };
        if dataset.value("canmount") == Some("off") {
            return Err(Error::refused(format!("'{name}' has canmount=off")));
        }
        let Some(dir) = self.folder(dataset) else {
            let at = dataset.value("mountpoint").unwrap_or("none");
            return Err(Error::refused(format!(
                "'{name}' has mountpoint={at}, or is locked: it has no folder to be mounted on"
            )));
        };
        self.mount_at(&dir, dataset, wish)
    }

    fn filesystems(&self, target: &str, depth: Option<usize>) -> Result<Vec<Dataset>> {
        let wanted = dataset::Wanted {
            kinds: vec!["filesystem".to_owned()],
            depth,
            properties: PROPERTIES.map(str::to_owned).to_vec(),
        };
        let mut found = Vec::new();
        self.held.list(target, &wanted, &mut |dataset| found.push(dataset), &mut |_| ())?;
        Ok(found)
    }

    /// Where a file system belongs; none: nowhere.
    fn folder(&self, dataset: &Dataset) -> Option<PathBuf> {
        let point = dataset.value("mountpoint").filter(|_| dataset.key != KeyState::Locked)?;
        self.behind_root(point)
    }

    /// A new file system belongs to whoever makes it, which is who runs the daemon.
    pub(super) fn belong(&self, name: &str) -> Result<()> {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        if user.is_root() {
            return Ok(());
        }
        let said = |why: vfs::Error| Error::refused(format!("'{name}': {why}"));
        let live = FileSystem::open(&self.held, name, now).map_err(said)?;
        let set = Set { uid: Some(user.as_raw()), gid: Some(group.as_raw()), ..Set::default() };
        let root = Credentials { uid: 0, gid: 0, has_cap_fsetid: true };
        live.set_attributes(root, live.root_ino(), &set).map(drop).map_err(said)
    }

    fn mount_at(&self, dir: &Path, dataset: &Dataset, wish: &MountWish) -> Result<()> {
        if self.stop.load(Ordering::Acquire) {
            return Err(Error::refused("the pool is being left"));
        }
        let (options, wish) = (self.options(dataset, wish), wish.clone());
        fuse::take_away_dead(dir);
        let is_new = !dir.exists();
        let is_free = is_new || is_empty(dir);
        let made = is_new || is_free && follows(dataset);
        let said = |why: String| Error::refused(why);
        if !is_free && !may_cover(dataset, &wish) {
            return Err(said(format!(
                "'{}' is not empty, and overlay=off: `zfs mount -O` covers what is there",
                dir.display()
            )));
        }
        let live = FileSystem::open(&self.held, &dataset.name, now);
        let live = live.map_err(|why| said(why.to_string()))?;
        live.set_read_only(is_still(&options));
        let mounted = fuse::mount_live(&live, dir, &options);
        let (mounted, beside) = mounted.map_err(|why| match why {
            fuse::Error::Folder { .. } if self.held.is_read_only() => said(format!(
                "{why}: the folder is not there, and cannot be made in a pool that is imported \
                 read-only; `poolhouse rescue mount` shows all file systems in one"
            )),
            why => said(why.to_string()),
        })?;
        let (dataset, dir) = (dataset.name.clone(), dir.to_owned());
        let order = MOUNTED.fetch_add(1, Ordering::Relaxed);
        let mount = Mount { dataset, dir, options, wish, live, mounted, beside, made, order };
        self.mounts.lock().push(mount);
        Ok(())
    }

    /// Unmounts those that are chosen, what was mounted last first, and tells how they were mounted.
    /// If a program is in one, and no force is used, all stay as they were.
    pub(super) fn unmount(&self, chosen: &dyn Fn(&str) -> bool, how: Unmount) -> Result<Vec<Gone>> {
        let mut wanted = self.mounted();
        wanted.retain(|(dataset, _)| chosen(dataset));
        // the inner ones before the outer, but for what was hidden by an outer one later
        wanted.reverse();
        let mut done: Vec<Gone> = Vec::new();
        for (dataset, dir) in wanted {
            match self.unmount_one(&dataset, how) {
                Unmounted::Now(gone) => done.push(gone),
                Unmounted::Before => (),
                Unmounted::InUse => {
                    let _ = self.mount_again(&done);
                    return Err(in_use(&dataset, &dir));
                }
            }
        }
        Ok(done)
    }

    /// What is mounted, but for what is so, and is unmounted, only if somebody names it; with numbers
    /// that tell in which order.
    pub(super) fn in_order(&self) -> Vec<(u64, String)> {
        let found = self.filesystems(self.held.name(), None).unwrap_or_default();
        let is_named = |mount: &&Mount| {
            let dataset = found.iter().find(|it| it.name == mount.dataset);
            dataset.is_some_and(|it| it.value("canmount") == Some("noauto"))
        };
        let mounts = self.mounts.lock();
        let all = mounts.iter().filter(|mount| !is_named(mount));
        all.map(|mount| (mount.order, mount.dataset.clone())).collect()
    }

    /// Unmounts one that may have been unmounted by somebody else.
    pub(super) fn unmount_this(&self, dataset: &str, how: Unmount) -> Result<()> {
        let mounted = self.mounted().into_iter().find(|(name, _)| name == dataset);
        let Some((_, dir)) = mounted else { return Ok(()) };
        match self.unmount_one(dataset, how) {
            Unmounted::InUse => Err(in_use(dataset, &dir)),
            Unmounted::Now(_) | Unmounted::Before => Ok(()),
        }
    }

    fn unmount_one(&self, dataset: &str, how: Unmount) -> Unmounted {
        let mut mounts = self.mounts.lock();
        let Some(at) = mounts.iter().position(|mount| mount.dataset == dataset) else {
            return Unmounted::Before;
        };
        let mut mount = mounts.remove(at);
        if how.force {
            mount.mounted.unmount();
        } else if !mount.mounted.try_unmount() {
            mounts.insert(at, mount);
            return Unmounted::InUse;
        }
        drop(mounts);
        let Mount { dataset, dir, wish, live, mounted, beside, made, .. } = mount;
        drop((mounted, beside, live));
        if made && !how.keeps_folders {
            // it stays if something was put there meanwhile
            let _ = std::fs::remove_dir(dir);
        }
        Unmounted::Now(Gone { dataset, wish })
    }
}

/// Mounts all of several pools that is to be mounted, the outer ones first, as file systems of one pool
/// may lie within those of another. What could not be is told.
pub(super) fn mount_together(pools: &[Arc<Pool>], wish: &MountWish) -> Vec<String> {
    let (mut all, mut warnings) = (Vec::new(), Vec::new());
    for pool in pools {
        let _changing = pool.changing.lock();
        let chosen = |dataset: &Dataset| mounts_itself(dataset).then(|| wish.clone());
        match pool.places(pool.held.name(), None, &chosen) {
            Ok(places) => all.extend(places.into_iter().map(|place| (pool, place))),
            Err(why) => warnings.push(why.to_string()),
        }
    }
    all.sort_by(|one, other| one.1.dir.cmp(&other.1.dir));
    for (pool, place) in all {
        let _changing = pool.changing.lock();
        // somebody may have been quicker
        if !pool.is_mounted(&place.dataset.name) {
            warnings.extend(pool.mount_place(&place));
        }
    }
    warnings
}

/// Whether nothing is noted of who reads.
fn is_still(options: &LiveOptions) -> bool {
    options.read_only || options.no_atime
}

/// How to unmount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unmount {
    /// Whoever is in it gets errors.
    pub(super) force: bool,
    /// The folders that were made for it stay, as what is mounted there next may be read-only outside.
    pub(super) keeps_folders: bool,
}

/// What came of unmounting one.
enum Unmounted {
    Now(Gone),
    /// Somebody else did it.
    Before,
    InUse,
}

/// A mountpoint behind an altroot; none: it is no path.
pub(super) fn behind(altroot: Option<&Path>, point: &str) -> Option<PathBuf> {
    let inner = point.strip_prefix('/')?;
    Some(match altroot {
        // a path that begins with a slash would lead out of it
        Some(root) => root.join(inner.trim_start_matches('/')),
        None => PathBuf::from(point),
    })
}

/// Whether a file system is mounted without being asked for.
fn mounts_itself(dataset: &Dataset) -> bool {
    dataset.value("canmount") == Some("on")
}

/// Whether where it is mounted follows from its name: such folders go with it.
fn follows(dataset: &Dataset) -> bool {
    let point = dataset.properties.iter().find(|property| property.name == "mountpoint");
    point.is_some_and(|point| point.source == "default" || point.source.starts_with("inherited"))
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

fn in_use(dataset: &str, dir: &Path) -> Error {
    Error::refused(format!(
        "'{}' is in use: programs have files of '{dataset}' open there, or something else is \
         mounted in it; end them, or use -f",
        dir.display()
    ))
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    Time { seconds, nanoseconds: now.subsec_nanos() }
}
