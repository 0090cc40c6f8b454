//! Locks of bytes (fcntl) and of whole files (flock) of programs that use the mount.
//!
//! They are in the table of locks that all doors share, so a program here and an NFS client exclude each other.
//!
//! ```text
//! request          releases
//! FLUSH            all byte locks that the process has of the file: it closed a descriptor of it
//! RELEASE          the flock of the open file, locks that the open file itself owns (F_OFD_SETLK), and the shared
//!                  locks that were set by a descriptor to read
//! ```
//!
//! The kernel sends no FLUSH for descriptors that only read. So a shared lock that a process set by one lasts until
//! the last copy of the descriptor is closed, and such a close releases no other lock of the process.
//!
//! flock(2) and fcntl(2) locks of one machine do not exclude each other, so flock locks have a door
//! of their own. Against other doors a flock is a lock of all bytes, as in the NFS client of Linux.
//!
//! A request that waits for a lock has a thread of its own, which holds nothing that a rollback waits for. A signal
//! ends the wait: the kernel sends INTERRUPT with the number of the request, perhaps before the request itself.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fusedev::{LockRequest, LockType, Reply, RequestContext};
use parking_lot::{Condvar, Mutex};
use posix::Ino;
use rustix::io::Errno;
use vfs::{
    ByteLock, ClientId, DoorId, LockError, LockKind, LockOwner, LockState, SharedFileSystem as _,
    WaitEnd,
};

use super::FileSystemServer;

/// Requests of a mount that may wait for locks at a time. Each has a thread.
const MAX_WAITS: usize = 512;
/// Interrupts that are kept for requests which have not come yet. Most are for other requests.
const MAX_EARLY_INTERRUPTS: usize = 256;
/// How often a wait looks whether anything is mounted any more.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The kernel's last byte of a lock to the end of the file.
const TO_END: u64 = i64::MAX.unsigned_abs();

/// The locks of a mount, as far as they are not in the shared table.
pub(super) struct FileLocks {
    /// The door of flock locks.
    flock_door: DoorId,
    waits: Mutex<Waits>,
    /// The process of each owner that has byte locks, for F_GETLK.
    processes: Mutex<HashMap<u64, u32>>,
}

#[derive(Default)]
struct Waits {
    /// By request.
    waiting: HashMap<u64, Arc<LockWait>>,
    early_interrupts: VecDeque<u64>,
}

/// A request that waits for a lock.
#[derive(Default)]
struct LockWait {
    state: Mutex<LockWaitState>,
    changed: Condvar,
}

#[derive(Default)]
struct LockWaitState {
    end: Option<WaitEnd>,
    is_interrupted: bool,
}

impl LockWait {
    fn set_end(&self, end: WaitEnd) {
        self.state.lock().end = Some(end);
        self.changed.notify_all();
    }

    fn interrupt(&self) {
        self.state.lock().is_interrupted = true;
        self.changed.notify_all();
    }

    /// Waits for the end; none: an interrupt came first, or nothing is mounted any more.
    fn wait(&self, is_unmounted: impl Fn() -> bool) -> Option<WaitEnd> {
        let mut state = self.state.lock();
        while state.end.is_none() && !state.is_interrupted && !is_unmounted() {
            self.changed.wait_for(&mut state, POLL_INTERVAL);
        }
        state.end
    }
}

impl FileLocks {
    pub(super) fn new() -> Self {
        let flock_door = DoorId::new_unique();
        Self { flock_door, waits: Mutex::default(), processes: Mutex::default() }
    }

    /// A signal has reached the program of a request.
    pub(super) fn interrupt(&self, unique: u64) {
        let mut waits = self.waits.lock();
        if let Some(wait) = waits.waiting.get(&unique) {
            return wait.interrupt();
        }
        if waits.early_interrupts.len() == MAX_EARLY_INTERRUPTS {
            waits.early_interrupts.pop_front();
        }
        waits.early_interrupts.push_back(unique);
    }

    /// Adds a wait; false: too many requests wait.
    fn add(&self, unique: u64, wait: &Arc<LockWait>) -> bool {
        let mut waits = self.waits.lock();
        if waits.waiting.len() >= MAX_WAITS {
            return false;
        }
        if waits.early_interrupts.contains(&unique) {
            wait.interrupt();
        }
        waits.waiting.insert(unique, Arc::clone(wait));
        true
    }
}

impl FileSystemServer {
    /// Flock locks and byte locks of this mount do not exclude each other.
    pub(super) fn start_locks(&self) {
        self.fs.locks().set_independent(self.door, self.locks.flock_door);
    }

    /// Releases all locks: nothing is mounted any more.
    pub(super) fn end_locks(&self) {
        for door in [self.door, self.locks.flock_door] {
            self.fs.locks().release_door(door);
        }
    }

    fn lock_owner(&self, owner: u64, is_flock: bool) -> LockOwner {
        let door = if is_flock { self.locks.flock_door } else { self.door };
        LockOwner { client: ClientId { door, client: 0 }, owner }
    }

    fn byte_lock(&self, request: &LockRequest) -> Result<ByteLock, Errno> {
        let last = request.last;
        let end = if last >= TO_END { u64::MAX } else { last + 1 };
        if request.start >= end {
            return Err(Errno::INVAL);
        }
        let kind = match request.kind {
            LockType::Read => LockKind::Shared,
            LockType::Write | LockType::None => LockKind::Exclusive,
        };
        let owner = self.lock_owner(request.owner, request.is_flock);
        Ok(ByteLock { owner, range: request.start..end, kind })
    }

    /// The lock that is in the way of another.
    pub(super) fn get_lock(&self, ino: Ino, request: &LockRequest) -> Result<Reply, Errno> {
        let lock = self.byte_lock(request)?;
        let Some(held) = self.fs.locks().find_conflict(ino, &lock) else {
            return Ok(Reply::lock((request.start, request.last), LockType::None, 0));
        };
        let last = if held.range.end == u64::MAX { TO_END } else { held.range.end - 1 };
        let kind = match held.kind {
            LockKind::Shared => LockType::Read,
            LockKind::Exclusive => LockType::Write,
        };
        let is_local = held.owner.client.door == self.door;
        let pid = self.locks.processes.lock().get(&held.owner.owner).copied();
        Ok(Reply::lock((held.range.start, last), kind, pid.filter(|_| is_local).unwrap_or(0)))
    }

    /// Sets or removes a lock.
    pub(super) fn set_lock(
        &self,
        context: &RequestContext<'_>,
        ino: Ino,
        request: &LockRequest,
        waits: bool,
    ) -> Result<Reply, Errno> {
        let lock = self.byte_lock(request)?;
        if request.kind == LockType::None {
            self.fs.locks().unlock(ino, lock.owner, &lock.range);
            return Ok(Reply::empty());
        }
        let file = self.open_files.get(request.handle).ok_or(Errno::BADF)?;
        if !request.is_flock {
            file.add_lock_owner(request.owner);
            self.locks.processes.lock().insert(request.owner, request.pid);
        }
        let done = if waits {
            self.wait_for_lock(context, ino, &lock)
        } else {
            self.fs.locks().try_lock(ino, &lock).map_err(|why| lock_errno(&why))
        };
        done.map(|()| Reply::empty())
    }

    fn wait_for_lock(
        &self,
        context: &RequestContext<'_>,
        ino: Ino,
        lock: &ByteLock,
    ) -> Result<(), Errno> {
        let (table, wait) = (self.fs.locks(), Arc::new(LockWait::default()));
        let waiting = Arc::clone(&wait);
        let callback = Box::new(move |end| waiting.set_end(end));
        let id = match table.lock_or_wait(ino, lock, callback) {
            Ok(LockState::Granted) => return Ok(()),
            Ok(LockState::Waiting(id)) => id,
            Err(why) => return Err(lock_errno(&why)),
        };
        let end = if self.locks.add(context.unique, &wait) {
            let end = context.run_blocking(|| wait.wait(|| context.is_unmounted()));
            self.locks.waits.lock().waiting.remove(&context.unique);
            end
        } else if table.cancel_wait(ino, id) {
            return Err(Errno::NOLCK);
        } else {
            wait.wait(|| context.is_unmounted())
        };
        match end {
            Some(WaitEnd::Released) => Err(Errno::INTR),
            None if table.cancel_wait(ino, id) => Err(Errno::INTR),
            // it may have been granted in the moment of the interrupt
            Some(WaitEnd::Granted) | None => Ok(()),
        }
    }

    /// A process closed a descriptor of the file: it loses all its byte locks of it.
    pub(super) fn flush_locks(&self, ino: Ino, owner: u64) {
        self.fs.locks().release_file(ino, self.lock_owner(owner, false));
        self.locks.processes.lock().remove(&owner);
    }

    /// An open file is closed.
    pub(super) fn release_locks(&self, ino: Ino, handle: u64, flock_owner: Option<u64>) {
        if let Some(owner) = flock_owner {
            self.fs.locks().release_file(ino, self.lock_owner(owner, true));
        }
        let Some(file) = self.open_files.get(handle) else { return };
        // these owners have closed their descriptors, or are the open file itself
        for owner in file.take_lock_owners() {
            self.flush_locks(ino, owner);
        }
    }
}

fn lock_errno(why: &LockError) -> Errno {
    match why {
        LockError::Conflict(_) => Errno::AGAIN,
        LockError::Deadlock => Errno::DEADLK,
        LockError::EmptyRange => Errno::INVAL,
    }
}
