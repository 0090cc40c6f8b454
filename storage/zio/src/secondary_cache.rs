//! The interface to caches of stored blocks beside the pool's drives (L2ARC).
//!
//! The reader tries it first and verifies the result by the checksum in the pointer, as with a
//! drive of the pool. So a wrong block costs a read, and nothing else.

use ondisk::Checksum;
use ondisk::blkptr::Regular;
use units::Zbookmark;

/// Keeps stored blocks beside the pool's drives.
pub trait SecondaryCache: Send + Sync + std::fmt::Debug {
    /// The stored bytes of the block, if they are cached and `judge` accepts them.
    fn fetch(&self, block: &Regular, judge: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>>;

    /// Offers the stored, verified bytes of a block that was read from the pool's drives. `place`
    /// is its address.
    fn offer(&self, block: &Regular, zbookmark: Zbookmark, stored: &[u8]);
}

/// Whether a block may be cached: only one with a distinguishing checksum.
pub(crate) fn is_cacheable(block: &Regular) -> bool {
    let judged = !matches!(block.checksum, Checksum::Off | Checksum::NoParity);
    judged && !block.checksum.is_embedded()
}
