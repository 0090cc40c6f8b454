//! Removed vdevs: blocks keep their addresses there, and their data is elsewhere.
//!
//! Freeing such a block frees its data's new location. Its old address is then obsolete, and so is
//! each address on the way, if one removed vdev leads to another. The pool keeps maps of obsolete
//! addresses ([`Allocator::drain_obsolete`]), by which the real system condenses the mapping.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ondisk::Dva;
use parking_lot::Mutex;
use units::{Ashift, Txg, VdevId};

use crate::allocator::GANG_HEADER_SIZE;
use crate::checkpoint::FreeKind;
use crate::{Allocator, Error, RangeSet};

/// More vdevs than this are never removed one into the other.
const MAX_DEPTH: u32 = 64;

/// Where a range of a removed vdev lies now: pieces of other vdevs, which may be removed ones too;
/// `None` where some of it was never moved.
pub type RemapFn = Arc<dyn Fn(Range<u64>) -> Option<Vec<(VdevId, Range<u64>)>> + Send + Sync>;

/// A removed vdev.
pub(crate) struct RemovedVdev {
    ashift: Ashift,
    remap: RemapFn,
    obsolete: Mutex<BTreeMap<Txg, RangeSet>>,
}

impl RemovedVdev {
    fn dva_range(&self, dva: &Dva) -> Range<u64> {
        let length = if dva.gang { self.ashift.round_up(GANG_HEADER_SIZE) } else { dva.asize };
        dva.offset..dva.offset + length
    }
}

impl Allocator {
    /// Adds a vdev that was removed, of which blocks are still to be freed.
    pub fn add_removed_vdev(&self, vdev: VdevId, ashift: Ashift, moved: RemapFn) {
        let removed = RemovedVdev { ashift, remap: moved, obsolete: Mutex::default() };
        self.removed_vdevs.write().insert(vdev, Arc::new(removed));
    }

    /// Frees the new location of a block copy whose address is on a removed vdev; `None` if it is
    /// not.
    pub(crate) fn free_remapped(
        &self,
        dva: &Dva,
        txg: Txg,
        kind: FreeKind,
    ) -> Option<Result<(), Error>> {
        let range = self.removed_vdevs.read().get(&dva.vdev)?.dva_range(dva);
        Some(self.free_range((dva.vdev, range), txg, kind, 0))
    }

    fn free_range(
        &self,
        (vdev, range): (VdevId, Range<u64>),
        txg: Txg,
        kind: FreeKind,
        depth: u32,
    ) -> Result<(), Error> {
        let (offset, length) = (range.start, range.end - range.start);
        // the lock must not be held: a piece may lie on another removed one
        let Some(removed) = self.removed_vdevs.read().get(&vdev).map(Arc::clone) else {
            return self.free_as(&Dva { vdev, offset, asize: length, gang: false }, txg, kind);
        };
        let pieces = (removed.remap)(range.clone()).filter(|_| depth < MAX_DEPTH);
        for (vdev, piece) in pieces.ok_or(Error::InvalidRange { vdev, offset, length })? {
            self.free_range((vdev, piece), txg, kind, depth + 1)?;
        }
        removed.obsolete.lock().entry(txg).or_default().insert(range);
        Ok(())
    }

    /// Marks an address on a removed vdev as obsolete: no pointer has it any more, but the moved
    /// data is still referenced.
    pub fn mark_obsolete(&self, dva: &Dva, txg: Txg) {
        if let Some(removed) = self.removed_vdevs.read().get(&dva.vdev) {
            removed.obsolete.lock().entry(txg).or_default().insert(removed.dva_range(dva));
        }
    }

    /// Drains the addresses on removed vdevs that became obsolete in `txg` since the last call.
    pub fn drain_obsolete(&self, txg: Txg) -> Vec<(VdevId, RangeSet)> {
        let removed = self.removed_vdevs.read();
        let taken = removed
            .iter()
            .filter_map(|(vdev, removed)| Some((*vdev, removed.obsolete.lock().remove(&txg)?)));
        taken.chain(self.drain_removing_obsolete(txg)).collect()
    }
}
