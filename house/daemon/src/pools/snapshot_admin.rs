//! Changes of snapshots by `.zfs/snapshot`, for the callers of mounts and shares.
//!
//! ```text
//! mkdir .zfs/snapshot/NAME   zfs snapshot   the permission snapshot
//! rmdir                      zfs destroy    destroy and mount
//! mv                         zfs rename     rename
//! ```
//!
//! The request thread of a door waits for the change, and other changes may wait for that thread. So it waits for the
//! lock of the pool's datasets only a moment. A FUSE request has the primary group of its caller and no others.

use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{Call, CreateSnapshots, DestroyDatasets, Event, RenameDataset};
use engine::pool::DelegationUser;
use posix::Credentials;
use vfs::{Reason, SnapshotAdmin};

use super::{ManagedPool, Pools};
use crate::Result;
use crate::events::ChangeOptions;

/// How long a request waits for other changes of the pool's datasets.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Changes snapshots of the daemon's pools.
pub(super) struct PoolSnapshotAdmin(pub(super) Weak<Pools>);

impl PoolSnapshotAdmin {
    /// Runs a change if the caller has the permissions of `call`.
    fn change<C: Call>(
        &self,
        caller: &Credentials,
        (snapshot, call, event): (&str, &C, Event),
        work: impl FnOnce(&ManagedPool) -> Result<()>,
    ) -> vfs::Result<()> {
        let refused = |reason| vfs::Error::Refused { reason };
        let pools = self.0.upgrade().ok_or(refused(Reason::Suspended))?;
        let is_owner = caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw();
        if !is_owner && !pools.is_caller_permitted(caller, call) {
            return Err(vfs::Error::AccessDenied);
        }
        let done = pools.pool_of_dataset(snapshot).and_then(|pool| {
            let Some(_changing) = pool.dataset_lock.try_lock_for(LOCK_TIMEOUT) else {
                return Err(crate::Error::refused_error("another change of the pool is running"));
            };
            pools.change(&[event], &ChangeOptions::default(), || work(&pool))
        });
        match done {
            Ok(_) => Ok(()),
            Err(crate::Error::Engine(engine::Error::NoSuchDataset { .. })) => {
                Err(vfs::Error::NotFound)
            }
            Err(why) => {
                pools.log.write_line(&format!("{}: {why}", call.action()));
                Err(refused(Reason::NotPermitted))
            }
        }
    }
}

impl SnapshotAdmin for PoolSnapshotAdmin {
    fn create(&self, caller: &Credentials, snapshot: &str) -> vfs::Result<()> {
        let names = vec![snapshot.to_owned()];
        let call =
            CreateSnapshots { names: names.clone(), recursive: false, properties: Vec::new() };
        let event = Event::SnapshotCreated { snapshot: snapshot.to_owned() };
        self.change(caller, (snapshot, &call, event), |pool| {
            Ok(pool.handle.snapshots().create(&names)?)
        })
    }

    fn destroy(&self, caller: &Credentials, snapshot: &str) -> vfs::Result<()> {
        let call = DestroyDatasets { name: snapshot.to_owned(), ..DestroyDatasets::default() };
        self.change(caller, (snapshot, &call, Event::destroyed(snapshot)), |pool| {
            pool.destroy_all(&[snapshot.to_owned()])
        })
    }

    fn rename(&self, caller: &Credentials, snapshot: &str, to: &str) -> vfs::Result<()> {
        let call = RenameDataset {
            name: snapshot.to_owned(),
            to: to.to_owned(),
            recursive: false,
            parents: false,
            force: false,
            keep_mounts: false,
        };
        let head = snapshot.split('@').next().unwrap_or(snapshot);
        let event = Event::DatasetRenamed { from: snapshot.to_owned(), to: format!("{head}@{to}") };
        self.change(caller, (snapshot, &call, event), |pool| {
            Ok(pool.handle.datasets().rename(snapshot, to, false)?)
        })
    }
}

impl Pools {
    /// Lets callers change snapshots by `.zfs/snapshot`, or no longer.
    pub(crate) fn allow_snapshot_admin(self: &Arc<Self>, is_allowed: bool) {
        let admin = PoolSnapshotAdmin(Arc::downgrade(self));
        let admin = is_allowed.then(|| Arc::new(admin) as Arc<dyn SnapshotAdmin>);
        self.snapshot_admin.lock().clone_from(&admin);
        for pool in self.all() {
            pool.filesystems.set_snapshot_admin(admin.clone());
        }
    }

    fn is_caller_permitted<C: Call>(&self, caller: &Credentials, call: &C) -> bool {
        let groups = caller.groups().iter().chain([&caller.gid]);
        let groups = groups.map(|gid| u64::from(*gid)).collect();
        let user = DelegationUser { uid: caller.uid.into(), groups };
        let needed = call.needed_permissions();
        needed.is_some_and(|needed| self.is_user_permitted(&user, &needed).unwrap_or(false))
    }
}
