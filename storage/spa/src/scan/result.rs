//! What a walk found that it could not mend, and what came of it.

use units::{Txg, Zbookmark};
use vdev::TxgRanges;

/// So many are named; the others are counted.
const MAX_LISTED: usize = 1000;

/// A block that could not be mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedBlock {
    /// Where it belongs.
    pub zbookmark: Zbookmark,
    /// Why.
    pub why: String,
}

/// What came of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanResult {
    /// It came to its end.
    pub is_complete: bool,
    /// In so many rounds: more than one where room ran short.
    pub rounds: u64,
    /// Blocks that it looked at.
    pub blocks: u64,
    /// Bytes that it read.
    pub bytes_read: u64,
    /// Bytes that it wrote to drives that lacked them.
    pub bytes_written: u64,
    /// Blocks that could not be mended.
    pub errors: u64,
    /// Some of them.
    pub damaged_blocks: Vec<DamagedBlock>,
}

/// Damage as it is gathered.
#[derive(Debug, Default)]
pub(super) struct ScanErrors {
    pub(super) count: u64,
    pub(super) listed: Vec<DamagedBlock>,
    /// When blocks were born that could not be mended.
    pub(super) births: TxgRanges,
}

impl ScanErrors {
    /// Something born in these txgs is lost.
    pub(super) fn add(&mut self, place: Zbookmark, why: String, (first, last): (Txg, Txg)) {
        self.count += 1;
        self.births.add(first, last);
        if self.listed.len() < MAX_LISTED {
            self.listed.push(DamagedBlock { zbookmark: place, why });
        }
    }
}
