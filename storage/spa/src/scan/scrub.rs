//! Reading everything, and mending what is wrong or cannot be read where others have it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use ondisk::blkptr::Regular;
use ondisk::{Checksum, Dva};
use units::Txg;
use vdev::{DeviceError, Leaf, NodeKind};
use zio::{BlockRepair, Reader};

use super::round::{Aim, Item, Round, Scan};
use super::{Mended, Watch};
use crate::{Error, Owned};

/// Everything is of interest.
struct Scrub;

impl Aim for Scrub {
    fn since(&self) -> Txg {
        Txg::ZERO
    }

    fn concerns(&self, _: &Regular) -> bool {
        true
    }

    fn wants(&self, _: &Leaf, _: Txg) -> bool {
        false
    }

    fn is_lost(&self) -> bool {
        false
    }

    fn examines(&self) -> bool {
        true
    }
}

impl Owned {
    /// Reads all that is in the pool, each copy on each drive and parity, and writes anew what is
    /// wrong where it can be had from others. To be called by one at a time, on a thread of its
    /// own; groups are written meanwhile.
    pub fn scrub(&self, watch: &Watch) -> Result<Mended, Error> {
        let scan = Scan::new(self, &Scrub, watch);
        let complete = scan.run()?;
        // what was mended is to last, as what is written with a group does
        self.tree.flush(&mut Vec::new())?;
        Ok(scan.report(complete))
    }
}

impl Round<'_> {
    /// Reads all of a block, and mends what is wrong of it.
    pub(super) fn examine(&self, item: &Item) {
        let Item { place, block } = item;
        let births = (block.birth_physical, block.birth_physical);
        let examined = match self.scan.reader.verify_block(block, *place) {
            Ok(examined) => examined,
            Err(error) => return self.scan.lose(*place, &error, births),
        };
        self.scan.watch.read.fetch_add(u64::from(block.psize), Relaxed);
        let faults = examined.faults().filter(|fault| fault.error.is_repairable());
        let (mut guilty, mut differs) = (BTreeSet::new(), false);
        for fault in faults {
            differs |= fault.error == DeviceError::Corrupt;
            guilty.insert(fault.leaf);
        }
        let Some(bytes) = examined.bytes else {
            let why = examined.copies.iter().find_map(|copy| copy.2.as_ref().err());
            let why = why.map_or_else(|| "it cannot be read".to_owned(), ToString::to_string);
            return self.scan.lose(*place, &why, births);
        };
        Reader::recycle(bytes);
        if guilty.is_empty() {
            return;
        }
        if differs && !self.can_tell(block) {
            return self.scan.lose(*place, &"its sides differ, and it has no checksum", births);
        }
        let wants = |leaf: &Leaf, _: Txg| leaf.is_writable() && guilty.contains(&leaf.guid());
        let mut mending = BlockRepair::new(&self.scan.reader, &wants);
        match mending.add(block, *place) {
            Ok(_) => self.write(&mut mending, std::slice::from_ref(item)),
            Err(error) => self.scan.lose(*place, &error, births),
        }
    }

    /// Whether what does not fit is wrong. Of the sides of a mirror nobody can say without a checksum
    /// which one is right, and none is written over another; of an array that is parity, for its data
    /// are what everybody reads.
    fn can_tell(&self, block: &Regular) -> bool {
        let has_sum = !matches!(block.checksum, Checksum::Off | Checksum::NoParity);
        let is_array = |dva: Dva| {
            let top = self.scan.reader.tree().top(dva.vdev);
            top.is_some_and(|top| matches!(top.kind, NodeKind::Raidz(..) | NodeKind::Draid(..)))
        };
        has_sum || block.copies().all(is_array)
    }
}
