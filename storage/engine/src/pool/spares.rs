//! Hot spares that stand in for failed drives.
//!
//! The daemon checks twice in a row which drives failed ([`Drives::failed`](crate::pool::Drives::failed)) and
//! has spares
//! attached to those that it found both times
//! ([`Drives::activate_spares`](crate::pool::Drives::activate_spares)). A resilver then writes
//! the data of the failed drive.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use device::Device;
use ondisk::label::{VdevConfig, VdevKind};
use spa::auxiliary::{AuxiliaryEntry, AuxiliaryRole};
use spa::vdev_layout::DeviceSpec;
use spa::{AttachMode, NewChild, Reconstruction};
use units::Guid;
use vdev::{Leaf, OutOfService};

use super::{Pool, status};
use crate::Result;
use crate::pool::handles::Drives;

/// How long a spare that was just detached is waited for, and how many times.
const RETURN_WAIT: Duration = Duration::from_millis(10);
const MAX_RETURN_WAITS: u32 = 500;

/// A spare that stands in for a drive from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivatedSpare {
    /// The path of the spare.
    pub spare: String,
    /// The path of the drive that failed.
    pub failed: String,
}

/// A spare that stands in for nothing, and its device, unless it is a distributed one.
pub(super) type AvailableSpare = (AuxiliaryEntry, Option<Arc<dyn Device>>);

/// Whether a spare is to stand in for a leaf.
fn has_failed(leaf: &Leaf) -> bool {
    match leaf.out_of_service() {
        Some(OutOfService::Offline { .. }) => false,
        Some(OutOfService::Faulted { .. } | OutOfService::TooManyErrors) => true,
        None => leaf.device().is_none() || leaf.is_failing(),
    }
}

impl Drives<'_> {
    /// The guids of failed drives that no spare and no replacement stands in for: faulted, removed or
    /// unavailable ones. Drives that a command took offline, and log devices, are none.
    pub fn failed(self) -> Vec<u64> {
        if self.pool.is_read_only() || self.pool.is_suspended() {
            return Vec::new();
        }
        let config = self.pool.0.spa.config();
        let tops = config.tree.iter().flat_map(|root| &root.children).filter(|top| !top.is_log);
        let mut found = Vec::new();
        for top in tops {
            let alone = std::slice::from_ref(top).iter().filter(|top| top.children.is_empty());
            let parents = top
                .walk()
                .filter(|vdev| !matches!(vdev.kind, VdevKind::Replacing | VdevKind::Spare));
            let leaves = parents.flat_map(|vdev| &vdev.children).chain(alone);
            let failed = leaves.filter(|leaf| {
                let is_physical = matches!(leaf.kind, VdevKind::Disk | VdevKind::File);
                let state = self.pool.0.spa.tree().leaf(leaf.guid);
                let is_degraded = self.pool.0.diagnosis.lock().is_degraded(leaf.guid);
                is_physical && (is_degraded || state.is_some_and(|leaf| has_failed(&leaf)))
            });
            found.extend(failed.map(|leaf| leaf.guid.get()));
        }
        found
    }

    /// Attaches available spares to failed drives of these guids. A drive for which no spare is large
    /// enough stays as it is.
    pub fn activate_spares(self, failed: &[u64]) -> Result<Vec<ActivatedSpare>> {
        let mut activated = Vec::new();
        for guid in self.pool.drives().failed().into_iter().filter(|guid| failed.contains(guid)) {
            activated.extend(self.pool.activate_spare_for(Guid::new(guid))?);
        }
        Ok(activated)
    }
}

impl Pool {
    fn activate_spare_for(&self, failed: Guid) -> Result<Option<ActivatedSpare>> {
        let config = self.0.spa.config();
        let mut leaves = config.tree.iter().flat_map(VdevConfig::leaves);
        let Some(leaf) = leaves.find(|leaf| leaf.guid == failed) else { return Ok(None) };
        for (spare, device) in self.available_spares() {
            // as OpenZFS, distributed spares are rebuilt sequentially, where that is possible
            let sequential =
                || self.attach_spare(failed, &spare, device.as_ref(), Reconstruction::Sequential);
            let healing =
                || self.attach_spare(failed, &spare, device.as_ref(), Reconstruction::Healing);
            let attached =
                if spare.is_distributed { sequential().or_else(|_| healing()) } else { healing() };
            match attached {
                Ok(()) => {
                    self.record_drive_event("spare", leaf);
                    let failed = leaf.path.clone().unwrap_or_default();
                    return Ok(Some(ActivatedSpare { spare: spare.path.clone(), failed }));
                }
                // too small for this place, or of another dRAID
                Err(spa::Error::DeviceChange(_)) => {}
                Err(error) => return Err(self.explain_error(&error)),
            }
        }
        Ok(None)
    }

    /// Puts a spare beside a leaf.
    pub(super) fn attach_spare(
        &self,
        old: Guid,
        spare: &AuxiliaryEntry,
        device: Option<&Arc<dyn Device>>,
        how: Reconstruction,
    ) -> std::result::Result<(), spa::Error> {
        let Some(device) = device else {
            return self.0.spa.attach_distributed_spare(old, spare, how);
        };
        let path = device.path().and_then(|path| path.to_str()).unwrap_or(&spare.path).to_owned();
        let is_disk = !Path::new(&path).is_file();
        let spec = DeviceSpec { path, size: device.size(), is_disk };
        let new = NewChild { spec, device: Arc::clone(device) };
        self.0.spa.attach_child(old, new, AttachMode::Spare(spare.guid), how)
    }

    /// The available spare of a path. A spare that was detached a moment ago is waited for.
    pub(super) fn find_available_spare(&self, path: &Path) -> Option<AvailableSpare> {
        let named = self.find_auxiliary_drive(path.to_str()?)?;
        for _ in 0..MAX_RETURN_WAITS {
            if !self.0.spa.is_returning(named.guid) {
                break;
            }
            std::thread::sleep(RETURN_WAIT);
        }
        self.available_spares().find(|(spare, _)| spare.guid == named.guid)
    }

    /// The spares that are open, or are distributed ones, and stand in for nothing.
    pub(super) fn available_spares(&self) -> impl Iterator<Item = AvailableSpare> + '_ {
        let all = self.0.spa.auxiliary().into_iter();
        let spares = all.filter(|(named, _)| named.role == AuxiliaryRole::Spare);
        spares.filter(|(named, device)| {
            (device.is_some() || named.is_distributed)
                && self.0.spa.tree().leaf(named.guid).is_none()
        })
    }

    /// The spares as `zpool status` shows them.
    pub(super) fn spares(&self) -> Vec<status::VdevStatus> {
        self.auxiliary_status(AuxiliaryRole::Spare, |named, device| {
            let in_use = self.0.spa.tree().leaf(named.guid);
            let is_there = device.is_some() || named.is_distributed;
            let is_in_use = in_use.is_some() || self.0.spa.is_returning(named.guid);
            let state = match (is_in_use, is_there) {
                (true, _) => "INUSE",
                (false, true) => "AVAIL",
                (false, false) => "UNAVAIL",
            };
            let device = in_use.as_ref().and_then(|leaf| leaf.device()).map(|device| &**device);
            let name = device.map_or(&*named.path, |device| device.name());
            let note = in_use.is_some().then(|| "currently in use".to_owned());
            status::VdevStatus { note, ..status::VdevStatus::new(name, named.guid, state) }
        })
    }
}
