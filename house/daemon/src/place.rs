//! Where a daemon has its socket, its memory and its log.

use std::env;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Where a daemon has its socket, its memory and its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The folder of what lasts as long as the daemon runs.
    run: PathBuf,
    /// The folder of what outlasts it.
    keep: PathBuf,
    /// Whether it is one that was named, and not the usual one.
    is_named: bool,
}

/// A socket's path has so many bytes at most, with the zero that ends it.
const LONGEST_SOCKET: usize = 108;

impl Place {
    /// All in one folder.
    pub fn at(folder: &Path) -> Result<Self> {
        let folder = std::path::absolute(folder).map_err(|why| Error::file(folder, &why))?;
        Self { run: folder.clone(), keep: folder, is_named: true }.checked()
    }

    /// In the folder that is given, or that POOLHOUSE_STATE names, or where the conventions of the
    /// system have such things.
    pub fn of(folder: Option<&Path>) -> Result<Self> {
        if let Some(folder) = folder {
            return Self::at(folder);
        }
        match path_in("POOLHOUSE_STATE") {
            Some(folder) => Self::at(&folder),
            None => Self::usual()?.checked(),
        }
    }

    fn usual() -> Result<Self> {
        if rustix::process::geteuid().is_root() {
            let (run, keep) = ("/run/poolhouse".into(), "/var/lib/poolhouse".into());
            return Ok(Self { run, keep, is_named: false });
        }
        let home = || path_in("HOME").map(|home| home.join(".local/state"));
        let keep = path_in("XDG_STATE_HOME").or_else(home).ok_or_else(|| {
            Error::usage("there is neither XDG_STATE_HOME nor HOME: name a folder with --state")
        })?;
        let keep = keep.join("poolhouse");
        let run =
            path_in("XDG_RUNTIME_DIR").map_or_else(|| keep.clone(), |dir| dir.join("poolhouse"));
        Ok(Self { run, keep, is_named: false })
    }

    fn checked(self) -> Result<Self> {
        let socket = self.socket();
        if socket.as_os_str().len() >= LONGEST_SOCKET {
            return Err(Error::usage(format!(
                "'{}' is longer than a socket's path may be (107 bytes): choose another --state",
                socket.display()
            )));
        }
        Ok(self)
    }

    /// The folder that was named, if one was.
    pub(crate) fn named(&self) -> Option<&Path> {
        self.is_named.then_some(self.keep.as_path())
    }

    /// The socket on which the daemon answers.
    pub fn socket(&self) -> PathBuf {
        self.run.join("socket")
    }

    /// What the daemon says.
    pub fn log(&self) -> PathBuf {
        self.keep.join("log")
    }

    /// Which pools it has.
    pub(crate) fn memory(&self) -> PathBuf {
        self.keep.join("pools.json")
    }

    /// Makes its folders, for its owner alone.
    pub(crate) fn make(&self) -> Result<()> {
        for folder in [&self.run, &self.keep] {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|why| Error::file(folder, &why))?;
        }
        Ok(())
    }

    /// Makes sure that there is one daemon only; the lock goes with the process.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.keep.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path).map_err(|why| Error::file(&path, &why))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                Err(Error::Running { place: self.keep.display().to_string() })
            }
            Err(TryLockError::Error(why)) => Err(Error::file(&path, &why)),
        }
    }
}

/// An absolute path in a variable of the environment.
fn path_in(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::Place;

    #[test]
    fn a_named_place_is_one_folder() {
        let place = Place::at(Path::new("/srv/nas")).unwrap();
        assert_eq!(place.socket(), PathBuf::from("/srv/nas/socket"));
        assert_eq!(place.log(), PathBuf::from("/srv/nas/log"));
        assert_eq!(place.named(), Some(Path::new("/srv/nas")));
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_refused() {
        let long = format!("/{}", "x".repeat(110));
        assert!(Place::at(Path::new(&long)).unwrap_err().to_string().contains("--state"));
    }
}
