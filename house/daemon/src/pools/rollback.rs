//! Rollback of a dataset to a snapshot. A mounted file system stays mounted, and programs keep their open files.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use api::{Event, RollbackDataset};
use engine::dataset::Dataset;
use engine::files::FileSystemReader;
use fuse::RollbackOutcome;

use super::datasets::list_subtree;
use super::destroy_plan::{DestroyScope, doomed_all};
use super::mounts::{UnmountOptions, is_within};
use super::{ManagedPool, Pools};
use crate::events::{ChangeOptions, head_of};
use crate::{Error, Result};

/// A rollback of a head to one of its snapshots. Newer snapshots and their clones are destroyed first.
struct RollbackPlan<'a> {
    head: &'a str,
    snapshot: &'a str,
    destroyed: Vec<String>,
    /// Programs with open files in file systems that must be unmounted get errors.
    force: bool,
}

impl Pools {
    /// Rolls a dataset back. Shares keep their clients, who keep their open files.
    pub(crate) fn rollback(&self, call: &RollbackDataset) -> Result<Vec<String>> {
        self.rollback_with(call, &[])
    }

    /// Rolls a dataset back after its shares were closed. Clients connect again by themselves.
    pub(crate) fn rollback_without_clients(&self, call: &RollbackDataset) -> Result<Vec<String>> {
        let snapshot = call.snapshot.clone();
        let dataset = head_of(&snapshot).to_owned();
        self.rollback_with(call, &[Event::DatasetRolledBack { dataset, snapshot }])
    }

    /// Rolls a dataset back. The services close it for the events `prepared`.
    fn rollback_with(&self, call: &RollbackDataset, prepared: &[Event]) -> Result<Vec<String>> {
        let snapshot = call.snapshot.as_str();
        let (newer, clones) = (call.destroy_newer, call.destroy_clones);
        let Some((head, _)) = snapshot.split_once('@') else {
            return Err(Error::usage_error(format!("'{snapshot}' is not a snapshot: FS@NAME")));
        };
        self.change_dataset(head, |pool| {
            let all = list_subtree(&pool.handle, pool.handle.name())?;
            let later = newer_than(&all, head, snapshot)?;
            if !later.is_empty() && !newer && !clones {
                return Err(Error::refused_error(format!(
                    "cannot rollback to '{snapshot}': more recent snapshots or bookmarks exist\nuse '-r' to \
                     force deletion of the following snapshots and bookmarks:\n{}",
                    later.join("\n")
                )));
            }
            let scope = DestroyScope { recursive: clones, clones, defer: false };
            let later: Vec<String> = later.into_iter().map(str::to_owned).collect();
            let destroyed = doomed_all(&all, &later, head, scope)?;
            // services close volumes and snapshots; the plan unmounts file systems itself
            let is_file_system = |name: &String| {
                all.iter().any(|dataset| dataset.name == *name && dataset.kind == "filesystem")
            };
            let others = destroyed.iter().filter(|name| !is_file_system(name));
            let closed = others.map(|name| Event::destroyed(name));
            let coming: Vec<Event> = closed.chain(prepared.iter().cloned()).collect();
            let force = call.force || !prepared.is_empty();
            self.events.prepare(&coming, &ChangeOptions { force, ..ChangeOptions::default() })?;
            let plan = RollbackPlan { head, snapshot, destroyed, force: call.force };
            let applied = pool.apply_rollback(&plan);
            let mut warnings = applied.inspect_err(|_| self.events.abandon(&coming))?;
            let mut events: Vec<_> =
                plan.destroyed.iter().map(|name| Event::destroyed(name)).collect();
            let (dataset, snapshot) = (head.to_owned(), snapshot.to_owned());
            events.push(Event::DatasetRolledBack { dataset, snapshot });
            warnings.extend(self.events.publish(&events, &ChangeOptions::default()));
            Ok(warnings)
        })
    }
}

/// The snapshots and bookmarks of a head that are newer than one of its snapshots.
fn newer_than<'a>(all: &'a [Dataset], head: &str, snapshot: &str) -> Result<Vec<&'a str>> {
    let txg = |dataset: &Dataset| {
        dataset.property_value("createtxg").and_then(|txg| txg.parse::<u64>().ok()).unwrap_or(0)
    };
    let Some(to) = all.iter().find(|dataset| dataset.name == snapshot) else {
        return Err(engine::Error::NoSuchDataset { name: snapshot.to_owned() }.into());
    };
    let marks = |dataset: &&Dataset| {
        let rest = dataset.name.strip_prefix(head);
        rest.is_some_and(|rest| rest.starts_with(['@', '#'])) && txg(dataset) > txg(to)
    };
    Ok(all.iter().filter(marks).map(|dataset| dataset.name.as_str()).collect())
}

impl ManagedPool {
    fn apply_rollback(&self, back: &RollbackPlan<'_>) -> Result<Vec<String>> {
        let within = self.saved_mounts(back.head);
        let homeless = self.mounts_without_dir(back)?;
        // nothing is destroyed if some of it is in use
        let ended: HashSet<&str> =
            back.destroyed.iter().chain(&homeless).map(String::as_str).collect();
        let goes = |name: &str| ended.contains(name);
        let mut gone = self.unmount_selected(&goes, back.unmount_options())?;
        gone.extend(within);
        let work = || -> Result<()> {
            if !back.destroyed.is_empty() {
                self.destroy_all(&back.destroyed)?;
            }
            Ok(self.handle.snapshots().rollback_to(back.snapshot)?)
        };
        let taken = match self.rollback_handle(back.head) {
            Some(beside) => beside.rollback(back.snapshot, work),
            None => RollbackOutcome::Done(self.filesystems.replace_content(back.head, work), None),
        };
        let (done, untold) = match taken {
            RollbackOutcome::Done(done, untold) => (done, untold),
            RollbackOutcome::NeedsUnmount(why) => (self.rollback_unmounted(back, &why, work), None),
        };
        // also if it failed: a clone may still exist
        let mut warnings = self.restore_mounts(&gone);
        warnings.extend(untold.map(|why| {
            format!("'{}' must be unmounted and mounted to be seen as it is: {why}", back.head)
        }));
        done.map(|()| warnings)
    }

    /// The mounts on directories of the head that the snapshot does not have, and the mounts within them.
    fn mounts_without_dir(&self, back: &RollbackPlan<'_>) -> Result<Vec<String>> {
        let mut mounted = self.mounted_filesystems();
        mounted.sort_by(|one, other| one.1.cmp(&other.1));
        let Some((_, top)) = mounted.iter().find(|(name, _)| name == back.head) else {
            return Ok(Vec::new());
        };
        let (now, then) = (
            self.handle.datasets().filesystem(back.head)?,
            self.handle.datasets().synced_reader(back.snapshot)?,
        );
        let folder = |files: &FileSystemReader, path: &Path| {
            let found = files.find(path.as_os_str().as_bytes()).ok().flatten();
            found.filter(|found| found.stat().is_directory()).map(|found| found.ino())
        };
        let (mut homeless, mut gone, mut stays) = (Vec::new(), Vec::new(), Vec::new());
        for (name, dir) in mounted.iter().filter(|(name, _)| name != back.head) {
            let Ok(path) = dir.strip_prefix(top) else { continue };
            let is_within = |others: &[&PathBuf]| others.iter().any(|it| dir.starts_with(it));
            if is_within(&stays) {
                continue;
            }
            let was = folder(now.reader(), path);
            if is_within(&gone) || was.is_none() || was != folder(&then, path) {
                homeless.push(name.clone());
                gone.push(dir);
            } else {
                stays.push(dir);
            }
        }
        Ok(homeless)
    }

    /// Rolls back a head whose mount cannot stay: it is unmounted with its children, and not mounted again.
    fn rollback_unmounted(
        &self,
        back: &RollbackPlan<'_>,
        why: &str,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let within =
            self.unmount_selected(&|name| is_within(name, back.head), back.unmount_options());
        within.map_err(|busy| Error::refused_error(format!("{busy} ({why})")))?;
        self.filesystems.replace_content(back.head, work)
    }
}

impl RollbackPlan<'_> {
    fn unmount_options(&self) -> UnmountOptions {
        UnmountOptions { force: self.force, keep_dirs: true }
    }
}
