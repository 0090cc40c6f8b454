//! The spares and cache drives of an imported pool.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, File};
use ondisk::label::{VdevConfig, VdevKind};
use spa::auxiliary::{AuxiliaryEntry, AuxiliaryRole};
use units::{Guid, VdevId};

use super::Pool;
use super::history::record_pool_event;
use super::status::VdevStatus;
use crate::event::Event;
use crate::pool::handles::Vdevs;
use crate::{Error, Result};

/// Opens the device of a spare or cache drive.
pub(super) type DeviceOpener<'a> = &'a dyn Fn(&AuxiliaryEntry) -> Option<Arc<dyn Device>>;

/// A spare or cache drive that was found, of any pool.
pub(super) struct FoundDrive {
    guid: Guid,
    path: PathBuf,
}

/// The spares and cache drives that were found, in search order.
pub(super) fn found_drives(search: &crate::Search) -> Vec<FoundDrive> {
    let found = search.labelled_auxiliary().iter();
    found
        .map(|other| FoundDrive { guid: other.guid(), path: PathBuf::from(other.device.name()) })
        .collect()
}

/// The found drives with the label of a spare or cache drive, the best match first: the one whose
/// path is most similar to the path in the pool's configuration. Their labels have no path.
fn rank_by_path<'a>(found: &'a [FoundDrive], named: &AuxiliaryEntry) -> Vec<&'a FoundDrive> {
    let mut same: Vec<_> = found.iter().filter(|drive| drive.guid == named.guid).collect();
    same.sort_by_key(|drive| {
        Reverse(device::path_match_score(Path::new(&named.path), &drive.path))
    });
    same
}

/// Opens one of them for this program alone. One that cannot be opened is one that is not there.
pub(super) fn open_best_match(
    found: &[FoundDrive],
    named: &AuxiliaryEntry,
) -> Option<Arc<dyn Device>> {
    let file = File::open_exclusive(&rank_by_path(found, named).first()?.path).ok()?;
    Some(Arc::new(file))
}

/// The copies of the pool's spares and cache drives, which are left alone.
pub(super) fn duplicate_events(active: &spa::ActivePool, found: &[FoundDrive]) -> Vec<Event> {
    let shown = |drive: &FoundDrive| drive.path.display().to_string();
    let mut events = Vec::new();
    for (named, _) in active.auxiliary() {
        if let [used, copies @ ..] = rank_by_path(found, &named).as_slice() {
            let duplicate = |copy: &&FoundDrive| Event::DuplicateDevice {
                path: shown(copy),
                used: shown(used),
            };
            events.extend(copies.iter().map(duplicate));
        }
    }
    events
}

/// Adds those spares and cache drives to the pool that were found.
pub(super) fn open_auxiliary_drives(active: &spa::ActivePool, opens: DeviceOpener<'_>) {
    for (named, _) in active.auxiliary() {
        if let Some(device) = opens(&named) {
            active.open_auxiliary(named.guid, device);
        }
    }
}

impl Pool {
    /// The drives of the cache.
    pub(super) fn caches(&self) -> Vec<VdevStatus> {
        let known = self.0.spa.l2arc().device_stats();
        self.auxiliary_status(AuxiliaryRole::Cache, |named, _| {
            let Some(drive) = known.iter().find(|drive| drive.guid == named.guid) else {
                return VdevStatus::new(&named.path, named.guid, "UNAVAIL");
            };
            VdevStatus {
                read_errors: drive.read_errors,
                write_errors: drive.write_errors,
                checksum_errors: drive.checksum_errors,
                size: drive.size,
                allocated: drive.allocated,
                ..VdevStatus::new(
                    &drive.name,
                    drive.guid,
                    if drive.is_failed { "FAULTED" } else { "ONLINE" },
                )
            }
        })
    }

    pub(super) fn auxiliary_status(
        &self,
        role: AuxiliaryRole,
        describe: impl Fn(&AuxiliaryEntry, Option<&dyn Device>) -> VdevStatus,
    ) -> Vec<VdevStatus> {
        let all = self.0.spa.auxiliary();
        let own = all.iter().filter(|(named, _)| named.role == role);
        own.map(|(named, device)| describe(named, device.as_deref())).collect()
    }

    /// The paths of the found ones.
    pub(super) fn auxiliary_drives(&self) -> impl Iterator<Item = PathBuf> {
        let all = self.0.spa.auxiliary().into_iter();
        all.filter_map(|(_, device)| Some(PathBuf::from(device?.name())))
    }

    /// Opens missing spares and cache drives at their configured paths, or elsewhere in the same
    /// folders. A read-only pool has none.
    pub(super) fn reopen_auxiliary(&self) {
        if self.is_read_only() {
            return;
        }
        let lost = self.0.spa.auxiliary().into_iter().filter(|(_, device)| device.is_none());
        let unused = |named: &AuxiliaryEntry| self.0.spa.tree().leaf(named.guid).is_none();
        for (named, _) in lost.filter(|(named, _)| !named.is_distributed && unused(named)) {
            let path = Path::new(&named.path);
            let is_it = |found: &Arc<dyn Device>| {
                spa::auxiliary::is_labeled_as(found, named.guid)
                    || self.0.spa.recover_spare(named.guid, found)
            };
            let open = |path: &Path| {
                let device: Arc<dyn Device> = Arc::new(File::open_exclusive(path).ok()?);
                is_it(&device).then_some(device)
            };
            let found = open(path).or_else(|| open(&device::find_moved_device(path, &is_it)?));
            if let Some(device) = found {
                self.0.spa.open_auxiliary(named.guid, device);
            }
        }
    }
}

impl Vdevs<'_> {
    /// Removes spares, cache devices and log vdevs, and begins to remove a vdev with data, by their paths,
    /// guids or names. All are checked before the first is removed.
    pub fn remove(self, names: &[String]) -> Result<()> {
        self.pool.check_writable()?;
        let found: Vec<Removal> =
            names.iter().map(|name| self.pool.find_removal(name)).collect::<Result<_>>()?;
        self.pool.vdevs().check_removal(names)?;
        for (removal, name) in found.into_iter().zip(names) {
            match removal {
                Removal::Auxiliary(guid) => self.pool.0.spa.remove_auxiliary(guid),
                Removal::Log(vdev) => self.pool.0.spa.remove_log(vdev),
                Removal::Data(vdev) => self.pool.start_removal(vdev),
            }
            .map_err(|error| self.pool.removal_error(name, &error))?;
        }
        self.pool.record_event("vdev remove", names.join(" "))
    }
}

impl Pool {
    /// Those of the named devices and vdevs that are vdevs with data.
    pub(super) fn find_data_removals(&self, names: &[String]) -> Result<Vec<(String, VdevId)>> {
        let mut vdevs = Vec::new();
        for name in names {
            if let Removal::Data(vdev) = self.find_removal(name)? {
                vdevs.push((name.clone(), vdev));
            }
        }
        Ok(vdevs)
    }

    fn find_removal(&self, name: &str) -> Result<Removal> {
        if let Some(named) = self.find_auxiliary_drive(name).filter(|named| !named.is_distributed) {
            return Ok(Removal::Auxiliary(named.guid));
        }
        let config = self.0.spa.config();
        let tops = config.tree.iter().flat_map(|root| &root.children);
        let drive = self.find_drive(name).ok().map(|leaf| leaf.guid);
        let is_named = |top: &VdevConfig| {
            drive == Some(top.guid)
                || top.guid.to_string() == name
                || crate::summary::vdev_name(top) == name
        };
        match tops.clone().find(|top| is_named(top)) {
            Some(top) if top.is_log => Ok(Removal::Log(top.id)),
            Some(top) if matches!(top.kind, VdevKind::Indirect | VdevKind::Hole) => {
                let what = format!("cannot remove {name}: it is removed already");
                Err(Error::Usage { what })
            }
            Some(top) => Ok(Removal::Data(top.id)),
            None if drive.is_some() => Err(Error::Usage {
                what: format!(
                    "cannot remove {name}: operation not supported on this type of pool\nIt is part of a vdev. Use \
                     'zpool detach' for a mirror, or name the vdev as 'zpool status' shows it."
                ),
            }),
            None => {
                let what = format!("cannot remove {name}: {}", super::offline::NOT_IN_POOL);
                Err(Error::Usage { what })
            }
        }
    }

    /// The one of a path or guid.
    pub(super) fn find_auxiliary_drive(&self, name: &str) -> Option<AuxiliaryEntry> {
        let path = std::path::absolute(name).unwrap_or_else(|_| PathBuf::from(name));
        let is_it = |(named, device): &(AuxiliaryEntry, Option<Arc<dyn Device>>)| {
            let paths = [Some(named.path.as_str()), device.as_ref().map(|device| device.name())];
            named.guid.to_string() == name
                || (named.is_distributed && named.path == name)
                || paths.iter().flatten().any(|known| Path::new(known) == path)
        };
        let all = self.0.spa.auxiliary().into_iter();
        all.filter(is_it).map(|(named, _)| named).next()
    }

    pub(super) fn record_event(&self, what: &'static str, words: String) -> Result<()> {
        self.run_sync_task(move |active, change| {
            record_pool_event(active, change, what, &words);
            Ok(())
        })
    }
}

/// A device or vdev that is removed.
enum Removal {
    Auxiliary(Guid),
    Log(VdevId),
    /// Its data is copied to others first.
    Data(VdevId),
}

/// Smaller drives are refused, as OpenZFS does.
pub(super) const MIN_DEVICE_SIZE: u64 = 64 << 20;
