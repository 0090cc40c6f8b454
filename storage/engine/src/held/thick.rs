//! Volumes whose space is reserved: how much that takes, and how it follows their size.
//!
//! A volume of so many bytes takes more than those: each block its share of parity and padding, in
//! proportion to what a block of 128 KiB takes (for that is how free space is told), and the
//! blocks that lead to it. Those are counted as if nothing of them were compressed, and twice. The
//! property copies is not looked at, as OpenZFS does not.
//!
//! Learnt from: volumes that `zfs create -V` made, on all layouts. Proved by: the tests below, and
//! the rounds against OpenZFS.

use ondisk::label::VdevKind;
use units::{Txg, parse_binary};

use super::Held;
use super::volumes::check_size;
use crate::{Error, Result};

/// The block by which free space is told.
const TYPICAL: u64 = 128 << 10;
/// Bytes of a block of pointers, and how many it has.
const INDIRECT: u64 = 128 << 10;
const POINTERS: u64 = 1 << 10;
/// Blocks that lead to a volume's own, from its root on.
const LEVELS: u64 = 7;
/// So often they are there.
const METADATA_COPIES: u64 = 2;
/// Free space is told in sectors of this size.
const SECTOR: u64 = 512;

/// What a volume has that is to be, or is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Its bytes.
    pub(super) size: u64,
    /// Bytes of its blocks.
    pub(super) block: u64,
}

impl Shape {
    fn blocks(self) -> u64 {
        self.size.checked_div(self.block).unwrap_or(0)
    }

    /// What the blocks take that lead to its own.
    fn metadata(self) -> u64 {
        let mut blocks = self.blocks();
        let mut pointers = LEVELS;
        while blocks > 1 {
            blocks = blocks.div_ceil(POINTERS);
            pointers = pointers.saturating_add(blocks);
        }
        pointers.saturating_mul(METADATA_COPIES).saturating_mul(INDIRECT)
    }

    /// What its blocks take of the space that is told, one of which takes `taken`, where one of the
    /// typical size takes `typical`.
    fn told(self, taken: u64, typical: u64) -> u64 {
        let all = u128::from(self.blocks()).saturating_mul(taken.into());
        let sectors = u128::from(typical.checked_div(SECTOR).unwrap_or(0));
        let told = all.checked_div(sectors).unwrap_or(all);
        u64::try_from(told.saturating_mul((TYPICAL / SECTOR).into())).unwrap_or(u64::MAX)
    }
}

impl Held {
    /// Bytes that a volume reserves which must never lack space.
    pub(super) fn reservation(&self, shape: Shape) -> u64 {
        let config = self.0.owned.config();
        let tops = config.tree.as_ref().map_or(&[][..], |root| &root.children);
        let spread =
            tops.iter().filter(|top| matches!(top.kind, VdevKind::Raidz) || top.draid.is_some());
        let worst = spread.filter_map(|top| {
            let asize = |psize| self.0.owned.tree().asize(top.id, psize, Txg::new(u64::MAX));
            Some(shape.told(asize(shape.block)?, asize(TYPICAL)?))
        });
        let data = worst.max().filter(|data| *data > 0).unwrap_or(shape.size);
        data.saturating_add(shape.metadata())
    }

    /// Sets what is not an entry in a table: the size of a volume, and a reservation that follows
    /// it. None: it is another property.
    pub(super) fn set_of_volume(
        &self,
        name: &str,
        property: &str,
        value: &str,
    ) -> Option<Result<()>> {
        match (property, value) {
            ("volsize", _) => Some(self.resize(name, value)),
            ("refreservation", "auto") => Some(self.reserve(name)),
            _ => None,
        }
    }

    fn reserve(&self, name: &str) -> Result<()> {
        let volume = self.volume(name)?;
        let wanted = self.reservation(self.shape(name, volume.size())?);
        self.set(name, "refreservation", &wanted.to_string())
    }

    fn shape(&self, name: &str, size: u64) -> Result<Shape> {
        let block = self.volume(name)?.block_size().into();
        Ok(Shape { size, block })
    }

    fn number(&self, name: &str, property: &str) -> Result<u64> {
        let found = self.find(name)?.property(property);
        let found = found.map_err(|error| Error::of_dataset(name, &error))?;
        Ok(found.and_then(|found| found.value.parse().ok()).unwrap_or(0))
    }

    /// A reservation that was what its size wants follows it.
    fn resize(&self, name: &str, value: &str) -> Result<()> {
        let volume = self.volume(name)?;
        let wanted = parse_binary(value);
        let wanted = wanted.ok_or_else(|| Error::Usage { what: format!("volsize={value}") })?;
        check_size(name, wanted, volume.block_size())?;
        if volume.is_read_only() {
            let what = format!("'{name}' keeps its size: it has readonly=on");
            return Err(Error::Refused { what });
        }
        let before = self.reservation(self.shape(name, volume.size())?);
        let follows = self.number(name, "refreservation")? == before;
        let reserve = || {
            if !follows {
                return Ok(());
            }
            let after = self.reservation(self.shape(name, wanted)?);
            self.set(name, "refreservation", &after.to_string())
        };
        let grows = wanted > volume.size();
        if grows {
            reserve()?;
        }
        let refused = |why: crate::files::Error| Error::Refused { what: why.to_string() };
        volume.resize(wanted).map_err(refused)?;
        if !grows {
            reserve()?;
        }
        self.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    const SIZE: u64 = 10 << 20;

    /// What `zfs create -V 10M` of OpenZFS 2.3.2 reserves, by the size of blocks.
    #[test]
    fn reservations_are_what_openzfs_takes() {
        let mirror = [(4, 13_369_344), (8, 13_107_200), (16, 12_582_912), (128, 12_582_912)];
        for (block, reserved) in mirror {
            let shape = Shape { size: SIZE, block: block << 10 };
            assert_eq!(SIZE + shape.metadata(), reserved, "{block}K");
        }
        // raidz1 of 3 with sectors of 4 KiB: 4 KiB take 8, 128 KiB take 192
        let shape = Shape { size: SIZE, block: 4 << 10 };
        assert_eq!(shape.told(8 << 10, 192 << 10) + shape.metadata(), 16_864_512);
        // the volumes of fixtures
        for (size, block, reserved) in [(2, 8192, 4_194_304), (4, 16384, 6_291_456)] {
            let shape = Shape { size: size << 20, block };
            assert_eq!(shape.size + shape.metadata(), reserved);
        }
        let all = Shape { size: u64::MAX, block: 1 };
        assert_eq!(all.told(u64::MAX, 512), u64::MAX);
    }
}
