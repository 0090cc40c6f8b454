//! Maintenance of pools: checkpoints.

use super::Pools;
use crate::Result;

impl Pools {
    /// Makes a checkpoint of a pool, or discards it.
    pub(crate) fn checkpoint_pool(&self, name: &str, discard: bool) -> Result<()> {
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        let done = if discard {
            pool.handle.discard_checkpoint()
        } else {
            pool.handle.create_checkpoint()
        };
        Ok(done?)
    }
}
