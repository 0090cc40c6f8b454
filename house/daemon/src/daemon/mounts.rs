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
use fuse::{MountHandle, MountOptions, MountTable, RollbackHandle};
use parking_lot::MutexGuard;
use posix::{Credentials, SetAttributes};
use vfs::{Context, DoorId, FileSystem as _, PoolFileSystem};

use super::ManagedPool;
use super::options::{
    can_overlay, is_automounted, is_mountpoint_inherited, mount_options, property_value,
};
use crate::{Error, MountOverrides, Result};

/// A file system that is mounted.
pub(super) struct ActiveMount {
    dataset: String,
    dir: PathBuf,
    options: MountOptions,
    overrides: MountOverrides,
    fs: PoolFileSystem,
    handle: MountHandle,
    rollback_handle: RollbackHandle,
    /// The folder was made for it, perhaps by an earlier mount, and goes with it.
    created_dir: bool,
    /// Those with higher numbers were mounted later, perhaps over it.
    sequence: u64,
}

/// One that was mounted, and how.
#[derive(Clone, Debug)]
pub(super) struct SavedMount {
    pub(super) dataset: String,
    overrides: MountOverrides,
}

/// One that is to be mounted: where, and how.
struct PlannedMount {
    dir: PathBuf,
    dataset: Dataset,
    overrides: MountOverrides,
}

/// How many were mounted.
static MOUNT_SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// What decides where and how a file system is mounted.
const MOUNT_PROPERTIES: [&str; 8] =
    ["mountpoint", "canmount", "overlay", "readonly", "exec", "setuid", "devices", "atime"];

/// What a change of a dataset does to what is mounted, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MountEffect {
    /// Nothing.
    None,
    /// Something else may be done in it.
    Reconfigure,
    /// It is unmounted meanwhile; what was mounted is afterwards, if it may be.
    Remount,
    /// The same, and what was not mounted is as well, as somebody says where it belongs.
    RemountAll,
}

/// A change of a dataset, as far as mounts are concerned.
#[derive(Clone, Debug)]
pub(super) struct MountChange<'a> {
    pub(super) effect: MountEffect,
    /// These get other values.
    pub(super) properties: Vec<&'a str>,
    /// Whoever is in what is unmounted gets errors.
    pub(super) force: bool,
}

impl MountChange<'_> {
    /// Whether `dataset`, which is `target` or below it, follows `target` in a property that is
    /// changed.
    fn affects(&self, target: &str, dataset: &Dataset, property: &str) -> bool {
        let of = |it: &&Property| it.name == property;
        let has_its_own =
            || dataset.properties.iter().find(of).is_some_and(|it| it.source == "local");
        self.properties.contains(&property) && (dataset.name == target || !has_its_own())
    }
}

/// What it does to mounts that a property gets a value; none: that it has one no more.
pub(super) fn mount_effect(property: &str, value: Option<&str>) -> MountEffect {
    match (property, value) {
        ("mountpoint", _) => MountEffect::RemountAll,
        ("canmount", Some("off")) => MountEffect::Remount,
        ("readonly" | "exec" | "setuid" | "devices" | "atime", _) => MountEffect::Reconfigure,
        _ => MountEffect::None,
    }
}

/// Whether a dataset is `target` or below it.
pub(super) fn is_within(dataset: &str, target: &str) -> bool {
    dataset.strip_prefix(target).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl ManagedPool {
    /// What is mounted: datasets and folders. What somebody else unmounted is not any more.
    pub(super) fn mounted_filesystems(&self) -> Vec<(String, PathBuf)> {
        let mounts = self.lock_mounts();
        mounts.iter().map(|mount| (mount.dataset.clone(), mount.dir.clone())).collect()
    }

    fn lock_mounts(&self) -> MutexGuard<'_, Vec<ActiveMount>> {
        let (mut mounts, table) = (self.mounts.lock(), MountTable::current());
        mounts.retain_mut(|mount| mount.handle.is_mounted(&table));
        mounts
    }

    /// Whether a file system is mounted.
    pub(super) fn is_mounted(&self, name: &str) -> bool {
        self.mounted_filesystems().iter().any(|(dataset, _)| dataset == name)
    }

    /// The way to a file system that is mounted; none: it is not.
    pub(super) fn rollback_handle(&self, name: &str) -> Option<RollbackHandle> {
        let mounts = self.lock_mounts();
        mounts.iter().find(|mount| mount.dataset == name).map(|mount| mount.rollback_handle.clone())
    }

    /// How what is mounted of a file system and those below it is.
    pub(super) fn saved_mounts(&self, target: &str) -> Vec<SavedMount> {
        let mounts = self.lock_mounts();
        let within = mounts.iter().filter(|mount| is_within(&mount.dataset, target));
        let gone = |mount: &ActiveMount| SavedMount {
            dataset: mount.dataset.clone(),
            overrides: mount.overrides.clone(),
        };
        within.map(gone).collect()
    }

    /// Says of datasets of this pool whether they are mounted, and how, and where they are with the
    /// altroot.
    pub(super) fn fill_mount_properties(&self, datasets: &mut [Dataset]) {
        let mounts = self.lock_mounts();
        for dataset in datasets {
            let mount = mounts.iter().find(|mount| mount.dataset == dataset.name);
            for fact in &mut dataset.properties {
                match fact.name.as_str() {
                    "mounted" if mount.is_some() => "yes".clone_into(&mut fact.value),
                    "mountpoint" => {
                        if let Some(dir) = self.with_altroot(&fact.value) {
                            fact.value = dir.display().to_string();
                        }
                    }
                    _ => {
                        let now =
                            mount.and_then(|mount| property_value(&fact.name, &mount.options));
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
    fn with_altroot(&self, point: &str) -> Option<PathBuf> {
        join_altroot(self.altroot.as_deref(), point)
    }

    /// Mounts `target` and all below it that are to be mounted. What could not be is told.
    pub(super) fn mount_subtree(&self, target: &str) -> Vec<String> {
        self.mount_subtree_with(target, &MountOverrides::default())
    }

    /// The same, as somebody wishes.
    pub(super) fn mount_subtree_with(&self, target: &str, wish: &MountOverrides) -> Vec<String> {
        self.mount_selected(target, &|dataset| is_automounted(dataset).then(|| wish.clone()))
    }

    /// Mounts what is new, if it is to be.
    pub(super) fn mount_created(&self, names: &[String]) -> Vec<String> {
        let chosen = |dataset: &Dataset| is_automounted(dataset).then(MountOverrides::default);
        let mut places = Vec::new();
        for name in names {
            match self.plan_mounts(name, Some(0), &chosen) {
                Ok(found) => places.extend(found),
                Err(why) => return vec![why.to_string()],
            }
        }
        self.mount_places(places)
    }

    /// Mounts again what was mounted before, by itself or because somebody asked for it, as it was and
    /// if it may still be.
    pub(super) fn restore_mounts(&self, gone: &[SavedMount]) -> Vec<String> {
        if gone.is_empty() {
            return Vec::new();
        }
        let none =
            MountChange { effect: MountEffect::Remount, properties: Vec::new(), force: false };
        self.restore_changed_mounts(gone, self.handle.name(), &none)
    }

    /// The same, after `target` and what is below it changed.
    pub(super) fn restore_changed_mounts(
        &self,
        gone: &[SavedMount],
        target: &str,
        change: &MountChange<'_>,
    ) -> Vec<String> {
        self.mount_selected(self.handle.name(), &|dataset| {
            let was = gone.iter().find(|gone| gone.dataset == dataset.name);
            let wish = was.map(|gone| {
                gone.overrides.without_changed(|it| change.affects(target, dataset, it))
            });
            let anew = change.effect == MountEffect::RemountAll && is_within(&dataset.name, target);
            match dataset.property_value("canmount") {
                Some("off") => None,
                Some("on") if anew => Some(wish.unwrap_or_default()),
                _ => wish,
            }
        })
    }

    /// Mounts those file systems at and below `target` for which there is a wish, the outer ones first.
    fn mount_selected(
        &self,
        target: &str,
        chosen: &dyn Fn(&Dataset) -> Option<MountOverrides>,
    ) -> Vec<String> {
        match self.plan_mounts(target, None, chosen) {
            Ok(places) => self.mount_places(places),
            Err(why) => vec![why.to_string()],
        }
    }

    /// Mounts file systems on their folders, the outer ones first.
    fn mount_places(&self, mut places: Vec<PlannedMount>) -> Vec<String> {
        places.sort_by(|one, other| one.dir.cmp(&other.dir));
        places.iter().filter_map(|place| self.mount_planned(place)).collect()
    }

    /// Where those file systems at and, as deep as `depth` says, below `target` belong for which there is
    /// a wish, and which are not mounted. What is there in part only belongs nowhere.
    fn plan_mounts(
        &self,
        target: &str,
        depth: Option<usize>,
        chosen: &dyn Fn(&Dataset) -> Option<MountOverrides>,
    ) -> Result<Vec<PlannedMount>> {
        let here: HashSet<String> =
            self.mounted_filesystems().into_iter().map(|(name, _)| name).collect();
        let found = self.list_filesystems(target, depth)?.into_iter();
        let found = found.filter(|it| !here.contains(&it.name));
        let wanted = found.filter_map(|dataset| {
            let (wish, dir) = (chosen(&dataset)?, self.mountpoint_dir(&dataset)?);
            let is_whole = !matches!(self.handle.incomplete_kind(&dataset.name), Ok(Some(_)));
            is_whole.then_some(PlannedMount { dir, dataset, overrides: wish })
        });
        Ok(wanted.collect())
    }

    /// Mounts a file system; gives why it could not, in zfs(8)'s words.
    fn mount_planned(&self, place: &PlannedMount) -> Option<String> {
        let why = self.mount_at(&place.dir, &place.dataset, &place.overrides).err()?;
        Some(format!("cannot mount '{}': {why}", place.dataset.name))
    }

    /// Has what is mounted at and below `target` follow its properties after a change, even while it is
    /// in use. What could not be done is told.
    pub(super) fn refresh_mounts(&self, target: &str, change: &MountChange<'_>) -> Vec<String> {
        let found = match self.list_filesystems(target, None) {
            Ok(found) => found,
            Err(why) => return vec![why.to_string()],
        };
        self.apply_overrides(&found, &|wish, dataset| {
            wish.without_changed(|property| change.affects(target, dataset, property))
        })
    }

    /// How a file system is to be mounted: of a pool that is looked at only nothing is changed.
    fn mount_options(&self, dataset: &Dataset, wish: &MountOverrides) -> MountOptions {
        let options = mount_options(dataset, wish);
        MountOptions { read_only: options.read_only || self.handle.is_read_only(), ..options }
    }

    /// Has one that is mounted be mounted otherwise.
    pub(super) fn remount(&self, name: &str, more: &MountOverrides) -> Result<()> {
        if !self.is_mounted(name) {
            return Err(Error::refused_error(format!("'{name}' is not mounted")));
        }
        let failed = self.apply_overrides(&self.list_filesystems(name, Some(0))?, &|wish, _| {
            wish.merged_with(more)
        });
        if failed.is_empty() { Ok(()) } else { Err(Error::refused_error(failed.join("\n"))) }
    }

    /// Gives what is mounted of some file systems the wishes that it is to have, and the options that
    /// follow. What could not be done is told.
    fn apply_overrides(
        &self,
        found: &[Dataset],
        wished: &dyn Fn(&MountOverrides, &Dataset) -> MountOverrides,
    ) -> Vec<String> {
        let mut stale = Vec::new();
        for mount in self.mounts.lock().iter_mut() {
            let Some(dataset) = found.iter().find(|it| it.name == mount.dataset) else { continue };
            mount.overrides = wished(&mount.overrides, dataset);
            let options = self.mount_options(dataset, &mount.overrides);
            if options == mount.options {
                continue;
            }
            // that reading is not noted the kernel only shows
            let only_shown = MountOptions { no_atime: options.no_atime, ..mount.options.clone() };
            if mount.handle.set_options(&options) || only_shown == options {
                mount.fs.set_read_only(is_noatime(&options));
                mount.options = options;
            } else {
                stale.push(mount.dataset.clone());
            }
        }
        if stale.is_empty() {
            return Vec::new();
        }
        // who may not change what is mounted mounts it once more
        let how = UnmountOptions { force: false, keep_dirs: true };
        match self.unmount_selected(&|dataset| stale.iter().any(|it| it == dataset), how) {
            Ok(gone) => self.restore_mounts(&gone),
            Err(why) => {
                vec![format!("what is mounted stays as it was until it is unmounted: {why}")]
            }
        }
    }

    /// Mounts one file system because somebody asks for it.
    pub(super) fn mount_filesystem(&self, name: &str, wish: &MountOverrides) -> Result<()> {
        if self.is_mounted(name) {
            return Err(Error::refused_error(format!("'{name}' is mounted already")));
        }
        let found = self.list_filesystems(name, Some(0))?;
        let Some(dataset) = found.first() else {
            return Err(Error::refused_error(format!("'{name}' is no file system")));
        };
        if dataset.property_value("canmount") == Some("off") {
            return Err(Error::refused_error(format!("'{name}' has canmount=off")));
        }
        let Some(dir) = self.mountpoint_dir(dataset) else {
            let at = dataset.property_value("mountpoint").unwrap_or("none");
            return Err(Error::refused_error(format!(
                "'{name}' has mountpoint={at}, or is locked: it has no folder to be mounted on"
            )));
        };
        self.mount_at(&dir, dataset, wish)
    }

    fn list_filesystems(&self, target: &str, depth: Option<usize>) -> Result<Vec<Dataset>> {
        let wanted = dataset::DatasetQuery {
            kinds: vec!["filesystem".to_owned()],
            depth,
            properties: MOUNT_PROPERTIES.map(str::to_owned).to_vec(),
        };
        let mut found = Vec::new();
        self.handle.list_datasets(
            target,
            &wanted,
            &mut |dataset| found.push(dataset),
            &mut |_| (),
        )?;
        Ok(found)
    }

    /// Where a file system belongs; none: nowhere.
    fn mountpoint_dir(&self, dataset: &Dataset) -> Option<PathBuf> {
        let point =
            dataset.property_value("mountpoint").filter(|_| dataset.key != KeyState::Locked)?;
        self.with_altroot(point)
    }

    /// A new file system belongs to whoever makes it, which is who runs the daemon.
    pub(super) fn chown_root(&self, name: &str) -> Result<()> {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        if user.is_root() {
            return Ok(());
        }
        let said = |why: vfs::Error| Error::refused_error(format!("'{name}': {why}"));
        let live = PoolFileSystem::open(&self.handle, name, current_time).map_err(said)?;
        let set = SetAttributes {
            uid: Some(user.as_raw()),
            gid: Some(group.as_raw()),
            ..SetAttributes::default()
        };
        let context = Context::new(&Credentials::ROOT, DoorId::DAEMON);
        live.set_attributes(&context, live.root_ino(), &set).map(drop).map_err(said)
    }

    fn mount_at(&self, dir: &Path, dataset: &Dataset, wish: &MountOverrides) -> Result<()> {
        if self.stop.load(Ordering::Acquire) {
            return Err(Error::refused_error("the pool is being left"));
        }
        let (options, wish) = (self.mount_options(dataset, wish), wish.clone());
        fuse::unmount_dead(dir);
        let is_new = !dir.exists();
        let is_free = is_new || is_empty_dir(dir);
        let made = is_new || is_free && is_mountpoint_inherited(dataset);
        let said = |why: String| Error::refused_error(why);
        if !is_free && !can_overlay(dataset, &wish) {
            return Err(said(format!(
                "'{}' is not empty, and overlay=off: `zfs mount -O` covers what is there",
                dir.display()
            )));
        }
        let live = PoolFileSystem::open(&self.handle, &dataset.name, current_time);
        let live = live.map_err(|why| said(why.to_string()))?;
        live.set_read_only(is_noatime(&options));
        let mounted = fuse::mount_filesystem(&live, dir, &options);
        let (mounted, beside) = mounted.map_err(|why| match why {
            fuse::Error::DirectoryAccess { .. } if self.handle.is_read_only() => said(format!(
                "{why}: the folder is not there, and cannot be made in a pool that is imported \
                 read-only; `poolhouse rescue mount` shows all file systems in one"
            )),
            why => said(why.to_string()),
        })?;
        let (dataset, dir) = (dataset.name.clone(), dir.to_owned());
        let order = MOUNT_SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let mount = ActiveMount {
            dataset,
            dir,
            options,
            overrides: wish,
            fs: live,
            handle: mounted,
            rollback_handle: beside,
            created_dir: made,
            sequence: order,
        };
        self.mounts.lock().push(mount);
        Ok(())
    }

    /// Unmounts those that are chosen, what was mounted last first, and tells how they were mounted.
    /// If a program is in one, and no force is used, all stay as they were.
    pub(super) fn unmount_selected(
        &self,
        chosen: &dyn Fn(&str) -> bool,
        how: UnmountOptions,
    ) -> Result<Vec<SavedMount>> {
        let mut wanted = self.mounted_filesystems();
        wanted.retain(|(dataset, _)| chosen(dataset));
        // the inner ones before the outer, but for what was hidden by an outer one later
        wanted.reverse();
        let mut done: Vec<SavedMount> = Vec::new();
        for (dataset, dir) in wanted {
            match self.try_unmount(&dataset, how) {
                UnmountResult::Unmounted(gone) => done.push(gone),
                UnmountResult::AlreadyUnmounted => (),
                UnmountResult::Busy => {
                    let _ = self.restore_mounts(&done);
                    return Err(busy_error(&dataset, &dir));
                }
            }
        }
        Ok(done)
    }

    /// What is mounted, but for what is so, and is unmounted, only if somebody names it; with numbers
    /// that tell in which order.
    pub(super) fn mount_order(&self) -> Vec<(u64, String)> {
        let found = self.list_filesystems(self.handle.name(), None).unwrap_or_default();
        let is_named = |mount: &&ActiveMount| {
            let dataset = found.iter().find(|it| it.name == mount.dataset);
            dataset.is_some_and(|it| it.property_value("canmount") == Some("noauto"))
        };
        let mounts = self.mounts.lock();
        let all = mounts.iter().filter(|mount| !is_named(mount));
        all.map(|mount| (mount.sequence, mount.dataset.clone())).collect()
    }

    /// Unmounts one that may have been unmounted by somebody else.
    pub(super) fn unmount_dataset(&self, dataset: &str, how: UnmountOptions) -> Result<()> {
        let mounted = self.mounted_filesystems().into_iter().find(|(name, _)| name == dataset);
        let Some((_, dir)) = mounted else { return Ok(()) };
        match self.try_unmount(dataset, how) {
            UnmountResult::Busy => Err(busy_error(dataset, &dir)),
            UnmountResult::Unmounted(_) | UnmountResult::AlreadyUnmounted => Ok(()),
        }
    }

    fn try_unmount(&self, dataset: &str, how: UnmountOptions) -> UnmountResult {
        let mut mounts = self.mounts.lock();
        let Some(at) = mounts.iter().position(|mount| mount.dataset == dataset) else {
            return UnmountResult::AlreadyUnmounted;
        };
        let mut mount = mounts.remove(at);
        if how.force {
            mount.handle.unmount();
        } else if !mount.handle.try_unmount() {
            mounts.insert(at, mount);
            return UnmountResult::Busy;
        }
        drop(mounts);
        let ActiveMount {
            dataset,
            dir,
            overrides: wish,
            fs: live,
            handle: mounted,
            rollback_handle: beside,
            created_dir: made,
            ..
        } = mount;
        drop((mounted, beside, live));
        if made && !how.keep_dirs {
            // it stays if something was put there meanwhile
            let _ = std::fs::remove_dir(dir);
        }
        UnmountResult::Unmounted(SavedMount { dataset, overrides: wish })
    }
}

/// Mounts all of several pools that is to be mounted, the outer ones first, as file systems of one pool
/// may lie within those of another. What could not be is told.
pub(super) fn mount_all_pools(pools: &[Arc<ManagedPool>], wish: &MountOverrides) -> Vec<String> {
    let (mut all, mut warnings) = (Vec::new(), Vec::new());
    for pool in pools {
        let _changing = pool.dataset_lock.lock();
        let chosen = |dataset: &Dataset| is_automounted(dataset).then(|| wish.clone());
        match pool.plan_mounts(pool.handle.name(), None, &chosen) {
            Ok(places) => all.extend(places.into_iter().map(|place| (pool, place))),
            Err(why) => warnings.push(why.to_string()),
        }
    }
    all.sort_by(|one, other| one.1.dir.cmp(&other.1.dir));
    for (pool, place) in all {
        let _changing = pool.dataset_lock.lock();
        // somebody may have been quicker
        if !pool.is_mounted(&place.dataset.name) {
            warnings.extend(pool.mount_planned(&place));
        }
    }
    warnings
}

/// Whether nothing is noted of who reads.
fn is_noatime(options: &MountOptions) -> bool {
    options.read_only || options.no_atime
}

/// How to unmount.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnmountOptions {
    /// Whoever is in it gets errors.
    pub(super) force: bool,
    /// The folders that were made for it stay, as what is mounted there next may be read-only outside.
    pub(super) keep_dirs: bool,
}

/// What came of unmounting one.
enum UnmountResult {
    Unmounted(SavedMount),
    /// Somebody else did it.
    AlreadyUnmounted,
    Busy,
}

/// A mountpoint behind an altroot; none: it is no path.
pub(super) fn join_altroot(altroot: Option<&Path>, point: &str) -> Option<PathBuf> {
    let inner = point.strip_prefix('/')?;
    Some(match altroot {
        // a path that begins with a slash would lead out of it
        Some(root) => root.join(inner.trim_start_matches('/')),
        None => PathBuf::from(point),
    })
}

fn is_empty_dir(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

fn busy_error(dataset: &str, dir: &Path) -> Error {
    Error::refused_error(format!(
        "'{}' is in use: programs have files of '{dataset}' open there, or something else is \
         mounted in it; end them, or use -f",
        dir.display()
    ))
}

fn current_time() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    Time { seconds, nanoseconds: now.subsec_nanos() }
}
