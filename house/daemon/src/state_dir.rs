//! Where a daemon has its socket, its memory and its log.

use std::env;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Where a daemon has its socket, its memory and its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    /// The folder of what lasts as long as the daemon runs.
    runtime_dir: PathBuf,
    /// The folder of what outlasts it.
    persistent_dir: PathBuf,
    /// Whether it is one that was named, and not the usual one.
    is_named: bool,
}

/// A socket's path has so many bytes at most, with the zero that ends it.
const MAX_SOCKET_PATH: usize = 108;

impl StateDir {
    /// All in one folder.
    pub fn from_dir(folder: &Path) -> Result<Self> {
        let folder = std::path::absolute(folder).map_err(|why| Error::file_error(folder, &why))?;
        Self { runtime_dir: folder.clone(), persistent_dir: folder, is_named: true }
            .check_socket_path()
    }

    /// In the folder that is given, or that POOLHOUSE_STATE names, or where the conventions of the
    /// system have such things.
    pub fn resolve(folder: Option<&Path>) -> Result<Self> {
        if let Some(folder) = folder {
            return Self::from_dir(folder);
        }
        match env_path("POOLHOUSE_STATE") {
            Some(folder) => Self::from_dir(&folder),
            None => Self::default_dirs()?.check_socket_path(),
        }
    }

    fn default_dirs() -> Result<Self> {
        if rustix::process::geteuid().is_root() {
            let (run, keep) = ("/run/poolhouse".into(), "/var/lib/poolhouse".into());
            return Ok(Self { runtime_dir: run, persistent_dir: keep, is_named: false });
        }
        let home = || env_path("HOME").map(|home| home.join(".local/state"));
        let keep = env_path("XDG_STATE_HOME").or_else(home).ok_or_else(|| {
            Error::usage_error(
                "there is neither XDG_STATE_HOME nor HOME: name a folder with --state",
            )
        })?;
        let keep = keep.join("poolhouse");
        let run =
            env_path("XDG_RUNTIME_DIR").map_or_else(|| keep.clone(), |dir| dir.join("poolhouse"));
        Ok(Self { runtime_dir: run, persistent_dir: keep, is_named: false })
    }

    fn check_socket_path(self) -> Result<Self> {
        let socket = self.socket();
        if socket.as_os_str().len() >= MAX_SOCKET_PATH {
            return Err(Error::usage_error(format!(
                "'{}' is longer than a socket's path may be (107 bytes): choose another --state",
                socket.display()
            )));
        }
        Ok(self)
    }

    /// The folder that was named, if one was.
    pub(crate) fn named_dir(&self) -> Option<&Path> {
        self.is_named.then_some(self.persistent_dir.as_path())
    }

    /// The socket on which the daemon answers.
    pub fn socket(&self) -> PathBuf {
        self.runtime_dir.join("socket")
    }

    /// What the daemon says.
    pub fn log(&self) -> PathBuf {
        self.persistent_dir.join("log")
    }

    /// Which pools it has.
    pub(crate) fn pool_cache(&self) -> PathBuf {
        self.persistent_dir.join("pools.json")
    }

    /// Makes its folders, for its owner alone.
    pub(crate) fn create_dirs(&self) -> Result<()> {
        for folder in [&self.runtime_dir, &self.persistent_dir] {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|why| Error::file_error(folder, &why))?;
        }
        Ok(())
    }

    /// Makes sure that there is one daemon only; the lock goes with the process.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.persistent_dir.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path).map_err(|why| Error::file_error(&path, &why))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                Err(Error::Running { state_dir: self.persistent_dir.display().to_string() })
            }
            Err(TryLockError::Error(why)) => Err(Error::file_error(&path, &why)),
        }
    }
}

/// An absolute path in a variable of the environment.
fn env_path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::StateDir;

    #[test]
    fn a_named_place_is_one_folder() {
        let place = StateDir::from_dir(Path::new("/srv/nas")).unwrap();
        assert_eq!(place.socket(), PathBuf::from("/srv/nas/socket"));
        assert_eq!(place.log(), PathBuf::from("/srv/nas/log"));
        assert_eq!(place.named_dir(), Some(Path::new("/srv/nas")));
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_refused() {
        let long = format!("/{}", "x".repeat(110));
        assert!(StateDir::from_dir(Path::new(&long)).unwrap_err().to_string().contains("--state"));
    }
}
