//! /dev/fuse, laid over a folder: by root itself, for others by fusermount3.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

/// How something is mounted.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "mount options, each on or off")]
#[expect(missing_docs, reason = "the names are those of mount(8)")]
pub struct Mount {
    /// What is shown as the source; commas become underscores.
    pub source: String,
    /// What is shown as the kind, after `fuse.`.
    pub kind: String,
    pub read_only: bool,
    pub no_exec: bool,
    pub no_setuid: bool,
    pub no_devices: bool,
    pub no_atime: bool,
    /// Others than who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
}

/// Mounts on a folder; gives the way to what is then asked.
pub fn mount(dir: &Path, how: &Mount) -> io::Result<File> {
    match by_root(dir, how) {
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied => by_program(dir, how),
        mounted => mounted,
    }
}

/// Changes what may be done in what is mounted on a folder, while it is in use; only root may.
pub fn remount(dir: &Path, how: &Mount) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(dir, how.set(), "")?)
}

impl Mount {
    /// The flags that are set.
    fn set(&self) -> MountFlags {
        self.flags().iter().filter(|flag| flag.0).map(|flag| flag.1).collect()
    }

    fn shown(&self) -> String {
        self.source.replace([',', '\\'], "_")
    }

    /// Options that are not flags of the system's call.
    fn words(&self) -> Vec<&'static str> {
        let words =
            [(self.default_permissions, "default_permissions"), (self.allow_other, "allow_other")];
        words.iter().filter(|word| word.0).map(|word| word.1).collect()
    }

    fn flags(&self) -> [(bool, MountFlags, &'static str); 5] {
        [
            (self.read_only, MountFlags::RDONLY, "ro"),
            (self.no_exec, MountFlags::NOEXEC, "noexec"),
            (self.no_setuid, MountFlags::NOSUID, "nosuid"),
            (self.no_devices, MountFlags::NODEV, "nodev"),
            (self.no_atime, MountFlags::NOATIME, "noatime"),
        ]
    }
}

fn by_root(dir: &Path, how: &Mount) -> io::Result<File> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let mode = fs::metadata(dir)?.mode();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let number = device.as_raw_fd();
    let mut data = format!("fd={number},rootmode={mode:o},user_id={uid},group_id={gid}");
    how.words().iter().for_each(|word| data.extend([",", word]));
    let kind = format!("fuse.{}", how.kind);
    let data = CString::new(data).map_err(io::Error::other)?;
    rustix::mount::mount(how.shown(), dir, kind, how.set(), Some(data.as_c_str()))?;
    Ok(device)
}

/// fusermount3 does what only root may. It finds a socket in place of its standard input, as told by
/// `_FUSE_COMMFD`, and sends the way to /dev/fuse through it.
fn by_program(dir: &Path, how: &Mount) -> io::Result<File> {
    let family = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
    let (ours, its) = socketpair(family.0, family.1, family.2, None)?;
    let mut options = format!("fsname={},subtype={}", how.shown(), how.kind);
    how.words().iter().for_each(|word| options.extend([",", word]));
    let flags = how.flags();
    flags.iter().filter(|flag| flag.0).for_each(|flag| options.extend([",", flag.2]));
    let arguments: [OsString; 4] = ["-o".into(), options.into(), "--".into(), dir.into()];
    let mut command = Command::new("fusermount3");
    command.args(arguments).env("_FUSE_COMMFD", "0");
    command.stdin(its).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut program = command.spawn()?;
    // else the socket would stay open on its side
    drop(command);
    let device = received(&ours);
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
fn received(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
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
