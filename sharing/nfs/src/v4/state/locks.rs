//! Byte-range locks: LOCK, LOCKT, LOCKU, FREE_STATEID.
//!
//! The locks themselves are in the lock table of the file system, which all doors share. Here is which lock owner has
//! which stateid.

use std::ops::Range;
use std::sync::Arc;

use posix::Ino;
use vfs::{ByteLock, FileHandle, LockError, LockKind, LockOwner};

use super::opens::{check_seqid, next_seqid};
use super::{Removed, StateTable, Tables};
use crate::export::ServedExport;
use crate::node::FileNode;
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{Locker, StateId};

/// The locks of a lock owner in a file.
pub(super) struct LockState {
    pub(super) client: u64,
    pub(super) owner: Vec<u8>,
    /// The number of the owner in file systems.
    owner_number: u64,
    pub(super) target: LockTarget,
    /// The number of the open by which it locks.
    pub(super) open: u64,
    pub(super) seqid: u32,
}

/// A file with locks.
#[derive(Clone)]
pub(crate) struct LockTarget {
    pub(super) export: Arc<ServedExport>,
    ino: Ino,
    handle: FileHandle,
}

/// A request for a lock.
pub(crate) struct LockRequest<'a> {
    pub(crate) client: u64,
    pub(crate) node: &'a FileNode,
    pub(crate) range: Range<u64>,
    pub(crate) kind: LockKind,
    pub(crate) is_reclaim: bool,
}

/// The result of LOCK and LOCKT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LockResult {
    /// The lock is held. LOCKT: it could be.
    Granted(StateId),
    /// Another owner holds a lock: its client and name, which are 0 and empty for other doors.
    Denied { range: Range<u64>, kind: LockKind, client: u64, owner: Vec<u8> },
}

/// The access that an open needs for a lock.
fn needed_access(kind: LockKind) -> u32 {
    match kind {
        LockKind::Shared => 1,
        LockKind::Exclusive => 2,
    }
}

impl LockTarget {
    fn new(node: &FileNode) -> Self {
        Self { export: Arc::clone(&node.export), ino: node.ino, handle: node.handle }
    }
}

impl LockTarget {
    pub(super) fn handle(&self) -> FileHandle {
        self.handle
    }

    /// The ranges that a client has locked in the file.
    pub(super) fn count_ranges(&self, client: u64) -> usize {
        self.export.filesystem.locks().count_ranges(self.ino, self.export.client_id(client))
    }

    /// A lock owner of a client, as the file system knows it.
    fn owner(&self, client: u64, owner: u64) -> LockOwner {
        LockOwner { client: self.export.client_id(client), owner }
    }
}

impl StateTable {
    /// LOCK.
    pub(crate) fn lock_bytes(
        &self,
        request: &LockRequest<'_>,
        locker: &Locker<'_>,
    ) -> Result<LockResult> {
        let mut tables = self.lock();
        tables.check_grace(request.client, request.is_reclaim)?;
        if !request.is_reclaim && self.lock_grace.is_active() {
            return Err(Status::GRACE);
        }
        let (number, is_new) = match locker {
            Locker::New(new) => {
                let open = self.state_number(&new.open)?;
                check_seqid(&new.open, tables.open_seqid(request.client, open)?)?;
                self.enter_lock_owner(&mut tables, request, (open, new.owner.id))?
            }
            Locker::Existing(id, _) => {
                let number = self.state_number(id)?;
                check_seqid(id, tables.lock_state(request, number)?.seqid)?;
                (number, false)
            }
        };
        let lock = tables.lock_state(request, number)?;
        let access = tables.open_access(lock.open)?;
        let owner = lock.target.owner(request.client, lock.owner_number);
        let byte_lock = ByteLock { owner, range: request.range.clone(), kind: request.kind };
        let table = request.node.export.filesystem.locks();
        let locked = if access & needed_access(request.kind) == 0 {
            Err(Status::OPENMODE)
        } else {
            match table.try_lock(request.node.ino, &byte_lock) {
                Ok(()) => Ok(None),
                Err(LockError::Conflict(held)) => Ok(Some(held)),
                Err(LockError::Deadlock) => Err(Status::DEADLOCK),
                Err(LockError::EmptyRange) => Err(Status::INVAL),
            }
        };
        if is_new && !matches!(locked, Ok(None)) {
            tables.remove_lock(number);
        }
        if let Some(held) = locked? {
            return Ok(Self::denied(&tables, request, &held));
        }
        let lock = tables.locks.get_mut(&number).ok_or(Status::SERVERFAULT)?;
        lock.seqid = next_seqid(lock.seqid);
        let seqid = lock.seqid;
        if request.is_reclaim {
            tables.note_reclaim(request.client);
        }
        Ok(LockResult::Granted(self.state_id(number, seqid)))
    }

    /// The state of a lock owner in a file, new or as it is. Returns its number, and whether it is new.
    fn enter_lock_owner(
        &self,
        tables: &mut Tables,
        request: &LockRequest<'_>,
        (open, owner): (u64, &[u8]),
    ) -> Result<(u64, bool)> {
        let key = (owner.to_vec(), request.node.handle);
        let limit = self.limits.states;
        let client = tables.client(request.client)?;
        if let Some(number) = client.locks.get(&key) {
            return Ok((*number, false));
        }
        if client.states() >= limit {
            return Err(Status::RESOURCE);
        }
        let (number, fresh) = (tables.next_number(), tables.next_number());
        let client = tables.client_mut(request.client)?;
        let known = client.lock_owners.entry(owner.to_vec()).or_insert((fresh, 0));
        known.1 += 1;
        let owner_number = known.0;
        client.locks.insert(key, number);
        tables.opens.get_mut(&open).ok_or(Status::BAD_STATEID)?.locks.insert(number);
        let lock = LockState {
            client: request.client,
            owner: owner.to_vec(),
            owner_number,
            target: LockTarget::new(request.node),
            open,
            seqid: 0,
        };
        tables.locks.insert(number, lock);
        Ok((number, true))
    }

    /// LOCKT.
    pub(crate) fn test_lock(&self, request: &LockRequest<'_>, owner: &[u8]) -> Result<LockResult> {
        let tables = self.lock();
        let known = tables.client(request.client)?.lock_owners.get(owner);
        // numbers begin at 1: an owner without locks is nobody else
        let number = known.map_or(0, |(number, _)| *number);
        let owner = LockTarget::new(request.node).owner(request.client, number);
        let lock = ByteLock { owner, range: request.range.clone(), kind: request.kind };
        let held = request.node.export.filesystem.locks().find_conflict(request.node.ino, &lock);
        Ok(match held {
            Some(held) => Self::denied(&tables, request, &held),
            None => LockResult::Granted(StateId::ANONYMOUS),
        })
    }

    /// LOCKU.
    pub(crate) fn unlock_bytes(
        &self,
        (client, node): (u64, &FileNode),
        id: &StateId,
        range: &Range<u64>,
    ) -> Result<StateId> {
        let mut tables = self.lock();
        let number = self.state_number(id)?;
        let lock = tables.locks.get_mut(&number).filter(|lock| lock.client == client);
        let lock = lock.ok_or(Status::BAD_STATEID)?;
        check_seqid(id, lock.seqid)?;
        if lock.target.handle != node.handle {
            return Err(Status::BAD_STATEID);
        }
        lock.seqid = next_seqid(lock.seqid);
        let owner = lock.target.owner(client, lock.owner_number);
        lock.target.export.filesystem.locks().unlock(lock.target.ino, owner, range);
        Ok(self.state_id(number, lock.seqid))
    }

    /// FREE_STATEID: a client frees the state of a lock owner that holds no lock in the file any more, or a delegation
    /// that was revoked.
    pub(crate) fn free_state(&self, client: u64, id: &StateId) -> Result<()> {
        let mut removed = Removed::default();
        let mut tables = self.lock();
        let number = self.state_number(id)?;
        if tables.delegations.contains_key(&number) {
            return tables.free_delegation((client, number), &mut removed);
        }
        let Some(lock) = tables.locks.get(&number).filter(|lock| lock.client == client) else {
            tables.open(client, number)?;
            return Err(Status::LOCKS_HELD);
        };
        check_seqid(id, lock.seqid)?;
        if lock.holds_any() {
            return Err(Status::LOCKS_HELD);
        }
        tables.remove_lock(number);
        Ok(())
    }

    fn denied(tables: &Tables, request: &LockRequest<'_>, held: &ByteLock) -> LockResult {
        let ByteLock { owner, range, kind } = held.clone();
        let is_own = owner.client.door == request.node.export.door;
        let client = if is_own { owner.client.client } else { 0 };
        let owners = tables.clients.get(&client).map(|client| &client.lock_owners);
        let mut owners = owners.into_iter().flatten();
        let name = owners.find(|(_, (number, _))| *number == owner.owner);
        let owner = name.map_or_else(Vec::new, |(name, _)| name.clone());
        LockResult::Denied { range, kind, client, owner }
    }
}

impl LockState {
    /// Whether the owner has locked bytes of the file.
    pub(super) fn holds_any(&self) -> bool {
        let owner = self.target.owner(self.client, self.owner_number);
        let held = self.target.export.filesystem.locks().held_locks(self.target.ino);
        held.iter().any(|held| held.owner == owner)
    }
}

impl Tables {
    fn lock_state(&self, request: &LockRequest<'_>, number: u64) -> Result<&LockState> {
        let lock = self.locks.get(&number).filter(|lock| {
            lock.client == request.client && lock.target.handle == request.node.handle
        });
        lock.ok_or(Status::BAD_STATEID)
    }

    /// Removes the state of a lock owner in a file, with its locks.
    pub(super) fn remove_lock(&mut self, number: u64) {
        let Some(lock) = self.locks.remove(&number) else { return };
        let owner = lock.target.owner(lock.client, lock.owner_number);
        lock.target.export.filesystem.locks().release_file(lock.target.ino, owner);
        let Some(client) = self.clients.get_mut(&lock.client) else { return };
        client.locks.remove(&(lock.owner.clone(), lock.target.handle));
        if let Some((_, files)) = client.lock_owners.get_mut(&lock.owner) {
            *files -= 1;
            if *files == 0 {
                client.lock_owners.remove(&lock.owner);
                client.lock_sequences.remove(&lock.owner);
            }
        }
        if let Some(open) = self.opens.get_mut(&lock.open) {
            open.locks.remove(&number);
        }
    }
}
