//! Mounting and unmounting on request.

use std::path::PathBuf;
use std::sync::Arc;

use api::{Event, Mount, Reply, Unmount};

use super::mounts::{UnmountOptions, is_within, mount_all_pools};
use super::options::Overrides;
use super::{ManagedPool, Pools};
use crate::events::ChangeOptions;
use crate::{Error, Result};

impl Pools {
    pub(crate) fn mount(&self, call: &Mount) -> Result<Reply<()>> {
        let overrides = &call.overrides;
        overrides.validate()?;
        let before = self.mounted_filesystems();
        let mut failed = Vec::new();
        if call.names.is_empty() {
            failed.extend(mount_all_pools(&self.all(), overrides));
        }
        for name in &call.names {
            let pool = self.pool_of_dataset(name)?;
            let _changing = pool.dataset_lock.lock();
            if overrides.is_remount() {
                pool.remount(name, overrides)?;
                continue;
            }
            if !call.recursive || !pool.is_mounted(name) {
                pool.mount_filesystem(name, overrides)?;
            }
            if call.recursive {
                failed.extend(pool.mount_subtree_with(name, overrides));
            }
        }
        // the log of a dataset that was locked at the import is replayed only now
        let mut warnings = self.log_import_events(&self.all());
        let mut mounted = self.mounted_filesystems();
        mounted.retain(|mount| !before.contains(mount));
        let events =
            mounted.into_iter().map(|(dataset, directory)| Event::Mounted { dataset, directory });
        let events: Vec<_> = events.collect();
        // the mounts recorded them
        warnings.extend(self.events.follow(&events, &ChangeOptions::default()));
        if failed.is_empty() {
            Ok(Reply::with_warnings(warnings))
        } else {
            Err(Error::refused_error(failed.join("\n")))
        }
    }

    pub(crate) fn unmount(&self, call: &Unmount) -> Result<()> {
        let pools = self.all();
        let how = UnmountOptions { force: call.force, keep_dirs: true };
        let mounted = self.mounted_filesystems();
        if call.names.is_empty() {
            return self.unmount_shared(&mounted, call.force, || unmount_all(&pools, how));
        }
        let mut chosen = Vec::new();
        for name in &call.names {
            let found = mounted
                .iter()
                .find(|(dataset, dir)| dataset == name || dir.as_os_str() == name.as_str());
            let Some((dataset, _)) = found else {
                return Err(Error::refused_error(format!(
                    "cannot unmount '{name}': not currently mounted"
                )));
            };
            self.check_not_legacy(dataset)?;
            chosen.push(dataset.as_str());
        }
        let goes = |dataset: &str| chosen.iter().any(|chosen| is_within(dataset, chosen));
        let coming: Vec<_> = mounted.iter().filter(|(dataset, _)| goes(dataset)).cloned().collect();
        self.unmount_shared(&coming, call.force, || {
            for pool in &pools {
                let _changing = pool.dataset_lock.lock();
                if call.unload_keys {
                    pool.check_keys_unused(&goes)?;
                }
                pool.unmount_selected(&goes, how)?;
            }
            Ok(())
        })
    }

    /// Refuses to unmount what umount(8) unmounts, in OpenZFS's words.
    fn check_not_legacy(&self, name: &str) -> Result<()> {
        let found = self.pool_of_dataset(name)?.list_filesystems(name, Some(0))?;
        let mountpoint = found.first().and_then(|dataset| dataset.property_value("mountpoint"));
        if mountpoint == Some("legacy") {
            return Err(Error::refused_error(format!(
                "cannot unmount '{name}': legacy mountpoint\nuse umount(8) to unmount this filesystem"
            )));
        }
        Ok(())
    }

    /// The mounted file systems of all pools, and their directories.
    fn mounted_filesystems(&self) -> Vec<(String, PathBuf)> {
        self.all().iter().flat_map(|pool| pool.mounted_filesystems()).collect()
    }

    /// Unmounts file systems after their shares were ended. Those that stay mounted are shared again.
    fn unmount_shared(
        &self,
        mounts: &[(String, PathBuf)],
        force: bool,
        unmount: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let event = |(dataset, directory): &(String, PathBuf)| Event::Unmounted {
            dataset: dataset.clone(),
            directory: directory.clone(),
        };
        let coming: Vec<_> = mounts.iter().map(event).collect();
        self.events.prepare(&coming, &ChangeOptions { force, ..ChangeOptions::default() })?;
        let done = unmount();
        // the mounts record the events that happened
        self.events.abandon(&coming);
        done
    }
}

/// Unmounts all file systems with canmount=on. The last mounted is the first unmounted: it may cover others.
fn unmount_all(pools: &[Arc<ManagedPool>], how: UnmountOptions) -> Result<()> {
    let mut all: Vec<_> = pools
        .iter()
        .flat_map(|pool| {
            pool.mount_order().into_iter().map(move |(order, name)| (order, pool, name))
        })
        .collect();
    all.sort_by_key(|(order, ..)| std::cmp::Reverse(*order));
    let mut busy = Vec::new();
    for (_, pool, dataset) in all {
        let _changing = pool.dataset_lock.lock();
        if let Err(why) = pool.unmount_dataset(&dataset, how) {
            busy.push(why.to_string());
        }
    }
    if busy.is_empty() { Ok(()) } else { Err(Error::refused_error(busy.join("\n"))) }
}
