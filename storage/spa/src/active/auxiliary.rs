//! The spares and cache drives of an imported pool.
//!
//! The pool's configuration names them; a drive is identified by the guid in its label.
//! A missing one does no harm: the pool works without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc::L2arc;
use device::Device;
use dsl::write::SyncTaskContext;
use units::{Ashift, Guid};

use super::ActivePool;
use crate::auxiliary::{self, AuxiliaryDevice, AuxiliaryEntry, AuxiliaryLabel, AuxiliaryRole};
use crate::{Error, PoolDirectory};

/// The spares and cache drives that a pool names, and the open ones.
pub(crate) struct AuxiliaryDevices {
    entries: Vec<AuxiliaryEntry>,
    open_devices: BTreeMap<Guid, Arc<dyn Device>>,
    /// Spares that were detached, and get the label of a spare now.
    returning: BTreeSet<Guid>,
}

impl AuxiliaryDevices {
    /// None of them open yet.
    pub(super) fn load(directory: &PoolDirectory) -> Result<Self, Error> {
        let entries = auxiliary::read_entries(directory)?;
        Ok(Self { entries, open_devices: BTreeMap::new(), returning: BTreeSet::new() })
    }
}

impl ActivePool {
    /// The second level of its read cache.
    pub fn l2arc(&self) -> &Arc<L2arc> {
        &self.l2arc
    }

    /// Its spares and cache drives, and the devices of the open ones.
    pub fn auxiliary(&self) -> Vec<(AuxiliaryEntry, Option<Arc<dyn Device>>)> {
        let kept = self.auxiliary.lock();
        let with =
            |named: &AuxiliaryEntry| (named.clone(), kept.open_devices.get(&named.guid).cloned());
        kept.entries.iter().map(with).collect()
    }

    /// Takes the device of a spare or a cache drive that the pool names. False: it names none such,
    /// or the drive is too small for anything.
    pub fn open_auxiliary(&self, guid: Guid, device: Arc<dyn Device>) -> bool {
        let mut kept = self.auxiliary.lock();
        let Some(named) = kept.entries.iter().find(|named| named.guid == guid) else {
            return false;
        };
        let ashift = named.ashift.unwrap_or(Ashift::MIN);
        let fits = named.role == AuxiliaryRole::Spare
            || self.l2arc.add_device(guid, ashift, Arc::clone(&device));
        if fits {
            kept.open_devices.insert(guid, device);
        }
        fits
    }

    /// Makes drives into spares and cache drives of the pool; their content is lost.
    pub fn add_auxiliary(&self, drives: &[AuxiliaryDevice]) -> Result<(), Error> {
        let ashift =
            auxiliary::max_ashift(&self.config().tree.map_or(Vec::new(), |tree| tree.children));
        let new: Vec<AuxiliaryLabel> = drives
            .iter()
            .map(|each| AuxiliaryLabel::new(each, &self.environment, ashift))
            .collect();
        // a drive that the pool does not name yet is unused
        new.iter().try_for_each(AuxiliaryLabel::write)?;
        let named: Vec<AuxiliaryEntry> = new.iter().map(|each| each.entry.clone()).collect();
        self.run_sync_task(move |active, change| {
            active.update_auxiliary(change, |known| known.extend(named))
        })??;
        for each in new {
            self.open_auxiliary(each.entry.guid, each.device);
        }
        Ok(())
    }

    /// Lets a spare or a cache drive of the pool go. A spare that stands in for a drive stays: OpenZFS
    /// relies upon its being named as long as it does.
    pub fn remove_auxiliary(&self, guid: Guid) -> Result<(), Error> {
        if self.tree.leaf(guid).is_some() {
            let why = "it is in use: it replaces a drive of the pool".to_owned();
            return Err(Error::Auxiliary { why });
        }
        self.run_sync_task(move |active, change| {
            active.update_auxiliary(change, |known| known.retain(|named| named.guid != guid))
        })??;
        let device = self.auxiliary.lock().open_devices.remove(&guid);
        self.l2arc.remove_device(guid);
        device.map_or(Ok(()), |device| auxiliary::write_removed_labels(&*device, guid))
    }

    /// Whether a spare was detached, and is available in a moment.
    pub fn is_returning(&self, spare: Guid) -> bool {
        self.auxiliary.lock().returning.contains(&spare)
    }

    /// A spare is detached in this txg: until it has its label it is not available yet, and in use no more.
    pub(super) fn begin_spare_return(&self, spare: Guid) {
        self.auxiliary.lock().returning.insert(spare);
    }

    /// The device of a detached spare has its label, or cannot get it.
    pub(super) fn end_spare_return(&self, spare: Guid) {
        self.auxiliary.lock().returning.remove(&spare);
    }

    /// A spare's device is part of a vdev from now on.
    pub(super) fn take_spare_device(&self, guid: Guid) {
        self.auxiliary.lock().open_devices.remove(&guid);
    }

    /// Removes a spare, which is an ordinary leaf from now on, from the list of spares.
    pub(super) fn forget_spare(
        &self,
        change: &SyncTaskContext<'_>,
        guid: Guid,
    ) -> Result<(), Error> {
        self.update_auxiliary(change, |known| known.retain(|named| named.guid != guid))
    }

    /// Gives the device of a spare that was detached the label of a spare: it is available again.
    pub(super) fn return_spare(&self, guid: Guid, device: &Arc<dyn Device>) -> Result<(), Error> {
        let entry = self.auxiliary().into_iter().find(|(named, _)| named.guid == guid);
        let Some((entry, _)) = entry else { return Ok(()) };
        AuxiliaryLabel::of_spare(entry, Arc::clone(device)).write()?;
        self.open_auxiliary(guid, Arc::clone(device));
        Ok(())
    }

    /// Opens a spare whose label still names it as a leaf of this pool: the power failed, or the
    /// drive was missing, between the detach and the new label.
    pub fn recover_spare(&self, guid: Guid, device: &Arc<dyn Device>) -> bool {
        let is_member = self.tree.leaf(guid).is_some();
        !is_member
            && self.newest_known_txg(guid, device).is_some()
            && self.return_spare(guid, device).is_ok()
    }

    /// Clears the errors of cache drives, and reopens the failed ones.
    pub(super) fn clear_cache_errors(&self, only: Option<Guid>) {
        let drives = self.l2arc.device_stats().into_iter();
        let failed = drives.filter(|drive| only.is_none_or(|guid| drive.guid == guid));
        let failed = failed.filter(|drive| drive.read_errors + drive.write_errors > 0);
        for guid in failed.map(|drive| drive.guid) {
            let device = self.auxiliary.lock().open_devices.get(&guid).cloned();
            // a missing one, or another one in its place, keeps failing
            let _ =
                device.map(|device| device.reopen(&|found| auxiliary::is_labeled_as(found, guid)));
        }
        self.l2arc.clear_errors(only);
    }

    pub(super) fn update_auxiliary(
        &self,
        change: &SyncTaskContext<'_>,
        edit: impl FnOnce(&mut Vec<AuxiliaryEntry>),
    ) -> Result<(), Error> {
        let mut kept = self.auxiliary.lock();
        let mut named = kept.entries.clone();
        edit(&mut named);
        auxiliary::write_entries(change, &named)?;
        kept.entries = named;
        Ok(())
    }
}
