//! Scrubs: everything is read and verified, and repaired where other copies are right.

use std::collections::BTreeSet;

use ondisk::blkptr::Regular;
use ondisk::scan::ScanFunction;
use ondisk::{Checksum, Dva};
use units::Txg;
use vdev::{DeviceError, Leaf, NodeKind};
use zio::{BlockRepair, Reader};

use super::round::{Round, Scan, ScanBlock, ScanPolicy};
use super::{ScanError, ScanProgress, ScanResult};
use crate::{ActivePool, Error};

/// Everything is of interest.
pub(super) struct Scrub;

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
    /// Reads everything in the pool, each copy on each leaf and parity, and repairs what is wrong where
    /// others are right. A scrub that was interrupted goes on. To be called by one thread at a time; txgs
    /// are written meanwhile.
    pub fn scrub(&self, watch: &ScanProgress) -> Result<ScanResult, Error> {
        let record = self.scan_record();
        if record.is_paused() {
            return Err(ScanError::Paused.into());
        }
        if record.function != ScanFunction::Scrub || !record.is_running() {
            self.start_scrub_after(Txg::ZERO)?;
        }
        self.error_log().begin_scan();
        let scan = Scan::new(self, &Scrub, watch);
        let complete = scan.run()?;
        // repaired sectors must survive a power cut as the blocks of a txg do
        self.tree().flush(&mut Vec::new())?;
        if complete {
            self.end_scan(true)?;
        }
        Ok(scan.result(complete))
    }

    /// Begins a scrub of the blocks born after a txg, which [`ActivePool::scrub`] does.
    pub fn start_scrub_after(&self, min_txg: Txg) -> Result<(), Error> {
        self.set_up_scan(ScanFunction::Scrub, min_txg)
    }
}

impl Round<'_> {
    /// Reads all copies of a block, and repairs those that are wrong.
    pub(super) fn verify_block(&self, item: &ScanBlock) {
        let ScanBlock { zbookmark: place, block } = item;
        let examined = match self.scan.reader.verify_block(block, *place) {
            Ok(examined) => examined,
            Err(error) => return self.scan.record_block_error(item, &error),
        };
        self.scan.progress.count_read(u64::from(block.psize));
        let faults = examined.faults().filter(|fault| fault.error.is_repairable());
        let (mut guilty, mut differs) = (BTreeSet::new(), false);
        for fault in faults {
            differs |= fault.error == DeviceError::Corrupt;
            guilty.insert(fault.leaf);
        }
        let Some(bytes) = examined.bytes else {
            let why = examined.copies.iter().find_map(|copy| copy.2.as_ref().err());
            let why = why.map_or_else(|| "it cannot be read".to_owned(), ToString::to_string);
            return self.scan.record_block_error(item, &why);
        };
        Reader::recycle(bytes);
        if guilty.is_empty() {
            return;
        }
        if differs && !self.can_identify_bad_copy(block) {
            let why = &"its copies differ, and it has no checksum";
            return self.scan.record_block_error(item, why);
        }
        let wants = |leaf: &Leaf, _: Txg| leaf.is_writable() && guilty.contains(&leaf.guid());
        let mut mending = BlockRepair::new(&self.scan.reader, &wants);
        match mending.add(block, *place) {
            Ok(_) => self.write_repairs(&mut mending, std::slice::from_ref(item)),
            Err(error) => self.scan.record_block_error(item, &error),
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
