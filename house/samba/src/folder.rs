//! The folders of an smbd.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The folders of an smbd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Files that outlast the system's next start. Only its owner may enter it.
    path: PathBuf,
    /// Files of running processes. Other users may pass through it: a process that became another user looks there
    /// whether the processes of other clients still run. If it could not, it would not see their share modes.
    run: PathBuf,
}

/// Only the owner may enter a folder.
const PRIVATE_MODE: u32 = 0o700;
/// Others may pass through a folder.
const PASSABLE_MODE: u32 = 0o711;

impl Folder {
    /// Opens the folders, and creates the missing parts.
    pub fn create(path: &Path, run: &Path) -> Result<Self> {
        let folder = Self { path: path.to_owned(), run: run.to_owned() };
        for dir in [folder.path.clone(), folder.private(), folder.state()] {
            create_dir(&dir, PRIVATE_MODE)?;
        }
        create_dir(&folder.run, PASSABLE_MODE)?;
        Ok(folder)
    }

    /// Refuses a folder of running processes that other users cannot reach.
    pub(crate) fn check_reachable(&self) -> Result<()> {
        for dir in self.run.ancestors() {
            let facts = fs::metadata(dir).map_err(|why| file_error(dir, &why))?;
            if facts.permissions().mode() & 0o001 == 0 {
                return Err(Error::Unreachable { path: dir.display().to_string() });
            }
        }
        Ok(())
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration.
    pub fn conf(&self) -> PathBuf {
        self.path.join("smb.conf")
    }

    /// The users with other names than their system users.
    pub(crate) fn users_map(&self) -> PathBuf {
        self.path.join("users.map")
    }

    pub(crate) fn private(&self) -> PathBuf {
        self.path.join("private")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    pub(crate) fn run(&self) -> &Path {
        &self.run
    }

    /// The log of smbd.
    pub fn log(&self) -> PathBuf {
        self.path.join("log.smbd")
    }

    /// The last lines of smbd's log with errors.
    pub(crate) fn log_tail(&self) -> String {
        const LINES: usize = 3;
        let bytes = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| is_message(line)).collect();
        match lines.get(lines.len().saturating_sub(LINES)..) {
            Some([]) | None => format!("its log, '{}', is empty", self.log().display()),
            Some(tail) => tail.join("; "),
        }
    }

    /// Replaces a file.
    pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
        let new = path.with_extension("new");
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let written = options.open(&new).and_then(|mut file| file.write_all(text.as_bytes()));
        let renamed = written.and_then(|()| fs::rename(&new, path));
        renamed.map_err(|why| file_error(path, &why))
    }
}

fn create_dir(dir: &Path, mode: u32) -> Result<()> {
    let created = fs::DirBuilder::new().recursive(true).mode(mode).create(dir);
    created.map_err(|why| file_error(dir, &why))
}

/// Whether a line of the log is a message, and not the place in the source or a copyright.
fn is_message(line: &str) -> bool {
    !line.is_empty()
        && !line.starts_with('[')
        && !line.starts_with("Copyright")
        && !line.contains(" started.")
}

pub(crate) fn file_error(path: &Path, why: &std::io::Error) -> Error {
    Error::File { path: path.display().to_string(), why: why.to_string() }
}
