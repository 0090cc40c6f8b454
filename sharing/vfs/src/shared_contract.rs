//! The contract between network protocols and a file system that several doors share.
//!
//! A server needs more of a file system than a mount does: handles that outlast restarts, locks, share modes and
//! leases that hold against all other doors, the changes that others make, and the stability of writes.
//!
//! This is a trait of its own because a [`crate::DatasetTree`] cannot fulfil it. The inode numbers
//! of a tree depend on the order of lookups, so it has no handles. Nothing changes in it, and one
//! mount is its only door.

use std::ops::Range;
use std::sync::Arc;

use posix::access::OpenMode;
use posix::{Ino, WriteOffset};
use units::Guid;

use crate::{
    BootVerifier, ChangeBus, ClientId, Context, DoorId, FileHandle, FileOffset, FileSystem,
    LeaseCallback, LeaseId, LeaseRights, LeaseTable, LockTable, MemoryParts, OpenDir, OpenFile,
    OpenTable, Result, Stability, Written,
};

/// A file system as protocol servers hold it: `Arc<DynFileSystem>`.
pub type DynFileSystem = dyn SharedFileSystem<File = OpenFile, Directory = OpenDir>;

/// A file system that several doors share.
pub trait SharedFileSystem: FileSystem {
    /// The guid of the pool.
    fn pool_guid(&self) -> Guid;

    /// The guid of the dataset, which is `filesystem_guid` of its handles.
    fn guid(&self) -> Guid;

    /// The handle of a file. It stays valid as long as the file exists, over restarts and renames.
    fn handle(&self, ino: Ino) -> Result<FileHandle>;

    /// The file of a handle.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Stale`]: the file was removed, or is not of this file system or its snapshots.
    fn resolve_handle(&self, handle: &FileHandle) -> Result<Ino>;

    /// The bus of changes.
    fn changes(&self) -> &Arc<ChangeBus>;

    /// The byte-range locks. They are advisory: reads and writes ignore them.
    fn locks(&self) -> &LockTable;

    /// The opens of all doors, each added by [`FileSystem::open`].
    fn opens(&self) -> &OpenTable;

    /// The leases.
    fn leases(&self) -> &LeaseTable;

    /// Grants the client of a request a lease, or none: other clients use the file in a way that conflicts.
    fn grant_lease(
        &self,
        context: &Context<'_>,
        ino: Ino,
        rights: LeaseRights,
        callback: LeaseCallback,
    ) -> Option<LeaseId>;

    /// Changes the open mode of a file, and the accesses denied to other clients (`context.deny`):
    /// an NFSv4 client opens the file once more, or downgrades its open. The caller's permissions
    /// are checked for new kinds of access.
    ///
    /// # Errors
    ///
    /// [`crate::Error::ShareConflict`]: the file stays open as it was.
    fn change_open(
        &self,
        context: &Context<'_>,
        file: &mut Self::File,
        open: OpenMode,
    ) -> Result<()>;

    /// Reads bytes without a copy, fewer at the end of the file, if all of them are in memory. None: they are to be read
    /// with [`FileSystem::read`]. Waits for no drive.
    fn read_in_memory(
        &self,
        context: &Context<'_>,
        from: FileOffset<'_, Self::File>,
        length: usize,
    ) -> Result<Option<MemoryParts>>;

    /// Writes bytes that are at least as stable as `wanted` when this returns.
    fn write_with(
        &self,
        context: &Context<'_>,
        file: &Self::File,
        at: WriteOffset,
        bytes: &[u8],
        wanted: Stability,
    ) -> Result<Written>;

    /// Commits a byte range of a file to stable storage, and perhaps all of the file. Returns the verifier: if it
    /// is not the one of a write, the client must write again.
    fn commit_range(
        &self,
        context: &Context<'_>,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<BootVerifier>;

    /// A number that changes when writes that were not committed may have been lost.
    fn boot_verifier(&self) -> BootVerifier;

    /// Releases the locks, open files and leases of a client that is gone. Its waits for locks end.
    fn release_client(&self, client: ClientId);

    /// Releases the locks, open files and leases of all clients of a door that closes.
    fn release_door(&self, door: DoorId);
}
