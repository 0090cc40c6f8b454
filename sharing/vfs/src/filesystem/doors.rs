//! What the doors into one file system share: the bus of changes, locks, open files and leases.
//!
//! A request that changes a file goes through three steps, in this order:
//!
//! ```text
//! begin     recalls the leases of other clients that the change conflicts with, and keeps new ones from being granted
//! work      changes the file
//! announce  tells the other doors
//! ```
//!
//! A change is announced whatever came of the work: a request that failed may have done a part, or everything but the
//! commit. A door that looks something up again for nothing loses little.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posix::access::OpenMode;
use posix::{Ino, RenameMode, RenameRequest, WriteOffset};

use super::{OpenFile, PoolFileSystem};
use crate::changes::{Change, ChangeBus, ChangeKind};
use crate::leases::{
    LeaseAction, LeaseCallback, LeaseId, LeaseRights, LeaseTable, Operation, RecallPending,
};
use crate::locks::LockTable;
use crate::shares::{Access, OpenId, OpenTable, ShareMode};
use crate::{
    BootVerifier, ClientId, Context, FileSystem as _, Result, Stability, Written, change_version,
};

/// A client that does not answer the recall of a lease for so long loses it, as with SMB.
const REVOKE_AFTER: Duration = Duration::from_secs(35);

/// The shared state.
pub(super) struct Doors {
    changes: Arc<ChangeBus>,
    locks: LockTable,
    opens: Arc<OpenTable>,
    leases: LeaseTable,
}

impl Default for Doors {
    fn default() -> Self {
        let (locks, leases) = (LockTable::default(), LeaseTable::new(REVOKE_AFTER));
        Self { changes: Arc::default(), locks, opens: Arc::default(), leases }
    }
}

/// An open file in the table of opens; it is closed when this is dropped.
pub(super) struct RegisteredOpen {
    opens: Arc<OpenTable>,
    ino: Ino,
    id: OpenId,
}

impl Drop for RegisteredOpen {
    fn drop(&mut self) {
        self.opens.close(self.ino, self.id);
    }
}

impl PoolFileSystem {
    /// The bus of changes.
    pub fn changes(&self) -> &Arc<ChangeBus> {
        &self.0.doors.changes
    }

    /// The byte-range locks. They are advisory: reads and writes do not ask for them.
    pub fn locks(&self) -> &LockTable {
        &self.0.doors.locks
    }

    /// The opens of all doors, each added by [`crate::FileSystem::open`].
    pub fn opens(&self) -> &OpenTable {
        &self.0.doors.opens
    }

    /// The leases.
    pub fn leases(&self) -> &LeaseTable {
        &self.0.doors.leases
    }

    /// Releases the locks, open files and leases of a client that is gone. Its waits for locks end.
    pub fn release_client(&self, client: ClientId) {
        let Doors { locks, opens, leases, .. } = &self.0.doors;
        locks.release_client(client);
        opens.release_client(client);
        leases.release_client(client);
    }

    /// A number that changes when writes that were not committed may have been lost.
    pub fn boot_verifier(&self) -> BootVerifier {
        let rollbacks = self.0.rollbacks.load(Ordering::Acquire);
        BootVerifier::new(self.0.pool.import_nonce(), rollbacks)
    }

    /// Grants the client of a request a lease, or none: other clients use the file in a way that conflicts.
    pub fn grant_lease(
        &self,
        context: &Context<'_>,
        ino: Ino,
        rights: LeaseRights,
        callback: LeaseCallback,
    ) -> Option<LeaseId> {
        let Doors { leases, opens, .. } = &self.0.doors;
        let holder = context.lease_holder();
        let id = leases.grant(ino, holder, rights, callback)?;
        let others = opens.access_of_others(ino, holder);
        let is_refused = rights.intersects(LeaseRights::WRITE)
            && opens.is_open_elsewhere(ino, holder)
            || rights.intersects(LeaseRights::READ) && others.intersects(Access::WRITE);
        if is_refused {
            leases.release(ino, id);
        }
        (!is_refused).then_some(id)
    }

    /// Writes bytes that are at least as stable as `wanted` when this returns.
    pub fn write_with(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        at: WriteOffset,
        bytes: &[u8],
        wanted: Stability,
    ) -> Result<Written> {
        self.write(context, file, at, bytes)?;
        let is_stable = self.0.files().is_sync_always();
        if wanted == Stability::Stable && !is_stable {
            self.commit(context, file.ino()?)?;
        }
        let stability = if is_stable { Stability::Stable } else { wanted };
        Ok(Written { count: bytes.len(), stability })
    }

    /// Begins an operation on a file: waits until the leases of others that it conflicts with are given back.
    pub(super) fn begin(
        &self,
        context: &Context<'_>,
        ino: Ino,
        action: LeaseAction,
    ) -> Result<Operation<'_>> {
        let (leases, holder) = (&self.0.doors.leases, context.lease_holder());
        let begin = || leases.begin(ino, holder, action, context.deadline);
        let waiter = context.waiter.filter(|_| leases.has_conflict(ino, holder, action));
        let Some(waiter) = waiter else { return Ok(begin()?) };
        let mut begun = Err(RecallPending);
        waiter.run_blocking(&mut || begun = begin());
        Ok(begun?)
    }

    /// Changes a file, and tells the other doors.
    pub(super) fn change<T>(
        &self,
        context: &Context<'_>,
        (ino, kind): (Ino, ChangeKind),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _operation = self.begin(context, ino, LeaseAction::Write)?;
        let result = work();
        self.announce(context, ino, || kind);
        result
    }

    /// Adds a name to a directory, and tells the other doors.
    pub(super) fn add_entry<T>(
        &self,
        context: &Context<'_>,
        (dir, name): (Ino, &[u8]),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _operation = self.begin(context, dir, LeaseAction::Write)?;
        let result = work();
        self.announce(context, dir, || ChangeKind::EntryAdded { name: name.to_vec() });
        result
    }

    /// Removes a name from a directory, and tells the other doors.
    pub(super) fn remove_entry<T>(
        &self,
        context: &Context<'_>,
        (dir, name): (Ino, &[u8]),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let file = self.affected_file(context, dir, name);
        let _operations = (
            self.begin(context, dir, LeaseAction::Write)?,
            file.map(|file| self.begin(context, file, LeaseAction::ChangeName)).transpose()?,
        );
        let result = work();
        self.announce(context, dir, || ChangeKind::EntryRemoved { name: name.to_vec() });
        if let Some(file) = file {
            // its links and its change time
            self.announce(context, file, || ChangeKind::Attributes);
        }
        result
    }

    /// Renames, and tells the other doors.
    pub(super) fn move_entry<T>(
        &self,
        context: &Context<'_>,
        rename: &RenameRequest<'_, Ino>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let RenameRequest { from_dir, from_name, to_dir, to_name, mode } = *rename;
        let files = [(from_dir, from_name), (to_dir, to_name)]
            .map(|(dir, name)| self.affected_file(context, dir, name));
        let mut operations = Vec::new();
        for dir in [from_dir, to_dir] {
            operations.push(self.begin(context, dir, LeaseAction::Write)?);
        }
        for file in files.into_iter().flatten() {
            operations.push(self.begin(context, file, LeaseAction::ChangeName)?);
        }
        let result = work();
        self.announce(context, from_dir, || {
            let (name, to_name) = (from_name.to_vec(), to_name.to_vec());
            match mode {
                RenameMode::Exchange => ChangeKind::EntriesExchanged { name, to_dir, to_name },
                _ => ChangeKind::EntryRenamed { name, to_dir, to_name },
            }
        });
        for file in files.into_iter().flatten() {
            self.announce(context, file, || ChangeKind::Attributes);
        }
        result
    }

    /// The file of a name that is about to change, if any door or lease has to do with it. Another request may change
    /// the name before the caller does: then the file's leases are not recalled, and its data is still right.
    fn affected_file(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Option<Ino> {
        let doors = &self.0.doors;
        let is_watched = doors.changes.has_subscribers_besides(context.door);
        if !is_watched && doors.leases.is_empty() {
            return None;
        }
        self.lookup_unchecked(dir, name).ok().map(|found| found.ino)
    }

    /// Publishes a change, if any other door listens.
    pub(super) fn announce(
        &self,
        context: &Context<'_>,
        ino: Ino,
        kind: impl FnOnce() -> ChangeKind,
    ) {
        let (changes, door) = (&self.0.doors.changes, context.door);
        if !changes.has_subscribers_besides(door) {
            return;
        }
        // a file that is gone has no version any more: the time tells it from all before
        let ctime = self.attributes_or_unlinked(ino).map_or_else(|_| self.now(), |now| now.ctime);
        changes.publish(&Change { ino, kind: kind(), version: change_version(ctime), door });
    }

    /// Adds an open file to the table, unless another client denies that.
    pub(super) fn register_open(
        &self,
        context: &Context<'_>,
        ino: Ino,
        open: OpenMode,
    ) -> Result<Arc<RegisteredOpen>> {
        let writes = open.write || open.append || open.truncate;
        let access = match (open.read || open.execute, writes) {
            (true, true) => Access::READ.union(Access::WRITE),
            (true, false) => Access::READ,
            (false, true) => Access::WRITE,
            (false, false) => Access::NONE,
        };
        let (holder, deny) = (context.lease_holder(), context.deny);
        let opens = Arc::clone(&self.0.doors.opens);
        let id = opens.open(ino, ShareMode { holder, access, deny })?;
        Ok(Arc::new(RegisteredOpen { opens, ino, id }))
    }
}
