//! Mounting.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fusedev::{KernelMountOptions, MAX_REQUEST_BYTES, Notifier, RequestHandler};
use rustix::io::Errno;
use vfs::{DatasetTree, DoorId, PoolFileSystem};

use crate::filesystem::{FileSystemServer, RollbackHandle, SnapshotMounts};
use crate::mount_handle::{MountHandle, unmount_dead};
use crate::tree_server::TreeServer;
use crate::volume_files::VolumeFiles;
use crate::volume_server::VolumeServer;

/// How a tree is mounted.
#[derive(Clone, Debug, Default)]
pub struct TreeMountOptions {
    /// Other users may look, too; then the kernel checks permissions.
    pub allow_other: bool,
    /// The source that `mount` and `df` show: the pool's name.
    pub source: String,
    /// Do not use io_uring, even if the kernel supports it.
    pub no_io_uring: bool,
}

/// How a file system that can be written is mounted. Most are properties of the dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property that is on or off")]
pub struct MountOptions {
    /// Other users may use it, too.
    pub allow_other: bool,
    /// It cannot be changed (readonly=on).
    pub read_only: bool,
    /// Its programs cannot be run (exec=off).
    pub no_exec: bool,
    /// Programs run without set-ID bits (setuid=off).
    pub no_setuid: bool,
    /// Its device nodes are dead (devices=off).
    pub no_devices: bool,
    /// Reads do not update the atime (atime=off), as the kernel shows it; the server implements it.
    pub no_atime: bool,
    /// Do not use io_uring, even if the kernel supports it.
    pub no_io_uring: bool,
    /// The mount is of type `fuse`, even where the kernel forwards sync(2) to one of type `fuseblk`.
    pub without_syncfs: bool,
}

/// The type after `fuse.` or `fuseblk.` in the kernel's list of mounts.
const FUSE_SUBTYPE: &str = "poolhouse";

/// Why a tree could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder does not exist.
    #[error("{dir}: {why}")]
    DirectoryAccess {
        /// The folder.
        dir: String,
        /// The system's error.
        why: io::Error,
    },
    /// It is something else.
    #[error("{dir} is not a folder: a pool can be mounted on an empty folder only")]
    NotDirectory {
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
        /// The system's error.
        why: String,
        /// The command to type.
        hint: &'static str,
    },
    /// The root of the tree cannot be shown.
    #[error(transparent)]
    Root(#[from] vfs::Error),
}

/// Mounts a tree on an empty folder, read-only.
pub fn mount_tree(
    tree: &DatasetTree,
    dir: &Path,
    options: &TreeMountOptions,
) -> Result<MountHandle, Error> {
    check_mountpoint(dir)?;
    let root = tree.root_ino()?;
    let failed = |why: &io::Error| Error::Mount {
        dir: dir.display().to_string(),
        why: why.to_string().trim().to_owned(),
        hint: mount_hint(why, options.allow_other),
    };
    let server = || TreeServer::new(tree.clone(), root, options.allow_other);
    let started = start_session(&server, dir, &tree_kernel_options(options), !options.no_io_uring);
    started.map(|(mounted, _)| mounted).map_err(|why| failed(&why))
}

/// Mounts a file system of an imported pool on a folder, which is created if needed, and is removed
/// again if the mount fails; its content is hidden meanwhile. The kernel checks permissions, unless
/// the file system has NFSv4 ACLs, which the kernel does not know.
///
/// `door` is the mount among the doors into the file system. Unmount it before the file system is destroyed, or the
/// pool is exported. [`RollbackHandle`] rolls it back to a snapshot.
pub fn mount_filesystem(
    files: &PoolFileSystem,
    door: DoorId,
    dir: &Path,
    options: &MountOptions,
) -> Result<(MountHandle, RollbackHandle), Error> {
    let shown = || dir.display().to_string();
    let folders =
        NewFolders::create(dir).map_err(|why| Error::DirectoryAccess { dir: shown(), why })?;
    let kernel_checks = !files.has_nfs4_acls();
    let how = KernelMountOptions {
        default_permissions: kernel_checks,
        ..kernel_options(&files.dataset(), options)
    };
    let sync_waits = how.sends_syncfs && fusedev::forwards_sync();
    let server = Arc::new(FileSystemServer::new(files.clone(), door, sync_waits));
    let started = start_session(&|| Arc::clone(&server), dir, &how, !options.no_io_uring);
    let (mut mounted, notices) = started.map_err(|why| Error::Mount {
        dir: shown(),
        why: why.to_string().trim().to_owned(),
        hint: if is_inside_fuse_mount(dir) && !options.allow_other {
            "an ordinary user can mount within what is mounted already only where \
             /etc/fuse.conf has a line user_allow_other"
        } else {
            mount_hint(&why, options.allow_other)
        },
    })?;
    folders.keep();
    if let Some(snapshots) = SnapshotMounts::new(files, dir, &how) {
        server.set_snapshot_mounts(Arc::clone(&snapshots));
        mounted.set_snapshots(snapshots);
    }
    Ok((mounted, RollbackHandle::new(server, notices)))
}

/// Mounts a directory on an empty folder in which each volume of `files` is a file that only this
/// process's user can open. The kernel's cache is bypassed.
pub fn mount_volumes(files: &VolumeFiles, dir: &Path) -> Result<MountHandle, Error> {
    check_mountpoint(dir)?;
    let how = KernelMountOptions {
        source: FUSE_SUBTYPE.to_owned(),
        subtype: FUSE_SUBTYPE.to_owned(),
        no_exec: true,
        no_setuid: true,
        no_devices: true,
        ..KernelMountOptions::default()
    };
    let server = || VolumeServer::new(files.clone());
    // the requests of a loop device come from threads of the kernel, for which rings do not help
    let started = start_session(&server, dir, &how, false);
    started.map(|(mounted, _)| mounted).map_err(|why| Error::Mount {
        dir: dir.display().to_string(),
        why: why.to_string().trim().to_owned(),
        hint: mount_hint(&why, false),
    })
}

/// Folders that were made to mount on. They are removed when this is dropped, as what programs put in a folder
/// on which nothing is mounted would be hidden later.
struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    /// Makes a folder, and those above it that are not there.
    fn create(dir: &Path) -> io::Result<Self> {
        let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let mut missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
        let mut made = Self(Vec::new());
        while let Some(dir) = missing.pop() {
            match fs::create_dir(dir) {
                Ok(()) => made.0.push(dir.to_owned()),
                // another program may have made it just now
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
                Err(why) => return Err(why),
            }
        }
        if dir.is_dir() { Ok(made) } else { Err(Errno::NOTDIR.into()) }
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        for dir in self.0.iter().rev() {
            // files that were put there meanwhile stay
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Changes the mount's options while it is in use; only root may. If files are open for writing,
/// the kernel refuses to make it read-only. Then the other options change, and the server refuses
/// writes.
pub(crate) fn remount(dir: &Path, options: &MountOptions) -> io::Result<()> {
    let how = kernel_options("", options);
    match fusedev::remount(dir, &how) {
        Err(why) if options.read_only && Errno::from_io_error(&why) == Some(Errno::BUSY) => {
            fusedev::remount(dir, &KernelMountOptions { read_only: false, ..how })
        }
        done => done,
    }
}

/// Whether a folder is in a mounted FUSE file system: fusermount3 runs as root, and root cannot
/// look into another user's FUSE mount.
fn is_inside_fuse_mount(dir: &Path) -> bool {
    const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
    rustix::fs::statfs(dir).is_ok_and(|facts| facts.f_type == FUSE_SUPER_MAGIC)
}

/// Starts serving the mount: by io_uring if possible.
fn start_session<A: RequestHandler>(
    server: &dyn Fn() -> A,
    dir: &Path,
    how: &KernelMountOptions,
    rings: bool,
) -> io::Result<(MountHandle, Notifier)> {
    if rings {
        enable_io_uring();
    }
    let started = spawn_session(server(), dir, how, rings)?;
    // the first question; were the rings refused, nothing would be mounted any more
    if rings && fs::metadata(dir).is_err_and(|why| is_disconnected(&why)) {
        unmount_dead(dir);
        return start_session(server, dir, how, false);
    }
    raise_readahead(dir);
    Ok(started)
}

fn is_disconnected(why: &io::Error) -> bool {
    [Some(Errno::NOTCONN), Some(Errno::CONNABORTED)].contains(&Errno::from_io_error(why))
}

fn spawn_session(
    server: impl RequestHandler,
    dir: &Path,
    how: &KernelMountOptions,
    rings: bool,
) -> io::Result<(MountHandle, Notifier)> {
    let device = Arc::new(fusedev::mount(dir, how)?);
    let notices = Notifier::new(&device);
    let folder = std::path::absolute(dir)?;
    match fusedev::serve(device, &folder, Box::new(server), rings) {
        Ok(ended) => Ok((MountHandle::new(dir, ended), notices)),
        Err(why) => {
            // no server answers there
            unmount_dead(dir);
            Err(why)
        }
    }
}

/// Enables io_uring for FUSE in the kernel, which only root may; without it everything works.
fn enable_io_uring() {
    let _ = fs::write("/sys/module/fuse/parameters/enable_uring", "1");
}

/// Whether a pool can be mounted there: it is an empty folder.
pub fn check_mountpoint(dir: &Path) -> Result<(), Error> {
    let shown = || dir.display().to_string();
    let failed = |why| Error::DirectoryAccess { dir: shown(), why };
    if !fs::metadata(dir).map_err(failed)?.is_dir() {
        return Err(Error::NotDirectory { dir: shown() });
    }
    if fs::read_dir(dir).map_err(failed)?.next().is_some() {
        return Err(Error::NotEmpty { dir: shown() });
    }
    Ok(())
}

/// As a tree is mounted that cannot be changed.
fn tree_kernel_options(options: &TreeMountOptions) -> KernelMountOptions {
    KernelMountOptions {
        source: options.source.clone(),
        subtype: FUSE_SUBTYPE.to_owned(),
        sends_syncfs: false,
        read_only: true,
        no_exec: false,
        no_setuid: true,
        no_devices: true,
        no_atime: true,
        allow_other: options.allow_other,
        default_permissions: options.allow_other,
    }
}

fn kernel_options(source: &str, options: &MountOptions) -> KernelMountOptions {
    KernelMountOptions {
        source: source.to_owned(),
        subtype: FUSE_SUBTYPE.to_owned(),
        sends_syncfs: !options.without_syncfs,
        read_only: options.read_only,
        no_exec: options.no_exec,
        no_setuid: options.no_setuid,
        no_devices: options.no_devices,
        no_atime: options.no_atime,
        allow_other: options.allow_other,
        default_permissions: true,
    }
}

fn mount_hint(why: &io::Error, allow_other: bool) -> &'static str {
    if matches!(Errno::from_io_error(why), Some(Errno::MFILE | Errno::NFILE)) {
        return "the limit of open files is reached: a mount takes one or two. Raise it with LimitNOFILE= in the \
                daemon's unit, or with `ulimit -Hn` before it starts";
    }
    match why.kind() {
        io::ErrorKind::NotFound => {
            "it takes /dev/fuse (modprobe fuse) and fusermount3 (package fuse3)"
        }
        io::ErrorKind::PermissionDenied if allow_other => {
            "--allow-other takes root, or a line user_allow_other in /etc/fuse.conf"
        }
        _ => "is the folder yours, and are /dev/fuse and fusermount3 (package fuse3) there?",
    }
}

/// Sets the kernel's read-ahead to the largest request; only root may, and everything works
/// without.
fn raise_readahead(dir: &Path) {
    let Ok(found) = fs::metadata(dir) else { return };
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    // only mounts of type fuseblk have a block device's major number, and the name with a suffix
    let suffix = if major == 0 { "" } else { "-fuseblk" };
    let path = format!("/sys/class/bdi/{major}:{minor}{suffix}/read_ahead_kb");
    let _ = fs::write(path, (MAX_REQUEST_BYTES / 1024).to_string());
}
