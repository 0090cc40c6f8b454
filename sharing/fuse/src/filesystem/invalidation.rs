//! Changes by other doors: invalidates the kernel's caches.
//!
//! The kernel caches names, attributes and content for a day, since most changes come through the mount itself. A
//! change by another door arrives on the file system's bus, and a thread of this mount passes it on:
//!
//! ```text
//! change                  the kernel drops                                    notification
//! data                    the pages and attributes of the file                INVAL_INODE
//! attributes, ACL, xattr  the attributes and ACLs of the file                 INVAL_INODE, no range
//! entry                   the name, and the attributes of the directory       INVAL_ENTRY, INVAL_INODE
//! lost changes            pages and attributes of all inodes it knows, and    all of these
//!                         the names that their directories have
//! ```
//!
//! **The thread holds no lock, and no request thread ever sends a notification about another door's
//! change.** Within INVAL_INODE the kernel waits for the pages of running requests, and writes out
//! pages that a program changed by a mapping. Within INVAL_ENTRY it waits for the lock of the
//! directory. Programs hold all of these while their requests wait for a response from here. For
//! the same reason a request that came by a mount never waits until another mount has handled its
//! change.
//!
//! A page that a program has changed by a mapping is written out as a whole. If another door has
//! changed other bytes of the same page, the program's page wins, as with any network file system.
//! A mapping writes nothing beyond the end of file that the kernel knows. A program that expects
//! another door to extend the file must call fstat first, as with any file that others extend.
//!
//! The thread starts with the first change of another door, so that an idle mount has none. After
//! lost changes a directory's name is expired rather than dropped, because a file system may be
//! mounted on it. The kernel may then still have a stale name of a file that is open or has a
//! second name.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fusedev::Notifier;
use posix::{Credentials, FileType, Ino};
use rustix::io::Errno;
use vfs::{
    Change, ChangeBatch, ChangeKind, Context, FileSystem as _, SharedFileSystem as _, Subscription,
    SubscriptionCloser,
};

use super::FileSystemServer;
use crate::ROOT_NODEID;

/// Changes that may wait for the thread. Each takes about 100 bytes.
const CAPACITY: usize = 1 << 16;

/// The subscription of a mount, and the thread that handles it.
pub(super) struct Invalidator {
    subscription: Subscription,
    closer: SubscriptionCloser,
    has_thread: AtomicBool,
}

impl FileSystemServer {
    /// Subscribes a mount to the changes of other doors.
    pub(crate) fn subscribe_to_changes(self: &Arc<Self>) {
        let server = Arc::downgrade(self);
        let wake = move || {
            if let Some(server) = server.upgrade() {
                server.start_invalidation_thread();
            }
        };
        let subscription = self.fs.changes().subscribe(self.door, CAPACITY, wake);
        let (closer, has_thread) = (subscription.closer(), AtomicBool::new(false));
        // the server is new
        let _ = self.invalidator.set(Invalidator { subscription, closer, has_thread });
    }

    fn start_invalidation_thread(self: Arc<Self>) {
        let Some(invalidator) = self.invalidator.get() else { return };
        if invalidator.has_thread.swap(true, Ordering::SeqCst) {
            return;
        }
        let server = Arc::clone(&self);
        let thread = std::thread::Builder::new().name("fuse-invalidate".to_owned());
        if thread.spawn(move || server.handle_changes()).is_err() {
            // the next change tries again
            invalidator.has_thread.store(false, Ordering::SeqCst);
        }
    }

    /// Ends the thread, when nothing is mounted any more.
    pub(super) fn end_invalidation(&self) {
        if let Some(invalidator) = self.invalidator.get() {
            invalidator.closer.close();
        }
    }

    fn handle_changes(&self) {
        let Some(invalidator) = self.invalidator.get() else { return };
        while let Some(batch) = invalidator.subscription.next_batch() {
            let Some(notifier) = self.notifier.get() else { return };
            if self.invalidate(notifier, &batch).is_err() {
                // nothing is mounted any more
                invalidator.closer.close();
            }
        }
    }

    fn to_nodeid(&self, ino: Ino) -> u64 {
        if ino == self.fs.root_ino() { ROOT_NODEID } else { ino.get() }
    }

    fn invalidate(&self, notifier: &Notifier, batch: &ChangeBatch) -> io::Result<()> {
        if batch.is_overflow {
            self.invalidate_all(notifier)?;
        }
        let stale = StaleCache::of(&batch.changes);
        for (dir, name) in stale.entries {
            check_mounted(notifier.invalidate_entry(self.to_nodeid(dir), name))?;
        }
        for (ino, has_data_changed) in stale.inodes {
            let nodeid = self.to_nodeid(ino);
            check_mounted(if has_data_changed {
                notifier.invalidate_inode(nodeid)
            } else {
                notifier.invalidate_attributes(nodeid)
            })?;
        }
        Ok(())
    }

    /// Changes were lost: invalidates all inodes that the kernel knows.
    fn invalidate_all(&self, notifier: &Notifier) -> io::Result<()> {
        let context = Context::new(&Credentials::ROOT, self.door).checked_by_door();
        for ino in self.known.all().into_iter().chain([self.fs.root_ino()]) {
            // otherwise the kernel would get the attributes of a removed file, and believe the name
            self.fs.forget(ino);
            let mut names = Vec::new();
            if let Ok(dir) = self.fs.open_dir(&context, ino) {
                // a directory that cannot be read now is looked up again by its attributes
                let _ = self.fs.read_dir(&context, &dir, 0, &mut |entry| {
                    names.push((entry.name.clone(), entry.kind));
                    true
                });
            }
            let nodeid = self.to_nodeid(ino);
            for (name, kind) in names {
                let may_be_mountpoint = kind == FileType::Directory;
                check_mounted(
                    match (may_be_mountpoint, self.can_expire_names.load(Ordering::Relaxed)) {
                        (false, _) => notifier.invalidate_entry(nodeid, &name),
                        (true, true) => notifier.expire_entry(nodeid, &name),
                        (true, false) => Ok(()),
                    },
                )?;
            }
            check_mounted(notifier.invalidate_inode(nodeid))?;
        }
        Ok(())
    }
}

/// The kernel's cache entries that a batch of changes affects: many changes may be of the same
/// file.
#[derive(Default)]
struct StaleCache<'a> {
    entries: HashSet<(Ino, &'a [u8])>,
    /// By inode, whether its content changed.
    inodes: HashMap<Ino, bool>,
}

impl<'a> StaleCache<'a> {
    fn of(changes: &'a [Change]) -> Self {
        let mut stale = Self::default();
        for change in changes {
            let has_data_changed = change.kind == ChangeKind::Data;
            *stale.inodes.entry(change.ino).or_default() |= has_data_changed;
            match &change.kind {
                ChangeKind::Data | ChangeKind::Attributes => {}
                ChangeKind::EntryAdded { name } | ChangeKind::EntryRemoved { name } => {
                    stale.entries.insert((change.ino, name));
                }
                ChangeKind::EntryRenamed { name, to_dir, to_name }
                | ChangeKind::EntriesExchanged { name, to_dir, to_name } => {
                    stale.entries.extend([(change.ino, &name[..]), (*to_dir, &to_name[..])]);
                    stale.inodes.entry(*to_dir).or_default();
                }
            }
        }
        stale
    }
}

/// Whether the kernel still has the mount: other errors are about one inode, of which it has dropped all it could.
fn check_mounted(sent: io::Result<()>) -> io::Result<()> {
    sent.or_else(|why| match Errno::from_io_error(&why) {
        Some(Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED | Errno::PERM) => Err(why),
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use posix::Ino;
    use vfs::{Change, ChangeKind, DoorId};

    use super::StaleCache;

    #[test]
    fn changes_of_one_file_are_handled_once() {
        let change =
            |ino, kind| Change { ino: Ino::new(ino), kind, version: 0, door: DoorId::DAEMON };
        let (name, to_name) = (b"a".to_vec(), b"b".to_vec());
        let changes = [
            change(1, ChangeKind::Attributes),
            change(1, ChangeKind::Data),
            change(1, ChangeKind::Attributes),
            change(2, ChangeKind::EntryAdded { name: name.clone() }),
            change(2, ChangeKind::EntryRenamed { name, to_dir: Ino::new(3), to_name }),
        ];
        let stale = StaleCache::of(&changes);
        let inodes = [(1, true), (2, false), (3, false)];
        assert_eq!(stale.inodes, inodes.map(|(ino, data)| (Ino::new(ino), data)).into());
        let entries = [(2, &b"a"[..]), (3, b"b")];
        assert_eq!(stale.entries, entries.map(|(dir, name)| (Ino::new(dir), name)).into());
    }
}
