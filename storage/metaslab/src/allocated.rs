//! The ranges of a vdev that blocks may have: a raidz expansion copies these.

use std::ops::Range;

use units::{MetaslabId, Txg, VdevId};

use crate::group::metaslab_id;
use crate::{Allocator, Error};

impl Allocator {
    /// Reads the maps of the metaslabs in a range that are not loaded, as far as they can be read.
    pub fn load_range(&self, vdev: VdevId, range: &Range<u64>, txg: Txg) -> Result<(), Error> {
        let top = self.group(vdev)?;
        let unloaded: Vec<MetaslabId> = {
            let state = top.state.lock();
            let slabs = state.metaslabs.iter().enumerate();
            let wanted = slabs.filter(|(_, slab)| {
                slab.extent.start < range.end
                    && range.start < slab.extent.end
                    && slab.can_read_map(txg)
            });
            wanted.map(|(at, _)| metaslab_id(at)).collect()
        };
        for metaslab in unloaded {
            self.read_and_load(vdev, metaslab, txg)?;
        }
        Ok(())
    }

    /// The parts of a range that cannot be allocated, in order: blocks may be there, or were there in a txg
    /// to which an import can go back. All of a metaslab that is not loaded.
    pub fn allocated_ranges(
        &self,
        vdev: VdevId,
        range: &Range<u64>,
    ) -> Result<Vec<Range<u64>>, Error> {
        let top = self.group(vdev)?;
        let state = top.state.lock();
        let mut allocated = Vec::new();
        for slab in &state.metaslabs {
            let (start, end) = (slab.extent.start.max(range.start), slab.extent.end.min(range.end));
            if start < end {
                slab.push_allocated(start..end, &mut allocated);
            }
        }
        Ok(allocated)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::{Ashift, Txg, VdevId};

    use crate::{AllocRequest, Allocator, Class, MetaslabGroupSpec};

    #[test]
    fn freed_space_counts_as_allocated_until_reusable() {
        let vdev = VdevId::new(0);
        let allocator = Allocator::new(vec![MetaslabGroupSpec {
            vdev,
            class: Class::Normal,
            asize: 4 << 20,
            metaslab_shift: 20,
            ashift: Ashift::new(12).unwrap(),
            alignment: 4096,
            data_width: 1,
            asize_fn: Arc::new(|psize, _| psize.next_multiple_of(4096)),
        }]);
        let total = |range: std::ops::Range<u64>| {
            let ranges = allocator.allocated_ranges(vdev, &range).unwrap();
            ranges.iter().map(|range| range.end - range.start).sum::<u64>()
        };
        assert_eq!(total(0..4096), 4096, "nothing is known of it");
        allocator.load_empty(vdev).unwrap();
        assert_eq!(total(0..4 << 20), 0);
        let found = allocator.allocate(&AllocRequest::new(8192, Txg::new(5))).unwrap();
        let dva = found[0].unwrap();
        assert_eq!(total(dva.offset..dva.offset + 8192), 8192);
        assert_eq!(total(dva.offset + 4096..dva.offset + 12288), 4096);
        allocator.drain_changes(Txg::new(5));
        allocator.free(&dva, Txg::new(6)).unwrap();
        assert_eq!(total(0..4 << 20), 8192);
        allocator.drain_changes(Txg::new(6));
        (5..=8).for_each(|txg| allocator.mark_synced(Txg::new(txg)));
        assert_eq!(total(0..4 << 20), 0);
    }
}
