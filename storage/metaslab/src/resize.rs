//! Vdevs that grow, and that leave the allocator.

use units::{Txg, VdevId};

use crate::group::MetaslabGroupSpec;
use crate::{Allocator, Error, RangeSet};

impl Allocator {
    /// Forgets a vdev that is removed. Nothing may be allocated on it.
    pub fn remove_vdev(&self, vdev: VdevId) {
        self.groups.write().remove(&vdev);
        self.rotors.iter().for_each(|rotor| rotor.lock().remove(vdev));
    }

    /// Gives a vdev that grew the metaslabs for which it has space now: all is free in them. Returns how
    /// many there are in all.
    pub fn grow_vdev(&self, vdev: VdevId, asize: u64) -> Result<usize, Error> {
        let top = self.group(vdev)?;
        let mut state = top.state.lock();
        let first = state.metaslabs.len();
        state.add_metaslabs(&MetaslabGroupSpec { asize, ..top.spec.clone() });
        let count = state.metaslabs.len();
        for at in first..count {
            let extent = state.metaslabs[at].extent.clone();
            state.load(at, RangeSet::from_range(extent), Txg::ZERO);
        }
        top.update_available(&state);
        Ok(count)
    }
}
