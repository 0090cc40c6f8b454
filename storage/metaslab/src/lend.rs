//! Free ranges lent to a user that writes to them without allocating, or discards them.
//!
//! A lent range is not allocated to blocks until it is returned. Space maps have it as free all the time.

use std::ops::Range;

use units::{MetaslabId, Txg, VdevId};

use crate::allocator::metaslab_index;
use crate::{Allocator, Error};

impl Allocator {
    /// Lends the first free range of a metaslab that ends after `from`, cut to `most` bytes. `None` if there
    /// is none. The range must be returned with [`Allocator::return_lent`].
    pub fn lend_free(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
        from: u64,
        most: u32,
        txg: Txg,
    ) -> Result<Option<Range<u64>>, Error> {
        if !self.is_loaded(vdev, metaslab)? {
            self.read_and_load(vdev, metaslab, txg)?;
        }
        let top = self.group(vdev)?;
        let at = metaslab_index(vdev, metaslab, &top)?;
        let mut state = top.state.lock();
        let lent = state.metaslabs[at].lend_free(from, most.into());
        top.update_available(&state);
        Ok(lent)
    }

    /// Has a lent range be allocated to blocks again.
    pub fn return_lent(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
        range: &Range<u64>,
    ) -> Result<(), Error> {
        let top = self.group(vdev)?;
        let at = metaslab_index(vdev, metaslab, &top)?;
        let mut state = top.state.lock();
        state.metaslabs[at].return_lent(range);
        top.update_available(&state);
        Ok(())
    }
}
