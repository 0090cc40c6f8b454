//! Volumes with a refreservation: its size, and how it follows volsize.
//!
//! A volume uses more than its size: each block has its share of parity and padding, in proportion
//! to a block of 128 KiB (the unit of free space), and its indirect blocks. Those are counted
//! uncompressed, and twice. The property copies is ignored, as in OpenZFS.
//!
//! Learnt from: volumes that `zfs create -V` made, on all layouts. Proved by: the tests below, and
//! the rounds against OpenZFS.

use ondisk::label::VdevKind;
use units::{Txg, parse_binary};

use super::Pool;
use super::volumes::check_volume_size;
use crate::{Error, Result};

/// The block size behind the figures of free space.
const DEFLATE_BLOCK_SIZE: u64 = 128 << 10;
/// Bytes of a block of pointers, and how many it has.
const INDIRECT_BLOCK_SIZE: u64 = 128 << 10;
const POINTERS_PER_INDIRECT: u64 = 1 << 10;
/// Blocks that lead to a volume's own, from its root on.
const MAX_LEVELS: u64 = 7;
/// So often they are there.
const METADATA_COPIES: u64 = 2;
/// The sector size behind the figures of free space.
const SECTOR_SIZE: u64 = 512;

/// The sizes of a new or existing volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct VolumeGeometry {
    /// Its bytes.
    pub(super) size: u64,
    /// Bytes of its blocks.
    pub(super) block_size: u64,
}

impl VolumeGeometry {
    fn block_count(self) -> u64 {
        self.size.checked_div(self.block_size).unwrap_or(0)
    }

    /// The space of the indirect blocks.
    fn metadata_bytes(self) -> u64 {
        let mut blocks = self.block_count();
        let mut pointers = MAX_LEVELS;
        while blocks > 1 {
            blocks = blocks.div_ceil(POINTERS_PER_INDIRECT);
            pointers = pointers.saturating_add(blocks);
        }
        pointers.saturating_mul(METADATA_COPIES).saturating_mul(INDIRECT_BLOCK_SIZE)
    }

    /// The deflated space of its blocks. One block takes `taken`, and one of the
    /// typical size takes `typical`.
    fn deflated_bytes(self, taken: u64, typical: u64) -> u64 {
        let all = u128::from(self.block_count()) * u128::from(taken);
        let sectors = u128::from(typical.checked_div(SECTOR_SIZE).unwrap_or(0));
        let told = all.checked_div(sectors).unwrap_or(all);
        let sectors = u128::from(DEFLATE_BLOCK_SIZE / SECTOR_SIZE);
        // a volume may be declared larger than any pool
        told.checked_mul(sectors).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(u64::MAX)
    }
}

impl Pool {
    /// Bytes that a volume reserves which must never lack space.
    pub(super) fn volume_refreservation(&self, shape: VolumeGeometry) -> u64 {
        let config = self.0.spa.config();
        let tops = config.tree.as_ref().map_or(&[][..], |root| &root.children);
        let spread =
            tops.iter().filter(|top| matches!(top.kind, VdevKind::Raidz) || top.draid.is_some());
        let worst = spread.filter_map(|top| {
            let asize = |psize| self.0.spa.tree().asize(top.id, psize, Txg::new(u64::MAX));
            Some(shape.deflated_bytes(asize(shape.block_size)?, asize(DEFLATE_BLOCK_SIZE)?))
        });
        let data = worst.max().filter(|data| *data > 0).unwrap_or(shape.size);
        data.saturating_add(shape.metadata_bytes())
    }

    /// Sets properties that are not entries in a table: the size of a volume, and the
    /// refreservation that follows it. None: it is another property.
    pub(super) fn set_volume_property(
        &self,
        name: &str,
        property: &str,
        value: &str,
    ) -> Option<Result<()>> {
        match property {
            _ if !is_volume_property(property, value) => None,
            "volsize" => Some(self.resize_volume(name, value)),
            _ => Some(self.set_auto_refreservation(name)),
        }
    }

    fn set_auto_refreservation(&self, name: &str) -> Result<()> {
        let volume = self.volumes().get(name)?;
        let wanted = self.volume_refreservation(self.volume_geometry(name, volume.size())?);
        self.properties().set(name, "refreservation", &wanted.to_string())
    }

    fn volume_geometry(&self, name: &str, size: u64) -> Result<VolumeGeometry> {
        let block = self.volumes().get(name)?.block_size().into();
        Ok(VolumeGeometry { size, block_size: block })
    }

    fn property_number(&self, name: &str, property: &str) -> Result<u64> {
        let found = self.find_dataset(name)?.property(property);
        let found = found.map_err(|error| Error::from_dsl_error(name, &error))?;
        Ok(found.and_then(|found| found.value.parse().ok()).unwrap_or(0))
    }

    /// A refreservation that matched its size follows it.
    fn resize_volume(&self, name: &str, value: &str) -> Result<()> {
        let volume = self.volumes().get(name)?;
        let wanted = parse_binary(value);
        let wanted = wanted.ok_or_else(|| Error::Usage { what: format!("volsize={value}") })?;
        check_volume_size(name, wanted, volume.block_size())?;
        if volume.is_read_only() {
            let what = format!("'{name}' keeps its size: it has readonly=on");
            return Err(Error::Refused { what });
        }
        let before = self.volume_refreservation(self.volume_geometry(name, volume.size())?);
        let follows = self.property_number(name, "refreservation")? == before;
        let reserve = || {
            if !follows {
                return Ok(());
            }
            let after = self.volume_refreservation(self.volume_geometry(name, wanted)?);
            self.properties().set(name, "refreservation", &after.to_string())
        };
        let grows = wanted > volume.size();
        if grows {
            reserve()?;
        }
        let refused = |error: crate::files::Error| Error::Refused { what: error.to_string() };
        volume.resize(wanted).map_err(refused)?;
        if !grows {
            reserve()?;
        }
        self.sync()
    }
}

/// Whether setting the property changes a volume, or follows from its size.
pub(super) fn is_volume_property(property: &str, value: &str) -> bool {
    property == "volsize" || (property, value) == ("refreservation", "auto")
}

#[cfg(test)]
mod tests {
    use super::VolumeGeometry;

    const SIZE: u64 = 10 << 20;

    /// The refreservation of `zfs create -V 10M` of OpenZFS 2.3.2, by block size.
    #[test]
    fn refreservations_equal_those_of_openzfs() {
        let mirror = [(4, 13_369_344), (8, 13_107_200), (16, 12_582_912), (128, 12_582_912)];
        for (block, reserved) in mirror {
            let shape = VolumeGeometry { size: SIZE, block_size: block << 10 };
            assert_eq!(SIZE + shape.metadata_bytes(), reserved, "{block}K");
        }
        // raidz1 of 3 with sectors of 4 KiB: 4 KiB take 8, 128 KiB take 192
        let shape = VolumeGeometry { size: SIZE, block_size: 4 << 10 };
        assert_eq!(shape.deflated_bytes(8 << 10, 192 << 10) + shape.metadata_bytes(), 16_864_512);
        // the volumes of fixtures
        for (size, block, reserved) in [(2, 8192, 4_194_304), (4, 16384, 6_291_456)] {
            let shape = VolumeGeometry { size: size << 20, block_size: block };
            assert_eq!(shape.size + shape.metadata_bytes(), reserved);
        }
        let all = VolumeGeometry { size: u64::MAX, block_size: 1 };
        assert_eq!(all.deflated_bytes(u64::MAX, 512), u64::MAX);
    }
}
