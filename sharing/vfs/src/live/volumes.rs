//! The volumes just below a file system, each shown as a file that can be written, and whose size
//! stays.

use engine::held::{Held, InUse, LiveVolume};
use parking_lot::RwLock;

use super::Live;
use crate::number::{Node, Place};
use crate::{Attributes, Error, Kind, Reason, Result};

/// The volumes that have a place, which they keep: one that is made anew under an old name gets
/// another, so that who has the old one open does not write to it.
#[derive(Default)]
pub(super) struct Volumes(RwLock<Vec<Known>>);

/// A volume: its name below the file system, and its guid.
type Known = (String, u64);

/// Who may read and write volumes: root, as with the devices that OpenZFS makes of them.
const MODE: u32 = 0o600;

impl Volumes {
    /// The place of a volume.
    pub(super) fn place(&self, volume: &Known) -> Result<Place> {
        let mut all = self.0.write();
        let known = all.iter().position(|known| known == volume);
        let at = known.unwrap_or_else(|| {
            all.push(volume.clone());
            all.len().saturating_sub(1)
        });
        let place = u32::try_from(at).unwrap_or(u32::MAX);
        if place < Place::MOST { Ok(Place(place)) } else { Err(Error::TooHigh) }
    }

    /// The volume of a place, as long as it is there under its name.
    pub(super) fn open(&self, held: &Held, above: &str, place: Place) -> Result<LiveVolume> {
        let (name, guid) = self.known(place)?;
        let volume = held.volume(&format!("{above}/{name}"))?;
        if volume.guid() == guid { Ok(volume) } else { Err(Error::Absent) }
    }

    /// The same, which is not destroyed meanwhile.
    fn hold(&self, held: &Held, above: &str, place: Place) -> Result<InUse> {
        let (name, guid) = self.known(place)?;
        let (volume, in_use) = held.open_volume(&format!("{above}/{name}"))?;
        if volume.guid() == guid { Ok(in_use) } else { Err(Error::Absent) }
    }

    /// All volumes that have a place.
    fn all(&self) -> Vec<Known> {
        self.0.read().clone()
    }

    fn known(&self, place: Place) -> Result<Known> {
        let at = usize::try_from(place.0).unwrap_or(usize::MAX);
        self.0.read().get(at).cloned().ok_or(Error::Absent)
    }
}

impl Live {
    /// The volumes just below.
    pub(super) fn list_volumes(&self) -> Result<Vec<Known>> {
        Ok(self.0.held.volumes(&self.0.dataset)?)
    }

    /// Commits what was written to the volumes that have a place. One that was destroyed since, or another now
    /// has the name, needs nothing.
    pub(super) fn flush_volumes(&self) -> Result<()> {
        for (name, guid) in self.0.volumes.all() {
            let volume = self.0.held.volume(&format!("{}/{name}", self.0.dataset));
            if let Some(volume) = volume.ok().filter(|volume| volume.guid() == guid) {
                volume.flush()?;
            }
        }
        Ok(())
    }

    /// The volume that a number stands for; none: it stands for something else.
    pub(super) fn volume(&self, number: u64) -> Result<Option<LiveVolume>> {
        let Node::Volume(place) = Self::node(number)? else { return Ok(None) };
        self.0.volumes.open(&self.0.held, &self.0.dataset, place).map(Some)
    }

    /// Keeps the volume that a number stands for from being destroyed; none: it stands for something
    /// else.
    pub(super) fn hold_volume(&self, number: u64) -> Result<Option<InUse>> {
        let Node::Volume(place) = Self::node(number)? else { return Ok(None) };
        self.0.volumes.hold(&self.0.held, &self.0.dataset, place).map(Some)
    }

    /// What there is to know of a volume.
    pub(super) fn attributes_of_volume(number: u64, volume: &LiveVolume) -> Attributes {
        Attributes {
            mode: MODE,
            size: volume.size(),
            block_size: volume.block_size().into(),
            ..Attributes::made_up(number, Kind::File)
        }
    }
}

/// Writes to a volume. Like a device it ends where it ends.
pub(super) fn write(volume: &LiveVolume, offset: u64, bytes: &[u8]) -> Result<()> {
    let end = u64::try_from(bytes.len()).ok().and_then(|length| offset.checked_add(length));
    if end.is_none_or(|end| end > volume.size()) {
        return Err(Error::Refused { reason: Reason::NoSpace });
    }
    Ok(volume.write(offset, bytes)?)
}
