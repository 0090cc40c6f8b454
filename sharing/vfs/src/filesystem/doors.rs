//! The state that the doors into one file system share: the bus of changes, locks, open files and
//! leases.
//!
//! A request that changes a file goes through three steps, in this order:
//!
//! ```text
//! begin     recalls the leases of other clients that the change conflicts with, and keeps new ones from being granted
//! work      changes the file
//! announce  tells the other doors
//! ```
//!
//! A change is announced whatever its result is: a failed request may have done a part, or
//! everything except the commit. A needless lookup by another door costs little.

use std::sync::Arc;
use std::time::Duration;

use posix::access::OpenMode;
use posix::{Ino, RenameMode, RenameRequest};

use super::PoolFileSystem;
use crate::changes::{Change, ChangeBus, ChangeKind};
use crate::leases::{LeaseAction, LeaseTable, Operation, RecallPending};
use crate::locks::LockTable;
use crate::shares::{Access, OpenId, OpenTable, ShareMode};
use crate::{Context, DoorId, Result, change_version, control_dir};

/// A client that does not answer the recall of a lease in this time loses it, as with SMB.
const REVOKE_AFTER: Duration = Duration::from_secs(35);

/// The shared state.
pub(super) struct Doors {
    pub(super) changes: Arc<ChangeBus>,
    pub(super) locks: LockTable,
    pub(super) opens: Arc<OpenTable>,
    pub(super) leases: LeaseTable,
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
    /// Begins an operation on a file: waits until the leases of others that it conflicts with are given back.
    pub(super) fn begin(
        &self,
        context: &Context<'_>,
        ino: Ino,
        action: LeaseAction,
    ) -> Result<Operation<'_>> {
        let (leases, holder) = (&self.0.doors.leases, context.lease_holder());
        let deadline = [context.recall_deadline, context.deadline].into_iter().flatten().min();
        let begin = || leases.begin(ino, holder, action, deadline);
        let waiter = context.waiter.filter(|_| leases.has_conflict(ino, holder, action));
        let Some(waiter) = waiter else { return Ok(begin()?) };
        let mut begun = Err(RecallPending);
        waiter.run_blocking(&mut || begun = begin());
        Ok(begun?)
    }

    /// Changes a file, and notifies the other doors.
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

    /// Adds a name to a directory, and notifies the other doors.
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

    /// Removes a name from a directory, and notifies the other doors.
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

    /// Renames, and notifies the other doors.
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
        // a removed file has no version: the time differs from all earlier versions
        let ctime = self.attributes_or_unlinked(ino).map_or_else(|_| self.now(), |now| now.ctime);
        changes.publish(&Change { ino, kind: kind(), version: change_version(ctime), door });
    }

    /// Notifies all doors that `.zfs` may have appeared or disappeared in the root (the property
    /// `snapdir`).
    pub fn announce_control_dir(&self) {
        let ino = self.root_ino();
        let version = self.attributes_or_unlinked(ino).map_or(0, |now| change_version(now.ctime));
        let kind = ChangeKind::EntryRemoved { name: control_dir::CONTROL_DIR.to_vec() };
        self.0.doors.changes.publish(&Change { ino, kind, version, door: DoorId::DAEMON });
    }

    /// Adds an open file to the table, unless another client denies that.
    pub(super) fn register_open(
        &self,
        context: &Context<'_>,
        ino: Ino,
        open: OpenMode,
    ) -> Result<Arc<RegisteredOpen>> {
        let opens = Arc::clone(&self.0.doors.opens);
        let id = opens.open(ino, share_mode(context, open))?;
        Ok(Arc::new(RegisteredOpen { opens, ino, id }))
    }
}

impl RegisteredOpen {
    /// Changes the access of the open, unless another client denies that.
    pub(super) fn change(&self, context: &Context<'_>, open: OpenMode) -> Result<()> {
        Ok(self.opens.change(self.ino, self.id, share_mode(context, open))?)
    }
}

fn share_mode(context: &Context<'_>, open: OpenMode) -> ShareMode {
    let access = match (open.read || open.execute, open.is_writing()) {
        (true, true) => Access::READ.union(Access::WRITE),
        (true, false) => Access::READ,
        (false, true) => Access::WRITE,
        (false, false) => Access::NONE,
    };
    ShareMode { holder: context.lease_holder(), access, deny: context.deny }
}
