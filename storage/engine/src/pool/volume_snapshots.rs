//! Snapshots of volumes, to be read as block devices.

use std::ops::Range;
use std::sync::Arc;

use spa::ActivePool;

use super::open_volumes::DatasetHold;
use super::settings;
use crate::pool::handles::Volumes;
use crate::{Error, Result, files};

/// A snapshot of a volume, open for reading. While it is open, `zfs destroy` of it, and of its
/// volume, reports it as busy, and its key stays loaded.
pub struct VolumeSnapshot {
    volume: zvol::Volume,
    guid: u64,
    referenced: u64,
    spa: Arc<ActivePool>,
    /// On the snapshot and on its volume.
    _holds: [DatasetHold; 2],
}

impl VolumeSnapshot {
    pub(super) fn spa(&self) -> &Arc<ActivePool> {
        &self.spa
    }

    pub(super) fn volume(&self) -> &zvol::Volume {
        &self.volume
    }

    /// The guid of the snapshot. It stays the same when the snapshot is renamed.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Bytes of the volume when the snapshot was made.
    pub fn size(&self) -> u64 {
        self.volume.size()
    }

    /// Bytes of a block (volblocksize).
    pub fn block_size(&self) -> u32 {
        self.volume.block_size()
    }

    /// Bytes of the pool that the snapshot refers to.
    pub fn referenced(&self) -> u64 {
        self.referenced
    }

    /// Whether the pool was exported.
    pub fn is_retired(&self) -> bool {
        self.spa.txgs().is_stopped()
    }

    /// Reads from byte `offset` on. Returns the number of bytes, less than requested at the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> files::Result<usize> {
        Ok(self.volume.read(offset, into)?)
    }

    /// First byte from `from` on that takes space; none: the rest is not mapped.
    pub fn next_data(&self, from: u64) -> files::Result<Option<u64>> {
        Ok(self.volume.next_data(from)?)
    }

    /// First byte of a range that is not mapped; the end of the range or of the volume if there is none.
    pub fn next_hole(&self, range: Range<u64>) -> files::Result<u64> {
        let end = range.end.min(self.size());
        let found = self.volume.object().next_hole_within(range.start..end);
        Ok(found.map_err(zvol::Error::from)?.min(end))
    }
}

impl Volumes<'_> {
    /// Opens a snapshot of a volume by its full name.
    pub fn open_snapshot(self, name: &str) -> Result<VolumeSnapshot> {
        // destroying takes this lock too, so that the snapshot exists until it is held
        let _open = self.pool.0.volumes.lock();
        let _pin = self.pool.pin();
        let dataset = self.pool.find_dataset(name)?;
        let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
        let not_snapshot = || {
            let what = format!("'{name}' is not a snapshot of a volume: give one as VOLUME@NAME");
            Error::Usage { what }
        };
        let (head, _) = name.split_once('@').ok_or_else(not_snapshot)?;
        let head_id = self.pool.find_dataset(head)?.id();
        let (Some(id), Some(head_id)) = (dataset.id(), head_id) else {
            return Err(not_snapshot());
        };
        if dataset.key_status().map_err(failed)? == Some(dsl::KeyStatus::Unavailable) {
            return Err(crate::keys::locked_error(&dataset));
        }
        self.pool.0.spa.l2arc().set_policy(id, settings::l2arc_policy(&dataset));
        let objset = dataset.open_objset().map_err(failed)?;
        let (volume, _) = zvol::Volume::open(&objset, None).map_err(|error| match error {
            zvol::Error::NotVolume { .. } => not_snapshot(),
            error => Error::Unreadable { subject: format!("'{name}'"), why: error.to_string() },
        })?;
        Ok(VolumeSnapshot {
            volume,
            guid: dataset.guid().get(),
            referenced: dataset.phys().map_or(0, |phys| phys.referenced),
            spa: Arc::clone(&self.pool.0.spa),
            _holds: [id, head_id].map(|id| self.pool.0.dataset_holds.hold(id)),
        })
    }
}
