//! Where copies go: a folder of this machine (a mounted share too), or of another one by ssh.
//!
//! All happens in one new folder there, which is removed at the end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use units::human_bytes;

use super::tree::Tree;
use crate::folder::scratch_path;
use crate::mount::Mount;
use crate::{Error, System};

/// The folder of a run, in the one that is made for all.
const RUN: &str = "copy";

/// Where copies go.
#[derive(Debug)]
pub(super) enum Place {
    /// A folder.
    Here(Here),
    /// A folder of another machine.
    There(There),
}

/// A folder of this machine.
#[derive(Debug)]
pub(super) struct Here {
    name: String,
    scratch: PathBuf,
    mount: Mount,
    /// Whether the folder was made, and is ours to remove.
    made: AtomicBool,
}

/// A folder of another machine.
#[derive(Debug)]
pub(super) struct There {
    name: String,
    pub(super) host: String,
    scratch: String,
    /// Whether the folder was made, and is ours to remove.
    made: AtomicBool,
}

/// Options with which ssh asks nobody anything.
pub(super) const SSH: [&str; 4] = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=5"];

impl Place {
    /// Finds it: `HOST:PATH` is on another machine.
    pub(super) fn find(
        text: &str,
        source: &Path,
        tree: &Tree,
        system: &System,
    ) -> Result<Self, Error> {
        match text.split_once(':') {
            Some((host, path)) if !host.contains('/') => There::find(text, host, path),
            _ => Here::find(text, source, tree, system).map(Self::Here),
        }
    }

    /// As it was given.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Here(here) => &here.name,
            Self::There(there) => &there.name,
        }
    }

    /// Its name with the file system it is on.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Here(here) if !here.mount.kind.is_empty() => {
                format!("{} ({})", here.name, here.mount.kind)
            }
            other => other.name().to_owned(),
        }
    }

    /// What is mounted there.
    pub(super) fn mount(&self) -> Option<&Mount> {
        match self {
            Self::Here(here) => Some(&here.mount),
            Self::There(_) => None,
        }
    }

    /// The folder that is made for all runs.
    pub(super) fn scratch(&self) -> String {
        match self {
            Self::Here(here) => here.scratch.display().to_string(),
            Self::There(there) => format!("{}:{}", there.host, there.scratch),
        }
    }

    /// Makes the folder for all runs.
    pub(super) fn make(&self) -> Result<(), Error> {
        match self {
            Self::Here(here) => {
                fs::create_dir(&here.scratch).map_err(Error::file(&here.scratch, "made"))?;
                here.made.store(true, Relaxed);
            }
            Self::There(there) => {
                there.run(&format!("mkdir {}", there.scratch))?;
                there.made.store(true, Relaxed);
            }
        }
        Ok(())
    }

    /// Makes the folder of a run, and waits until nothing is left to be written.
    pub(super) fn fresh(&self) -> Result<(), Error> {
        match self {
            Self::Here(here) => {
                let target = here.target();
                fs::create_dir(&target).map_err(Error::file(&target, "made"))?;
            }
            Self::There(there) => {
                there.run(&format!("mkdir {}", there.target()))?;
            }
        }
        self.settle()
    }

    /// Waits until all is safe.
    pub(super) fn settle(&self) -> Result<(), Error> {
        match self {
            Self::Here(here) => {
                let synced =
                    File::open(&here.scratch).and_then(|folder| Ok(rustix::fs::syncfs(&folder)?));
                synced.map_err(Error::file(&here.scratch, "synced"))
            }
            Self::There(there) => there.run(&format!("sync -f {}", there.scratch)).map(drop),
        }
    }

    /// What has arrived in the folder of a run.
    pub(super) fn arrived(&self, whole: bool) -> Result<Tree, Error> {
        match self {
            Self::Here(here) => Tree::arrived(&here.target(), whole),
            Self::There(there) => {
                let told =
                    there.run(&format!("find {} -type f -printf '%s\\n'", there.target()))?;
                let sizes: Vec<u64> = told.lines().filter_map(|line| line.parse().ok()).collect();
                Ok(Tree::counted(sizes.len() as u64, sizes.iter().sum()))
            }
        }
    }

    /// Removes the folder of a run.
    pub(super) fn clear(&self) -> Result<(), Error> {
        match self {
            Self::Here(here) => {
                let target = here.target();
                remove(&target).map_err(Error::file(&target, "removed"))
            }
            Self::There(there) => there.run(&format!("rm -rf {}", there.target())).map(drop),
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if self.made.load(Relaxed) {
            // nobody is left to be told; the next measurement here names what is left over
            let _ = remove(&self.scratch);
        }
    }
}

impl Drop for There {
    fn drop(&mut self) {
        if self.made.load(Relaxed) {
            let _ = self.run(&format!("rm -rf {}", self.scratch));
        }
    }
}

/// How often, and after how long, it is tried again to remove what a program that was ended may
/// still have been writing to.
const TRIES: u32 = 20;
const AGAIN: Duration = Duration::from_millis(100);

fn remove(folder: &Path) -> std::io::Result<()> {
    for _ in 1..TRIES {
        if fs::remove_dir_all(folder).is_ok() {
            return Ok(());
        }
        std::thread::sleep(AGAIN);
    }
    fs::remove_dir_all(folder)
}

impl Here {
    fn find(text: &str, source: &Path, tree: &Tree, system: &System) -> Result<Self, Error> {
        let folder = Path::new(text);
        let full = folder.canonicalize().map_err(Error::file(folder, "used"))?;
        let source_full = source.canonicalize().map_err(Error::file(source, "used"))?;
        if !full.is_dir() {
            return Err(Error::asked(format!("'{text}' is no folder")));
        }
        if full.starts_with(&source_full) {
            let what = format!("'{text}' lies in what is to be copied");
            return Err(Error::asked(what));
        }
        let facts = rustix::fs::statvfs(&full)
            .map_err(|error| Error::file(folder, "asked for its free space")(error.into()))?;
        let free = facts.f_bavail.saturating_mul(facts.f_frsize);
        if free < tree.bytes {
            let (free, wanted) = (human_bytes(free), human_bytes(tree.bytes));
            return Err(Error::Room { subject: format!("'{text}'"), free, wanted });
        }
        let mount = Mount::of(system, folder).unwrap_or_default();
        let (name, scratch) = (text.to_owned(), scratch_path(&full));
        Ok(Self { name, scratch, mount, made: AtomicBool::new(false) })
    }

    /// The folder of a run.
    pub(super) fn target(&self) -> PathBuf {
        self.scratch.join(RUN)
    }
}

impl There {
    /// A host and a path that a shell takes for nothing else.
    fn find(text: &str, host: &str, path: &str) -> Result<Place, Error> {
        let is_plain = |text: &str, more: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
            !text.is_empty() && !text.starts_with('-') && text.chars().all(fits)
        };
        if !is_plain(host, "@.-_") || !is_plain(path, "/.-_") {
            return Err(Error::asked(format!(
                "'{text}' is no HOST:PATH of letters, digits and / . - _ alone"
            )));
        }
        let scratch = scratch_path(Path::new(path)).display().to_string();
        let (name, host) = (text.to_owned(), host.to_owned());
        Ok(Place::There(Self { name, host, scratch, made: AtomicBool::new(false) }))
    }

    /// The folder of a run.
    pub(super) fn target(&self) -> String {
        format!("{}/{RUN}", self.scratch)
    }

    /// Runs words there.
    fn run(&self, words: &str) -> Result<String, Error> {
        let failed = |why: String| Error::Program { program: format!("ssh {}", self.host), why };
        let output = Command::new("ssh")
            .args(SSH)
            .args([&self.host, words])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Tree};
    use crate::System;

    #[test]
    fn a_destination_is_a_folder_or_on_another_machine() {
        let root = fixtures::scratch("lab-places");
        let source = root.join("source");
        std::fs::create_dir_all(source.join("in")).unwrap();
        let find = |text: &str, bytes: u64| {
            Place::find(text, &source, &Tree::counted(1, bytes), &System::default())
        };
        let here = root.to_str().unwrap();
        assert!(matches!(find(here, 10), Ok(Place::Here(_))));
        assert!(find(here, u64::MAX).unwrap_err().to_string().contains("free, and"));
        for inside in [source.join("in"), source.clone()] {
            assert!(find(inside.to_str().unwrap(), 10).is_err(), "it would copy itself");
        }
        assert!(find("/nonexistent", 10).is_err());
        for wrong in ["nas:/a b", "nas:$(x)", "-oX:/a", "nas:"] {
            assert!(find(wrong, 10).is_err(), "{wrong}");
        }
    }
}
