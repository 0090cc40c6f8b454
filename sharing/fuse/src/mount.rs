//! Mounting.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::channel;

use fuser::{Config, Filesystem, MountOption, Session, SessionACL};
use vfs::{Live, Tree};

use crate::live::LiveServer;
use crate::mounted::Mounted;
use crate::server::{LARGEST, Server};

/// How a tree is mounted.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Other users may look, too; then the kernel checks permissions.
    pub allow_other: bool,
    /// What `mount` and `df` show as the source: the pool's name.
    pub source: String,
}

/// How a file system that can be written is mounted. Most are properties of the dataset.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property that is on or off")]
pub struct LiveOptions {
    /// Other users may use it, too.
    pub allow_other: bool,
    /// It cannot be changed (readonly=on).
    pub read_only: bool,
    /// Its programs cannot be run (exec=off).
    pub no_exec: bool,
    /// Its programs run as whoever starts them (setuid=off).
    pub no_setuid: bool,
    /// Its device nodes are dead (devices=off).
    pub no_devices: bool,
}

/// Why a tree could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such folder.
    #[error("{dir}: {why}")]
    Folder {
        /// The folder.
        dir: String,
        /// What the system says.
        why: io::Error,
    },
    /// It is something else.
    #[error("{dir} is no folder: a pool can be mounted on an empty folder only")]
    NotFolder {
        /// The path.
        dir: String,
    },
    /// It has something in it.
    #[error("{dir} is not empty: mount the pool on an empty folder, such as one made for it")]
    NotEmpty {
        /// The folder.
        dir: String,
    },
    /// The system cannot do it.
    #[error("the pool cannot be mounted on {dir}: {why}; {hint}")]
    Mount {
        /// The folder.
        dir: String,
        /// What the system says.
        why: String,
        /// What to do.
        hint: &'static str,
    },
    /// The root of the tree cannot be shown.
    #[error(transparent)]
    Root(#[from] vfs::Error),
}

/// How many threads answer the kernel.
const FEWEST_THREADS: usize = 4;
const MOST_THREADS: usize = 16;

/// Mounts a tree on an empty folder, read-only.
pub fn mount(tree: Tree, dir: &Path, options: &Options) -> Result<Mounted, Error> {
    check(dir)?;
    let root = tree.root()?;
    let failed = |why: &io::Error| Error::Mount {
        dir: dir.display().to_string(),
        why: why.to_string().trim().to_owned(),
        hint: hint(why, options),
    };
    let server = Server::new(tree, root, options.allow_other);
    start(server, dir, &config(options)).map_err(|why| failed(&why))
}

/// Mounts a file system of a held pool on a folder, which is made if need be; what is in it is
/// hidden meanwhile. The kernel checks permissions.
///
/// Unmount it before the file system is rolled back, renamed or destroyed, or the pool given up.
pub fn mount_live(live: Live, dir: &Path, options: &LiveOptions) -> Result<Mounted, Error> {
    let shown = || dir.display().to_string();
    fs::create_dir_all(dir).map_err(|why| Error::Folder { dir: shown(), why })?;
    let asked = Options { allow_other: options.allow_other, source: live.dataset().to_owned() };
    let config = live_config(&asked, options);
    start(LiveServer::new(live), dir, &config).map_err(|why| Error::Mount {
        dir: shown(),
        why: why.to_string().trim().to_owned(),
        hint: if is_within_another(dir) && !options.allow_other {
            "an ordinary user can mount within what is mounted already only where \
             /etc/fuse.conf has a line user_allow_other"
        } else {
            hint(&why, &asked)
        },
    })
}

/// Whether a folder is in a mounted FUSE file system: fusermount3, which is root's, sees nothing
/// there of what is the user's alone.
fn is_within_another(dir: &Path) -> bool {
    const FUSE: i64 = 0x6573_5546;
    rustix::fs::statfs(dir).is_ok_and(|facts| facts.f_type == FUSE)
}

/// Has the kernel's questions answered.
fn start(server: impl Filesystem + 'static, dir: &Path, config: &Config) -> io::Result<Mounted> {
    let session = Session::new(server, dir, config)?;
    let (sender, ended) = channel();
    let run = move || {
        // nobody may be waiting for the end any more
        let _ = sender.send(session.run());
    };
    std::thread::Builder::new().name("fuse".to_owned()).spawn(run)?;
    read_ahead(dir);
    Ok(Mounted::new(dir, ended))
}

/// Whether a pool can be mounted there: it is an empty folder.
pub fn check(dir: &Path) -> Result<(), Error> {
    let shown = || dir.display().to_string();
    let failed = |why| Error::Folder { dir: shown(), why };
    if !fs::metadata(dir).map_err(failed)?.is_dir() {
        return Err(Error::NotFolder { dir: shown() });
    }
    if fs::read_dir(dir).map_err(failed)?.next().is_some() {
        return Err(Error::NotEmpty { dir: shown() });
    }
    Ok(())
}

fn config(options: &Options) -> Config {
    let threads = std::thread::available_parallelism().map_or(FEWEST_THREADS, usize::from);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoAtime,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::Subtype("poolhouse".to_owned()),
        MountOption::FSName(options.source.replace(',', "_")),
    ];
    if options.allow_other {
        config.mount_options.push(MountOption::DefaultPermissions);
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(threads.clamp(FEWEST_THREADS, MOST_THREADS));
    config.clone_fd = true;
    config
}

fn live_config(asked: &Options, options: &LiveOptions) -> Config {
    let mut config = config(asked);
    let either = |no, a, b| if no { a } else { b };
    config.mount_options = vec![
        MountOption::DefaultPermissions,
        MountOption::Subtype("poolhouse".to_owned()),
        MountOption::FSName(asked.source.replace(',', "_")),
        either(options.read_only, MountOption::RO, MountOption::RW),
        either(options.no_exec, MountOption::NoExec, MountOption::Exec),
    ];
    // only root may have them at all
    if rustix::process::geteuid().is_root() {
        let more = [
            either(options.no_setuid, MountOption::NoSuid, MountOption::Suid),
            either(options.no_devices, MountOption::NoDev, MountOption::Dev),
        ];
        config.mount_options.extend(more);
    }
    config
}

fn hint(why: &io::Error, options: &Options) -> &'static str {
    match why.kind() {
        io::ErrorKind::NotFound => {
            "it takes /dev/fuse (modprobe fuse) and fusermount3 (package fuse3)"
        }
        io::ErrorKind::PermissionDenied if options.allow_other => {
            "--allow-other takes root, or a line user_allow_other in /etc/fuse.conf"
        }
        _ => "is the folder yours, and are /dev/fuse and fusermount3 (package fuse3) there?",
    }
}

/// Has the kernel read as far ahead as a request can be large; only root may ask for it, and all
/// works without.
fn read_ahead(dir: &Path) {
    let Ok(found) = fs::metadata(dir) else { return };
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let _ = fs::write(path, (LARGEST / 1024).to_string());
}
