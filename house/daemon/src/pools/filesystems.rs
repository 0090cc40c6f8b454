//! The open file systems of a pool: one for all doors into a dataset.
//!
//! A door is a FUSE mount, a protocol server, or the daemon itself. All doors of a dataset get clones of one
//! [`PoolFileSystem`], so that they share its locks, leases, handles and changes. It is opened with the first door
//! and closed with the last.
//!
//! ```text
//! change of the dataset     the open file system
//! rename                    stays open under the new name
//! rollback, receive         stays open; its content is replaced, and doors are told that everything may differ
//! destroy, export,          must have no door: each service closes its doors when it prepares the change. With
//! key unload                force the doors get errors.
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::Event;
use engine::files::Time;
use engine::pool::Pool;
use parking_lot::Mutex;
use vfs::{DoorId, PoolFileSystem, SharedFileSystem as _, SnapshotAdmin};

use super::mounts::is_within;
use super::{ManagedPool, Pools};
use crate::events::ChangeOptions;
use crate::{Error, Result};

/// The time within which running requests must end before a rollback.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(20);
/// The number of checks whether doors are closed, and the pause between: running requests keep a
/// door open.
const CLOSE_TRIES: u32 = 10;
const CLOSE_PAUSE: Duration = Duration::from_millis(50);

/// The open file systems of a pool, by name.
pub(crate) struct FileSystemTable {
    pool: Pool,
    open: Mutex<HashMap<String, OpenEntry>>,
    /// Changes snapshots by `.zfs/snapshot`, if the configuration allows it.
    snapshot_admin: Mutex<Option<Arc<dyn SnapshotAdmin>>>,
}

struct OpenEntry {
    fs: PoolFileSystem,
    doors: Vec<(DoorId, &'static str)>,
}

/// A door into a file system. It is closed when this is dropped, and its locks, opens and leases are released.
pub(crate) struct Door {
    table: Arc<FileSystemTable>,
    fs: PoolFileSystem,
    id: DoorId,
}

impl Door {
    /// The file system, which all doors share.
    pub(crate) fn filesystem(&self) -> &PoolFileSystem {
        &self.fs
    }

    /// The door in requests and changes.
    pub(crate) fn id(&self) -> DoorId {
        self.id
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.fs.release_door(self.id);
        self.table.close(&self.fs, self.id);
    }
}

impl FileSystemTable {
    pub(super) fn new(pool: Pool, snapshot_admin: Option<Arc<dyn SnapshotAdmin>>) -> Arc<Self> {
        let snapshot_admin = Mutex::new(snapshot_admin);
        Arc::new(Self { pool, open: Mutex::default(), snapshot_admin })
    }

    /// Lets callers change snapshots by `.zfs/snapshot`, or no longer (none).
    pub(super) fn set_snapshot_admin(&self, admin: Option<Arc<dyn SnapshotAdmin>>) {
        let open = self.open.lock();
        open.values().for_each(|entry| entry.fs.set_snapshot_admin(admin.clone()));
        *self.snapshot_admin.lock() = admin;
    }

    /// Opens a door into a file system. `kind` is the door's name for users: "mount", "NFS".
    pub(crate) fn open_door(self: &Arc<Self>, name: &str, kind: &'static str) -> Result<Door> {
        let id = DoorId::new_unique();
        let mut open = self.open.lock();
        if let Some(entry) = open.get_mut(name) {
            entry.doors.push((id, kind));
            return Ok(Door { table: Arc::clone(self), fs: entry.fs.clone(), id });
        }
        let fs = PoolFileSystem::open(&self.pool, name, current_time);
        let fs = fs.map_err(|why| Error::refused_error(why.to_string()))?;
        fs.set_snapshot_admin(self.snapshot_admin.lock().clone());
        let entry = OpenEntry { fs: fs.clone(), doors: vec![(id, kind)] };
        open.insert(name.to_owned(), entry);
        Ok(Door { table: Arc::clone(self), fs, id })
    }

    fn close(&self, fs: &PoolFileSystem, id: DoorId) {
        let mut open = self.open.lock();
        let name = fs.dataset();
        let Some(entry) = open.get_mut(&*name) else { return };
        entry.doors.retain(|(door, _)| *door != id);
        let closed = if entry.doors.is_empty() { open.remove(&*name) } else { None };
        drop(open);
        // this may free removed files, which takes its time
        drop(closed);
    }

    /// The file system of that name, if a door is open.
    pub(super) fn find(&self, name: &str) -> Option<PoolFileSystem> {
        self.open.lock().get(name).map(|entry| entry.fs.clone())
    }

    /// Whether a chosen file system with doors has NFSv4 ACLs.
    pub(super) fn any_has_nfs4_acls(&self, chosen: &dyn Fn(&str) -> bool) -> bool {
        let open = self.open.lock();
        open.iter().any(|(name, entry)| chosen(name) && entry.fs.has_nfs4_acls())
    }

    fn chosen(&self, chosen: &dyn Fn(&str) -> bool) -> Vec<PoolFileSystem> {
        let open = self.open.lock();
        open.iter().filter(|(name, _)| chosen(name)).map(|(_, it)| it.fs.clone()).collect()
    }

    /// Makes all doors into the chosen file systems drop their caches, and waits until they have.
    pub(super) fn drop_caches(&self, chosen: &dyn Fn(&str) -> bool) {
        let open = self.chosen(chosen);
        for fs in &open {
            fs.changes().publish_overflow(DoorId::DAEMON);
        }
        Self::wait_for_doors(&open);
    }

    /// Makes all doors into the chosen file systems look `.zfs` up again, and waits until they
    /// have.
    pub(super) fn drop_control_dirs(&self, chosen: &dyn Fn(&str) -> bool) {
        let open = self.chosen(chosen);
        open.iter().for_each(PoolFileSystem::announce_control_dir);
        Self::wait_for_doors(&open);
    }

    fn wait_for_doors(open: &[PoolFileSystem]) {
        let deadline = Instant::now() + QUIESCE_TIMEOUT;
        for fs in open {
            // a mount that is late drops its caches a little later
            let _ = fs.changes().wait_until_handled(DoorId::DAEMON, deadline);
        }
    }

    /// The names of the file systems with doors.
    pub(super) fn names(&self) -> Vec<String> {
        self.open.lock().keys().cloned().collect()
    }

    /// The dataset and those below it have other names now.
    pub(super) fn rename(&self, from: &str, to: &str) {
        let mut open = self.open.lock();
        let moved: Vec<String> =
            open.keys().filter(|name| is_within(name, from)).cloned().collect();
        for name in moved {
            let Some(entry) = open.remove(&name) else { continue };
            let name = name.replacen(from, to, 1);
            entry.fs.set_dataset(&name);
            open.insert(name, entry);
        }
    }

    /// Runs a change that may replace the content of a file system. No door is in a request meanwhile.
    pub(super) fn replace_content(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Some(fs) = self.find(name) else { return work() };
        let (done, replaced) = fs
            .replace_content(DoorId::DAEMON, QUIESCE_TIMEOUT, work)
            .map_err(|why| Error::refused_error(format!("'{name}' is in use: {why}; try again")))?;
        let is_replaced = replaced.map_err(|why| {
            Error::refused_error(format!(
                "'{name}' was changed, but its mounts and shares cannot follow: {why}; unmount it \
                 and mount it again"
            ))
        })?;
        if is_replaced {
            let deadline = Instant::now() + QUIESCE_TIMEOUT;
            // a mount that is late drops what its kernel caches a little later
            let _ = fs.changes().wait_until_handled(DoorId::DAEMON, deadline);
        }
        done
    }

    /// A file system with doors among the chosen ones, and the kinds of its doors.
    fn find_in_use(&self, chosen: &dyn Fn(&str) -> bool) -> Option<(String, String)> {
        let open = self.open.lock();
        let (name, entry) = open.iter().find(|(name, _)| chosen(name))?;
        let mut kinds: Vec<&str> = entry.doors.iter().map(|(_, kind)| *kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        Some((name.clone(), kinds.join(", ")))
    }

    /// Fails if a chosen file system has doors that do not close within a moment.
    pub(super) fn check_closed(&self, chosen: &dyn Fn(&str) -> bool) -> Result<()> {
        let mut in_use = self.find_in_use(chosen);
        for _ in 0..CLOSE_TRIES {
            if in_use.is_none() {
                return Ok(());
            }
            std::thread::sleep(CLOSE_PAUSE);
            in_use = self.find_in_use(chosen);
        }
        in_use.map_or(Ok(()), |(name, kinds)| {
            Err(Error::refused_error(format!(
                "'{name}' is in use by {kinds}: end that first, or use -f, which gives its clients \
                 errors"
            )))
        })
    }
}

impl Pools {
    /// Makes the services close the objects that coming changes of one pool need, and checks that
    /// no door of an ending file system is left.
    pub(super) fn prepare_changes(&self, coming: &[Event], options: &ChangeOptions) -> Result<()> {
        self.events.prepare(coming, options)?;
        let pool = coming.iter().find_map(Event::pool).and_then(|name| self.pool(name).ok());
        let Some(pool) = pool.filter(|_| !options.force) else { return Ok(()) };
        pool.check_doors(coming).inspect_err(|_| self.events.abandon(coming))
    }
}

impl ManagedPool {
    fn check_doors(&self, coming: &[Event]) -> Result<()> {
        let table = &self.filesystems;
        for event in coming {
            match event {
                Event::DatasetDestroyed { dataset } => {
                    table.check_closed(&|name| name == dataset)?;
                }
                Event::PoolExported { .. } | Event::PoolDestroyed { .. } => {
                    table.check_closed(&|_| true)?;
                }
                Event::KeyUnloaded { dataset } => {
                    let root = self.handle.keys().encryption_root(dataset)?;
                    let has_key = |name: &String| {
                        root.is_some()
                            && matches!(self.handle.keys().encryption_root(name), Ok(it) if it == root)
                    };
                    let users: Vec<String> = table.names().into_iter().filter(has_key).collect();
                    table.check_closed(&|name| users.iter().any(|user| user == name))?;
                }
                _ => (),
            }
        }
        Ok(())
    }
}

fn current_time() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = units::narrow::<i64>(now.as_secs());
    Time { seconds, nanoseconds: now.subsec_nanos() }
}
