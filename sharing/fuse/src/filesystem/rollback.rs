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
use vfs::{DoorId, Invalidation};

use super::FileSystemServer;
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
    /// Opens files again in the new content of the file system, before a request can remove them.
    fn follow_new_content(&self) {
        self.open_files.for_each(|handle| handle.file.reopen_after_rollback());
        // the kernel takes removed directories for dead as long as a program is in them
        let gone = self.fs.forget_all();
        self.restored_dirs.increment(gone.into_iter().filter(|dir| self.fs.exists(*dir)));
    }
}
