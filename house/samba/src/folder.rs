//! The folder of an smbd.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The folder of an smbd. Only its owner may enter it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// Opens the folder, and creates what it lacks.
    pub fn create(path: &Path) -> Result<Self> {
        let folder = Self(path.to_owned());
        for dir in [path.to_owned(), folder.private(), folder.run()] {
            let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
            created.map_err(|why| file_error(&dir, &why))?;
        }
        Ok(folder)
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The configuration.
    pub fn conf(&self) -> PathBuf {
        self.0.join("smb.conf")
    }

    /// The users with other names than their system users.
    pub(crate) fn users_map(&self) -> PathBuf {
        self.0.join("users.map")
    }

    pub(crate) fn private(&self) -> PathBuf {
        self.0.join("private")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    /// The log of smbd.
    pub fn log(&self) -> PathBuf {
        self.0.join("log.smbd")
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
