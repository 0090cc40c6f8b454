//! A rollback of a file system that is mounted and in use.
//!
//! No request runs meanwhile. Afterwards open files are reopened, and the kernel's caches of
//! changed files are invalidated; it keeps the others. Working directories of programs and open
//! files stay valid with the content of the snapshot. Files that the snapshot does not have are
//! stale.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fusedev::Notifier;
use posix::Ino;
use vfs::{DoorId, Invalidation};

use super::FileSystemServer;
use crate::ROOT_NODEID;

/// How long running requests are waited for.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(20);

/// The result of a rollback.
#[derive(Debug)]
pub enum RollbackOutcome<E> {
    /// The work ran, with its result; and the first invalidation that failed.
    Done(Result<(), E>, Option<String>),
    /// It was not begun, because the file system must be unmounted first.
    NeedsUnmount(String),
}

/// The handle of a mounted file system for changes from outside. Cheap to clone.
#[derive(Clone)]
pub struct RollbackHandle {
    server: Arc<FileSystemServer>,
}

impl RollbackHandle {
    pub(crate) fn new(server: Arc<FileSystemServer>, notices: Notifier) -> Self {
        // the server is new, and so is the way
        let _ = server.notifier.set(notices);
        server.subscribe_to_changes();
        server.start_locks();
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
            return RollbackOutcome::NeedsUnmount("the pool is suspended".to_owned());
        }
        let Some(closed) = server.rollback_gate.try_write_for(QUIESCE_TIMEOUT) else {
            return RollbackOutcome::NeedsUnmount("a request is still running".to_owned());
        };
        let changed = match server.fs.rollback_invalidations(snapshot) {
            Ok(changed) => changed,
            Err(why) => return RollbackOutcome::NeedsUnmount(why.to_string()),
        };
        let replaced = server.fs.replace_content(server.door, QUIESCE_TIMEOUT, work);
        let (done, opened) = match replaced {
            Ok(replaced) => replaced,
            Err(why) => return RollbackOutcome::NeedsUnmount(why.to_string()),
        };
        if matches!(opened, Ok(true)) {
            server.follow_new_content();
        }
        drop(closed);
        let told = match opened {
            Ok(true) => self.invalidate_kernel_cache(&changed).map_err(|why| why.to_string()),
            Ok(false) => Ok(()),
            Err(why) => Err(why.to_string()),
        };
        RollbackOutcome::Done(done, told.err())
    }

    /// Invalidates the kernel's caches; returns the first failure.
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
    /// Opens files again in the new content of the file system, before a request can remove them.
    fn follow_new_content(&self) {
        self.open_files.for_each(|handle| handle.file.reopen_after_rollback());
        // the kernel takes removed directories for dead as long as a program is in them
        let gone = self.fs.forget_all();
        self.restored_dirs.increment(gone.into_iter().filter(|dir| self.fs.exists(*dir)));
    }
}
