//! Leases: a client's right to cache a file, and the one way to take it back.
//!
//! NFSv4 delegations, SMB oplocks and SMB leases are all sets of three rights:
//!
//! ```text
//! right   the client may                                        ends when another client
//! READ    answer reads and attributes from its cache            changes data or attributes
//! WRITE   keep changes in its cache and write them back later   reads, changes or opens the file
//! HANDLE  keep the file open after its program has closed it    removes, renames or links the file
//! ```
//!
//! An operation through any door calls [`LeaseTable::begin`] first. That recalls the rights that the operation
//! conflicts with, waits until the clients have given them back, and revokes them from clients that do not answer
//! in time. The returned [`Operation`] keeps new conflicting leases from being granted until it is dropped. Without
//! leases the cost is one atomic increment and one load.
//!
//! The check of "operations under way" and the grant of a lease meet like this: an operation increments its
//! counter and then looks for leases; a grant adds the lease and then looks at the counter. All four are
//! sequentially consistent, so at least one of the two sees the other. Files share counters: a collision only
//! refuses a lease, which every client must be prepared for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use posix::Ino;

use crate::ClientId;

/// Rights to cache: a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LeaseRights(u8);

impl LeaseRights {
    /// No right.
    pub const NONE: Self = Self(0);
    /// Cached reads.
    pub const READ: Self = Self(1);
    /// Cached writes.
    pub const WRITE: Self = Self(2);
    /// Closed files that stay open.
    pub const HANDLE: Self = Self(4);

    /// Both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These rights without `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` is among these.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the sets have something in common.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The effect of an operation on a file, as far as leases are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseAction {
    /// It reads data or attributes, or opens the file to read.
    Read,
    /// It changes data or attributes, or opens the file to write.
    Write,
    /// It removes, replaces, renames or links the file.
    ChangeName,
}

/// The holder of a lease. Operations of the same holder do not recall it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LeaseHolder {
    /// The client.
    pub client: ClientId,
    /// The client's key: the lease key of SMB; 0 where a client has one lease per file.
    pub key: u64,
}

/// The identity of a lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(u64);

/// A message to the door that a lease was granted through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseEvent {
    /// The client must write back what it caches and answer by [`LeaseTable::downgrade`] to `keep` or less.
    Recall {
        /// The file.
        ino: Ino,
        /// The lease.
        lease: LeaseId,
        /// The rights that the client may keep.
        keep: LeaseRights,
    },
    /// The client did not answer in time. The lease has only the rights `keep` now; later
    /// write-back of the client is refused.
    Revoked {
        /// The file.
        ino: Ino,
        /// The lease.
        lease: LeaseId,
        /// The rights that are left.
        keep: LeaseRights,
    },
}

/// A door's function for messages about one lease. It must not wait for the client's answer.
pub type LeaseCallback = Arc<dyn Fn(LeaseEvent) + Send + Sync>;

/// The operation's deadline passed before the leases it conflicts with were given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("another client is still writing back its changes of the file: try again")]
pub struct RecallPending;

/// The leases of one file system.
pub struct LeaseTable {
    leases: Mutex<Leases>,
    /// Wakes operations that wait for a recall.
    changed: Condvar,
    /// Leases in the table.
    count: AtomicUsize,
    /// By file, modulo their number: operations under way that change a file.
    underway: Vec<AtomicU32>,
    revoke_after: Duration,
}

#[derive(Default)]
struct Leases {
    files: HashMap<Ino, Vec<Lease>>,
    next: u64,
}

struct Lease {
    id: LeaseId,
    holder: LeaseHolder,
    rights: LeaseRights,
    /// The rights that the client may keep, and the time of the first recall.
    recall: Option<(LeaseRights, Instant)>,
    callback: LeaseCallback,
}

/// An operation that changes a file: no conflicting lease is granted until this is dropped.
#[must_use = "the operation ends when this is dropped"]
pub struct Operation<'a>(Option<&'a AtomicU32>);

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.0 {
            counter.fetch_sub(1, SeqCst);
        }
    }
}

/// Counters of running operations.
const COUNTERS: usize = 256;

impl LeaseAction {
    /// The rights of other clients that end.
    fn conflicting(self) -> LeaseRights {
        match self {
            Self::Read => LeaseRights::WRITE,
            Self::Write => LeaseRights::READ.union(LeaseRights::WRITE),
            Self::ChangeName => LeaseRights(7),
        }
    }
}

impl Lease {
    /// The rights that the lease may keep after an action of another client.
    fn remaining(&self, action: LeaseAction) -> LeaseRights {
        self.rights.without(action.conflicting())
    }

    fn conflicts_with(&self, action: LeaseAction, by: LeaseHolder) -> bool {
        self.holder != by && self.rights.intersects(action.conflicting())
    }
}

impl LeaseTable {
    /// A table without leases. A client that does not answer a recall for `revoke_after` loses the lease.
    pub fn new(revoke_after: Duration) -> Self {
        let underway = (0..COUNTERS).map(|_| AtomicU32::new(0)).collect();
        let (leases, changed, count) = (Mutex::default(), Condvar::new(), AtomicUsize::new(0));
        Self { leases, changed, count, underway, revoke_after }
    }

    fn counter(&self, ino: Ino) -> Option<&AtomicU32> {
        self.underway.get(usize::try_from(ino.get()).ok()? % COUNTERS)
    }

    /// Grants a lease, or none if another client has conflicting rights, or is changing the file
    /// now. The caller checks afterwards that no other open conflicts, and releases the lease if
    /// one does.
    pub fn grant(
        &self,
        ino: Ino,
        holder: LeaseHolder,
        rights: LeaseRights,
        callback: LeaseCallback,
    ) -> Option<LeaseId> {
        let mut leases = self.leases.lock();
        let of_file = leases.files.get(&ino).map_or(&[][..], Vec::as_slice);
        let caching = LeaseRights::READ.union(LeaseRights::WRITE);
        let is_refused = of_file.iter().any(|lease| {
            let both = lease.rights.intersects(LeaseRights::WRITE) && rights.intersects(caching)
                || rights.intersects(LeaseRights::WRITE) && lease.rights.intersects(caching);
            lease.recall.is_some() || lease.holder != holder && both
        });
        if is_refused || rights == LeaseRights::NONE {
            return None;
        }
        let id = LeaseId(leases.next);
        leases.next += 1;
        let lease = Lease { id, holder, rights, recall: None, callback };
        leases.files.entry(ino).or_default().push(lease);
        self.count.fetch_add(1, SeqCst);
        let is_changed = self.counter(ino).is_some_and(|counter| counter.load(SeqCst) > 0);
        if is_changed {
            self.remove_where(&mut leases, ino, |lease| lease.id == id);
            return None;
        }
        Some(id)
    }

    /// A client gives rights back: it keeps `rights` at most.
    pub fn downgrade(&self, ino: Ino, id: LeaseId, rights: LeaseRights) {
        let mut leases = self.leases.lock();
        let of_file = leases.files.get_mut(&ino).into_iter().flatten();
        for lease in of_file.filter(|lease| lease.id == id) {
            lease.rights = LeaseRights(lease.rights.0 & rights.0);
            // the recall continues unless all recalled rights are back
            lease.recall = lease.recall.filter(|(keep, _)| !keep.contains(lease.rights));
        }
        self.remove_where(&mut leases, ino, |lease| lease.rights == LeaseRights::NONE);
        self.changed.notify_all();
    }

    /// A client gives a lease back.
    pub fn release(&self, ino: Ino, id: LeaseId) {
        self.downgrade(ino, id, LeaseRights::NONE);
    }

    /// Removes all leases of clients that are gone.
    pub fn release_where(&self, is_gone: impl Fn(ClientId) -> bool) {
        let mut leases = self.leases.lock();
        let inos: Vec<Ino> = leases.files.keys().copied().collect();
        for ino in inos {
            self.remove_where(&mut leases, ino, |lease| is_gone(lease.holder.client));
        }
        self.changed.notify_all();
    }

    /// Takes all leases back at once: everything that clients cache is void.
    pub fn revoke_all(&self) {
        let mut leases = self.leases.lock();
        let files = std::mem::take(&mut leases.files);
        self.count.store(0, SeqCst);
        drop(leases);
        self.changed.notify_all();
        for (ino, of_file) in files {
            for lease in of_file {
                let event = LeaseEvent::Revoked { ino, lease: lease.id, keep: LeaseRights::NONE };
                (lease.callback)(event);
            }
        }
    }

    /// The rights that a lease has now; none after it is gone.
    pub fn rights(&self, ino: Ino, id: LeaseId) -> LeaseRights {
        let leases = self.leases.lock();
        let mut of_file = leases.files.get(&ino).into_iter().flatten();
        of_file.find(|lease| lease.id == id).map_or(LeaseRights::NONE, |lease| lease.rights)
    }

    /// Whether there are no leases at all.
    pub fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    /// Whether an operation would have to wait.
    pub fn has_conflict(&self, ino: Ino, by: LeaseHolder, action: LeaseAction) -> bool {
        if self.is_empty() {
            return false;
        }
        let leases = self.leases.lock();
        let mut of_file = leases.files.get(&ino).into_iter().flatten();
        of_file.any(|lease| lease.conflicts_with(action, by))
    }

    /// Begins an operation: recalls the rights of others that it conflicts with and waits for them, at most until
    /// `deadline`.
    ///
    /// # Errors
    ///
    /// [`RecallPending`]: the deadline passed. The recall continues, so the operation can be tried
    /// again.
    pub fn begin(
        &self,
        ino: Ino,
        by: LeaseHolder,
        action: LeaseAction,
        deadline: Option<Instant>,
    ) -> Result<Operation<'_>, RecallPending> {
        // a lease that is granted during a read cannot make the read stale
        let counter = self.counter(ino).filter(|_| action != LeaseAction::Read);
        if let Some(counter) = counter {
            counter.fetch_add(1, SeqCst);
        }
        let operation = Operation(counter);
        if self.count.load(SeqCst) > 0 {
            self.recall(ino, by, action, deadline)?;
        }
        Ok(operation)
    }

    fn recall(
        &self,
        ino: Ino,
        by: LeaseHolder,
        action: LeaseAction,
        deadline: Option<Instant>,
    ) -> Result<(), RecallPending> {
        loop {
            let mut leases = self.leases.lock();
            let events = start_recalls(&mut leases, ino, by, action);
            if !events.is_empty() {
                drop(leases);
                run_callbacks(events);
                continue;
            }
            let Some(revoked_at) = self.next_revocation(&leases, ino, by, action) else {
                return Ok(());
            };
            if self.wait(&mut leases, revoked_at, deadline)? {
                let events = self.revoke(&mut leases, ino, by, action);
                drop(leases);
                run_callbacks(events);
            }
        }
    }

    /// When the first of the leases in the way is revoked; none: no lease is in the way.
    fn next_revocation(
        &self,
        leases: &Leases,
        ino: Ino,
        by: LeaseHolder,
        action: LeaseAction,
    ) -> Option<Instant> {
        let of_file = leases.files.get(&ino)?.iter();
        let conflicting = of_file.filter(|lease| lease.conflicts_with(action, by));
        conflicting.filter_map(|lease| Some(lease.recall?.1 + self.revoke_after)).min()
    }

    /// Waits for a change of the table; true: it is time to revoke.
    fn wait(
        &self,
        leases: &mut MutexGuard<'_, Leases>,
        revoked_at: Instant,
        deadline: Option<Instant>,
    ) -> Result<bool, RecallPending> {
        let until = deadline.map_or(revoked_at, |deadline| deadline.min(revoked_at));
        if !self.changed.wait_until(leases, until).timed_out() {
            return Ok(false);
        }
        if until == revoked_at { Ok(true) } else { Err(RecallPending) }
    }

    /// Revokes rights from the clients whose time to answer is over.
    fn revoke(
        &self,
        leases: &mut Leases,
        ino: Ino,
        by: LeaseHolder,
        action: LeaseAction,
    ) -> Vec<(LeaseCallback, LeaseEvent)> {
        let (mut events, now) = (Vec::new(), Instant::now());
        let of_file = leases.files.get_mut(&ino).into_iter().flatten();
        for lease in of_file.filter(|lease| lease.conflicts_with(action, by)) {
            if lease.recall.is_some_and(|(_, since)| since + self.revoke_after <= now) {
                lease.rights = lease.remaining(action);
                lease.recall = None;
                let event = LeaseEvent::Revoked { ino, lease: lease.id, keep: lease.rights };
                events.push((Arc::clone(&lease.callback), event));
            }
        }
        self.remove_where(leases, ino, |lease| lease.rights == LeaseRights::NONE);
        self.changed.notify_all();
        events
    }

    fn remove_where(&self, leases: &mut Leases, ino: Ino, is_gone: impl Fn(&Lease) -> bool) {
        let Some(of_file) = leases.files.get_mut(&ino) else { return };
        let before = of_file.len();
        of_file.retain(|lease| !is_gone(lease));
        self.count.fetch_sub(before - of_file.len(), SeqCst);
        if of_file.is_empty() {
            leases.files.remove(&ino);
        }
    }
}

/// Marks the leases in the way of an operation as recalled; returns the messages that are not sent yet.
fn start_recalls(
    leases: &mut Leases,
    ino: Ino,
    by: LeaseHolder,
    action: LeaseAction,
) -> Vec<(LeaseCallback, LeaseEvent)> {
    let mut events = Vec::new();
    let of_file = leases.files.get_mut(&ino).into_iter().flatten();
    for lease in of_file.filter(|lease| lease.conflicts_with(action, by)) {
        let remaining = lease.remaining(action);
        let (keep, since) = match lease.recall {
            Some((keep, _)) if remaining.contains(keep) => continue,
            Some((keep, since)) => (LeaseRights(keep.0 & remaining.0), since),
            None => (remaining, Instant::now()),
        };
        lease.recall = Some((keep, since));
        let event = LeaseEvent::Recall { ino, lease: lease.id, keep };
        events.push((Arc::clone(&lease.callback), event));
    }
    events
}

fn run_callbacks(events: Vec<(LeaseCallback, LeaseEvent)>) {
    for (callback, event) in events {
        callback(event);
    }
}

#[cfg(test)]
mod tests;
