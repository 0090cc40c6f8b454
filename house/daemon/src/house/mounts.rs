//! Where the file systems of a pool are mounted.
//!
//! Each is mounted by itself at its `mountpoint`, the outer ones first. What a program has open
//! cannot be unmounted, unless by force: then it gets errors.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::KeyState;
use engine::dataset::{Dataset, Wanted};
use engine::files::Time;
use engine::held::Set;
use fuse::{LiveOptions, Mounted};
use vfs::By;

use super::Pool;
use crate::{Error, Result};

/// A file system that is mounted.
pub(super) struct Mount {
    dataset: String,
    dir: PathBuf,
    mounted: Mounted,
    /// The folder was made for it, perhaps by an earlier mount, and goes with it.
    made: bool,
    /// Those with higher numbers were mounted later, perhaps over it.
    order: u64,
}

/// How many were mounted.
static MOUNTED: AtomicU64 = AtomicU64::new(0);

/// What decides where and how a file system is mounted.
const PROPERTIES: [&str; 6] = ["mountpoint", "canmount", "readonly", "exec", "setuid", "devices"];

/// Whether a property decides where and how file systems are mounted.
pub(super) fn decides(property: &str) -> bool {
    PROPERTIES.contains(&property)
}

/// Whether a dataset is `target` or below it.
pub(super) fn is_within(dataset: &str, target: &str) -> bool {
    dataset.strip_prefix(target).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Pool {
    /// What is mounted: datasets and folders. What somebody else unmounted is not any more.
    pub(super) fn mounted(&self) -> Vec<(String, PathBuf)> {
        let mut mounts = self.mounts.lock();
        mounts.retain_mut(|mount| mount.mounted.wait(Duration::ZERO).is_none());
        mounts.iter().map(|mount| (mount.dataset.clone(), mount.dir.clone())).collect()
    }

    /// Says of datasets of this pool whether they are mounted, and where they are with the altroot.
    pub(super) fn tell_mounts(&self, datasets: &mut [Dataset]) {
        let mounted = self.mounted();
        for dataset in datasets {
            for fact in &mut dataset.properties {
                match fact.name.as_str() {
                    "mounted" if mounted.iter().any(|(name, _)| *name == dataset.name) => {
                        "yes".clone_into(&mut fact.value);
                    }
                    "mountpoint" => {
                        if let Some(dir) = self.behind_root(&fact.value) {
                            fact.value = dir.display().to_string();
                        }
                    }
                    _ => (),
                }
            }
        }
    }

    /// A mountpoint behind the altroot; none: it is no path.
    fn behind_root(&self, point: &str) -> Option<PathBuf> {
        let inner = point.strip_prefix('/')?;
        Some(match &self.altroot {
            Some(root) => root.join(inner),
            None => PathBuf::from(point),
        })
    }

    /// Mounts `target` and all below it that are to be mounted. What could not be is told.
    pub(super) fn mount_below(&self, target: &str) -> Vec<String> {
        self.mount_chosen(target, &|_| true)
    }

    /// Mounts those file systems at and below `target` that are chosen, the outer ones first.
    pub(super) fn mount_chosen(&self, target: &str, chosen: &dyn Fn(&str) -> bool) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut found = match self.filesystems(target, None) {
            Ok(found) => found,
            Err(why) => return vec![why.to_string()],
        };
        found.retain(|it| it.value("canmount") == Some("on") && chosen(&it.name));
        let mut places: Vec<(PathBuf, Dataset)> =
            found.into_iter().filter_map(|it| Some((self.folder(&it)?, it))).collect();
        places.sort_by(|one, other| one.0.cmp(&other.0));
        let here = self.mounted();
        places.retain(|(_, it)| !here.iter().any(|(name, _)| *name == it.name));
        for (dir, dataset) in places {
            if let Err(why) = self.mount_at(&dir, &dataset) {
                warnings.push(format!("'{}' is not mounted: {why}", dataset.name));
            }
        }
        warnings
    }

    /// Mounts one file system because somebody asks for it.
    pub(super) fn mount_one(&self, name: &str) -> Result<()> {
        if self.mounted().iter().any(|(dataset, _)| dataset == name) {
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
        self.mount_at(&dir, dataset)
    }

    fn filesystems(&self, target: &str, depth: Option<usize>) -> Result<Vec<Dataset>> {
        let wanted = Wanted {
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
        let live = vfs::Live::open(&self.held, name, now).map_err(said)?;
        let set = Set { uid: Some(user.as_raw()), gid: Some(group.as_raw()), ..Set::default() };
        let root = By { uid: 0, gid: 0, keeps_setid: true };
        live.set(root, live.root(), &set).map(drop).map_err(said)
    }

    fn mount_at(&self, dir: &Path, dataset: &Dataset) -> Result<()> {
        let is = |name: &str, word: &str| dataset.value(name) == Some(word);
        let options = LiveOptions {
            allow_other: may_allow_others(),
            read_only: is("readonly", "on"),
            no_exec: is("exec", "off"),
            no_setuid: is("setuid", "off"),
            no_devices: is("devices", "off"),
            without_rings: false,
        };
        fuse::take_away_dead(dir);
        let made = !dir.exists() || follows(dataset) && is_empty(dir);
        let said = |why: String| Error::refused(why);
        let live = vfs::Live::open(&self.held, &dataset.name, now);
        let live = live.map_err(|why| said(why.to_string()))?;
        let mounted =
            fuse::mount_live(&live, dir, &options).map_err(|why| said(why.to_string()))?;
        let (dataset, dir) = (dataset.name.clone(), dir.to_owned());
        let order = MOUNTED.fetch_add(1, Ordering::Relaxed);
        self.mounts.lock().push(Mount { dataset, dir, mounted, made, order });
        Ok(())
    }

    /// Unmounts those that are chosen, what was mounted last first, and gives their names. If a
    /// program is in one, and no force is used, all stay as they were.
    pub(super) fn unmount(
        &self,
        chosen: &dyn Fn(&str) -> bool,
        force: bool,
    ) -> Result<Vec<String>> {
        let mut wanted = self.mounted();
        wanted.retain(|(dataset, _)| chosen(dataset));
        // the inner ones before the outer, but for what was hidden by an outer one later
        wanted.reverse();
        let mut done: Vec<String> = Vec::new();
        for (dataset, dir) in wanted {
            if self.unmount_one(&dataset, force) {
                done.push(dataset);
                continue;
            }
            let again = |name: &str| done.iter().any(|done| done == name);
            let _ = self.mount_chosen(self.held.name(), &again);
            return Err(in_use(&dataset, &dir));
        }
        Ok(done)
    }

    /// What is mounted, with numbers that tell in which order.
    pub(super) fn in_order(&self) -> Vec<(u64, String)> {
        let mounts = self.mounts.lock();
        mounts.iter().map(|mount| (mount.order, mount.dataset.clone())).collect()
    }

    /// Unmounts one that may have been unmounted by somebody else.
    pub(super) fn unmount_this(&self, dataset: &str, force: bool) -> Result<()> {
        let mounted = self.mounted().into_iter().find(|(name, _)| name == dataset);
        match mounted {
            Some((_, dir)) if !self.unmount_one(dataset, force) => Err(in_use(dataset, &dir)),
            _ => Ok(()),
        }
    }

    fn unmount_one(&self, dataset: &str, force: bool) -> bool {
        let mut mounts = self.mounts.lock();
        let Some(at) = mounts.iter().position(|mount| mount.dataset == dataset) else {
            return true;
        };
        let mut mount = mounts.remove(at);
        if force {
            mount.mounted.unmount();
        } else if !mount.mounted.try_unmount() {
            mounts.insert(at, mount);
            return false;
        }
        drop(mounts);
        let Mount { dir, mounted, made, .. } = mount;
        drop(mounted);
        if made {
            // it stays if something was put there meanwhile
            let _ = std::fs::remove_dir(dir);
        }
        true
    }
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

/// Whether other users may see what is mounted.
fn may_allow_others() -> bool {
    let allowed = || std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    rustix::process::geteuid().is_root()
        || allowed().lines().any(|line| line.trim() == "user_allow_other")
}
