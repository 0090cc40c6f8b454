//! Taking datasets back to a snapshot: what is mounted stays so, with all that programs are in.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use engine::dataset::Dataset;
use engine::files::Files;
use fuse::TakenBack;

use super::datasets::list;
use super::doomed::{Doom, doomed_all};
use super::mounts::{Unmount, is_within};
use super::{House, Pool};
use crate::{Answer, Error, Result};

/// A head, the snapshot of it that it is to be, and what is destroyed before that, as it is newer.
struct Back<'a> {
    head: &'a str,
    snapshot: &'a str,
    newer: Vec<String>,
    /// Programs that are in what must be unmounted get errors.
    force: bool,
}

impl House {
    pub(super) fn rollback(
        &self,
        snapshot: &str,
        newer: bool,
        clones: bool,
        force: bool,
    ) -> Result<Answer> {
        let Some((head, _)) = snapshot.split_once('@') else {
            return Err(Error::usage(format!("'{snapshot}' is no snapshot: FS@NAME")));
        };
        self.in_pool(head, |pool| {
            let all = list(&pool.held, pool.held.name())?;
            let later = later(&all, head, snapshot)?;
            if !later.is_empty() && !newer && !clones {
                return Err(Error::refused(format!(
                    "'{snapshot}' is not the newest of its file system: use -r to destroy {}",
                    later.join(", ")
                )));
            }
            let doom = Doom { recursive: clones, clones, later: false };
            let later: Vec<String> = later.into_iter().map(str::to_owned).collect();
            let newer = doomed_all(&all, &later, head, doom)?;
            pool.take_back(&Back { head, snapshot, newer, force })
        })
    }
}

/// The snapshots and bookmarks of a head that are newer than one of its snapshots.
fn later<'a>(all: &'a [Dataset], head: &str, snapshot: &str) -> Result<Vec<&'a str>> {
    let txg = |dataset: &Dataset| {
        dataset.value("createtxg").and_then(|txg| txg.parse::<u64>().ok()).unwrap_or(0)
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

impl Pool {
    fn take_back(&self, back: &Back<'_>) -> Result<Vec<String>> {
        let within = self.wishes(back.head);
        let homeless = self.homeless(back)?;
        // nothing is destroyed if something of that is in use
        let ended: HashSet<&str> = back.newer.iter().chain(&homeless).map(String::as_str).collect();
        let goes = |name: &str| ended.contains(name);
        let mut gone = self.unmount(&goes, back.how())?;
        gone.extend(within);
        let work = || -> Result<()> {
            if !back.newer.is_empty() {
                self.destroy_all(&back.newer)?;
            }
            Ok(self.held.rollback(back.head)?)
        };
        let taken = match self.beside(back.head) {
            Some(beside) => beside.take_back(back.snapshot, work),
            None => TakenBack::Done(work(), None),
        };
        let (done, untold) = match taken {
            TakenBack::Done(done, untold) => (done, untold),
            TakenBack::NotMounted(why) => (self.take_back_unmounted(back, &why, work), None),
        };
        // whatever came of it: a clone may be there still
        let mut warnings = self.mount_again(&gone);
        warnings.extend(untold.map(|why| {
            format!("'{}' must be unmounted and mounted to be seen as it is: {why}", back.head)
        }));
        done.map(|()| warnings)
    }

    /// What is mounted on folders of the head that the snapshot does not have, and what is within that.
    fn homeless(&self, back: &Back<'_>) -> Result<Vec<String>> {
        let mut mounted = self.mounted();
        mounted.sort_by(|one, other| one.1.cmp(&other.1));
        let Some((_, top)) = mounted.iter().find(|(name, _)| name == back.head) else {
            return Ok(Vec::new());
        };
        let (now, then) = (self.held.files(back.head)?, self.held.still_files(back.snapshot)?);
        let folder = |files: &Files, path: &Path| {
            let found = files.find(path.as_os_str().as_bytes()).ok().flatten();
            found.filter(|found| found.facts().is_directory()).map(|found| found.id())
        };
        let (mut homeless, mut gone, mut stays) = (Vec::new(), Vec::new(), Vec::new());
        for (name, dir) in mounted.iter().filter(|(name, _)| name != back.head) {
            let Ok(path) = dir.strip_prefix(top) else { continue };
            let is_within = |others: &[&PathBuf]| others.iter().any(|it| dir.starts_with(it));
            if is_within(&stays) {
                continue;
            }
            let was = folder(now.files(), path);
            if is_within(&gone) || was.is_none() || was != folder(&then, path) {
                homeless.push(name.clone());
                gone.push(dir);
            } else {
                stays.push(dir);
            }
        }
        Ok(homeless)
    }

    /// What cannot stay mounted meanwhile is unmounted, with all below it, until somebody mounts it again.
    fn take_back_unmounted(
        &self,
        back: &Back<'_>,
        why: &str,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let within = self.unmount(&|name| is_within(name, back.head), back.how());
        within.map_err(|busy| Error::refused(format!("{busy} ({why})")))?;
        work()
    }
}

impl Back<'_> {
    fn how(&self) -> Unmount {
        Unmount { force: self.force, keeps_folders: true }
    }
}
