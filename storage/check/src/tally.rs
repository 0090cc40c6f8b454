//! Counters and findings of the walk; each thread has its own, and they are added up.

use std::collections::BTreeMap;

use ondisk::ObjectType;
use ondisk::blkptr::Regular;
use units::{Guid, Level, Zbookmark};
use vdev::{DeviceError, LeafError};

use crate::features::FeatureUsage;
use crate::report::{BlockCounts, Note};
use crate::space::Extent;

/// The most damaged blocks in the report; the others are counted.
const MAX_DAMAGED_BLOCKS: usize = 100_000;
/// The most notes in the report.
const MAX_NOTES: usize = 1000;

/// A damaged block.
#[derive(Clone, Debug)]
pub(crate) struct BlockDamage {
    pub(crate) zbookmark: Zbookmark,
    pub(crate) kind: ObjectType,
    pub(crate) is_lost: bool,
    pub(crate) leaves: Vec<Guid>,
    pub(crate) why: Option<String>,
}

/// The counters and findings of a thread.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) types: BTreeMap<(ObjectType, Level), BlockCounts>,
    /// By the power of two that their stored bytes fit.
    pub(crate) sizes: BTreeMap<u32, BlockCounts>,
    pub(crate) embedded: u64,
    pub(crate) redacted: u64,
    pub(crate) gang_blocks: u64,
    pub(crate) extra_references: u64,
    pub(crate) extra_reference_bytes: u64,
    pub(crate) pending_frees: BlockCounts,
    pub(crate) examined_bytes: u64,
    pub(crate) degraded: u64,
    pub(crate) repairable: u64,
    pub(crate) lost: u64,
    pub(crate) leaves: BTreeMap<(Guid, DeviceError), u64>,
    pub(crate) damages: Vec<BlockDamage>,
    pub(crate) unlisted_damage: u64,
    pub(crate) notes: Vec<Note>,
    /// Ranges that are to be noted as referred to.
    pub(crate) extents: Vec<Extent>,
    pub(crate) feature_usage: FeatureUsage,
}

/// Allocated bytes of a block, from its addresses.
pub(crate) fn allocated_bytes(block: &Regular) -> u64 {
    block.copies().map(|dva| dva.asize).sum()
}

impl Tally {
    /// Counts a pointer to a block.
    pub(crate) fn count(&mut self, block: &Regular) {
        let counts = block_counts(block);
        self.types.entry((block.kind, block.level)).or_default().add(&counts);
        let power = block.psize.max(1).next_power_of_two().trailing_zeros();
        self.sizes.entry(power).or_default().add(&counts);
        self.gang_blocks += u64::from(block.is_gang());
    }

    /// Counts one more reference to a block that was examined for another one.
    pub(crate) fn count_extra_reference(&mut self, block: &Regular) {
        self.count(block);
        self.extra_references += 1;
        self.extra_reference_bytes += allocated_bytes(block);
    }

    /// Counts a block that waits to be freed.
    pub(crate) fn count_pending_free(&mut self, block: &Regular) {
        self.pending_frees.add(&block_counts(block));
    }

    /// Records the damage of a block: `faults` of its leaves; `lost`: the reason why it cannot be
    /// read.
    pub(crate) fn record_block_errors(
        &mut self,
        block: &Regular,
        place: Zbookmark,
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
        self.add_damage(BlockDamage {
            zbookmark: place,
            kind: block.kind,
            is_lost: lost.is_some(),
            leaves,
            why: lost,
        });
    }

    /// Wrong bytes with an intact replacement are not counted as damage; `why` is noted instead.
    pub(crate) fn demote_repairable(&mut self, why: &str) {
        let unreadable = self.leaves.keys().any(|(_, trouble)| *trouble == DeviceError::ReadFailed);
        if self.repairable > 0 && self.lost == 0 && !unreadable {
            self.repairable = 0;
            self.damages.clear();
            self.leaves.retain(|(_, trouble), _| *trouble != DeviceError::Corrupt);
            self.add_note(false, why);
        }
    }

    /// Keeps a damaged block to be named.
    pub(crate) fn add_damage(&mut self, damage: BlockDamage) {
        if self.damages.len() < MAX_DAMAGED_BLOCKS {
            self.damages.push(damage);
        } else {
            self.unlisted_damage += 1;
        }
    }

    /// Keeps a note.
    pub(crate) fn add_note(&mut self, is_fault: bool, what: impl Into<String>) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(Note { is_fault, message: what.into() });
        }
    }

    /// Adds another's.
    pub(crate) fn merge(&mut self, other: Self) {
        for (key, counts) in other.types {
            self.types.entry(key).or_default().add(&counts);
        }
        for (key, counts) in other.sizes {
            self.sizes.entry(key).or_default().add(&counts);
        }
        for (key, count) in other.leaves {
            *self.leaves.entry(key).or_default() += count;
        }
        self.pending_frees.add(&other.pending_frees);
        self.embedded += other.embedded;
        self.redacted += other.redacted;
        self.gang_blocks += other.gang_blocks;
        self.extra_references += other.extra_references;
        self.extra_reference_bytes += other.extra_reference_bytes;
        self.examined_bytes += other.examined_bytes;
        self.degraded += other.degraded;
        self.repairable += other.repairable;
        self.lost += other.lost;
        self.unlisted_damage += other.unlisted_damage;
        for damage in other.damages {
            self.add_damage(damage);
        }
        for note in other.notes {
            self.add_note(note.is_fault, note.message);
        }
        self.extents.extend(other.extents);
        self.feature_usage.merge(other.feature_usage);
    }
}

fn block_counts(block: &Regular) -> BlockCounts {
    BlockCounts {
        blocks: 1,
        lsize: block.lsize.into(),
        psize: block.psize.into(),
        asize: allocated_bytes(block),
    }
}
