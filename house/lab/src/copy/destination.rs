//! Where copies go: a folder of this machine (a mounted share too), or of another one by ssh.
//!
//! All happens in one new folder there, which is removed at the end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use units::human_bytes;

use super::tree::FileTree;
use crate::mount::Mount;
use crate::scratch_dir::scratch_path;
use crate::{Error, System};

/// The folder of a run, in the one that is made for all.
const RUN_DIR: &str = "copy";

/// Where copies go.
#[derive(Debug)]
pub(super) enum Destination {
    /// A folder.
    Local(LocalDestination),
    /// A folder of another machine.
    Remote(RemoteDestination),
}

/// A folder of this machine.
#[derive(Debug)]
pub(super) struct LocalDestination {
    name: String,
    scratch: PathBuf,
    mount: Mount,
    /// Whether the folder was made, and is ours to remove.
    is_created: AtomicBool,
}

/// A folder of another machine.
#[derive(Debug)]
pub(super) struct RemoteDestination {
    name: String,
    pub(super) host: String,
    scratch: String,
    /// Whether the folder was made, and is ours to remove.
    is_created: AtomicBool,
}

/// Options that keep ssh from prompting.
pub(super) const SSH_OPTIONS: [&str; 4] = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=5"];

impl Destination {
    /// Finds it: `HOST:PATH` is on another machine.
    pub(super) fn parse(
        text: &str,
        source: &Path,
        tree: &FileTree,
        system: &System,
    ) -> Result<Self, Error> {
        match text.split_once(':') {
            Some((host, path)) if !host.contains('/') => RemoteDestination::parse(text, host, path),
            _ => LocalDestination::parse(text, source, tree, system).map(Self::Local),
        }
    }

    /// As it was given.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Local(here) => &here.name,
            Self::Remote(there) => &there.name,
        }
    }

    /// Its name with the file system it is on.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Local(here) if !here.mount.kind.is_empty() => {
                format!("{} ({})", here.name, here.mount.kind)
            }
            other => other.name().to_owned(),
        }
    }

    /// The mount at the folder.
    pub(super) fn mount(&self) -> Option<&Mount> {
        match self {
            Self::Local(here) => Some(&here.mount),
            Self::Remote(_) => None,
        }
    }

    /// The folder that is made for all runs.
    pub(super) fn scratch_path(&self) -> String {
        match self {
            Self::Local(here) => here.scratch.display().to_string(),
            Self::Remote(there) => format!("{}:{}", there.host, there.scratch),
        }
    }

    /// Makes the folder for all runs.
    pub(super) fn create_scratch_dir(&self) -> Result<(), Error> {
        match self {
            Self::Local(here) => {
                fs::create_dir(&here.scratch).map_err(Error::io(&here.scratch, "made"))?;
                here.is_created.store(true, Relaxed);
            }
            Self::Remote(there) => {
                there.run_command(&format!("mkdir {}", there.scratch))?;
                there.is_created.store(true, Relaxed);
            }
        }
        Ok(())
    }

    /// Makes the folder of a run, and waits until nothing is left to be written.
    pub(super) fn create_run_dir(&self) -> Result<(), Error> {
        match self {
            Self::Local(here) => {
                let target = here.run_dir();
                fs::create_dir(&target).map_err(Error::io(&target, "made"))?;
            }
            Self::Remote(there) => {
                there.run_command(&format!("mkdir {}", there.run_dir()))?;
            }
        }
        self.sync()
    }

    /// Waits until all is safe.
    pub(super) fn sync(&self) -> Result<(), Error> {
        match self {
            Self::Local(here) => {
                let synced =
                    File::open(&here.scratch).and_then(|folder| Ok(rustix::fs::syncfs(&folder)?));
                synced.map_err(Error::io(&here.scratch, "synced"))
            }
            Self::Remote(there) => {
                there.run_command(&format!("sync -f {}", there.scratch)).map(drop)
            }
        }
    }

    /// The copied files in the folder of a run.
    pub(super) fn copied_tree(&self, whole: bool) -> Result<FileTree, Error> {
        match self {
            Self::Local(here) => FileTree::scan_copy(&here.run_dir(), whole),
            Self::Remote(there) => {
                let told = there
                    .run_command(&format!("find {} -type f -printf '%s\\n'", there.run_dir()))?;
                let sizes: Vec<u64> = told.lines().filter_map(|line| line.parse().ok()).collect();
                Ok(FileTree::from_totals(sizes.len() as u64, sizes.iter().sum()))
            }
        }
    }

    /// Removes the folder of a run.
    pub(super) fn remove_run_dir(&self) -> Result<(), Error> {
        match self {
            Self::Local(here) => {
                let target = here.run_dir();
                remove_dir_with_retries(&target).map_err(Error::io(&target, "removed"))
            }
            Self::Remote(there) => {
                there.run_command(&format!("rm -rf {}", there.run_dir())).map(drop)
            }
        }
    }
}

impl Drop for LocalDestination {
    fn drop(&mut self) {
        if self.is_created.load(Relaxed) {
            // no caller is left for the error; the next measurement here names the leftover files
            let _ = remove_dir_with_retries(&self.scratch);
        }
    }
}

impl Drop for RemoteDestination {
    fn drop(&mut self) {
        if self.is_created.load(Relaxed) {
            let _ = self.run_command(&format!("rm -rf {}", self.scratch));
        }
    }
}

/// The number and interval of attempts to remove files that a killed program may still be
/// writing.
const REMOVE_TRIES: u32 = 20;
const REMOVE_RETRY_DELAY: Duration = Duration::from_millis(100);

fn remove_dir_with_retries(folder: &Path) -> std::io::Result<()> {
    for _ in 1..REMOVE_TRIES {
        if fs::remove_dir_all(folder).is_ok() {
            return Ok(());
        }
        std::thread::sleep(REMOVE_RETRY_DELAY);
    }
    fs::remove_dir_all(folder)
}

impl LocalDestination {
    fn parse(text: &str, source: &Path, tree: &FileTree, system: &System) -> Result<Self, Error> {
        let folder = Path::new(text);
        let full = folder.canonicalize().map_err(Error::io(folder, "used"))?;
        let source_full = source.canonicalize().map_err(Error::io(source, "used"))?;
        if !full.is_dir() {
            return Err(Error::invalid_request(format!("'{text}' is not a folder")));
        }
        if full.starts_with(&source_full) {
            let what = format!("'{text}' is inside the tree to copy");
            return Err(Error::invalid_request(what));
        }
        let facts = rustix::fs::statvfs(&full)
            .map_err(|error| Error::io(folder, "examined for free space")(error.into()))?;
        let free = facts.f_bavail.saturating_mul(facts.f_frsize);
        if free < tree.bytes {
            let (free, wanted) = (human_bytes(free), human_bytes(tree.bytes));
            return Err(Error::NoSpace {
                subject: format!("'{text}'"),
                available: free,
                needed: wanted,
            });
        }
        let mount = Mount::find(system, folder).unwrap_or_default();
        let (name, scratch) = (text.to_owned(), scratch_path(&full));
        Ok(Self { name, scratch, mount, is_created: AtomicBool::new(false) })
    }

    /// The folder of a run.
    pub(super) fn run_dir(&self) -> PathBuf {
        self.scratch.join(RUN_DIR)
    }
}

impl RemoteDestination {
    /// A host and a path that a shell takes for nothing else.
    fn parse(text: &str, host: &str, path: &str) -> Result<Destination, Error> {
        let is_plain = |text: &str, more: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
            !text.is_empty() && !text.starts_with('-') && text.chars().all(fits)
        };
        if !is_plain(host, "@.-_") || !is_plain(path, "/.-_") {
            return Err(Error::invalid_request(format!(
                "'{text}' is not a HOST:PATH of letters, digits and / . - _ alone"
            )));
        }
        let scratch = scratch_path(Path::new(path)).display().to_string();
        let (name, host) = (text.to_owned(), host.to_owned());
        Ok(Destination::Remote(Self { name, host, scratch, is_created: AtomicBool::new(false) }))
    }

    /// The folder of a run.
    pub(super) fn run_dir(&self) -> String {
        format!("{}/{RUN_DIR}", self.scratch)
    }

    /// Runs words there.
    fn run_command(&self, words: &str) -> Result<String, Error> {
        let failed = |why: String| Error::Program { program: format!("ssh {}", self.host), why };
        let output = Command::new("ssh")
            .args(SSH_OPTIONS)
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
    use super::{Destination, FileTree};
    use crate::System;

    #[test]
    fn destination_is_local_dir_or_host_path() {
        let root = fixtures::scratch_dir("lab-places");
        let source = root.join("source");
        std::fs::create_dir_all(source.join("in")).unwrap();
        let find = |text: &str, bytes: u64| {
            Destination::parse(text, &source, &FileTree::from_totals(1, bytes), &System::default())
        };
        let here = root.to_str().unwrap();
        assert!(matches!(find(here, 10), Ok(Destination::Local(_))));
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
