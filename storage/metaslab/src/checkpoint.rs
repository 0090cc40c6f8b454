//! The checkpoint of a pool: blocks that it leads to and that are freed stay allocated.
//!
//! A block belongs to the checkpoint if it was born in the checkpoint's txg or before. When such a
//! block is freed, its ranges stay allocated in their metaslabs. [`Allocator::drain_checkpointed`]
//! returns them, to be written to the checkpoint's space map of their vdev. A discard of the
//! checkpoint frees them ([`Allocator::free_checkpointed`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::Dva;
use parking_lot::Mutex;
use units::{MetaslabId, Txg, VdevId};

use crate::allocator::dva_range;
use crate::group::metaslab_id;
use crate::{Allocator, Error, RangeSet};

/// The checkpoint of a pool, as far as the allocator has to know it.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    /// The txg of the checkpoint; 0: there is none.
    txg: AtomicU64,
    /// Ranges that were freed and are in no space map yet. Each is within one metaslab.
    freed: Mutex<BTreeMap<Txg, FreedRanges>>,
    /// Bytes of each vdev that only the checkpoint uses.
    bytes: Mutex<BTreeMap<VdevId, u64>>,
}

type FreedRanges = BTreeMap<(VdevId, MetaslabId), RangeSet>;

/// When the range of a freed block can be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeKind {
    /// After some txgs.
    Reusable,
    /// When the checkpoint is discarded.
    Checkpointed,
}

impl Checkpoint {
    /// How a block of a birth txg is freed in `txg`.
    pub(crate) fn free_kind(&self, birth: Txg, txg: Txg) -> FreeKind {
        let checkpoint = Txg::new(self.txg.load(Ordering::Acquire));
        if birth <= checkpoint && checkpoint < txg {
            FreeKind::Checkpointed
        } else {
            FreeKind::Reusable
        }
    }

    /// Notes a freed range; whether none of it was noted in this txg already.
    pub(crate) fn add(&self, txg: Txg, key: (VdevId, MetaslabId), range: Range<u64>) -> bool {
        let mut freed = self.freed.lock();
        let ranges = freed.entry(txg).or_default().entry(key).or_default();
        if ranges.overlaps(&range) {
            return false;
        }
        let (before, length) = (ranges.total(), range.end - range.start);
        *self.bytes.lock().entry(key.0).or_default() += length;
        ranges.insert(range);
        assert_eq!(ranges.total(), before + length, "a freed range is noted once");
        true
    }
}

impl Allocator {
    /// Sets the pool's checkpoint. Nothing may have been freed since its txg.
    pub fn set_checkpoint(&self, txg: Txg) {
        self.checkpoint.txg.store(txg.get(), Ordering::Release);
    }

    /// Has the pool no checkpoint any more. The ranges that it alone uses stay allocated until they are
    /// freed.
    pub fn clear_checkpoint(&self) {
        self.checkpoint.txg.store(0, Ordering::Release);
    }

    /// The txg of the pool's checkpoint, if it has one.
    pub fn checkpoint_txg(&self) -> Option<Txg> {
        let txg = Txg::new(self.checkpoint.txg.load(Ordering::Acquire));
        (!txg.is_zero()).then_some(txg)
    }

    /// Frees a copy of a block that no checkpoint leads to.
    pub fn free(&self, dva: &Dva, txg: Txg) -> Result<(), Error> {
        self.free_as(dva, txg, FreeKind::Reusable)
    }

    pub(crate) fn free_as(&self, dva: &Dva, txg: Txg, kind: FreeKind) -> Result<(), Error> {
        if let Some(freed) = self.free_remapped(dva, txg, kind) {
            return freed;
        }
        // a pool with a checkpoint removes no vdev
        if let Some(freed) = self.free_removing(dva, txg) {
            return freed;
        }
        let top = self.group(dva.vdev)?;
        let range = dva_range(&top, dva);
        let mut state = top.state.lock();
        let at = top.require_metaslab(&state, &range)?;
        let (vdev, offset, length) = (dva.vdev, range.start, range.end - range.start);
        let is_freed = match kind {
            FreeKind::Reusable => state.free(at, range, txg),
            FreeKind::Checkpointed => {
                state.metaslabs[at].is_allocated(&range)
                    && self.checkpoint.add(txg, (vdev, metaslab_id(at)), range)
            }
        };
        if is_freed {
            return Ok(());
        }
        Err(Error::NotAllocated { vdev, offset, length })
    }

    /// Frees a copy of a block that was born in `birth`. If the checkpoint leads to it, it stays allocated.
    pub fn free_block(&self, dva: &Dva, birth: Txg, txg: Txg) -> Result<(), Error> {
        self.free_as(dva, txg, self.checkpoint.free_kind(birth, txg))
    }

    /// Removes and returns the ranges of the checkpoint that were freed in `txg`. Each is within one
    /// metaslab.
    pub fn drain_checkpointed(&self, txg: Txg) -> BTreeMap<VdevId, Vec<Range<u64>>> {
        let drained = self.checkpoint.freed.lock().remove(&txg).unwrap_or_default();
        let mut by_vdev: BTreeMap<VdevId, Vec<Range<u64>>> = BTreeMap::new();
        for ((vdev, _), ranges) in drained {
            by_vdev.entry(vdev).or_default().extend(ranges.iter());
        }
        by_vdev
    }

    /// Sets the bytes of a vdev that only the checkpoint uses, from its space map.
    pub fn set_checkpointed_bytes(&self, vdev: VdevId, bytes: u64) {
        self.checkpoint.bytes.lock().insert(vdev, bytes);
    }

    /// Bytes of each vdev that only the checkpoint uses, or that its discard has still to free.
    pub fn checkpointed_bytes(&self, vdev: VdevId) -> u64 {
        self.checkpoint.bytes.lock().get(&vdev).copied().unwrap_or(0)
    }

    /// The same of all vdevs.
    pub fn all_checkpointed_bytes(&self) -> u64 {
        self.checkpoint.bytes.lock().values().sum()
    }

    /// Frees a range that only the discarded checkpoint used.
    pub fn free_checkpointed(
        &self,
        vdev: VdevId,
        range: &Range<u64>,
        txg: Txg,
    ) -> Result<(), Error> {
        let (offset, asize) = (range.start, range.end - range.start);
        self.free(&Dva { vdev, offset, asize, gang: false }, txg)
    }
}
