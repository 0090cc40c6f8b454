//! What is counted and noted on the way; each thread has its own, and they are added up.

use std::collections::BTreeMap;

use ondisk::ObjectType;
use ondisk::blkptr::Regular;
use units::{Guid, Level, Place};
use vdev::{DeviceError, LeafError};

use crate::features::Features;
use crate::report::{Counts, Note};
use crate::space::Extent;

/// So many damaged blocks are named; the others are counted.
const MOST_DAMAGES: usize = 100_000;
/// So many notes are kept.
const MOST_NOTES: usize = 1000;

/// A damaged block.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) place: Place,
    pub(crate) kind: ObjectType,
    pub(crate) lost: bool,
    pub(crate) leaves: Vec<Guid>,
    pub(crate) why: Option<String>,
}

/// What was counted and noted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kinds: BTreeMap<(ObjectType, Level), Counts>,
    /// By the power of two that their stored bytes fit.
    pub(crate) sizes: BTreeMap<u32, Counts>,
    pub(crate) embedded: u64,
    pub(crate) redacted: u64,
    pub(crate) gangs: u64,
    pub(crate) shared: u64,
    pub(crate) shared_bytes: u64,
    pub(crate) waiting: Counts,
    pub(crate) examined_bytes: u64,
    pub(crate) degraded: u64,
    pub(crate) repairable: u64,
    pub(crate) lost: u64,
    pub(crate) leaves: BTreeMap<(Guid, DeviceError), u64>,
    pub(crate) damages: Vec<Damage>,
    pub(crate) unnamed: u64,
    pub(crate) notes: Vec<Note>,
    /// Ranges that are to be noted as referred to.
    pub(crate) extents: Vec<Extent>,
    pub(crate) features: Features,
}

/// Bytes that a block takes, as its addresses say.
pub(crate) fn allocated(block: &Regular) -> u64 {
    block.copies().map(|dva| dva.asize).fold(0, u64::saturating_add)
}

impl Tally {
    /// Counts a pointer to a block.
    pub(crate) fn count(&mut self, block: &Regular) {
        let counts = counts(block);
        self.kinds.entry((block.kind, block.level)).or_default().add(&counts);
        let power = block.psize.max(1).next_power_of_two().trailing_zeros();
        self.sizes.entry(power).or_default().add(&counts);
        self.gangs += u64::from(block.is_gang());
    }

    /// Counts one more reference to a block that was examined for another one.
    pub(crate) fn count_again(&mut self, block: &Regular) {
        self.count(block);
        self.shared += 1;
        self.shared_bytes = self.shared_bytes.saturating_add(allocated(block));
    }

    /// Counts a block that waits to be freed.
    pub(crate) fn count_waiting(&mut self, block: &Regular) {
        self.waiting.add(&counts(block));
    }

    /// Notes what was wrong with a block: `faults` of its leaves; `lost`: why it cannot be read.
    pub(crate) fn judge(
        &mut self,
        block: &Regular,
        place: Place,
        mut faults: Vec<LeafError>,
        lost: Option<String>,
    ) {
        if faults.is_empty() && lost.is_none() {
            return;
        }
        faults.sort_unstable();
        faults.dedup();
        for fault in &faults {
            *self.leaves.entry((fault.leaf, fault.error)).or_default() += 1;
        }
        let hurt = |fault: &&LeafError| {
            matches!(fault.error, DeviceError::Corrupt | DeviceError::ReadFailed)
        };
        let mut leaves: Vec<Guid> = faults.iter().filter(hurt).map(|fault| fault.leaf).collect();
        leaves.dedup();
        if lost.is_none() && leaves.is_empty() {
            self.degraded += 1;
            return;
        }
        if lost.is_some() {
            self.lost += 1;
        } else {
            self.repairable += 1;
        }
        self.damage(Damage { place, kind: block.kind, lost: lost.is_some(), leaves, why: lost });
    }

    /// Wrong bytes in place of which others could be had are no fault, and `why` is noted instead.
    pub(crate) fn excuse(&mut self, why: &str) {
        let unreadable = self.leaves.keys().any(|(_, trouble)| *trouble == DeviceError::ReadFailed);
        if self.repairable > 0 && self.lost == 0 && !unreadable {
            self.repairable = 0;
            self.damages.clear();
            self.leaves.retain(|(_, trouble), _| *trouble != DeviceError::Corrupt);
            self.note(false, why);
        }
    }

    /// Keeps a damaged block to be named.
    pub(crate) fn damage(&mut self, damage: Damage) {
        if self.damages.len() < MOST_DAMAGES {
            self.damages.push(damage);
        } else {
            self.unnamed += 1;
        }
    }

    /// Keeps a note.
    pub(crate) fn note(&mut self, is_fault: bool, what: impl Into<String>) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(Note { is_fault, what: what.into() });
        }
    }

    /// Adds another's.
    pub(crate) fn merge(&mut self, other: Self) {
        for (key, counts) in other.kinds {
            self.kinds.entry(key).or_default().add(&counts);
        }
        for (key, counts) in other.sizes {
            self.sizes.entry(key).or_default().add(&counts);
        }
        for (key, count) in other.leaves {
            *self.leaves.entry(key).or_default() += count;
        }
        self.waiting.add(&other.waiting);
        self.embedded += other.embedded;
        self.redacted += other.redacted;
        self.gangs += other.gangs;
        self.shared += other.shared;
        self.shared_bytes += other.shared_bytes;
        self.examined_bytes += other.examined_bytes;
        self.degraded += other.degraded;
        self.repairable += other.repairable;
        self.lost += other.lost;
        self.unnamed += other.unnamed;
        for damage in other.damages {
            self.damage(damage);
        }
        for note in other.notes {
            self.note(note.is_fault, note.what);
        }
        self.extents.extend(other.extents);
        self.features.merge(other.features);
    }
}

fn counts(block: &Regular) -> Counts {
    Counts {
        blocks: 1,
        lsize: block.lsize.into(),
        psize: block.psize.into(),
        asize: allocated(block),
    }
}
