//! What a walk found that it could not mend, and what came of it.

use units::{Txg, Zbookmark};
use vdev::TxgRanges;

/// So many are named; the others are counted.
const MOST_NAMED: usize = 1000;

/// A block that could not be mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it belongs.
    pub place: Zbookmark,
    /// Why.
    pub why: String,
}

/// What came of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// It came to its end.
    pub complete: bool,
    /// In so many rounds: more than one where room ran short.
    pub rounds: u64,
    /// Blocks that it looked at.
    pub blocks: u64,
    /// Bytes that it read.
    pub read: u64,
    /// Bytes that it wrote to drives that lacked them.
    pub written: u64,
    /// Blocks that could not be mended.
    pub errors: u64,
    /// Some of them.
    pub damage: Vec<Damage>,
}

/// Damage as it is gathered.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) count: u64,
    pub(super) named: Vec<Damage>,
    /// When blocks were born that could not be mended.
    pub(super) births: TxgRanges,
}

impl Losses {
    /// Something born in these txgs is lost.
    pub(super) fn add(&mut self, place: Zbookmark, why: String, (first, last): (Txg, Txg)) {
        self.count = self.count.saturating_add(1);
        self.births.add(first, last);
        if self.named.len() < MOST_NAMED {
            self.named.push(Damage { place, why });
        }
    }
}
