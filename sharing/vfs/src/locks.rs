//! Byte-range locks of one file system, shared by all doors.
//!
//! The semantics are those of fcntl(2): an owner's new lock replaces what it held in the range, locks of one
//! owner never conflict, and neighbours of the same kind merge. A door that locks per open file (OFD locks, SMB,
//! NFSv4 lock owners) uses one [`LockOwner`] per open file. The locks are advisory; a door with mandatory locks
//! asks [`LockTable::find_conflict`] before it reads or writes.
//!
//! A request that conflicts can wait. The table calls its callback once, when the lock is granted or the wait
//! ends otherwise, and holds no lock of its own meanwhile. A wait that closes a cycle of owners is refused. The
//! search is done when a wait begins: an owner that waits for several locks at a time can still close a cycle
//! by a lock that is granted later.
//!
//! Waiting requests are granted in the order of their arrival, as far as they do not conflict with held locks.
//! A request that does not conflict never waits for an earlier one that does, as in Linux.
//!
//! A client that was not heard of for longer than its lease keeps its locks by courtesy: the first request that conflicts
//! with one of them frees all of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use parking_lot::Mutex;
use posix::Ino;

use crate::{ClientId, DoorId};

/// An owner of locks: opaque to the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockOwner {
    /// The client that the owner belongs to.
    pub client: ClientId,
    /// The client's number for the owner.
    pub owner: u64,
}

/// The kind of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockKind {
    /// Others may hold shared locks of the same bytes.
    Shared,
    /// Exclusive: no other owner may hold a lock of the same bytes.
    Exclusive,
}

/// A lock: requested, or held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByteLock {
    /// The owner.
    pub owner: LockOwner,
    /// The bytes; `u64::MAX` as the end means the end of the file, wherever that is.
    pub range: Range<u64>,
    /// Shared or exclusive.
    pub kind: LockKind,
}

/// Why a lock is not granted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LockError {
    /// Another owner holds a lock of some of the bytes.
    #[error("another program has locked bytes {} to {}", .0.range.start, .0.range.end)]
    Conflict(ByteLock),
    /// The wait would never end: the owners that hold the bytes wait for this owner.
    #[error("the lock would wait for itself: two programs lock the same files in different order")]
    Deadlock,
    /// The range has no bytes.
    #[error("a lock needs at least one byte")]
    EmptyRange,
}

/// How a wait for a lock ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitEnd {
    /// The owner holds the lock now.
    Granted,
    /// The client was removed from the table.
    Released,
}

/// A callback for the end of a wait.
pub type WaitCallback = Box<dyn FnOnce(WaitEnd) + Send>;

/// The identity of a waiting request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitId(u64);

/// The state of a request that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockState {
    /// The owner holds the lock. The callback was dropped without a call.
    Granted,
    /// The callback is called when the wait ends.
    Waiting(WaitId),
}

/// The byte-range locks of one file system.
#[derive(Default)]
pub struct LockTable(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    files: HashMap<Ino, FileLocks>,
    next_wait: u64,
    independent: Independent,
    /// The clients that have locks by courtesy, and whether these gave way already.
    courteous: HashMap<ClientId, bool>,
}

/// Pairs of doors whose locks do not conflict.
#[derive(Default)]
struct Independent(HashSet<(DoorId, DoorId)>);

impl Independent {
    fn contains(&self, one: DoorId, other: DoorId) -> bool {
        !self.0.is_empty() && self.0.contains(&(one.min(other), one.max(other)))
    }
}

/// The locks of one file.
#[derive(Default)]
struct FileLocks {
    held: BTreeMap<LockOwner, OwnerLocks>,
    /// In the order of their arrival.
    waiting: Vec<Waiter>,
}

/// The locks of one owner in one file: by first byte the end and the kind. They do not overlap, and neighbours
/// differ in kind.
#[derive(Default)]
struct OwnerLocks(BTreeMap<u64, (u64, LockKind)>);

struct Waiter {
    id: WaitId,
    lock: ByteLock,
    callback: WaitCallback,
}

/// Callbacks to be called once the table is unlocked.
type EndedWaits = Vec<(WaitCallback, WaitEnd)>;

impl LockTable {
    /// Locks bytes of a file at once, or says which lock is in the way.
    pub fn try_lock(&self, ino: Ino, lock: &ByteLock) -> Result<(), LockError> {
        check_range(lock)?;
        let (conflict, ended) = {
            let mut tables = self.0.lock();
            let mut ended = EndedWaits::new();
            let conflict = tables.find_firm_conflict(ino, lock, &mut ended);
            if conflict.is_none() {
                ended.extend(tables.grant(ino, lock));
            }
            (conflict, ended)
        };
        run_callbacks(ended);
        conflict.map_or(Ok(()), |conflict| Err(LockError::Conflict(conflict)))
    }

    /// Locks bytes of a file at once or later. `callback` is called only if the request has to wait.
    pub fn lock_or_wait(
        &self,
        ino: Ino,
        lock: &ByteLock,
        callback: WaitCallback,
    ) -> Result<LockState, LockError> {
        check_range(lock)?;
        let (state, ended) = {
            let mut tables = self.0.lock();
            let mut ended = EndedWaits::new();
            let state = if tables.find_firm_conflict(ino, lock, &mut ended).is_some() {
                tables.queue(ino, lock, callback).map(LockState::Waiting)
            } else {
                ended.extend(tables.grant(ino, lock));
                Ok(LockState::Granted)
            };
            (state, ended)
        };
        run_callbacks(ended);
        state
    }

    /// Ends a wait without a call of its callback. False: the wait has ended already.
    pub fn cancel_wait(&self, ino: Ino, wait: WaitId) -> bool {
        let mut tables = self.0.lock();
        let Some(file) = tables.files.get_mut(&ino) else { return false };
        let Some(at) = file.waiting.iter().position(|waiter| waiter.id == wait) else {
            return false;
        };
        let waiter = file.waiting.remove(at);
        tables.remove_if_empty(ino);
        drop(tables);
        // a callback may own anything, also something that uses this table when it is dropped
        drop(waiter);
        true
    }

    /// Unlocks bytes of a file.
    pub fn unlock(&self, ino: Ino, owner: LockOwner, range: &Range<u64>) {
        self.release(Some(ino), |held, locks| {
            if held == owner {
                locks.remove_range(range);
            }
        });
    }

    /// Unlocks everything that an owner has locked in a file, as close(2) does. Its waits continue.
    pub fn release_file(&self, ino: Ino, owner: LockOwner) {
        self.unlock(ino, owner, &(0..u64::MAX));
    }

    /// Unlocks everything of a client that is gone, and ends its waits.
    pub fn release_client(&self, client: ClientId) {
        self.0.lock().courteous.remove(&client);
        self.release_where(|owner| owner.client == client);
    }

    /// Unlocks everything of a door that is closed, and ends its waits.
    pub fn release_door(&self, door: DoorId) {
        self.release_where(|owner| owner.client.door == door);
        let mut tables = self.0.lock();
        tables.independent.0.retain(|(one, other)| *one != door && *other != door);
        tables.courteous.retain(|client, _| client.door != door);
    }

    /// From now on locks of these two doors do not conflict with each other: the byte locks and the flock locks of
    /// one mount.
    pub fn set_independent(&self, one: DoorId, other: DoorId) {
        self.0.lock().independent.0.insert((one.min(other), one.max(other)));
    }

    /// A lock of another owner that a request would conflict with.
    pub fn find_conflict(&self, ino: Ino, lock: &ByteLock) -> Option<ByteLock> {
        let mut ended = EndedWaits::new();
        let conflict = self.0.lock().find_firm_conflict(ino, lock, &mut ended);
        run_callbacks(ended);
        conflict
    }

    /// A client was not heard of for longer than its lease: from now on its locks give way to those of others. They give
    /// way at once if others wait in one of its files.
    pub fn begin_courtesy(&self, client: ClientId) {
        let mut ended = EndedWaits::new();
        let mut tables = self.0.lock();
        tables.courteous.entry(client).or_insert(false);
        let is_waited_for = |file: &FileLocks| {
            !file.waiting.is_empty() && file.held.keys().any(|owner| owner.client == client)
        };
        if tables.files.values().any(is_waited_for) {
            tables.give_way(client, &mut ended);
        }
        drop(tables);
        run_callbacks(ended);
    }

    /// Whether the locks that a client has by courtesy gave way.
    pub fn has_given_way(&self, client: ClientId) -> bool {
        self.0.lock().courteous.get(&client).is_some_and(|gave_way| *gave_way)
    }

    /// A client is heard of again. Returns whether it has all its locks still.
    pub fn end_courtesy(&self, client: ClientId) -> bool {
        self.0.lock().courteous.remove(&client) != Some(true)
    }

    /// All locks that are held in a file, by owner and first byte.
    pub fn held_locks(&self, ino: Ino) -> Vec<ByteLock> {
        let tables = self.0.lock();
        let Some(file) = tables.files.get(&ino) else { return Vec::new() };
        let of_owner = |(owner, locks): (&LockOwner, &OwnerLocks)| {
            let (owner, locks) = (*owner, locks.0.clone());
            locks.into_iter().map(move |(start, (end, kind))| ByteLock {
                owner,
                range: start..end,
                kind,
            })
        };
        file.held.iter().flat_map(of_owner).collect()
    }

    /// The number of ranges that a client has locked in a file.
    pub fn count_ranges(&self, ino: Ino, client: ClientId) -> usize {
        let tables = self.0.lock();
        let Some(file) = tables.files.get(&ino) else { return 0 };
        let owner = |owner| LockOwner { client, owner };
        let owners = file.held.range(owner(0)..=owner(u64::MAX));
        owners.map(|(_, locks)| locks.0.len()).sum()
    }

    fn release_where(&self, is_released: impl Fn(LockOwner) -> bool) {
        let mut ended = EndedWaits::new();
        for file in self.0.lock().files.values_mut() {
            let gone = file.waiting.extract_if(.., |waiter| is_released(waiter.lock.owner));
            ended.extend(gone.map(|waiter| (waiter.callback, WaitEnd::Released)));
        }
        run_callbacks(ended);
        self.release(None, |owner, locks| {
            if is_released(owner) {
                locks.0.clear();
            }
        });
    }

    /// Has `work` shorten the locks of owners, in one file or in all, and grants what waited for that.
    fn release(&self, ino: Option<Ino>, work: impl Fn(LockOwner, &mut OwnerLocks)) {
        let ended = {
            let mut tables = self.0.lock();
            let all = || tables.files.keys().copied().collect();
            let inos: Vec<Ino> = ino.map_or_else(all, |ino| vec![ino]);
            let mut ended = EndedWaits::new();
            for ino in inos {
                let Tables { files, independent, .. } = &mut *tables;
                let Some(file) = files.get_mut(&ino) else { continue };
                file.held.iter_mut().for_each(|(owner, locks)| work(*owner, locks));
                ended.extend(file.grant_waiting(independent));
                tables.remove_if_empty(ino);
            }
            ended
        };
        run_callbacks(ended);
    }
}

fn check_range(lock: &ByteLock) -> Result<(), LockError> {
    if lock.range.is_empty() { Err(LockError::EmptyRange) } else { Ok(()) }
}

fn run_callbacks(ended: EndedWaits) {
    for (callback, end) in ended {
        callback(end);
    }
}

impl Tables {
    fn find_conflict(&self, ino: Ino, lock: &ByteLock) -> Option<ByteLock> {
        self.files.get(&ino)?.conflicts(lock, &self.independent).next()
    }

    /// A lock that a request conflicts with, after the locks of courteous clients gave way.
    fn find_firm_conflict(
        &mut self,
        ino: Ino,
        lock: &ByteLock,
        ended: &mut EndedWaits,
    ) -> Option<ByteLock> {
        loop {
            let conflict = self.find_conflict(ino, lock)?;
            if !self.give_way(conflict.owner.client, ended) {
                return Some(conflict);
            }
        }
    }

    /// Frees the locks of a courteous client. False: the client is none.
    fn give_way(&mut self, client: ClientId, ended: &mut EndedWaits) -> bool {
        let Some(gave_way) = self.courteous.get_mut(&client) else { return false };
        *gave_way = true;
        let Self { files, independent, .. } = self;
        for file in files.values_mut() {
            let before = file.held.len();
            file.held.retain(|owner, _| owner.client != client);
            if file.held.len() < before {
                ended.extend(file.grant_waiting(independent));
            }
        }
        files.retain(|_, file| !file.held.is_empty() || !file.waiting.is_empty());
        true
    }

    /// Gives an owner a lock that conflicts with none. A lock that became shared may let others in.
    fn grant(&mut self, ino: Ino, lock: &ByteLock) -> EndedWaits {
        let file = self.files.entry(ino).or_default();
        file.held.entry(lock.owner).or_default().insert(&lock.range, lock.kind);
        file.grant_waiting(&self.independent)
    }

    fn queue(
        &mut self,
        ino: Ino,
        lock: &ByteLock,
        callback: WaitCallback,
    ) -> Result<WaitId, LockError> {
        if self.would_deadlock(ino, lock) {
            return Err(LockError::Deadlock);
        }
        let id = WaitId(self.next_wait);
        self.next_wait += 1;
        let waiter = Waiter { id, lock: lock.clone(), callback };
        self.files.entry(ino).or_default().waiting.push(waiter);
        Ok(id)
    }

    /// Whether an owner in the way of a request waits, directly or over others, for the requester.
    fn would_deadlock(&self, ino: Ino, lock: &ByteLock) -> bool {
        let blockers = |ino: Ino, lock: &ByteLock| -> Vec<LockOwner> {
            let file = self.files.get(&ino).into_iter();
            let conflicts = file.flat_map(|file| file.conflicts(lock, &self.independent));
            conflicts.map(|conflict| conflict.owner).collect()
        };
        let mut waits: HashMap<LockOwner, Vec<(Ino, &ByteLock)>> = HashMap::new();
        for (ino, file) in &self.files {
            for waiter in &file.waiting {
                waits.entry(waiter.lock.owner).or_default().push((*ino, &waiter.lock));
            }
        }
        let (mut todo, mut seen) = (blockers(ino, lock), HashSet::new());
        while let Some(owner) = todo.pop() {
            if owner == lock.owner {
                return true;
            }
            if seen.insert(owner) {
                let waited = waits.get(&owner).into_iter().flatten();
                todo.extend(waited.flat_map(|(ino, lock)| blockers(*ino, lock)));
            }
        }
        false
    }

    fn remove_if_empty(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.held.retain(|_, locks| !locks.0.is_empty());
            if file.held.is_empty() && file.waiting.is_empty() {
                self.files.remove(&ino);
            }
        }
    }
}

impl FileLocks {
    /// The locks of other owners that a request conflicts with.
    fn conflicts(
        &self,
        lock: &ByteLock,
        independent: &Independent,
    ) -> impl Iterator<Item = ByteLock> {
        let ByteLock { owner, range, kind } = lock.clone();
        let others = self.held.iter().filter(move |(other, _)| {
            **other != owner && !independent.contains(other.client.door, owner.client.door)
        });
        others.flat_map(move |(other, locks)| {
            let (other, found) = (*other, locks.overlapping(&range));
            let found = found.filter(move |(_, held)| {
                LockKind::Exclusive == kind || LockKind::Exclusive == *held
            });
            found.map(move |(range, kind)| ByteLock { owner: other, range, kind })
        })
    }

    /// Grants the waiting requests that conflict with nothing any more.
    fn grant_waiting(&mut self, independent: &Independent) -> EndedWaits {
        let (mut ended, mut at) = (EndedWaits::new(), 0);
        while let Some(waiter) = self.waiting.get(at) {
            if self.conflicts(&waiter.lock, independent).next().is_some() {
                at += 1;
                continue;
            }
            let Waiter { lock, callback, .. } = self.waiting.remove(at);
            self.held.entry(lock.owner).or_default().insert(&lock.range, lock.kind);
            ended.push((callback, WaitEnd::Granted));
            // the new lock may have replaced an exclusive one of its owner
            at = 0;
        }
        ended
    }
}

impl OwnerLocks {
    /// The locks that share bytes with a range.
    fn overlapping(
        &self,
        range: &Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, LockKind)> + use<'_> {
        let before = self.0.range(..range.start).next_back();
        let start = range.start;
        let before = before.filter(move |(_, (end, _))| *end > start);
        let rest = self.0.range(range.start..range.end.max(range.start));
        before.into_iter().chain(rest).map(|(start, (end, kind))| (*start..*end, *kind))
    }

    fn remove_range(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let cut: Vec<_> = self.overlapping(range).collect();
        for (held, kind) in cut {
            self.0.remove(&held.start);
            if held.start < range.start {
                self.0.insert(held.start, (range.start, kind));
            }
            if range.end < held.end {
                self.0.insert(range.end, (held.end, kind));
            }
        }
    }

    fn insert(&mut self, range: &Range<u64>, kind: LockKind) {
        self.remove_range(range);
        let (mut start, mut end) = (range.start, range.end);
        let before = self.0.range(..start).next_back().map(|(before, held)| (*before, *held));
        if let Some((before, held)) = before
            && held == (start, kind)
        {
            start = before;
        }
        if let Some((behind, held)) = self.0.get(&end).copied()
            && held == kind
        {
            self.0.remove(&end);
            end = behind;
        }
        self.0.insert(start, (end, kind));
    }
}

#[cfg(test)]
mod tests;
