//! A file system that is taken back to a snapshot while it is mounted and in use.
//!
//! Nobody's question is answered meanwhile. Then what is open is opened anew, and the kernel is told
//! to forget what has become another: of the rest it may keep what it knows. Folders that programs are
//! in stay theirs, and so do open files, with what the snapshot has of them; those that it does not
//! have are stale.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fusedev::Notifier;
use posix::Ino;
use vfs::{DoorId, Error, Invalidation, SharedFileSystem as _};

use super::FileSystemServer;
use super::file_handle::FileHandle;
use crate::ROOT_NODEID;

/// How long those whose questions are being answered are waited for.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(20);

/// What came of it.
#[derive(Debug)]
pub enum RollbackOutcome<E> {
    /// The work was done, or was not, as it says itself; and what the kernel could not be told.
    Done(Result<(), E>, Option<String>),
    /// It was not begun, as what is mounted cannot stay so meanwhile: it is to be unmounted before.
    NeedsUnmount(String),
}

/// The way to what is mounted, for who changes it from beside. Cheap to clone.
#[derive(Clone)]
pub struct RollbackHandle {
    server: Arc<FileSystemServer>,
}

impl RollbackHandle {
    pub(crate) fn new(server: Arc<FileSystemServer>, notices: Notifier) -> Self {
        // the server is new, and so is the way
        let _ = server.notifier.set(notices);
        server.subscribe_to_changes();
        Self { server }
    }

    /// The mount among the doors into its file system.
    pub fn door(&self) -> DoorId {
        self.server.door
    }

    /// Has `work` take the file system back to `snapshot`, one of its own by its full name.
    pub fn rollback<E>(
        &self,
        snapshot: &str,
        work: impl FnOnce() -> Result<(), E>,
    ) -> RollbackOutcome<E> {
        let server = &self.server;
        if server.fs.is_suspended() {
            return RollbackOutcome::NeedsUnmount("the pool stands still".to_owned());
        }
        let Some(closed) = server.rollback_gate.try_write_for(QUIESCE_TIMEOUT) else {
            return RollbackOutcome::NeedsUnmount(
                "somebody's question is not answered yet".to_owned(),
            );
        };
        let changed = match server.fs.rollback_invalidations(snapshot) {
            Ok(changed) => changed,
            Err(why) => return RollbackOutcome::NeedsUnmount(why.to_string()),
        };
        let done = work();
        let opened = server.reopen_after_rollback();
        drop(closed);
        let told = match opened {
            Ok(true) => self.invalidate_kernel_cache(&changed).map_err(|why| why.to_string()),
            Ok(false) => Ok(()),
            Err(why) => Err(why.to_string()),
        };
        RollbackOutcome::Done(done, told.err())
    }

    /// Tells the kernel of all; gives the first that it could not be told.
    fn invalidate_kernel_cache(&self, changed: &[Invalidation]) -> io::Result<()> {
        let root = self.server.fs.root_ino();
        let node = |ino: Ino| if ino == root { ROOT_NODEID } else { ino.get() };
        let Some(notices) = self.server.notifier.get() else { return Ok(()) };
        let told = changed.iter().map(|changed| match changed {
            Invalidation::Inode(number) => notices.invalidate_inode(node(*number)),
            Invalidation::Entry { dir, name } => notices.invalidate_entry(node(*dir), name),
        });
        told.fold(Ok(()), io::Result::and)
    }
}

impl FileSystemServer {
    /// Opens all anew, if the file system was taken back; gives whether it was.
    fn reopen_after_rollback(&self) -> Result<bool, Error> {
        let is_another = self.fs.reopen_after_rollback()?;
        if is_another {
            self.fs.changes().publish_overflow(self.door);
            self.open_files.replace_where(FileHandle::reopen);
            self.open_dirs.replace_where(vfs::OpenDir::reopen_after_rollback);
            // these the kernel takes for dead as long as somebody is in them
            let gone = self.fs.forget_all();
            self.restored_dirs.increment(gone.into_iter().filter(|dir| self.fs.exists(*dir)));
        }
        Ok(is_another)
    }
}
