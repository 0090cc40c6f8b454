//! The calls of clients to the lock manager.

use std::ops::Range;
use std::sync::Arc;

use posix::FileType;
use posix::access::OpenMode;
use posix::acl::nfs4::mask;
use vfs::{ByteLock, FileHandle, LockError, LockKind, LockState, OpenFile, WaitEnd};

use super::callbacks::Job;
use super::state::{ClientKey, OwnedLock, Peer, Removed, ShareState, Target, Wait, lock_kind};
use super::{Inner, LockManager};
use crate::node::{FileNode, Node};
use crate::request::Request;
use crate::wire::nlm::{
    Holder, Lock, LockStatus, Operation, Procedure, Share, TestResult, write_result,
    write_share_result, write_test_result,
};
use crate::wire::status::Status;
use crate::wire::xdr::Writer;

type Result<T> = std::result::Result<T, LockStatus>;

/// A request for a lock.
struct NewLock<'a> {
    lock: &'a Lock<'a>,
    range: Range<u64>,
    kind: LockKind,
    may_wait: bool,
    is_monitored: bool,
}

/// The status of the protocol for an error of a file.
fn to_lock_status(status: Status) -> LockStatus {
    match status {
        Status::STALE | Status::BADHANDLE => LockStatus::StaleHandle,
        // the client tries again: a pool is being imported, or another client returns a delegation
        Status::DELAY => LockStatus::DeniedGracePeriod,
        Status::ROFS => LockStatus::ReadOnly,
        Status::SHARE_DENIED => LockStatus::Denied,
        Status::ACCESS | Status::PERM => LockStatus::DeniedNoLocks,
        _ => LockStatus::Failed,
    }
}

impl LockManager {
    /// Carries out a procedure, and writes its result.
    pub(crate) fn execute(
        &self,
        request: &Request<'_>,
        peer: &Peer,
        procedure: &Procedure<'_>,
        writer: &mut Writer,
    ) {
        match *procedure {
            Procedure::Null | Procedure::Ignored => {}
            Procedure::FreeAll { caller } => self.0.remove_client(&key(peer, caller)),
            Procedure::Operation { cookie, operation, result_call: None } => {
                self.0.execute(request, peer, (cookie, &operation), writer);
            }
            Procedure::Operation { cookie, operation, result_call: Some(procedure) } => {
                let mut results = Writer::default();
                self.0.execute(request, peer, (cookie, &operation), &mut results);
                let (results, transport) = (results.into_bytes(), peer.transport);
                let host = peer.address.ip().to_canonical();
                self.0.queue_call(host, Job::Result { procedure, results, transport });
            }
        }
    }
}

fn key(peer: &Peer, name: &[u8]) -> ClientKey {
    ClientKey { address: peer.address.ip().to_canonical(), name: name.to_vec() }
}

/// A regular file that a client names, if the caller may read or write it.
fn find_file(request: &Request<'_>, handle: &[u8]) -> Result<FileNode> {
    let find = || {
        let Node::File(node) = request.resolve(handle)? else { return Err(Status::ISDIR) };
        let attributes = request.file_attributes(&node)?.stat;
        if attributes.kind != FileType::File {
            return Err(Status::INVAL);
        }
        // the client has checked the access of a program when the program opened the file
        if attributes.uid != node.admission.credentials.uid {
            let any = mask::READ_DATA | mask::WRITE_DATA | mask::EXECUTE;
            let fs = &node.export.filesystem;
            if fs.access(&request.context(&node), node.ino, any)? == 0 {
                return Err(Status::ACCESS);
            }
        }
        Ok(node)
    };
    find().map_err(to_lock_status)
}

/// Opens a file that a client locks. A file with an exclusive lock is open to write, so that no client of NFSv4 gets a
/// delegation by which it would grant locks by itself.
fn open_file(request: &Request<'_>, node: &FileNode, is_writing: bool) -> Result<OpenFile> {
    let context = request.context(node).checked_by_door();
    let fs = &node.export.filesystem;
    let open = |mode| fs.open(&context, node.ino, mode).map_err(Status::from);
    let opened = if is_writing { open(OpenMode::READ_WRITE) } else { open(OpenMode::READ) };
    match opened {
        // nobody writes there, and nobody gets a delegation to write
        Err(Status::ROFS) => open(OpenMode::READ).map_err(to_lock_status),
        opened => opened.map_err(to_lock_status),
    }
}

impl Inner {
    fn execute(
        self: &Arc<Self>,
        request: &Request<'_>,
        peer: &Peer,
        (cookie, operation): (&[u8], &Operation<'_>),
        writer: &mut Writer,
    ) {
        let status = |result: Result<LockStatus>| result.unwrap_or_else(|status| status);
        match operation {
            Operation::Test { is_exclusive, lock } => {
                let result = self.test(request, &key(peer, lock.caller), (lock, *is_exclusive));
                write_test_result(writer, cookie, result);
            }
            Operation::Lock { .. } => {
                write_result(writer, cookie, status(self.lock(request, peer, operation)));
            }
            Operation::Cancel { is_exclusive, lock } => {
                let result = self.cancel(request, &key(peer, lock.caller), (lock, *is_exclusive));
                write_result(writer, cookie, status(result));
            }
            Operation::Unlock { lock } => {
                let result = self.unlock(request, &key(peer, lock.caller), lock);
                write_result(writer, cookie, status(result));
            }
            Operation::Share { share, is_reclaim } => {
                let result = self.share(request, peer, (share, *is_reclaim));
                write_share_result(writer, cookie, status(result));
            }
            Operation::Unshare { share } => {
                let result = self.unshare(request, &key(peer, share.caller), share);
                write_share_result(writer, cookie, status(result));
            }
        }
    }

    /// Whether a client may lock: what it had before a restart in the grace period, and everything else after it.
    fn check_grace(&self, request: &Request<'_>, is_reclaim: bool) -> Result<()> {
        let is_grace = self.grace.is_active();
        if is_reclaim && is_grace || !is_reclaim && !is_grace && !request.state.is_in_grace() {
            return Ok(());
        }
        // the client requests a lock that it cannot reclaim like any other, or gives it up
        Err(if is_reclaim { LockStatus::Denied } else { LockStatus::DeniedGracePeriod })
    }

    fn test(
        &self,
        request: &Request<'_>,
        key: &ClientKey,
        (lock, is_exclusive): (&Lock<'_>, bool),
    ) -> TestResult {
        self.check_grace(request, false)?;
        let range = lock.range().filter(|range| !range.is_empty()).ok_or(LockStatus::TooBig)?;
        let target = Target::new(&find_file(request, lock.handle)?);
        let tables = self.tables.lock();
        let owner = target.owner(tables.find_client(key), lock.process);
        let wanted = ByteLock { owner, range, kind: lock_kind(is_exclusive) };
        let held = target.export.filesystem.locks().find_conflict(target.ino, &wanted);
        Ok(held.map(|held| {
            let is_own = super::state::is_lock_client(held.owner.client);
            let process = if is_own { u32::try_from(held.owner.owner).ok() } else { None };
            Holder {
                is_exclusive: held.kind == LockKind::Exclusive,
                process: process.unwrap_or_default(),
                range: held.range,
            }
        }))
    }

    fn lock(
        self: &Arc<Self>,
        request: &Request<'_>,
        peer: &Peer,
        operation: &Operation<'_>,
    ) -> Result<LockStatus> {
        let Operation::Lock { may_wait, is_exclusive, ref lock, is_reclaim, is_monitored } =
            *operation
        else {
            return Err(LockStatus::Failed);
        };
        self.check_grace(request, is_reclaim)?;
        let range = lock.range().filter(|range| !range.is_empty()).ok_or(LockStatus::TooBig)?;
        let node = find_file(request, lock.handle)?;
        let target = Target::new(&node);
        let key = key(peer, lock.caller);
        let opened = if self.is_open(&key, &target.handle, is_exclusive) {
            None
        } else {
            Some((open_file(request, &node, is_exclusive)?, is_exclusive))
        };
        let new = NewLock { lock, range, kind: lock_kind(is_exclusive), may_wait, is_monitored };
        let mut removed = Removed::default();
        // the lock of the tables ends before the files are closed
        let status = self.enter_lock((&key, peer), &target, &new, opened, &mut removed);
        drop(removed);
        status
    }

    /// Whether a client has a file open as a lock needs it.
    fn is_open(&self, key: &ClientKey, handle: &FileHandle, is_writing: bool) -> bool {
        let tables = self.tables.lock();
        let client = tables.find_client(key).and_then(|number| tables.clients.get(&number));
        let file = client.and_then(|client| client.files.get(handle));
        file.is_some_and(|file| file.is_writing || !is_writing)
    }

    fn enter_lock(
        self: &Arc<Self>,
        (key, peer): (&ClientKey, &Peer),
        target: &Target,
        new: &NewLock<'_>,
        opened: Option<(OpenFile, bool)>,
        removed: &mut Removed,
    ) -> Result<LockStatus> {
        let mut tables = self.tables.lock();
        let client = tables.enter_client(key, self.max_clients);
        let client = client.ok_or(LockStatus::DeniedNoLocks)?;
        if new.is_monitored {
            let stored = tables.list.add(key, peer.server);
            stored.map_err(|_| LockStatus::DeniedNoLocks)?;
        }
        let state = tables.clients.get(&client).ok_or(LockStatus::Failed)?;
        if state.states() >= self.max_states {
            return Err(LockStatus::DeniedNoLocks);
        }
        let owner = target.owner(Some(client), new.lock.process);
        let byte_lock = ByteLock { owner, range: new.range.clone(), kind: new.kind };
        let known = state.find_wait(&target.handle, &byte_lock);
        tables.enter_file(client, target, opened, removed);
        let locks = target.export.filesystem.locks();
        let locked = match locks.try_lock(target.ino, &byte_lock) {
            Ok(()) => {
                // the client learns by this reply that its wait has ended
                if let Some(wait) = known {
                    removed.append(tables.end_wait(client, wait, true));
                }
                Ok(LockStatus::Granted)
            }
            Err(LockError::Conflict(_)) if new.may_wait && known.is_some() => {
                Ok(LockStatus::Blocked)
            }
            Err(LockError::Conflict(_)) if new.may_wait => {
                let lock = OwnedLock::new(new.lock);
                let wait = Wait::new(target.clone(), lock, byte_lock, peer.transport);
                self.begin_wait(&mut tables, client, wait)
            }
            Err(LockError::Conflict(_)) => Ok(LockStatus::Denied),
            Err(LockError::Deadlock) => Err(LockStatus::Deadlock),
            Err(LockError::EmptyRange) => Err(LockStatus::Failed),
        };
        tables.update_file(client, &target.handle, removed);
        locked
    }

    /// Waits for a lock. The callback only queues a call: this thread may hold the lock of the tables when it runs.
    fn begin_wait(
        self: &Arc<Self>,
        tables: &mut super::Tables,
        client: u64,
        mut wait: Wait,
    ) -> Result<LockStatus> {
        let number = tables.next_number();
        let state = tables.clients.get_mut(&client).ok_or(LockStatus::Failed)?;
        let (inner, host) = (Arc::downgrade(self), state.key.address);
        let callback = move |end| {
            if end == WaitEnd::Granted
                && let Some(inner) = inner.upgrade()
            {
                inner.queue_call(host, Job::Granted { client, wait: number });
            }
        };
        let locks = wait.target.export.filesystem.locks();
        match locks.lock_or_wait(wait.target.ino, &wait.byte_lock, Box::new(callback)) {
            Ok(LockState::Granted) => Ok(LockStatus::Granted),
            Ok(LockState::Waiting(id)) => {
                wait.id = Some(id);
                state.waits.insert(number, wait);
                Ok(LockStatus::Blocked)
            }
            Err(LockError::Deadlock) => Err(LockStatus::Deadlock),
            Err(LockError::Conflict(_) | LockError::EmptyRange) => Err(LockStatus::Failed),
        }
    }

    /// The file of a handle. Its file system need not be asked: a client ends what it has whatever the state of the file.
    fn decode(request: &Request<'_>, handle: &[u8]) -> Result<FileHandle> {
        let decoded = FileHandle::decode(&request.core.handle_key, handle);
        decoded.map_err(|_| LockStatus::StaleHandle)
    }

    fn cancel(
        &self,
        request: &Request<'_>,
        key: &ClientKey,
        (lock, is_exclusive): (&Lock<'_>, bool),
    ) -> Result<LockStatus> {
        let handle = Self::decode(request, lock.handle)?;
        let range = lock.range().ok_or(LockStatus::TooBig)?;
        let mut tables = self.tables.lock();
        let client = tables.find_client(key).ok_or(LockStatus::Denied)?;
        let state = tables.clients.get(&client).ok_or(LockStatus::Denied)?;
        let file = state.files.get(&handle).ok_or(LockStatus::Denied)?;
        let owner = file.target().owner(Some(client), lock.process);
        let wanted = ByteLock { owner, range, kind: lock_kind(is_exclusive) };
        let wait = state.find_wait(&handle, &wanted).ok_or(LockStatus::Denied)?;
        let removed = tables.end_wait(client, wait, false);
        drop(tables);
        drop(removed);
        Ok(LockStatus::Granted)
    }

    fn unlock(
        &self,
        request: &Request<'_>,
        key: &ClientKey,
        lock: &Lock<'_>,
    ) -> Result<LockStatus> {
        let handle = Self::decode(request, lock.handle)?;
        let range = lock.range().ok_or(LockStatus::TooBig)?;
        let mut tables = self.tables.lock();
        if let Some(client) = tables.find_client(key) {
            let removed = tables.unlock(client, (&handle, lock.process), &range);
            drop(tables);
            drop(removed);
        }
        Ok(LockStatus::Granted)
    }

    fn share(
        &self,
        request: &Request<'_>,
        peer: &Peer,
        (share, is_reclaim): (&Share<'_>, bool),
    ) -> Result<LockStatus> {
        self.check_grace(request, is_reclaim)?;
        let node = find_file(request, share.handle)?;
        let context = request.context(&node).checked_by_door();
        let (read, write) = (share.access & 1 != 0, share.access & 2 != 0);
        let mode = OpenMode { read: read || !write, write, ..OpenMode::READ };
        let fs = &node.export.filesystem;
        let file = fs.open(&context, node.ino, mode).map_err(|why| to_lock_status(why.into()))?;
        let (key, handle) = (key(peer, share.caller), node.handle);
        let mut removed = Removed::default();
        let mut tables = self.tables.lock();
        let client = tables.enter_client(&key, self.max_clients);
        let client = client.ok_or(LockStatus::DeniedNoLocks)?;
        let states = tables.clients.get(&client).map_or(0, super::state::LockClient::states);
        if states >= self.max_states {
            return Err(LockStatus::DeniedNoLocks);
        }
        if tables.has_share_conflict((client, share.owner), share, &handle) {
            return Err(LockStatus::Denied);
        }
        let (owner, access, deny) = (share.owner.to_vec(), share.access, share.deny);
        let target = Target::new(&node);
        let state = ShareState { client, owner, access, deny, target, file };
        tables.enter_share(state, &mut removed);
        drop(tables);
        drop(removed);
        Ok(LockStatus::Granted)
    }

    fn unshare(
        &self,
        request: &Request<'_>,
        key: &ClientKey,
        share: &Share<'_>,
    ) -> Result<LockStatus> {
        let handle = Self::decode(request, share.handle)?;
        let mut removed = Removed::default();
        let mut tables = self.tables.lock();
        if let Some(client) = tables.find_client(key) {
            tables.remove_share((client, share.owner), &handle, &mut removed);
        }
        drop(tables);
        drop(removed);
        Ok(LockStatus::Granted)
    }

    /// Ends all locks of a client.
    pub(super) fn remove_client(&self, key: &ClientKey) {
        let mut removed = Removed::default();
        let mut tables = self.tables.lock();
        if let Some(client) = tables.find_client(key) {
            tables.remove_client(client, &mut removed);
        }
        drop(tables);
        drop(removed);
    }
}
