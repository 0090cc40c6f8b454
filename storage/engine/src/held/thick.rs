//! Volumes whose space is reserved: how much that takes, and how it follows their size.
//!
//! A volume of so many bytes takes more than those: each block its share of parity and padding, in
//! proportion to what a block of 128 KiB takes (for that is how free space is told), and the
//! blocks that lead to it. Those are counted as if nothing of them were compressed.
//!
//! Learnt from: volumes that `zfs create -V` made, on all layouts. Proved by: the tests below, and
//! the rounds against OpenZFS.

use ondisk::label::VdevKind;
use units::{Txg, parse_bytes};

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
/// No block has more copies.
const MOST_COPIES: u64 = 3;

/// What a volume has that is to be, or is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Its bytes.
    pub(super) size: u64,
    /// Bytes of its blocks.
    pub(super) block: u64,
    /// Copies of each.
    pub(super) copies: u64,
}

impl Shape {
    /// What it takes of the space that is told, where a block takes `data` of it.
    fn reservation(self, data: u64) -> u64 {
        let mut blocks = self.size.checked_div(self.block).unwrap_or(0);
        let data = blocks.saturating_mul(data).saturating_mul(self.copies);
        let mut pointers = LEVELS;
        while blocks > 1 {
            blocks = blocks.div_ceil(POINTERS);
            pointers = pointers.saturating_add(blocks);
        }
        let copies = self.copies.saturating_add(1).min(MOST_COPIES);
        data.saturating_add(pointers.saturating_mul(copies).saturating_mul(INDIRECT))
    }
}

/// What blocks take of the space that is told, one of which takes `taken`, where one of the
/// typical size takes `typical`.
fn told(blocks: u64, taken: u64, typical: u64) -> u64 {
    let all = u128::from(blocks).saturating_mul(taken.into()).saturating_mul(TYPICAL.into());
    let told = all.checked_div(typical.into()).unwrap_or(all);
    u64::try_from(told).unwrap_or(u64::MAX)
}

impl Held {
    /// Bytes that a volume reserves which must never lack space.
    pub(super) fn reservation(&self, shape: Shape) -> u64 {
        let config = self.0.owned.config();
        let tops = config.tree.as_ref().map_or(&[][..], |root| &root.children);
        let spread =
            tops.iter().filter(|top| matches!(top.kind, VdevKind::Raidz) || top.draid.is_some());
        let blocks = shape.size.checked_div(shape.block).unwrap_or(0);
        let worst = spread.filter_map(|top| {
            let asize = |psize| self.0.owned.tree().asize(top.id, psize, Txg::new(u64::MAX));
            Some(told(blocks, asize(shape.block)?, asize(TYPICAL)?))
        });
        let data = worst.max().filter(|data| *data > 0).unwrap_or(shape.size);
        let metadata = shape.reservation(0);
        data.saturating_mul(shape.copies).saturating_add(metadata)
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
            ("refreservation" | "refreserv", "auto") => Some(self.reserve(name)),
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
        Ok(Shape { size, block, copies: self.number(name, "copies")?.max(1) })
    }

    fn number(&self, name: &str, property: &str) -> Result<u64> {
        let found = self.find(name)?.property(property);
        let found = found.map_err(|error| Error::of_dataset(name, &error))?;
        Ok(found.and_then(|found| found.value.parse().ok()).unwrap_or(0))
    }

    /// A reservation that was what its size wants follows it.
    fn resize(&self, name: &str, value: &str) -> Result<()> {
        let volume = self.volume(name)?;
        let wanted = parse_bytes(value);
        let wanted = wanted.ok_or_else(|| Error::Usage { what: format!("volsize={value}") })?;
        check_size(name, wanted, volume.block_size())?;
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
    use super::{Shape, told};

    #[test]
    fn reservations_are_what_openzfs_takes() {
        let reservation = |size, block, copies| Shape { size, block, copies }.reservation(block);
        // volumes of the fixtures
        assert_eq!(reservation(2 << 20, 8192, 1), 4_194_304);
        assert_eq!(reservation(4 << 20, 16384, 1), 6_291_456);
        // 65536 blocks: 64 and 1 that lead to them, and 7, two of each
        assert_eq!(reservation(1 << 30, 16384, 1), (1 << 30) + (7 + 64 + 1) * 2 * (128 << 10));
        assert_eq!(reservation(1 << 30, 16384, 3), (3 << 30) + (7 + 64 + 1) * 3 * (128 << 10));
    }

    #[test]
    fn what_takes_more_than_a_typical_block_is_told_as_more() {
        // raidz1 of 3 with sectors of 4 KiB: 8 KiB take 16, 128 KiB take 192
        assert_eq!(told(1000, 16384, 196_608), 1000 * 16384 * 2 / 3);
        assert_eq!(told(1000, 8192, 131_072), 1000 * 8192);
        assert_eq!(told(u64::MAX, u64::MAX, 1), u64::MAX);
    }
}
