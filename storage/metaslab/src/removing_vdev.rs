//! A vdev that is being removed: nothing is allocated on it, and its blocks are copied to other vdevs.
//!
//! ```text
//! 0            mapped end                                        end of the vdev
//! ├─── copied ─────┼─── not copied yet ──────────────────────────────┤
//!   a freed block:     a freed block:
//!   freed here, and    freed here; it is then not copied
//!   at its new place
//! ```
//!
//! Its blocks are read and named here until the removal is complete. Space that was freed where it was copied is
//! obsolete, as on a vdev that was removed (`removed_vdev`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ondisk::Dva;
use parking_lot::Mutex;
use units::{MetaslabId, Txg, VdevId};

use crate::allocator::dva_range;
use crate::group::MetaslabGroup;
use crate::{Allocator, Error, RangeSet, RemapFn};

/// The vdev that is being removed.
pub(crate) struct RemovingVdev {
    vdev: VdevId,
    remap: RemapFn,
    progress: Mutex<RemovalProgress>,
}

#[derive(Default)]
struct RemovalProgress {
    /// All blocks that are in use before it are copied.
    mapped_end: u64,
    /// Bytes freed behind it, by txg.
    freed: BTreeMap<Txg, u64>,
    /// Ranges freed before it, by txg.
    obsolete: BTreeMap<Txg, RangeSet>,
}

impl Allocator {
    /// Begins the removal of a vdev, or goes on with it: all up to `mapped_end` is copied to where `remap`
    /// says. Nothing is allocated on it any more.
    pub fn begin_removal(
        &self,
        vdev: VdevId,
        mapped_end: u64,
        remap: RemapFn,
    ) -> Result<(), Error> {
        self.set_allocatable(vdev, false)?;
        let progress = Mutex::new(RemovalProgress { mapped_end, ..RemovalProgress::default() });
        *self.removing.write() = Some(Arc::new(RemovingVdev { vdev, remap, progress }));
        Ok(())
    }

    /// Ends the removal: the vdev is allocated from again, or is about to go.
    pub fn end_removal(&self) {
        *self.removing.write() = None;
    }

    /// All that is in use up to `end` is copied, and `remap` knows where to.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn set_mapped_end(&self, end: u64) {
        if let Some(removing) = &*self.removing.read() {
            let mut progress = removing.progress.lock();
            assert!(progress.mapped_end <= end, "copied ranges stay copied");
            progress.mapped_end = end;
        }
    }

    /// Removes and returns how many bytes `txg` freed that are then not copied.
    pub fn drain_freed_uncopied(&self, txg: Txg) -> u64 {
        let removing = self.removing.read();
        let freed = removing.as_ref().and_then(|known| known.progress.lock().freed.remove(&txg));
        freed.unwrap_or(0)
    }

    /// The ranges that blocks have in a part of a vdev: not those that were freed, in whatever txg. The
    /// metaslabs there must be loaded.
    pub fn in_use(&self, vdev: VdevId, range: &Range<u64>) -> Result<RangeSet, Error> {
        let top = self.group(vdev)?;
        let state = top.state.lock();
        let mut used = RangeSet::new();
        for (at, slab) in state.metaslabs.iter().enumerate() {
            let (start, end) = (slab.extent.start.max(range.start), slab.extent.end.min(range.end));
            if start < end && !slab.add_in_use(start..end, &mut used) {
                let metaslab = MetaslabId::new(units::narrow(at));
                return Err(Error::NotLoaded { vdev, metaslab });
            }
        }
        Ok(used)
    }

    /// Frees a copy of a block on the vdev that is being removed; `None` if it is elsewhere.
    pub(crate) fn free_removing(&self, dva: &Dva, txg: Txg) -> Option<Result<(), Error>> {
        let removing = self.removing.read().clone().filter(|known| known.vdev == dva.vdev)?;
        let group = match self.group(dva.vdev) {
            Ok(group) => group,
            Err(error) => return Some(Err(error)),
        };
        Some(self.free_in_removal(&removing, &group, dva, txg))
    }

    fn free_in_removal(
        &self,
        removing: &RemovingVdev,
        group: &MetaslabGroup,
        dva: &Dva,
        txg: Txg,
    ) -> Result<(), Error> {
        // Rule L6: the lock is held from the look at the copied part until the free is noted. A copy that moved on in
        // between would map space that is free, and free it twice.
        let range = dva_range(group, dva);
        let mut progress = removing.progress.lock();
        let copied = range.start..range.end.min(progress.mapped_end);
        let pieces = if copied.start < copied.end {
            let (vdev, offset) = (dva.vdev, copied.start);
            let length = copied.end - copied.start;
            let invalid = Error::InvalidRange { vdev, offset, length };
            (removing.remap)(copied.clone()).ok_or(invalid)?
        } else {
            Vec::new()
        };
        group.free_range(range.clone(), txg)?;
        if !pieces.is_empty() {
            progress.obsolete.entry(txg).or_default().insert(copied);
        }
        let uncopied = range.start.max(progress.mapped_end)..range.end;
        if uncopied.start < uncopied.end {
            *progress.freed.entry(txg).or_default() += uncopied.end - uncopied.start;
        }
        drop(progress);
        for (vdev, piece) in pieces {
            let asize = piece.end - piece.start;
            self.free(&Dva { vdev, offset: piece.start, asize, gang: false }, txg)?;
        }
        Ok(())
    }

    /// Removes and returns the ranges that became obsolete in `txg` on the vdev that is being removed.
    pub(crate) fn drain_removing_obsolete(&self, txg: Txg) -> Option<(VdevId, RangeSet)> {
        let removing = self.removing.read().clone()?;
        let ranges = removing.progress.lock().obsolete.remove(&txg)?;
        Some((removing.vdev, ranges))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ondisk::Dva;
    use units::{Ashift, Txg, VdevId};

    use crate::{AllocRequest, Allocator, Class, MetaslabGroupSpec};

    fn spec(vdev: u32) -> MetaslabGroupSpec {
        MetaslabGroupSpec {
            vdev: VdevId::new(vdev),
            class: Class::Normal,
            asize: 4 << 20,
            metaslab_shift: 20,
            ashift: Ashift::new(12).unwrap(),
            alignment: 4096,
            data_width: 1,
            asize_fn: Arc::new(|psize, _| psize.next_multiple_of(4096)),
        }
    }

    #[test]
    fn free_during_removal_frees_the_copied_part_twice() {
        let [old, new] = [0, 1].map(VdevId::new);
        let allocator = Allocator::new(vec![spec(0)]);
        allocator.load_empty(old).unwrap();
        let block = allocator.allocate(&AllocRequest::new(64 << 10, Txg::new(5))).unwrap();
        let block = block[0].unwrap();
        allocator.drain_changes(Txg::new(5));
        allocator.add_vdev(spec(1));
        allocator.load_empty(new).unwrap();
        let end = block.offset + (16 << 10);
        let shift = 1 << 20;
        let remap = move |range: std::ops::Range<u64>| {
            Some(vec![(new, range.start + shift..range.end + shift)])
        };
        allocator.begin_removal(old, end, Arc::new(remap)).unwrap();
        let copy = Dva { vdev: new, offset: block.offset + shift, asize: 16 << 10, gang: false };
        allocator.claim(&copy, Txg::new(6)).unwrap();
        allocator.drain_changes(Txg::new(6));
        allocator.free(&block, Txg::new(7)).unwrap();
        let freed = allocator.drain_changes(Txg::new(7));
        let of = |vdev| freed.iter().find(|change| change.vdev == vdev).unwrap().freed.clone();
        assert_eq!(of(old), vec![block.offset..block.offset + (64 << 10); 1]);
        assert_eq!(of(new), vec![copy.offset..copy.offset + (16 << 10); 1]);
        assert_eq!(allocator.drain_freed_uncopied(Txg::new(7)), 48 << 10);
        let obsolete = allocator.drain_obsolete(Txg::new(7));
        assert_eq!(obsolete[0].1.iter().collect::<Vec<_>>(), vec![block.offset..end; 1]);
        assert!(allocator.in_use(old, &(0..4 << 20)).unwrap().is_empty());
        // nothing is allocated on it
        let next = allocator.allocate(&AllocRequest::new(4096, Txg::new(8))).unwrap();
        assert_eq!(next[0].unwrap().vdev, new);
    }
}
