//! The request handler of a writable file system.
//!
//! The kernel caches replies for a day. It knows changes through the mount itself, and
//! `invalidation` tells it changes by other doors at once. The allocated space of a file changes
//! when its txg is synced, so attributes of files that changed lately are cached for a second.
//! Files of a snapshot never change.

mod acl_xattrs;
mod file_handle;
mod file_locks;
mod invalidation;
mod known_inodes;
mod process;
mod read_requests;
mod request_waiter;
mod restored_dirs;
mod rollback;
mod snapshot_mounts;
mod write_requests;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fusedev::{CacheTimeouts, Notifier, OpenReply, Reply, Request, RequestContext};
use parking_lot::{Mutex, RwLock};
use posix::access::OpenMode;
use posix::{Attributes, FileType, Ino};
use vfs::{Context, DoorId, Error, FileSystem, OpenDir, OpenFile, PoolFileSystem, UnlinkedKeeper};

use crate::ROOT_NODEID;
use crate::convert::to_attr;
use crate::handle_table::HandleTable;
use file_handle::{FileHandle, MappableFiles};
use file_locks::FileLocks;
use invalidation::Invalidator;
use known_inodes::KnownInodes;
use request_waiter::Caller;
use restored_dirs::RestoredDirs;
pub use rollback::{RollbackHandle, RollbackOutcome};
pub(crate) use snapshot_mounts::SnapshotMounts;

/// The request handler.
pub(crate) struct FileSystemServer {
    fs: PoolFileSystem,
    /// The root of a snapshot that is mounted by itself; none: the file system is mounted.
    snapshot_root: Option<Ino>,
    /// The snapshots that are mounted below the file system, if this process may mount them.
    snapshots: OnceLock<Arc<SnapshotMounts>>,
    /// Closed while the file system becomes another: who answers holds it open.
    rollback_gate: RwLock<()>,
    /// How long the kernel may cache a name.
    entry_timeout: Duration,
    open_files: HandleTable<FileHandle>,
    mappable: Arc<MappableFiles>,
    open_dirs: HandleTable<OpenDir>,
    restored_dirs: RestoredDirs,
    /// Whether the kernel invalidates its cached pages of a file at a direct write.
    has_direct_io_mmap: AtomicBool,
    /// Whether sync(2) waits until the kernel has written out mapped pages.
    sync_waits: bool,
    /// The way to the kernel, as soon as something is mounted.
    notifier: OnceLock<Notifier>,
    /// This mount, among the doors into the file system.
    door: DoorId,
    invalidator: OnceLock<Invalidator>,
    known: KnownInodes,
    /// Whether the kernel can expire a name.
    can_expire_names: AtomicBool,
    /// Keeps inodes without names until the kernel has forgotten all.
    unlinked_keeper: Mutex<Option<UnlinkedKeeper>>,
    locks: FileLocks,
    /// Permissions are checked here, as the kernel knows nothing of NFSv4 ACLs.
    checks_access: bool,
}

/// Changes by other doors are sent to the kernel at once (`invalidation`).
const LONG_TIMEOUT: Duration = Duration::from_hours(24);
/// The seconds after a change in which a file's allocated space may change.
const SPACE_SETTLE_SECONDS: i64 = 30;
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);

const O_ACCMODE: i32 = 3;
const O_RDONLY: i32 = 0;
const O_WRONLY: i32 = 1;
const O_RDWR: i32 = 2;
const O_TRUNC: i32 = 0o1000;
const O_APPEND: i32 = 0o2000;
const O_NOATIME: i32 = 0o1_000_000;
/// The kernel opens a program to execute it.
const FMODE_EXEC: i32 = 0o40;
const SETID_BITS: u32 = 0o6000;

impl FileSystemServer {
    pub(crate) fn new(fs: PoolFileSystem, door: DoorId, sync_waits: bool) -> Self {
        let unlinked_keeper = Mutex::new(Some(fs.keep_unlinked()));
        // in a file system that ignores case, a new name may change the file of another
        let checks_access = fs.has_nfs4_acls();
        // a kernel that does not check permissions must look up each name: its caller may not be
        // allowed to search
        let keeps_names = fs.has_exact_names() && !checks_access;
        let entry_timeout = if keeps_names { LONG_TIMEOUT } else { Duration::ZERO };
        let (open_files, open_dirs) = (HandleTable::new(), HandleTable::new());
        let restored_dirs = RestoredDirs::default();
        let (has_direct_io_mmap, mappable) = (AtomicBool::new(false), Arc::default());
        let (rollback_gate, notifier) = (RwLock::new(()), OnceLock::new());
        let invalidator = OnceLock::new();
        let (known, can_expire_names) = (KnownInodes::default(), AtomicBool::new(false));
        Self {
            fs,
            snapshot_root: None,
            snapshots: OnceLock::new(),
            rollback_gate,
            entry_timeout,
            open_files,
            mappable,
            open_dirs,
            restored_dirs,
            has_direct_io_mmap,
            sync_waits,
            notifier,
            door,
            invalidator,
            known,
            can_expire_names,
            unlinked_keeper,
            locks: FileLocks::new(),
            checks_access,
        }
    }

    /// Answers for a snapshot that is mounted by itself. `root` is the inode of its root in the file system.
    fn for_snapshot(fs: PoolFileSystem, door: DoorId, root: Ino) -> Arc<Self> {
        let server = Self { snapshot_root: Some(root), ..Self::new(fs, door, false) };
        // nothing in a snapshot loses its name
        drop(server.unlinked_keeper.lock().take());
        let server = Arc::new(server);
        server.start_locks();
        server
    }

    /// Mounts snapshots below the file system from now on.
    pub(crate) fn set_snapshot_mounts(&self, snapshots: Arc<SnapshotMounts>) {
        // the server is new
        let _ = self.snapshots.set(snapshots);
    }

    /// The inode of the topmost directory.
    fn root_ino(&self) -> Ino {
        self.snapshot_root.unwrap_or_else(|| self.fs.root_ino())
    }

    /// Whether the request had the server mount a snapshot, so that the kernel is to walk its path again.
    fn mounts_snapshot(&self, request: &RequestContext<'_>, ask: &Request<'_>) -> bool {
        let is_access = matches!(ask, Request::Getattr | Request::Statx | Request::Opendir { .. });
        let Some(snapshots) = self.snapshots.get().filter(|_| is_access) else { return false };
        let root = Ino::new(request.nodeid);
        let name = self.fs.snapshot_by_root(root);
        name.is_some_and(|name| snapshots.mount_on_access(request, root, &name))
    }

    /// The caller of a request about a name or an inode.
    fn caller<'a>(&self, request: &'a RequestContext<'a>) -> Caller<'a> {
        if self.checks_access {
            Caller::with_own_credentials(request, self.door)
        } else {
            Caller::checked_by_kernel(request, self.door)
        }
    }

    /// The caller of a request about an open file. The kernel has checked the open mode.
    fn handle_caller<'a>(&self, request: &'a RequestContext<'a>) -> Caller<'a> {
        Caller::checked_by_kernel(request, self.door)
    }

    /// The kernel calls the root 1, whatever its inode number is.
    fn to_ino(&self, node: u64) -> Ino {
        if node == ROOT_NODEID { self.root_ino() } else { Ino::new(node) }
    }

    /// How long the kernel may cache attributes. A write clears set-ID bits here, and the kernel
    /// would start a program with the cached bits.
    fn attr_timeout(&self, of: &Attributes) -> Duration {
        if self.snapshots.get().is_some() && self.fs.snapshot_by_root(of.ino).is_some() {
            // the kernel asks again, and the snapshot is mounted
            Duration::ZERO
        } else if !PoolFileSystem::is_stored_dir(of.ino) {
            // any snapshot changes the time of `.zfs/snapshot`
            Duration::ZERO
        } else if of.kind == FileType::File && of.mode & SETID_BITS != 0 {
            Duration::ZERO
        } else if self.fs.now().seconds.saturating_sub(of.ctime.seconds) > SPACE_SETTLE_SECONDS {
            LONG_TIMEOUT
        } else {
            SHORT_TIMEOUT
        }
    }

    fn entry_reply(&self, found: &Attributes) -> Reply {
        // `.zfs` may come and go
        let name = if found.generation == 0 { SHORT_TIMEOUT } else { self.entry_timeout };
        self.entry_reply_with(found, name)
    }

    /// The reply for a name, with its cache time.
    fn entry_reply_with(&self, found: &Attributes, name: Duration) -> Reply {
        let validity = CacheTimeouts { entry: name, attr: self.attr_timeout(found) };
        self.known.add(found.ino);
        Reply::entry(&to_attr(found), self.restored_dirs.generation(found), validity)
    }

    /// The inode of a name. The kernel keeps that there is none, too.
    fn lookup(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<Reply, Error> {
        if let b"." | b".." = name {
            return self.lookup_forgotten(context, dir, name);
        }
        match self.fs.lookup(context, dir, name) {
            // snapshots and volumes come and go, and so may `.zfs` itself
            Err(Error::NotFound) if self.can_cache_negative(dir, name) => {
                Ok(Reply::negative_entry(self.entry_timeout))
            }
            // a name of a snapshot or a volume may get another inode at any time
            Ok(found) if !PoolFileSystem::is_stored_dir(dir) => {
                Ok(self.entry_reply_with(&found, Duration::ZERO))
            }
            found => found.map(|found| self.entry_reply(&found)),
        }
    }

    /// An inode that the kernel has forgotten and looks up again (`.`), or its parent (`..`).
    fn lookup_forgotten(
        &self,
        context: &Context<'_>,
        ino: Ino,
        name: &[u8],
    ) -> Result<Reply, Error> {
        let ino = if name == b".." { self.fs.parent_ino(ino)? } else { ino };
        let mut found = self.fs.attributes(context, ino)?;
        if ino == self.root_ino() {
            // as the mount has made it known
            (found.ino, found.generation) = (Ino::new(ROOT_NODEID), 0);
        }
        Ok(self.entry_reply(&found))
    }

    /// Whether the kernel may cache that a name does not exist.
    fn can_cache_negative(&self, dir: Ino, name: &[u8]) -> bool {
        let comes_and_goes = dir == self.root_ino() && name == b".zfs";
        PoolFileSystem::is_stored_dir(dir) && !comes_and_goes && !self.entry_timeout.is_zero()
    }

    /// A file that was made and opened. Its space may not be known yet.
    fn create_reply(&self, found: &Attributes, file: OpenReply) -> Reply {
        let validity = CacheTimeouts {
            entry: self.entry_timeout,
            attr: SHORT_TIMEOUT.min(self.attr_timeout(found)),
        };
        self.known.add(found.ino);
        Reply::create(&to_attr(found), self.restored_dirs.generation(found), validity, file)
    }

    fn attr_reply(&self, found: &Attributes) -> Reply {
        Reply::attr(&to_attr(found), self.attr_timeout(found))
    }

    fn open_file(&self, context: &Context<'_>, ino: Ino, flags: i32) -> Result<OpenReply, Error> {
        // the kernel truncates with a request of its own
        let open = OpenMode { truncate: false, ..open_mode(flags) };
        Ok(self.cached_open_reply(self.fs.open(context, ino, open)?, flags))
    }

    /// The reply for an open file, whose content the kernel may cache unless it changes otherwise.
    fn cached_open_reply(&self, file: OpenFile, flags: i32) -> OpenReply {
        // the kernel reads its cached pages without a request, and the atime would not change
        let has_atime_due = flags & O_ACCMODE != O_WRONLY && file.is_atime_due();
        // a rollback replaces the content of a volume
        let is_kept = !file.is_volume() && !has_atime_due;
        // the kernel answers reads of an empty file itself, unless they are direct
        let is_read_unseen = has_atime_due
            && flags & O_ACCMODE == O_RDONLY
            && self.has_direct_io_mmap.load(Relaxed)
            && matches!(file.size(), Ok(0));
        let reply = self.open_reply(file, flags);
        if is_read_unseen {
            return reply.direct_io();
        }
        if is_kept { reply.keep_cache() } else { reply }
    }

    /// The flags for an open file. A file that is only written needs no copy in the kernel's
    /// memory; a reader through another descriptor keeps its cached pages.
    fn open_reply(&self, file: OpenFile, flags: i32) -> OpenReply {
        let file = FileHandle::new(file, flags, &self.mappable);
        let file = OpenReply::new(self.open_files.insert(file.into()));
        // FLUSH releases locks, and takes a third of the time of an open and a close
        let file = if flags & O_ACCMODE == O_RDONLY { file.no_flush() } else { file };
        let only_written = flags & O_ACCMODE == O_WRONLY;
        if only_written && self.has_direct_io_mmap.load(Relaxed) { file.direct_io() } else { file }
    }
}

/// The mode of open(2)'s flags.
fn open_mode(flags: i32) -> OpenMode {
    let execute = flags & FMODE_EXEC != 0;
    OpenMode {
        read: matches!(flags & O_ACCMODE, O_RDONLY | O_RDWR) && !execute,
        write: matches!(flags & O_ACCMODE, O_WRONLY | O_RDWR),
        append: flags & O_APPEND != 0,
        truncate: flags & O_TRUNC != 0,
        no_atime: flags & O_NOATIME != 0,
        execute,
    }
}
