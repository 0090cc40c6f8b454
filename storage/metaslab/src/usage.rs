//! Figures of space: sums of a class or vdev, and the changes that one txg made.

use std::ops::Range;

use units::{MetaslabId, VdevId};

use crate::metaslab::Metaslab;

/// The changes of one txg in one metaslab since they were last drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaslabChange {
    /// The vdev.
    pub vdev: VdevId,
    /// Its metaslab.
    pub metaslab: MetaslabId,
    /// Ranges allocated, in bytes from the end of the vdev's front labels.
    pub allocated: Vec<Range<u64>>,
    /// Ranges freed.
    pub freed: Vec<Range<u64>>,
}

/// The space of a vdev or a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceUsage {
    /// Bytes of all metaslabs.
    pub capacity: u64,
    /// Bytes that blocks occupy.
    pub allocated: u64,
    /// Freed bytes that may not be reused yet.
    pub deferred: u64,
    /// Free bytes that cannot be allocated: the space map could not be read, or the vdev is closed.
    pub unreadable: u64,
}

impl SpaceUsage {
    pub(crate) fn of_metaslabs<'a>(slabs: impl Iterator<Item = &'a Metaslab>) -> Self {
        let mut all = Self::default();
        for slab in slabs {
            let (capacity, allocated) = (slab.size(), slab.allocated);
            let (deferred, unreadable) = (slab.deferred_bytes(), slab.unreadable_bytes());
            all += Self { capacity, allocated, deferred, unreadable };
        }
        all
    }
}

impl std::ops::AddAssign for SpaceUsage {
    fn add_assign(&mut self, other: Self) {
        self.capacity += other.capacity;
        self.allocated += other.allocated;
        self.deferred += other.deferred;
        self.unreadable += other.unreadable;
    }
}
