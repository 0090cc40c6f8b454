//! Vdevs to allocate from.

use std::sync::Arc;

use metaslab::{Allocator, Class, MetaslabGroupSpec};
use units::{Ashift, VdevId};

/// Bytes of a sector of theirs.
pub(crate) const SECTOR: u64 = 4096;

/// A vdev with metaslabs of 1 MiB.
pub(crate) fn vdev_spec(vdev: u32, class: Class, asize: u64) -> MetaslabGroupSpec {
    MetaslabGroupSpec {
        vdev: VdevId::new(vdev),
        class,
        asize,
        metaslab_shift: 20,
        ashift: Ashift::new(12).unwrap(),
        alignment: SECTOR,
        data_width: 1,
        asize_fn: Arc::new(|psize: u64, _| psize.next_multiple_of(SECTOR)),
    }
}

/// New vdevs, on which all is free.
pub(crate) fn empty_allocator(tops: Vec<MetaslabGroupSpec>) -> Allocator {
    let vdevs: Vec<VdevId> = tops.iter().map(|top| top.vdev).collect();
    let allocator = Allocator::new(tops);
    for vdev in vdevs {
        allocator.load_empty(vdev).unwrap();
    }
    allocator
}
