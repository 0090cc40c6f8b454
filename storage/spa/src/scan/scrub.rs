//! Reading everything, and mending what is wrong or cannot be read where others have it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use ondisk::blkptr::Regular;
use ondisk::{Checksum, Dva};
use units::Txg;
use vdev::{DeviceError, Leaf, NodeKind};
use zio::{BlockRepair, Reader};

use super::round::{Round, Scan, ScanBlock, ScanPolicy};
use super::{ScanProgress, ScanResult};
use crate::{ActivePool, Error};

/// Everything is of interest.
struct Scrub;

impl ScanPolicy for Scrub {
    fn since_txg(&self) -> Txg {
        Txg::ZERO
    }

    fn includes(&self, _: &Regular) -> bool {
        true
    }

    fn needs_write(&self, _: &Leaf, _: Txg) -> bool {
        false
    }

    fn is_hopeless(&self) -> bool {
        false
    }

    fn verifies_all(&self) -> bool {
        true
    }
}

impl ActivePool {
    /// Reads all that is in the pool, each copy on each drive and parity, and writes anew what is
    /// wrong where it can be had from others. To be called by one at a time, on a thread of its
    /// own; groups are written meanwhile.
    pub fn scrub(&self, watch: &ScanProgress) -> Result<ScanResult, Error> {
        let scan = Scan::new(self, &Scrub, watch);
        let complete = scan.run()?;
        // what was mended is to last, as what is written with a group does
        self.tree.flush(&mut Vec::new())?;
        Ok(scan.result(complete))
    }
}

impl Round<'_> {
    /// Reads all of a block, and mends what is wrong of it.
    pub(super) fn verify_block(&self, item: &ScanBlock) {
        let ScanBlock { zbookmark: place, block } = item;
        let births = (block.birth_physical, block.birth_physical);
        let examined = match self.scan.reader.verify_block(block, *place) {
            Ok(examined) => examined,
            Err(error) => return self.scan.record_error(*place, &error, births),
        };
        self.scan.progress.bytes_read.fetch_add(u64::from(block.psize), Relaxed);
        let faults = examined.faults().filter(|fault| fault.error.is_repairable());
        let (mut guilty, mut differs) = (BTreeSet::new(), false);
        for fault in faults {
            differs |= fault.error == DeviceError::Corrupt;
            guilty.insert(fault.leaf);
        }
        let Some(bytes) = examined.bytes else {
            let why = examined.copies.iter().find_map(|copy| copy.2.as_ref().err());
            let why = why.map_or_else(|| "it cannot be read".to_owned(), ToString::to_string);
            return self.scan.record_error(*place, &why, births);
        };
        Reader::recycle(bytes);
        if guilty.is_empty() {
            return;
        }
        if differs && !self.can_identify_bad_copy(block) {
            return self.scan.record_error(
                *place,
                &"its sides differ, and it has no checksum",
                births,
            );
        }
        let wants = |leaf: &Leaf, _: Txg| leaf.is_writable() && guilty.contains(&leaf.guid());
        let mut mending = BlockRepair::new(&self.scan.reader, &wants);
        match mending.add(block, *place) {
            Ok(_) => self.write_repairs(&mut mending, std::slice::from_ref(item)),
            Err(error) => self.scan.record_error(*place, &error, births),
        }
    }

    /// Whether what does not fit is wrong. Of the sides of a mirror nobody can say without a checksum
    /// which one is right, and none is written over another; of an array that is parity, for its data
    /// are what everybody reads.
    fn can_identify_bad_copy(&self, block: &Regular) -> bool {
        let has_sum = !matches!(block.checksum, Checksum::Off | Checksum::NoParity);
        let is_array = |dva: Dva| {
            let top = self.scan.reader.tree().top(dva.vdev);
            top.is_some_and(|top| matches!(top.kind, NodeKind::Raidz(..) | NodeKind::Draid(..)))
        };
        has_sum || block.copies().all(is_array)
    }
}
