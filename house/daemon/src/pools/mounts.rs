//! The mounts of a pool's file systems.
//!
//! Each file system is mounted by itself at its `mountpoint`, the outer ones first. One with open
//! files cannot be unmounted, unless by force: then programs get errors.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{Event, MountOverrides};
use engine::KeyState;
use engine::dataset::{self, Dataset, Effects, properties_with};
use fuse::{MountHandle, MountOptions, MountTable, RollbackHandle};
use parking_lot::MutexGuard;
use posix::{Credentials, SetAttributes};
use vfs::{Context, FileSystem as _};

use super::ManagedPool;
use super::filesystems::Door;
use super::options::{
    Overrides, can_overlay, is_automounted, is_mountpoint_inherited, mount_options, property_value,
};
use crate::{Error, Result};

/// A mounted file system.
pub(super) struct ActiveMount {
    dataset: String,
    dir: PathBuf,
    options: MountOptions,
    overrides: MountOverrides,
    handle: MountHandle,
    rollback_handle: RollbackHandle,
    /// Closed after the mount has ended.
    door: Door,
    /// The directory was created for this mount, perhaps by an earlier one, and is removed with it.
    created_dir: bool,
    /// Grows from mount to mount: a later one may cover an earlier one.
    sequence: u64,
}

/// A file system that was mounted, and its options.
#[derive(Clone, Debug)]
pub(super) struct SavedMount {
    pub(super) dataset: String,
    pub(super) overrides: MountOverrides,
}

/// A file system to mount: its directory and options.
struct PlannedMount {
    dir: PathBuf,
    dataset: Dataset,
    overrides: MountOverrides,
}

/// The number of mounts so far.
static MOUNT_SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// Whether a dataset is `target` or below it.
pub(crate) fn is_within(dataset: &str, target: &str) -> bool {
    dataset.strip_prefix(target).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl ManagedPool {
    /// The mounted file systems and their directories. One that umount(8) unmounted is not among them.
    pub(crate) fn mounted_filesystems(&self) -> Vec<(String, PathBuf)> {
        let mounts = self.lock_mounts();
        mounts.iter().map(|mount| (mount.dataset.clone(), mount.dir.clone())).collect()
    }

    /// Forgets mounts that umount(8) ended. The share service follows the event.
    pub(super) fn forget_ended_mounts(&self) {
        drop(self.lock_mounts());
    }

    fn lock_mounts(&self) -> MutexGuard<'_, Vec<ActiveMount>> {
        let (mut mounts, table) = (self.mounts.lock(), MountTable::current());
        let ended = mounts.extract_if(.., |mount| !mount.handle.is_mounted(&table));
        let event = |mount: ActiveMount| Event::Unmounted {
            dataset: mount.dataset.clone(),
            directory: mount.dir.clone(),
        };
        let events: Vec<_> = ended.map(event).collect();
        if !events.is_empty() {
            self.events.record(&events);
        }
        mounts
    }

    /// Mounts that a rename left in place belong to the datasets of the new names.
    pub(super) fn rename_mounts(&self, from: &str, to: &str) {
        for mount in self.mounts.lock().iter_mut() {
            if is_within(&mount.dataset, from) {
                mount.dataset = mount.dataset.replacen(from, to, 1);
            }
        }
    }

    /// Whether a file system is mounted.
    pub(super) fn is_mounted(&self, name: &str) -> bool {
        self.mounted_filesystems().iter().any(|(dataset, _)| dataset == name)
    }

    /// The rollback handle of a mounted file system.
    pub(super) fn rollback_handle(&self, name: &str) -> Option<RollbackHandle> {
        let mounts = self.lock_mounts();
        mounts.iter().find(|mount| mount.dataset == name).map(|mount| mount.rollback_handle.clone())
    }

    /// The mounts of a file system and its children.
    pub(super) fn saved_mounts(&self, target: &str) -> Vec<SavedMount> {
        let mounts = self.lock_mounts();
        let within = mounts.iter().filter(|mount| is_within(&mount.dataset, target));
        let gone = |mount: &ActiveMount| SavedMount {
            dataset: mount.dataset.clone(),
            overrides: mount.overrides.clone(),
        };
        within.map(gone).collect()
    }

    /// Fills in the properties of datasets that depend on mounts: `mounted`, options that hold for the present
    /// mount, and `mountpoint` with the altroot.
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

    /// A mountpoint below the altroot; nothing if it is not a path.
    pub(super) fn with_altroot(&self, point: &str) -> Option<PathBuf> {
        join_altroot(self.altroot.as_deref(), point)
    }

    /// Mounts `target` and all file systems with canmount=on below it. Returns a sentence for each failure.
    pub(super) fn mount_subtree_with(&self, target: &str, wish: &MountOverrides) -> Vec<String> {
        self.mount_selected(target, &|dataset| is_automounted(dataset).then(|| wish.clone()))
    }

    /// Mounts new file systems that have canmount=on.
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

    /// Mounts the file systems at and below `target` for which `chosen` returns options, the outer ones first.
    pub(super) fn mount_selected(
        &self,
        target: &str,
        chosen: &dyn Fn(&Dataset) -> Option<MountOverrides>,
    ) -> Vec<String> {
        match self.plan_mounts(target, None, chosen) {
            Ok(places) => self.mount_places(places),
            Err(why) => vec![why.to_string()],
        }
    }

    /// Mounts file systems on their directories, the outer ones first.
    fn mount_places(&self, mut places: Vec<PlannedMount>) -> Vec<String> {
        places.sort_by(|one, other| one.dir.cmp(&other.dir));
        places.iter().filter_map(|place| self.mount_planned(place)).collect()
    }

    /// Plans the mounts of file systems at and, down to `depth`, below `target` that are not mounted and for
    /// which `chosen` returns options. A file system that was received in part is not mounted.
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
            let wish = chosen(&dataset)?;
            // one that mount(8) mounted is mounted there again
            let dir = wish.directory.clone().or_else(|| self.mountpoint_dir(&dataset))?;
            let is_whole =
                !matches!(self.handle.datasets().incomplete_kind(&dataset.name), Ok(Some(_)));
            is_whole.then_some(PlannedMount { dir, dataset, overrides: wish })
        });
        Ok(wanted.collect())
    }

    /// Mounts a file system. Returns why it could not, in zfs(8)'s words.
    fn mount_planned(&self, place: &PlannedMount) -> Option<String> {
        let why = self.mount_at(&place.dir, &place.dataset, &place.overrides).err()?;
        Some(format!("cannot mount '{}': {why}", place.dataset.name))
    }

    /// The mount options of a file system. Those of a pool that is imported read-only are read-only.
    fn mount_options(&self, dataset: &Dataset, wish: &MountOverrides) -> MountOptions {
        let options = mount_options(dataset, wish);
        MountOptions { read_only: options.read_only || self.handle.is_read_only(), ..options }
    }

    /// Changes the options of a mounted file system.
    pub(super) fn remount(&self, name: &str, more: &MountOverrides) -> Result<()> {
        if !self.is_mounted(name) {
            return Err(Error::refused_error(format!("'{name}' is not mounted")));
        }
        let failed = self.apply_overrides(&self.list_filesystems(name, Some(0))?, &|wish, _| {
            wish.merged_with(more)
        });
        if failed.is_empty() { Ok(()) } else { Err(Error::refused_error(failed.join("\n"))) }
    }

    /// Changes the overrides of mounted file systems, and the options that follow from them. Returns a sentence
    /// for each failure.
    pub(super) fn apply_overrides(
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
            // the kernel only shows noatime; the file system itself obeys it
            let only_shown = MountOptions { no_atime: options.no_atime, ..mount.options.clone() };
            if mount.handle.set_options(&options) || only_shown == options {
                mount.door.filesystem().set_noatime(is_noatime(&options));
                mount.options = options;
            } else {
                stale.push(mount.dataset.clone());
            }
        }
        if stale.is_empty() {
            return Vec::new();
        }
        // a user who may not change a mount unmounts it and mounts it again
        let how = UnmountOptions { force: false, keep_dirs: true };
        match self.unmount_selected(&|dataset| stale.iter().any(|it| it == dataset), how) {
            Ok(gone) => self.restore_mounts(&gone),
            Err(why) => {
                vec![format!(
                    "the mounted file systems keep their options until they are unmounted: {why}"
                )]
            }
        }
    }

    /// Mounts one file system on request.
    pub(super) fn mount_filesystem(&self, name: &str, wish: &MountOverrides) -> Result<()> {
        if self.is_mounted(name) {
            return Err(Error::refused_error(format!("'{name}' is mounted already")));
        }
        let found = self.list_filesystems(name, Some(0))?;
        let Some(dataset) = found.first() else {
            return Err(Error::refused_error(format!("'{name}' is not a file system")));
        };
        if dataset.property_value("canmount") == Some("off") {
            return Err(Error::refused_error(format!("'{name}' has canmount=off")));
        }
        if let Some(dir) = &wish.directory {
            check_legacy(dataset, wish)?;
            return self.mount_at(dir, dataset, wish);
        }
        let Some(dir) = self.mountpoint_dir(dataset) else {
            let at = dataset.property_value("mountpoint").unwrap_or("none");
            return Err(Error::refused_error(format!(
                "'{name}' has mountpoint={at}, or is locked: it has no directory to be mounted on"
            )));
        };
        self.mount_at(&dir, dataset, wish)
    }

    pub(super) fn list_filesystems(
        &self,
        target: &str,
        depth: Option<usize>,
    ) -> Result<Vec<Dataset>> {
        let wanted = dataset::DatasetQuery {
            kinds: vec!["filesystem".to_owned()],
            depth,
            properties: properties_with(Effects::MOUNT).map(str::to_owned).collect(),
        };
        let mut found = Vec::new();
        self.handle.datasets().list(
            target,
            &wanted,
            &mut |dataset| found.push(dataset),
            &mut |_| (),
        )?;
        Ok(found)
    }

    /// The directory of a file system; nothing if it has none or its key is not loaded.
    pub(super) fn mountpoint_dir(&self, dataset: &Dataset) -> Option<PathBuf> {
        let point =
            dataset.property_value("mountpoint").filter(|_| dataset.key != KeyState::Locked)?;
        self.with_altroot(point)
    }

    /// Gives the root directory of a new file system to the user that the daemon runs as.
    pub(super) fn chown_root(&self, name: &str) -> Result<()> {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        if user.is_root() {
            return Ok(());
        }
        let (uid, gid) = (Some(user.as_raw()), Some(group.as_raw()));
        self.set_root_attributes(name, &SetAttributes { uid, gid, ..SetAttributes::default() })
    }

    /// Sets attributes of the root directory of a file system.
    pub(crate) fn set_root_attributes(&self, name: &str, set: &SetAttributes) -> Result<()> {
        let said = |why: vfs::Error| Error::refused_error(format!("'{name}': {why}"));
        let door = self.filesystems.open_door(name, "the daemon")?;
        let (context, fs) = (Context::new(&Credentials::ROOT, door.id()), door.filesystem());
        fs.set_attributes(&context, fs.root_ino(), set).map(drop).map_err(said)
    }

    fn mount_at(&self, dir: &Path, dataset: &Dataset, wish: &MountOverrides) -> Result<()> {
        if self.stop.load(Ordering::Acquire) {
            return Err(Error::refused_error("the pool is being exported"));
        }
        let (options, wish) = (self.mount_options(dataset, wish), wish.clone());
        fuse::unmount_dead(dir);
        let is_new = !dir.exists();
        let is_free = is_new || is_empty_dir(dir);
        let made = is_new || is_free && is_mountpoint_inherited(dataset);
        let said = |why: String| Error::refused_error(why);
        if !is_free && !can_overlay(dataset, &wish) {
            return Err(said(format!(
                "'{}' is not empty, and overlay=off: `zfs mount -O` mounts over its content",
                dir.display()
            )));
        }
        let door = self.filesystems.open_door(&dataset.name, "the mount")?;
        door.filesystem().set_noatime(is_noatime(&options));
        let mounted = fuse::mount_filesystem(door.filesystem(), door.id(), dir, &options);
        let (mounted, beside) = mounted.map_err(|why| match why {
            fuse::Error::DirectoryAccess { .. } if self.handle.is_read_only() => said(format!(
                "{why}: the folder is not there, and cannot be made in a pool that is imported \
                 read-only; `poolhouse rescue mount` shows all file systems in one"
            )),
            why => said(why.to_string()),
        })?;
        let (dataset, dir) = (dataset.name.clone(), dir.to_owned());
        self.events.record(&[Event::Mounted { dataset: dataset.clone(), directory: dir.clone() }]);
        let order = MOUNT_SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let mount = ActiveMount {
            dataset,
            dir,
            options,
            overrides: wish,
            handle: mounted,
            rollback_handle: beside,
            door,
            created_dir: made,
            sequence: order,
        };
        self.mounts.lock().push(mount);
        Ok(())
    }

    /// Unmounts the chosen file systems, the last mounted first, and returns their options. If one is in use,
    /// and without force, all stay mounted.
    pub(super) fn unmount_selected(
        &self,
        chosen: &dyn Fn(&str) -> bool,
        how: UnmountOptions,
    ) -> Result<Vec<SavedMount>> {
        let mut wanted = self.mounted_filesystems();
        wanted.retain(|(dataset, _)| chosen(dataset));
        // the inner ones before the outer, unless a later outer mount covers them
        wanted.reverse();
        let mut done: Vec<SavedMount> = Vec::new();
        let mut dirs = Vec::new();
        for (dataset, dir) in wanted {
            match self.try_unmount(&dataset, how) {
                UnmountResult::Unmounted(gone, created_dir) => {
                    done.push(gone);
                    dirs.extend(created_dir);
                }
                UnmountResult::AlreadyUnmounted => (),
                UnmountResult::Busy => {
                    let _ = self.restore_mounts(&done);
                    return Err(busy_error(&dataset, &dir));
                }
            }
        }
        // as with OpenZFS, directories in file systems that are unmounted, too, stay: a later import may be read-only
        remove_dirs(dirs);
        Ok(done)
    }

    /// The mounted file systems without those with canmount=noauto, which are unmounted only by name; with
    /// their sequence numbers.
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

    /// Unmounts a file system. It is not an error if umount(8) did so already.
    pub(super) fn unmount_dataset(&self, dataset: &str, how: UnmountOptions) -> Result<()> {
        let mounted = self.mounted_filesystems().into_iter().find(|(name, _)| name == dataset);
        let Some((_, dir)) = mounted else { return Ok(()) };
        match self.try_unmount(dataset, how) {
            UnmountResult::Busy => Err(busy_error(dataset, &dir)),
            UnmountResult::Unmounted(_, created_dir) => {
                remove_dirs(created_dir);
                Ok(())
            }
            UnmountResult::AlreadyUnmounted => Ok(()),
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
            handle: mounted,
            rollback_handle: beside,
            door,
            created_dir: made,
            ..
        } = mount;
        // the server of the mount has files of the door open
        drop((mounted, beside));
        drop(door);
        self.events
            .record(&[Event::Unmounted { dataset: dataset.clone(), directory: dir.clone() }]);
        let created_dir = Some(dir).filter(|_| made && !how.keep_dirs);
        UnmountResult::Unmounted(SavedMount { dataset, overrides: wish }, created_dir)
    }
}

/// Mounts the file systems with canmount=on of several pools, the outer ones first: those of one pool may lie
/// within those of another. Returns a sentence for each failure.
pub(crate) fn mount_all_pools(pools: &[Arc<ManagedPool>], wish: &MountOverrides) -> Vec<String> {
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
        // another command may have mounted it
        if !pool.is_mounted(&place.dataset.name) {
            warnings.extend(pool.mount_planned(&place));
        }
    }
    warnings
}

/// Removes directories that were created for mounts.
fn remove_dirs(dirs: impl IntoIterator<Item = PathBuf>) {
    for dir in dirs {
        // this fails if a program put something there
        let _ = std::fs::remove_dir(dir);
    }
}

/// Whether reading does not update the access time.
fn is_noatime(options: &MountOptions) -> bool {
    options.read_only || options.no_atime
}

/// The way to unmount.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnmountOptions {
    /// Programs that have files open get errors.
    pub(super) force: bool,
    /// Keep directories that were created for the mount: the outer file system may be read-only next time.
    pub(super) keep_dirs: bool,
}

/// The result of unmounting a file system.
enum UnmountResult {
    /// With the directory to remove, if one was created for the mount.
    Unmounted(SavedMount, Option<PathBuf>),
    /// umount(8) did it.
    AlreadyUnmounted,
    Busy,
}

/// A mountpoint below an altroot; nothing if it is not a path.
pub(super) fn join_altroot(altroot: Option<&Path>, point: &str) -> Option<PathBuf> {
    let inner = point.strip_prefix('/')?;
    Some(match altroot {
        // a path that begins with a slash would lead out of it
        Some(root) => root.join(inner.trim_start_matches('/')),
        None => PathBuf::from(point),
    })
}

/// Refuses to mount a file system by mount(8) whose mountpoint zfs(8) manages, in OpenZFS's words.
fn check_legacy(dataset: &Dataset, wish: &MountOverrides) -> Result<()> {
    let is_legacy = dataset.property_value("mountpoint") == Some("legacy");
    if is_legacy || wish.options.iter().any(|word| word == "zfsutil") {
        return Ok(());
    }
    let name = &dataset.name;
    Err(Error::refused_error(format!(
        "filesystem '{name}' cannot be mounted using 'mount'.\nUse 'zfs set mountpoint=legacy {name}' or \
         'zfs mount {name}'."
    )))
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
