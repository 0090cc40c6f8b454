//! The contract of doors that share a file system, kept by a file system of an imported pool.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use posix::access::OpenMode;
use posix::{Ino, WriteOffset};
use units::Guid;

use super::checks::check_open_mode;
use super::doors::Doors;
use super::{OpenFile, PoolFileSystem};
use crate::leases::LeaseAction;
use crate::{
    Access, BootVerifier, ChangeBus, ClientId, Context, DoorId, FileHandle, FileOffset,
    FileSystem as _, LeaseCallback, LeaseId, LeaseRights, LeaseTable, LockTable, MemoryParts,
    OpenTable, Result, SharedFileSystem, Stability, Written,
};

impl SharedFileSystem for PoolFileSystem {
    fn pool_guid(&self) -> Guid {
        Guid::new(self.0.pool.guid())
    }

    fn guid(&self) -> Guid {
        Guid::new(self.0.files().guid())
    }

    fn handle(&self, ino: Ino) -> Result<FileHandle> {
        self.handle_of(ino)
    }

    fn resolve_handle(&self, handle: &FileHandle) -> Result<Ino> {
        self.file_of_handle(handle)
    }

    fn changes(&self) -> &Arc<ChangeBus> {
        &self.0.doors.changes
    }

    fn locks(&self) -> &LockTable {
        &self.0.doors.locks
    }

    fn opens(&self) -> &OpenTable {
        &self.0.doors.opens
    }

    fn leases(&self) -> &LeaseTable {
        &self.0.doors.leases
    }

    fn grant_lease(
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

    fn change_open(
        &self,
        context: &Context<'_>,
        file: &mut OpenFile,
        open: OpenMode,
    ) -> Result<()> {
        let (ino, held) = (file.ino()?, file.mode());
        let new = OpenMode {
            read: open.read && !held.read,
            write: open.write && !held.write,
            append: open.append && !held.append,
            execute: open.execute && !held.execute,
            ..open
        };
        self.check_open(context, ino, new)?;
        file.change_registration(context, open)?;
        let action = if open.is_writing() { LeaseAction::Write } else { LeaseAction::Read };
        drop(self.begin(context, ino, action)?);
        Ok(())
    }

    fn read_in_memory(
        &self,
        context: &Context<'_>,
        from: FileOffset<'_, OpenFile>,
        length: usize,
    ) -> Result<Option<MemoryParts>> {
        check_open_mode(context, from.file.mode().read || from.file.mode().execute)?;
        let (ino, action) = (from.file.ino()?, LeaseAction::Read);
        // a recall takes its time
        if self.0.doors.leases.has_conflict(ino, context.lease_holder(), action) {
            return Ok(None);
        }
        let _operation = self.begin(context, ino, action)?;
        Ok(from.file.parts_in_memory(from.offset, length))
    }

    fn write_with(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        at: WriteOffset,
        bytes: &[u8],
        wanted: Stability,
    ) -> Result<Written> {
        // a rollback after this makes the client write again
        let verifier = self.boot_verifier();
        self.write(context, file, at, bytes)?;
        let is_stable = self.0.files().is_sync_always();
        if wanted == Stability::Stable && !is_stable {
            self.commit(context, file.ino()?)?;
        }
        let stability = if is_stable { Stability::Stable } else { wanted };
        Ok(Written { count: bytes.len(), stability, verifier })
    }

    fn commit_range(
        &self,
        context: &Context<'_>,
        ino: Ino,
        _range: Range<u64>,
    ) -> Result<BootVerifier> {
        // the intent log commits all records of a file
        self.commit(context, ino)?;
        Ok(self.boot_verifier())
    }

    fn boot_verifier(&self) -> BootVerifier {
        let rollbacks = self.0.rollbacks.load(Ordering::Acquire);
        BootVerifier::new(self.0.pool.import_nonce(), rollbacks)
    }

    fn release_client(&self, client: ClientId) {
        let Doors { locks, opens, leases, .. } = &self.0.doors;
        locks.release_client(client);
        opens.release_where(|owner| owner == client);
        leases.release_where(|owner| owner == client);
    }

    fn release_door(&self, door: DoorId) {
        let Doors { locks, opens, leases, .. } = &self.0.doors;
        locks.release_door(door);
        opens.release_where(|owner| owner.door == door);
        leases.release_where(|owner| owner.door == door);
    }
}
