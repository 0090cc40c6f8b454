//! /dev/fuse, laid over a folder: by root itself, for others by fusermount3.
//!
//! The kernel does not forward sync(2) and syncfs(2) to an ordinary FUSE server. Since Linux 6.18
//! it sends `FUSE_SYNCFS` to servers of mounts of type `fuseblk`, which only root can make, and
//! which need a block device that no other mount uses: a loop device (`loop_device`). The kernel
//! resolves the source of such a mount as a path, and shows it as given. So the source is a
//! relative path with the name to show, of a symbolic link in a directory of its own. If any step
//! fails, the mount is an ordinary one.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use crate::loop_device::SyncDevice;
use crate::own_thread::in_directory;

/// The first kernel that sends `FUSE_SYNCFS` to mounts of type `fuseblk`.
const FIRST_WITH_SYNCFS: (u32, u32) = (6, 18);

/// How something is mounted.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "mount options, each on or off")]
#[expect(missing_docs, reason = "the names are those of mount(8)")]
pub struct KernelMountOptions {
    /// The shown source; commas become underscores.
    pub source: String,
    /// The shown type, after `fuse.` or `fuseblk.`.
    pub subtype: String,
    /// The kernel is to send [`Request::Syncfs`](crate::Request::Syncfs) where it can.
    pub sends_syncfs: bool,
    pub read_only: bool,
    pub no_exec: bool,
    pub no_setuid: bool,
    pub no_devices: bool,
    pub no_atime: bool,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
}

/// Mounts on a folder; returns the device of its requests.
pub fn mount(dir: &Path, how: &KernelMountOptions) -> io::Result<File> {
    match mount_as_root(dir, how) {
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
            mount_with_fusermount(dir, how)
        }
        mounted => mounted,
    }
}

/// Changes the mount options of a folder, while it is in use; only root may.
pub fn remount(dir: &Path, how: &KernelMountOptions) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(dir, how.mount_flags(), "")?)
}

impl KernelMountOptions {
    /// The flags that are set.
    fn mount_flags(&self) -> MountFlags {
        self.flag_table().iter().filter(|flag| flag.0).map(|flag| flag.1).collect()
    }

    fn escaped_source(&self) -> String {
        self.source.replace([',', '\\'], "_")
    }

    /// Options that are not flags of the system's call.
    fn fuse_options(&self) -> Vec<&'static str> {
        let words =
            [(self.default_permissions, "default_permissions"), (self.allow_other, "allow_other")];
        words.iter().filter(|word| word.0).map(|word| word.1).collect()
    }

    fn flag_table(&self) -> [(bool, MountFlags, &'static str); 5] {
        [
            (self.read_only, MountFlags::RDONLY, "ro"),
            (self.no_exec, MountFlags::NOEXEC, "noexec"),
            (self.no_setuid, MountFlags::NOSUID, "nosuid"),
            (self.no_devices, MountFlags::NODEV, "nodev"),
            (self.no_atime, MountFlags::NOATIME, "noatime"),
        ]
    }
}

fn mount_as_root(dir: &Path, how: &KernelMountOptions) -> io::Result<File> {
    let mode = fs::metadata(dir)?.mode();
    if how.sends_syncfs && forwards_sync() {
        let device = open_device()?;
        if over_loop_device(dir, how, &data_of(how, &device, mode)).is_ok() {
            return Ok(device);
        }
    }
    let device = open_device()?;
    let data = CString::new(data_of(how, &device, mode)).map_err(io::Error::other)?;
    let kind = format!("fuse.{}", how.subtype);
    rustix::mount::mount(
        how.escaped_source(),
        dir,
        kind,
        how.mount_flags(),
        Some(data.as_c_str()),
    )?;
    Ok(device)
}

fn open_device() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/fuse")
}

/// The options that FUSE reads itself, for a mount on a folder of that mode.
fn data_of(how: &KernelMountOptions, device: &File, mode: u32) -> String {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let number = device.as_raw_fd();
    let mut data = format!("fd={number},rootmode={mode:o},user_id={uid},group_id={gid}");
    how.fuse_options().iter().for_each(|word| data.extend([",", word]));
    data
}

/// Whether the kernel forwards sync(2) and syncfs(2) to what this process mounts, unless no loop device can be had.
pub fn forwards_sync() -> bool {
    rustix::process::geteuid().is_root() && kernel_sends_syncfs()
}

/// Whether this kernel sends `FUSE_SYNCFS` to mounts of type `fuseblk`.
fn kernel_sends_syncfs() -> bool {
    let uname = rustix::system::uname();
    version_of(&uname.release().to_string_lossy())
        .is_some_and(|version| version >= FIRST_WITH_SYNCFS)
}

/// The first two numbers of a kernel's release, such as `6.18.2-amd64`.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|each: char| !each.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Mounts with the type `fuseblk` over a loop device of its own.
fn over_loop_device(dir: &Path, how: &KernelMountOptions, data: &str) -> io::Result<()> {
    // blocks of a page, as FUSE has them otherwise
    let data = format!("{data},blksize={}", rustix::param::page_size());
    let data = CString::new(data).map_err(io::Error::other)?;
    let (target, kind) = (std::path::absolute(dir)?, format!("fuseblk.{}", how.subtype));
    let device = SyncDevice::attach()?;
    let links = LinkDir::create()?;
    let source = how.escaped_source();
    links.link(&source, &device.path)?;
    in_directory(&links.path, || {
        Ok(rustix::mount::mount(&source, &target, &kind, how.mount_flags(), Some(data.as_c_str()))?)
    })
}

/// A directory for the symbolic link by which a device is found. It is removed when this is dropped.
struct LinkDir {
    path: PathBuf,
}

impl LinkDir {
    fn create() -> io::Result<Self> {
        // first, where only root may create anything, so that no user can interfere
        Self::create_in("/run".into()).or_else(|_| Self::create_in(std::env::temp_dir()))
    }

    fn create_in(mut path: PathBuf) -> io::Result<Self> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let number = CREATED.fetch_add(1, Relaxed);
        path.push(format!("poolhouse-mount-{}-{number}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    /// Makes `name`, which may have slashes, a link to a device.
    fn link(&self, name: &str, device: &Path) -> io::Result<()> {
        let link = self.path.join(name);
        if let Some(above) = link.parent() {
            fs::create_dir_all(above)?;
        }
        symlink(device, link)
    }
}

impl Drop for LinkDir {
    fn drop(&mut self) {
        // a directory that stays does no harm
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// fusermount3 does what only root may. It finds a socket in place of its standard input, as told by
/// `_FUSE_COMMFD`, and sends the way to /dev/fuse through it.
fn mount_with_fusermount(dir: &Path, how: &KernelMountOptions) -> io::Result<File> {
    let family = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
    let (ours, its) = socketpair(family.0, family.1, family.2, None)?;
    let mut options = format!("fsname={},subtype={}", how.escaped_source(), how.subtype);
    how.fuse_options().iter().for_each(|word| options.extend([",", word]));
    let flags = how.flag_table();
    flags.iter().filter(|flag| flag.0).for_each(|flag| options.extend([",", flag.2]));
    let arguments: [OsString; 4] = ["-o".into(), options.into(), "--".into(), dir.into()];
    let mut command = Command::new("fusermount3");
    command.args(arguments).env("_FUSE_COMMFD", "0");
    command.stdin(its).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut program = command.spawn()?;
    // else the socket would stay open on its side
    drop(command);
    let device = receive_fd(&ours);
    let mut said = String::new();
    if let Some(mut errors) = program.stderr.take() {
        let _ = errors.read_to_string(&mut said);
    }
    let ended = program.wait()?;
    match device {
        Ok(Some(device)) if ended.success() => Ok(device.into()),
        Err(why) => Err(why),
        _ => Err(io::Error::other(said.trim().to_owned())),
    }
}

/// The descriptor that comes through a socket; none if it ends without one.
fn receive_fd(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut found = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(found.next())
}

#[cfg(test)]
mod tests {
    use super::{FIRST_WITH_SYNCFS, version_of};

    #[test]
    fn kernel_versions_are_read_from_releases() {
        assert_eq!(version_of("6.18.2-amd64"), Some((6, 18)));
        assert_eq!(version_of("7.0-rc1"), Some((7, 0)));
        assert_eq!(version_of("unknown"), None);
        assert!(version_of("6.9.1") < Some(FIRST_WITH_SYNCFS));
    }
}
