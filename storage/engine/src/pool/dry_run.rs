//! Checks of new datasets without creating them, for `zfs create -n`.

use ondisk::label::{VdevConfig, VdevKind};

use super::datasets::check_new_dataset;
use super::refreservation::VolumeGeometry;
use super::{NewDataset, Pool};
use crate::pool::handles::{Datasets, Volumes};
use crate::{Error, Result};

/// The size and the blocks of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct NewVolumeShape {
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
}

impl Datasets<'_> {
    /// Checks what creating a dataset checks, but for the space: its name, its parent and its properties.
    /// `creates_parents`: missing parents are not errors. Nothing is written.
    pub fn check_create(
        self,
        new: &NewDataset,
        volume: Option<NewVolumeShape>,
        creates_parents: bool,
    ) -> Result<()> {
        check_new_dataset(new, volume.map(|volume| (volume.size, volume.block_size)))?;
        let _pin = self.pool.pin();
        match self.pool.find_dataset(&new.name) {
            Ok(_) => {
                let what = format!("cannot create '{}': dataset already exists", new.name);
                return Err(Error::Refused { what });
            }
            Err(Error::NoSuchDataset { .. }) => {}
            Err(why) => return Err(why),
        }
        if self.pool.nearest_parent(&new.name, creates_parents)?.is_none() {
            let what = format!("cannot create '{}': a pool is created by zpool create", new.name);
            return Err(Error::Usage { what });
        }
        volume.map_or(Ok(()), |volume| self.pool.check_large_blocks(&new.name, volume.block_size))
    }
}

impl Volumes<'_> {
    /// Bytes that a new volume of that size reserves, unless it is sparse.
    pub fn refreservation_for(self, size: u64, block_size: u32) -> u64 {
        self.pool.volume_refreservation(VolumeGeometry { size, block_size: block_size.into() })
    }
}

impl Pool {
    /// The parent of a new dataset, or the nearest file system above it if missing parents are created.
    fn nearest_parent(&self, name: &str, creates_parents: bool) -> Result<Option<String>> {
        let mut at = name;
        while let Some((above, _)) = at.rsplit_once('/') {
            match self.find_parent(at) {
                Err(Error::NoParent { .. }) if creates_parents => at = above,
                Err(why) => return Err(why),
                Ok(_) => return Ok(Some(above.to_owned())),
            }
        }
        Ok(None)
    }
}

impl Volumes<'_> {
    /// The least block size of a volume, in bytes, that wastes no space on the vdevs of the pool: a smaller block takes
    /// as much space as one of this size.
    pub fn min_efficient_block(self) -> u64 {
        let config = self.pool.0.spa.config();
        let tops = config.tree.as_ref().map_or(&[][..], |root| &root.children);
        let data = tops.iter().filter(|top| !top.is_log && top.bias.is_none() && !top.is_hole);
        data.map(least_allocation).max().unwrap_or(0)
    }
}

/// The least that a vdev allocates for a block, in bytes, with its parity left aside where the block shares it.
fn least_allocation(top: &VdevConfig) -> u64 {
    let Some(sector) = top.ashift.and_then(|shift| 1_u64.checked_shl(u32::try_from(shift).ok()?))
    else {
        return 0;
    };
    let sectors = match (&top.kind, &top.draid, top.nparity) {
        (VdevKind::Draid, Some(draid), _) => draid.data,
        (VdevKind::Raidz, _, Some(1)) => 2,
        (VdevKind::Raidz, _, _) => 4,
        _ => 1,
    };
    sector.checked_mul(sectors).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ondisk::label::{VdevConfig, VdevKind};

    use super::least_allocation;

    #[test]
    fn raidz_allocates_whole_stripes() {
        let top = |kind, nparity| VdevConfig { nparity, ashift: Some(12), ..VdevConfig::new(kind) };
        assert_eq!(least_allocation(&top(VdevKind::Disk, None)), 4096);
        assert_eq!(least_allocation(&top(VdevKind::Raidz, Some(1))), 8192);
        assert_eq!(least_allocation(&top(VdevKind::Raidz, Some(2))), 16384);
    }
}
