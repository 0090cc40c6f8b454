//! Block devices that this process serves: the volumes of its own pools.
//!
//! No pool may be on one of them. A txg of the upper pool would wait for writes of the lower pool.
//! The upper pool's dirty data would fill the lower pool's memory, and both would deadlock. Even a
//! read would wait for this process.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Mutex, PoisonError};

use crate::Error;

/// The volumes by the number of their devices (`st_rdev`).
static VOLUMES: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

/// A block device that this process serves. It is known until this is dropped.
#[derive(Debug)]
pub struct OwnVolume(u64);

impl OwnVolume {
    /// Has the device of that number (`st_rdev`) refused, as a volume of that name.
    pub fn register(number: u64, volume: &str) -> Self {
        let mut volumes = VOLUMES.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.insert(number, volume.to_owned());
        Self(number)
    }
}

impl Drop for OwnVolume {
    fn drop(&mut self) {
        let known = VOLUMES.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        assert!(known.is_some() || std::thread::panicking(), "device {} is released once", self.0);
    }
}

/// Refuses a device that this process serves, and a partition of one.
pub(crate) fn check(facts: &Metadata, path: &str) -> Result<(), Error> {
    if !facts.file_type().is_block_device() {
        return Ok(());
    }
    let volumes = VOLUMES.lock().unwrap_or_else(PoisonError::into_inner);
    if volumes.is_empty() {
        return Ok(());
    }
    let disk = disk_of_partition(facts.rdev()).unwrap_or(facts.rdev());
    volumes.get(&disk).map_or(Ok(()), |volume| {
        Err(Error::OwnVolume { path: path.to_owned(), volume: volume.clone() })
    })
}

/// The device number of a partition's disk, as the kernel shows it; none if the device is a whole
/// disk.
fn disk_of_partition(number: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let link = format!("/sys/dev/block/{major}:{minor}");
    fs::metadata(format!("{link}/partition")).ok()?;
    let text = fs::read_to_string(format!("{link}/../dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::OwnVolume;
    use crate::{Error, File};

    #[test]
    fn devices_of_own_volumes_are_refused() {
        // any block device will do, and most containers have none
        let path = Path::new("/dev/loop0");
        let Ok(facts) = std::fs::metadata(path) else { return };
        let number = std::os::unix::fs::MetadataExt::rdev(&facts);
        let own = OwnVolume::register(number, "tank/vol");
        let refused =
            |why: &Error| matches!(why, Error::OwnVolume { volume, .. } if volume == "tank/vol");
        assert!(File::open(path).is_err_and(|why| refused(&why)));
        assert!(File::open_exclusive(path).is_err_and(|why| refused(&why)));
        drop(own);
        assert!(!File::open(path).is_err_and(|why| refused(&why)));
    }
}
