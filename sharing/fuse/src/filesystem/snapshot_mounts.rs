//! Each snapshot below `.zfs/snapshot` as a mount of its own.
//!
//! A snapshot then has a device number of its own, so that programs that stay on one file system (`find -xdev`,
//! `du -x`, `rsync -x`) do not enter it. FUSE has automounts for virtiofs only. So the server mounts a snapshot when a
//! program first looks at its root, and has the kernel walk the path once more:
//!
//! ```text
//! program                    kernel                              server
//! stat .zfs/snapshot/NAME    LOOKUP NAME                         the root of the snapshot, for no time
//!                            GETATTR of that root                mounts the snapshot there, replies ESTALE
//!                            LOOKUP NAME, as the walk is stale   the same root
//!                            crosses the mount: GETATTR of 1     the attributes, by the snapshot's own session
//! ```
//!
//! The kernel walks a path again after ESTALE once. So each thread gets that reply once for a mount, and only while the
//! mount is new: a thread that cannot cross it, as it lives in another mount namespace, sees the snapshot in the mount
//! of its file system. GETATTR and OPENDIR come without locks of directories, so the server may mount meanwhile.
//!
//! Only root may mount so. Snapshots that no program uses are unmounted after some minutes, and before their file
//! system is. A mount whose snapshot was destroyed goes when its name is next looked up.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fusedev::{KernelMountOptions, RequestContext};
use parking_lot::{Condvar, Mutex};
use posix::Ino;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use vfs::{DoorId, PoolFileSystem};

use super::FileSystemServer;
use crate::mount::MountOptions;
use crate::mount_handle::{MountHandle, unmount_dead};

/// Snapshots of one file system that are mounted at a time. The oldest that is idle makes room for another.
const MAX_MOUNTS: usize = 256;
/// How often mounted snapshots are looked at. One that is older, and that no program is in, is unmounted.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(150);
/// A mount is new for so long.
const NEW_FOR: Duration = Duration::from_secs(5);
/// A snapshot that cannot be mounted is tried again after so long.
const RETRY_DELAY: Duration = Duration::from_mins(1);
/// A request waits so long for another that mounts the same snapshot.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// The mounted snapshots of a mounted file system.
pub(crate) struct SnapshotMounts {
    fs: PoolFileSystem,
    /// Where the file system is mounted.
    dir: PathBuf,
    /// The device number of that mount.
    device: u64,
    options: KernelMountOptions,
    /// Programs in snapshots cannot be run (exec=off).
    no_exec: AtomicBool,
    state: Mutex<State>,
    /// A snapshot was mounted, or could not be.
    mount_ended: Condvar,
}

#[derive(Default)]
struct State {
    /// By the inode of the snapshot's root in the file system's mount.
    snapshots: HashMap<Ino, SnapshotState>,
    has_expiry_thread: bool,
}

enum SnapshotState {
    Mounting,
    Mounted(SnapshotMount),
    Failed(Instant),
}

struct SnapshotMount {
    handle: MountHandle,
    since: Instant,
    /// Threads that walk a path again.
    retrying: HashSet<u32>,
}

impl SnapshotMount {
    fn is_mounted(&mut self) -> bool {
        self.handle.wait_for_unmount(Duration::ZERO).is_none()
    }
}

impl SnapshotMounts {
    /// For a file system that is mounted on `dir`; none: this process may not mount, or `dir` cannot be looked at.
    pub(crate) fn new(
        fs: &PoolFileSystem,
        dir: &Path,
        options: &KernelMountOptions,
    ) -> Option<Arc<Self>> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let dir = std::path::absolute(dir).ok()?;
        let device = std::fs::metadata(&dir).ok()?.dev();
        let options = KernelMountOptions {
            sends_syncfs: false,
            read_only: true,
            no_setuid: true,
            no_devices: true,
            no_atime: true,
            ..options.clone()
        };
        let no_exec = AtomicBool::new(options.no_exec);
        let (state, mount_ended) = (Mutex::default(), Condvar::new());
        Some(Arc::new(Self { fs: fs.clone(), dir, device, options, no_exec, state, mount_ended }))
    }

    /// Sets whether programs in snapshots cannot be run (exec=off), also in those that are mounted.
    pub(crate) fn set_no_exec(&self, no_exec: bool) {
        self.no_exec.store(no_exec, Relaxed);
        let options = MountOptions {
            read_only: true,
            no_exec,
            no_setuid: true,
            no_devices: true,
            no_atime: true,
            ..MountOptions::default()
        };
        self.state.lock().retain(|mount| {
            mount.handle.set_options(&options);
            true
        });
    }

    /// Mounts the snapshot with the root `root` unless it is mounted. Returns whether the kernel is to walk the path
    /// of the request again.
    pub(super) fn mount_on_access(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        root: Ino,
        name: &str,
    ) -> bool {
        let pid = request.pid;
        !is_own_thread(pid) && request.run_blocking(|| self.ensure_mounted(root, name, pid))
    }

    fn ensure_mounted(self: &Arc<Self>, root: Ino, name: &str, pid: u32) -> bool {
        let mut state = self.state.lock();
        loop {
            match state.snapshots.get_mut(&root) {
                Some(SnapshotState::Mounting) => {
                    if self.mount_ended.wait_for(&mut state, MOUNT_TIMEOUT).timed_out() {
                        return false;
                    }
                }
                Some(SnapshotState::Mounted(mount)) => {
                    if mount.is_mounted() {
                        return mount.since.elapsed() < NEW_FOR && mount.retrying.insert(pid);
                    }
                    break;
                }
                Some(SnapshotState::Failed(at)) if at.elapsed() < RETRY_DELAY => return false,
                _ => break,
            }
        }
        if !state.make_room() {
            return false;
        }
        state.snapshots.insert(root, SnapshotState::Mounting);
        drop(state);
        let mounted = self.mount(root, name);
        let is_mounted = mounted.is_ok();
        let new = match mounted {
            Ok(handle) => SnapshotState::Mounted(SnapshotMount {
                handle,
                since: Instant::now(),
                retrying: HashSet::from([pid]),
            }),
            Err(_) => SnapshotState::Failed(Instant::now()),
        };
        let mut state = self.state.lock();
        state.snapshots.insert(root, new);
        self.mount_ended.notify_all();
        if !state.has_expiry_thread {
            state.has_expiry_thread = start_expiry_thread(Arc::downgrade(self));
        }
        is_mounted
    }

    fn mount(&self, root: Ino, name: &str) -> io::Result<MountHandle> {
        let below = Path::new(".zfs/snapshot").join(name);
        let target = self.open_mountpoint(&below)?;
        let source = format!("{}@{name}", self.fs.dataset());
        let no_exec = self.no_exec.load(Relaxed);
        let options = KernelMountOptions { source, no_exec, ..self.options.clone() };
        let server = FileSystemServer::for_snapshot(self.fs.clone(), DoorId::new_unique(), root);
        let target_path = format!("/proc/self/fd/{}", target.as_raw_fd());
        let device = Arc::new(fusedev::mount(Path::new(&target_path), &options)?);
        drop(target);
        let dir = self.dir.join(below);
        match fusedev::serve(device, &dir, Box::new(server), false) {
            Ok(session_end) => Ok(MountHandle::new(&dir, session_end)),
            Err(why) => {
                unmount_dead(&dir);
                Err(why)
            }
        }
    }

    /// The directory of a snapshot in the file system's own mount, whatever may be mounted over that.
    fn open_mountpoint(&self, below: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat2(CWD, &self.dir, flags, Mode::empty(), ResolveFlags::empty())?;
        if fstat(&dir)?.st_dev != self.device {
            return Err(Errno::XDEV.into());
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        Ok(openat2(&dir, below, flags, Mode::empty(), resolve)?)
    }

    /// Unmounts the snapshots that no program uses.
    pub(crate) fn unmount_idle(&self) {
        self.state.lock().retain(|mount| !mount.handle.unmount_now());
    }

    /// Unmounts all snapshots. Programs that use one get errors.
    pub(crate) fn unmount_all(&self) {
        let all = std::mem::take(&mut self.state.lock().snapshots);
        // dropped without the lock, which requests of the snapshots may wait for
        drop(all);
    }
}

impl State {
    /// Keeps the mounts for which `keep` is true, and those that are being made.
    fn retain(&mut self, mut keep: impl FnMut(&mut SnapshotMount) -> bool) {
        self.snapshots.retain(|_, state| match state {
            SnapshotState::Mounting => true,
            SnapshotState::Mounted(mount) => mount.is_mounted() && keep(mount),
            SnapshotState::Failed(at) => at.elapsed() < RETRY_DELAY,
        });
    }

    /// Sees to it that one more snapshot can be mounted; false: as many as may be are in use.
    fn make_room(&mut self) -> bool {
        if self.snapshots.len() < MAX_MOUNTS {
            return true;
        }
        let mut ages = Vec::new();
        self.retain(|mount| {
            ages.push(mount.since);
            true
        });
        ages.sort_unstable();
        for age in ages {
            if self.snapshots.len() < MAX_MOUNTS {
                break;
            }
            self.retain(|mount| mount.since != age || !mount.handle.unmount_now());
        }
        self.snapshots.len() < MAX_MOUNTS
    }
}

/// Whether a thread of this process sent a request, or the kernel itself: they look at a snapshot to mount it.
fn is_own_thread(pid: u32) -> bool {
    pid == 0 || Path::new("/proc/self/task").join(pid.to_string()).exists()
}

/// Starts the thread that unmounts idle snapshots. It ends when none is mounted.
fn start_expiry_thread(mounts: Weak<SnapshotMounts>) -> bool {
    let work = move || {
        loop {
            std::thread::sleep(EXPIRY_INTERVAL);
            let Some(mounts) = mounts.upgrade() else { return };
            let mut state = mounts.state.lock();
            let is_new = |mount: &SnapshotMount| mount.since.elapsed() < EXPIRY_INTERVAL;
            state.retain(|mount| is_new(mount) || !mount.handle.unmount_now());
            if state.snapshots.is_empty() {
                state.has_expiry_thread = false;
                return;
            }
        }
    };
    // without it, snapshots stay mounted until their file system is unmounted
    std::thread::Builder::new().name("fuse-snapshots".to_owned()).spawn(work).is_ok()
}
