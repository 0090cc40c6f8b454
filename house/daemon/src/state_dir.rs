//! The directories with a daemon's socket, list of pools, jobs and log.
//!
//! ```text
//!                  socket                                   the other files: *.json, token, lock, log ...
//! named DIR        DIR/socket                               DIR
//! root             /run/poolhouse/socket                    /var/lib/poolhouse
//! another user     $XDG_RUNTIME_DIR/poolhouse/socket        $XDG_STATE_HOME/poolhouse
//! ```
//!
//! The configuration is config.toml beside pools.json; that of root's usual daemon is
//! /etc/poolhouse/config.toml. Every local user may pass through the directory of the socket to reach it. All
//! files are for their owner.

use std::env;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The directories of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    /// The directory of the socket.
    runtime_dir: PathBuf,
    /// The directory of the files that outlast the daemon.
    persistent_dir: PathBuf,
    /// Whether the user named it with `--state` or POOLHOUSE_STATE.
    is_named: bool,
}

/// The longest path of a socket in bytes, with the zero that ends it.
const MAX_SOCKET_PATH: usize = 108;
/// Other users may reach the socket in a directory, and not list the directory.
const SOCKET_DIR_MODE: u32 = 0o711;
/// Only the owner may enter a directory.
const PRIVATE_MODE: u32 = 0o700;
/// The directories of root's daemon.
const SYSTEM_DIRS: [&str; 2] = ["/run/poolhouse", "/var/lib/poolhouse"];

impl StateDir {
    /// All in one directory.
    pub fn from_dir(folder: &Path) -> Result<Self> {
        let folder = std::path::absolute(folder).map_err(|why| Error::file_error(folder, &why))?;
        Self { runtime_dir: folder.clone(), persistent_dir: folder, is_named: true }
            .check_socket_path()
    }

    /// The directories of the daemon that this process serves or starts: `folder`, or POOLHOUSE_STATE, or the
    /// usual ones of its user.
    pub fn resolve(folder: Option<&Path>) -> Result<Self> {
        if let Some(folder) = folder {
            return Self::from_dir(folder);
        }
        match env_path("POOLHOUSE_STATE") {
            Some(folder) => Self::from_dir(&folder),
            None => Self::default_dirs()?.check_socket_path(),
        }
    }

    /// The directories of the daemon for a command: those of [`Self::resolve`], but a user without
    /// pools and daemon uses the daemon of root, if that runs.
    pub fn find(folder: Option<&Path>) -> Result<Self> {
        let own = Self::resolve(folder)?;
        if own.is_named || rustix::process::geteuid().is_root() {
            return Ok(own);
        }
        Ok(own.or_system(Self::system_dirs()))
    }

    /// The daemon of root, if it runs and the user has neither pools nor a daemon.
    fn or_system(self, system: Self) -> Self {
        let is_in_use = self.socket().exists() || self.pool_cache().exists();
        if !is_in_use && UnixStream::connect(system.socket()).is_ok() { system } else { self }
    }

    /// The directories of root's usual daemon.
    pub(crate) fn system_dirs() -> Self {
        let [run, keep] = SYSTEM_DIRS.map(PathBuf::from);
        Self { runtime_dir: run, persistent_dir: keep, is_named: false }
    }

    fn default_dirs() -> Result<Self> {
        if rustix::process::geteuid().is_root() {
            return Ok(Self::system_dirs());
        }
        let home = || env_path("HOME").map(|home| home.join(".local/state"));
        let keep = env_path("XDG_STATE_HOME").or_else(home).ok_or_else(|| {
            Error::usage_error(
                "neither XDG_STATE_HOME nor HOME is set: name a directory with --state",
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

    /// Whether it is the usual one of root's daemon.
    pub(crate) fn is_system(&self) -> bool {
        *self == Self::system_dirs()
    }

    /// The directory that the user named, if so.
    pub(crate) fn named_dir(&self) -> Option<&Path> {
        self.is_named.then_some(self.persistent_dir.as_path())
    }

    /// The socket of the daemon.
    pub fn socket(&self) -> PathBuf {
        self.runtime_dir.join("socket")
    }

    /// The log of the daemon.
    pub fn log(&self) -> PathBuf {
        self.persistent_dir.join("log")
    }

    /// The list of imported pools.
    pub(crate) fn pool_cache(&self) -> PathBuf {
        self.persistent_dir.join("pools.json")
    }

    /// The latest events.
    pub(crate) fn events(&self) -> PathBuf {
        self.persistent_dir.join("events.jsonl")
    }

    /// The list of jobs.
    pub(crate) fn jobs(&self) -> PathBuf {
        self.persistent_dir.join("jobs.json")
    }

    /// The directory of secrets of CHAP that came with imported shares.
    pub(crate) fn chap_secrets(&self) -> PathBuf {
        self.persistent_dir.join("chap")
    }

    /// The directory of persistent reservations of volumes that outlast the daemon.
    pub(crate) fn reservations(&self) -> PathBuf {
        self.persistent_dir.join("reservations")
    }

    /// The histories of drives.
    pub(crate) fn drive_histories(&self) -> PathBuf {
        self.persistent_dir.join("drives")
    }

    /// The burn-ins of drives.
    pub(crate) fn burn_ins(&self) -> PathBuf {
        self.persistent_dir.join("burn-in")
    }

    /// The store of alerts.
    pub(crate) fn alerts(&self) -> PathBuf {
        self.persistent_dir.join("alerts.json")
    }

    /// The pools whose scrubs a power failure stopped.
    pub(crate) fn stopped_scrubs(&self) -> PathBuf {
        self.persistent_dir.join("stopped-scrubs.json")
    }

    /// The users of the dashboard, with the hashes of their passwords.
    pub(crate) fn web_users(&self) -> PathBuf {
        self.persistent_dir.join("web-users.json")
    }

    /// The account at a CA and the certificate that it issued, with their keys.
    pub(crate) fn acme(&self) -> PathBuf {
        self.persistent_dir.join("acme.json")
    }

    /// The results of benchmarks that the dashboard shows.
    pub(crate) fn benchmarks(&self) -> PathBuf {
        self.persistent_dir.join("bench")
    }

    /// The certificate authority of the dashboard, with its key.
    pub(crate) fn web_authority(&self) -> PathBuf {
        self.persistent_dir.join("web-ca.json")
    }

    /// The newest copies that the replicas hold.
    pub(crate) fn replicas(&self) -> PathBuf {
        self.persistent_dir.join("replicas.json")
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        let is_system = !self.is_named && self.runtime_dir == Path::new(SYSTEM_DIRS[0]);
        let dir = if is_system { Path::new("/etc/poolhouse") } else { &self.persistent_dir };
        dir.join("config.toml")
    }

    /// The folder of smbd.
    pub(crate) fn samba(&self) -> PathBuf {
        self.persistent_dir.join("smb")
    }

    /// The secret that file handles of NFS are signed with. It stays the same, or every client gets ESTALE.
    pub(crate) fn nfs_secret(&self) -> PathBuf {
        self.persistent_dir.join("nfs-secret")
    }

    /// The list of NFSv4 clients that may reclaim their locks after a restart.
    pub(crate) fn nfs_clients(&self) -> PathBuf {
        self.persistent_dir.join("nfs-clients")
    }

    /// The list of NFSv3 clients that are notified of a restart, so that they reclaim their locks.
    pub(crate) fn nfs_lock_clients(&self) -> PathBuf {
        self.persistent_dir.join("nfs-lock-clients")
    }

    /// The identifier of this computer in announcements.
    pub(crate) fn announce_id(&self) -> PathBuf {
        self.persistent_dir.join("announce-id")
    }

    /// The folder of smbd's locks and sockets, through which other users may pass.
    pub(crate) fn samba_run(&self) -> PathBuf {
        self.runtime_dir.join("smb-run")
    }

    /// The directory of the files behind volume devices.
    pub(crate) fn volume_files(&self) -> PathBuf {
        self.runtime_dir.join("volumes")
    }

    /// The token of the API on TCP.
    pub(crate) fn token(&self) -> PathBuf {
        self.persistent_dir.join("token")
    }

    /// The token of clients on TCP that only look.
    pub(crate) fn reader_token(&self) -> PathBuf {
        self.persistent_dir.join("token-look")
    }

    /// The token of clients on TCP of the role operate.
    pub(crate) fn operator_token(&self) -> PathBuf {
        self.persistent_dir.join("token-operate")
    }

    /// Whether the user of this process may start a daemon there.
    pub(crate) fn is_own(&self) -> bool {
        let uid = rustix::process::geteuid();
        let owner = fs::metadata(&self.persistent_dir).map(|facts| facts.uid());
        uid.is_root() || owner.map_or(true, |owner| owner == uid.as_raw())
    }

    /// Creates the directories. Other users may reach the socket.
    pub(crate) fn create_dirs(&self) -> Result<()> {
        create_dir(&self.persistent_dir, PRIVATE_MODE)?;
        create_dir(&self.runtime_dir, SOCKET_DIR_MODE)
    }

    /// Takes the lock that only one daemon can have. It goes with the process.
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

/// Creates a directory with the parents that it lacks, and allows at least `mode` in it.
fn create_dir(dir: &Path, mode: u32) -> Result<()> {
    let failed = |why: std::io::Error| Error::file_error(dir, &why);
    fs::DirBuilder::new().recursive(true).mode(PRIVATE_MODE).create(dir).map_err(failed)?;
    let facts = fs::metadata(dir).map_err(failed)?;
    let has = facts.permissions().mode() & 0o7777;
    if has & mode == mode || facts.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(has | mode)).map_err(failed)
}

/// An absolute path in a variable of the environment.
fn env_path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};

    use super::StateDir;

    #[test]
    fn users_without_pools_ask_the_daemon_of_root() {
        let dir = std::env::temp_dir().join(format!("poolhouse-find-{}", std::process::id()));
        let [own, system] = ["own", "system"].map(|name| {
            let state_dir = StateDir::from_dir(&dir.join(name)).unwrap();
            state_dir.create_dirs().unwrap();
            state_dir
        });
        assert_eq!(own.clone().or_system(system.clone()), own);
        let listener = UnixListener::bind(system.socket()).unwrap();
        assert_eq!(own.clone().or_system(system.clone()), system);
        std::fs::write(own.pool_cache(), "{}").unwrap();
        assert_eq!(own.clone().or_system(system.clone()), own);
        std::fs::remove_file(own.pool_cache()).unwrap();
        // the daemon of root was killed
        drop(listener);
        assert_eq!(own.clone().or_system(system), own);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_named_state_dir_is_one_directory() {
        let place = StateDir::from_dir(Path::new("/srv/nas")).unwrap();
        assert_eq!(place.socket(), PathBuf::from("/srv/nas/socket"));
        assert_eq!(place.log(), PathBuf::from("/srv/nas/log"));
        assert_eq!(place.named_dir(), Some(Path::new("/srv/nas")));
    }

    #[test]
    fn overlong_socket_path_is_refused() {
        let long = format!("/{}", "x".repeat(110));
        assert!(StateDir::from_dir(Path::new(&long)).unwrap_err().to_string().contains("--state"));
    }
}
