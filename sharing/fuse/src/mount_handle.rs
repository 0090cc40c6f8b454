//! A tree that is mounted, and how it is unmounted.
//!
//! Only root may unmount; for others fusermount3 does it. A mount in use stays, or is unmounted by
//! force: it is detached, so that no path leads there any more, and its connection is aborted, so
//! that programs in it get errors.
//!
//! A mount may be shown at other folders as well (`mount --bind`), or in other mount namespaces, such as those of
//! containers. The kernel does not end it when it is unmounted at its own folder: its connection is aborted then.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fusedev::without_descriptors;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::filesystem::SnapshotMounts;
use crate::mount::{MountOptions, remount};

/// The directory of the kernel's FUSE connections.
const FUSE_CONNECTIONS_PATH: &str = "/sys/fs/fuse/connections";

/// The kernel's list of mounts, a line each; the third word is the device.
const MOUNTINFO_PATH: &str = "/proc/self/mountinfo";

/// How long to wait for the end of a mount that another program unmounted.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(1);

/// How long running requests may take once a tree is unmounted.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// When an unmounted mount that has not ended is looked for elsewhere, and when again.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const NEXT_LOOK: Duration = Duration::from_secs(1);

/// How often unmounting a busy mount is retried. A program that this process has just started has
/// all our files open until its exec.
const UNMOUNT_RETRIES: u32 = 5;
const UNMOUNT_RETRY_DELAY: Duration = Duration::from_millis(40);

/// The kernel's list of mounts at a moment.
pub struct MountTable(Option<HashSet<String>>);

impl MountTable {
    /// Now.
    pub fn current() -> Self {
        Self::of(Path::new(MOUNTINFO_PATH)).unwrap_or(Self(None))
    }

    /// The list of a process; none: it cannot be read.
    fn of(mountinfo: &Path) -> Option<Self> {
        let device = |line: &str| line.split(' ').nth(2).map(str::to_owned);
        let lines = fs::read(mountinfo).ok()?;
        let all = String::from_utf8_lossy(&lines).lines().filter_map(device).collect();
        Some(Self(Some(all)))
    }

    fn contains(&self, device: &str) -> bool {
        self.0.as_ref().is_none_or(|devices| devices.contains(device))
    }
}

/// A mounted tree. It is unmounted by force when this is dropped.
pub struct MountHandle {
    dir: PathBuf,
    /// The kernel's name of the device: `0:42`.
    device_id: Option<String>,
    /// The file that aborts the connection.
    abort_path: Option<PathBuf>,
    session_end: Receiver<io::Result<()>>,
    has_ended: bool,
    /// Snapshots that are mounted below it.
    snapshots: Option<Arc<SnapshotMounts>>,
}

impl MountHandle {
    pub(crate) fn new(dir: &Path, session_end: Receiver<io::Result<()>>) -> Self {
        let found = fs::metadata(dir).ok().map(|found| found.dev());
        let device_id =
            found.map(|dev| format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev)));
        let number = found.map(connection_number);
        let abort_path = number
            .map(|number| Path::new(FUSE_CONNECTIONS_PATH).join(number.to_string()).join("abort"));
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        Self { dir, device_id, abort_path, session_end, has_ended: false, snapshots: None }
    }

    pub(crate) fn set_snapshots(&mut self, snapshots: Arc<SnapshotMounts>) {
        self.snapshots = Some(snapshots);
    }

    /// Waits until it is unmounted, by whomever, but not longer than `time`; none: not yet.
    pub fn wait_for_unmount(&mut self, time: Duration) -> Option<io::Result<()>> {
        if self.has_ended {
            return Some(Ok(()));
        }
        let end = match self.session_end.recv_timeout(time) {
            Ok(end) => end,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => Ok(()),
        };
        self.has_ended = true;
        Some(end)
    }

    /// Whether it is mounted. Waits for the end of an unmount by another program. A mount that was
    /// detached while in use is at no folder, and its requests are still served.
    pub fn is_mounted(&mut self, table: &MountTable) -> bool {
        let is_somewhere = self.device_id.as_ref().is_none_or(|device| table.contains(device));
        self.wait_for_unmount(if is_somewhere { Duration::ZERO } else { SESSION_END_TIMEOUT })
            .is_none()
    }

    /// Changes its mount options; returns whether that succeeded: only root may.
    pub fn set_options(&self, options: &MountOptions) -> bool {
        if let Some(snapshots) = &self.snapshots {
            snapshots.set_no_exec(options.no_exec);
        }
        self.is_on_top() && remount(&self.dir, options).is_ok()
    }

    /// Whether the folder shows this mount: operations on the folder's path then reach it. Sends no
    /// request, because the pool may be suspended.
    fn is_on_top(&self) -> bool {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let shown = rustix::fs::statx(CWD, &self.dir, flags, StatxFlags::empty()).ok();
        let shown = shown.map(|shown| format!("{}:{}", shown.stx_dev_major, shown.stx_dev_minor));
        // an unreadable one counts as this mount
        shown.is_none() || self.device_id.is_none() || shown == self.device_id
    }

    /// Unmounts it if it is not in use, and nothing else is mounted over it; returns whether it is
    /// unmounted. Then all requests are finished, and their changes are with the pool.
    pub fn try_unmount(&mut self) -> bool {
        if !self.is_mounted(&MountTable::current()) {
            return true;
        }
        if !self.is_on_top() {
            return false;
        }
        let is_done = (0..UNMOUNT_RETRIES).any(|tried| {
            if tried > 0 {
                std::thread::sleep(UNMOUNT_RETRY_DELAY);
            }
            if let Some(snapshots) = &self.snapshots {
                snapshots.unmount_idle();
            }
            unmount_dir(&self.dir, UnmountFlags::empty())
        });
        if is_done {
            self.finish();
        }
        is_done
    }

    /// Unmounts it unless it is in use now; returns whether it is unmounted.
    pub(crate) fn unmount_now(&mut self) -> bool {
        let is_done = self.is_on_top() && unmount_dir(&self.dir, UnmountFlags::empty());
        if is_done {
            self.finish();
        }
        is_done
    }

    /// Waits until the requests of a mount that was unmounted are finished. A mount that other places show does not end by
    /// itself, and would hold up its pool.
    fn finish(&mut self) {
        let last = Instant::now() + DRAIN_TIMEOUT;
        let mut pause = FIRST_LOOK;
        while self.wait_for_unmount(pause).is_none() && Instant::now() < last {
            if self.device_id.as_deref().is_some_and(is_mounted_anywhere) {
                if self.abort_connection() {
                    let _ = self.wait_for_unmount(DRAIN_TIMEOUT);
                }
                return;
            }
            pause = NEXT_LOOK;
        }
    }

    /// Unmounts it, even while a program uses it, which then gets errors. Gives whether it was free.
    pub fn unmount(&mut self) -> bool {
        if self.try_unmount() {
            return true;
        }
        if let Some(snapshots) = &self.snapshots {
            snapshots.unmount_all();
        }
        if self.is_on_top() {
            sync_filesystem(&self.dir);
            // if this fails, it is not mounted any more
            unmount_dir(&self.dir, UnmountFlags::DETACH);
        }
        if self.abort_connection() {
            let _ = self.wait_for_unmount(DRAIN_TIMEOUT);
        }
        false
    }

    /// Aborts the connection. If that is impossible, requests of programs in it are served until
    /// they leave.
    fn abort_connection(&self) -> bool {
        let Some(abort) = &self.abort_path else { return false };
        fs::write(abort, "1").is_ok() || (mount_fusectl() && fs::write(abort, "1").is_ok())
    }
}

/// Whether any mount namespace shows a device. Only root sees the namespaces of other users.
fn is_mounted_anywhere(device: &str) -> bool {
    let mut seen = HashSet::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.map(|process| process.path()).any(|process| {
        let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { return false };
        let table = process.join("mountinfo");
        seen.insert(namespace) && MountTable::of(&table).is_some_and(|it| it.contains(device))
    })
}

/// The number by which the kernel shows the connection of a mount: its device's, with 20 bits of minor number.
fn connection_number(device: u64) -> u64 {
    u64::from(rustix::fs::major(device)) << 20 | u64::from(rustix::fs::minor(device))
}

/// Has the kernel show the connections, as the init programs of most systems do.
fn mount_fusectl() -> bool {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("fusectl", FUSE_CONNECTIONS_PATH, "fusectl", flags, None).is_ok()
}

impl Drop for MountHandle {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Makes the kernel write out its dirty pages.
fn sync_filesystem(dir: &Path) {
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    without_descriptors(|| {
        if let Ok(dir) = rustix::fs::open(dir, folder, Mode::empty()) {
            // the writer gets its error from fsync
            let _ = rustix::fs::syncfs(dir);
        }
    });
}

fn unmount_dir(dir: &Path, flags: UnmountFlags) -> bool {
    // the kernel may wait for the server's last reply, and the server is this process
    match without_descriptors(|| rustix::mount::unmount(dir, flags)) {
        Ok(()) => true,
        Err(Errno::PERM) => {
            let mut command = Command::new("fusermount3");
            command.arg("-u").args(flags.contains(UnmountFlags::DETACH).then_some("-z"));
            command.arg("--").arg(dir);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        }
        Err(_) => false,
    }
}

/// Removes a dead mount that a killed process left on a folder.
pub fn unmount_dead(dir: &Path) {
    // the kernel still caches a dead folder's attributes; only statfs always sends a request, and a
    // request at the moment of the death gets another error
    let is_dead = |why: Errno| matches!(why, Errno::NOTCONN | Errno::CONNABORTED);
    while rustix::fs::statfs(dir).is_err_and(is_dead) {
        if !unmount_dir(dir, UnmountFlags::DETACH) {
            // a mount over it reports the reason of a failure
            return;
        }
    }
}
