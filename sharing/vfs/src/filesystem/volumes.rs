//! The child volumes of a file system, each shown as a file that can be written, and whose size
//! stays.

use engine::pool::{DatasetHold, OpenVolume, Pool};
use parking_lot::RwLock;
use posix::{Attributes, FileType, Ino};

use super::PoolFileSystem;
use crate::vnode::{DatasetIndex, Vnode};
use crate::{Error, Reason, Result, attributes};

/// The volumes with an index, which they keep: a new volume with an old name gets
/// another, so that a client with the old one open does not write to it.
#[derive(Default)]
pub(super) struct VolumeTable(RwLock<Vec<VolumeKey>>);

/// A volume: its name below the file system, and its guid.
type VolumeKey = (String, u64);

/// The owner of volumes: root, as with the devices of OpenZFS.
const VOLUME_MODE: u32 = 0o600;

impl VolumeTable {
    /// The place of a volume.
    pub(super) fn index_of(&self, volume: &VolumeKey) -> Result<DatasetIndex> {
        let mut all = self.0.write();
        let known = all.iter().position(|known| known == volume);
        let at = known.unwrap_or_else(|| {
            all.push(volume.clone());
            all.len() - 1
        });
        let place = units::narrow::<u32>(at);
        if place < DatasetIndex::LIMIT { Ok(DatasetIndex(place)) } else { Err(Error::InoOverflow) }
    }

    /// The volume of an index, while it exists under its name.
    pub(super) fn open(&self, held: &Pool, above: &str, place: DatasetIndex) -> Result<OpenVolume> {
        let (name, guid) = self.key_of(place)?;
        let volume = held.volumes().get(&format!("{above}/{name}"))?;
        if volume.guid() == guid { Ok(volume) } else { Err(Error::NotFound) }
    }

    /// The same, which is not destroyed meanwhile.
    fn open_held(&self, held: &Pool, above: &str, place: DatasetIndex) -> Result<DatasetHold> {
        let (name, guid) = self.key_of(place)?;
        let (volume, in_use) = held.volumes().open(&format!("{above}/{name}"))?;
        if volume.guid() == guid { Ok(in_use) } else { Err(Error::NotFound) }
    }

    /// The guid of the volume of a place.
    pub(super) fn guid(&self, place: DatasetIndex) -> Result<u64> {
        self.key_of(place).map(|(_, guid)| guid)
    }

    /// All volumes that have a place.
    fn all(&self) -> Vec<VolumeKey> {
        self.0.read().clone()
    }

    fn key_of(&self, place: DatasetIndex) -> Result<VolumeKey> {
        let at = units::to_usize(place.0);
        self.0.read().get(at).cloned().ok_or(Error::NotFound)
    }
}

impl PoolFileSystem {
    /// The volumes just below.
    pub(super) fn list_volumes(&self) -> Result<Vec<VolumeKey>> {
        Ok(self.0.pool.volumes().children(&self.dataset())?)
    }

    /// Commits the writes to the volumes that have an index. A destroyed one, or one whose name
    /// another now has, needs no commit.
    pub(super) fn flush_volumes(&self) -> Result<()> {
        for (name, guid) in self.0.volumes.all() {
            let volume = self.0.pool.volumes().get(&format!("{}/{name}", self.dataset()));
            if let Some(volume) = volume.ok().filter(|volume| volume.guid() == guid) {
                volume.flush()?;
            }
        }
        Ok(())
    }

    /// The volume that a number stands for; none: it stands for something else.
    pub(super) fn find_volume(&self, number: Ino) -> Result<Option<OpenVolume>> {
        let Vnode::Volume(place) = Self::vnode(number)? else { return Ok(None) };
        self.0.volumes.open(&self.0.pool, &self.dataset(), place).map(Some)
    }

    /// Keeps the volume that a number stands for from being destroyed; none: it stands for something
    /// else.
    pub(super) fn open_held_volume(&self, number: Ino) -> Result<Option<DatasetHold>> {
        let Vnode::Volume(place) = Self::vnode(number)? else { return Ok(None) };
        self.0.volumes.open_held(&self.0.pool, &self.dataset(), place).map(Some)
    }

    /// The attributes of a volume.
    pub(super) fn volume_attributes(number: Ino, volume: &OpenVolume) -> Attributes {
        Attributes {
            mode: VOLUME_MODE,
            size: volume.size(),
            block_size: volume.block_size().into(),
            ..attributes::synthetic(number, FileType::File)
        }
    }
}

/// Writes to a volume. Like a device it ends where it ends.
pub(super) fn write_volume(volume: &OpenVolume, offset: u64, bytes: &[u8]) -> Result<()> {
    let end = u64::try_from(bytes.len()).ok().and_then(|length| offset.checked_add(length));
    if end.is_none_or(|end| end > volume.size()) {
        return Err(Error::Refused { reason: Reason::NoSpace });
    }
    Ok(volume.write(offset, bytes)?)
}
