//! What keeps blocks beside the pool's drives, as they are stored: drives of the read cache.
//!
//! The reader asks there first and judges what it gets by the checksum in the pointer, as it does
//! with a drive of the pool. So whatever is wrong there costs a read, and nothing else.

use ondisk::Checksum;
use ondisk::blkptr::Regular;
use units::Zbookmark;

/// Keeps stored blocks beside the pool's drives.
pub trait SecondaryCache: Send + Sync + std::fmt::Debug {
    /// The stored bytes of the block, if they are there and `judge` says that they are right.
    fn fetch(&self, block: &Regular, judge: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>>;

    /// The stored bytes of a block that was read from the pool's drives, and was right. `place` is
    /// where it belongs.
    fn offer(&self, block: &Regular, zbookmark: Zbookmark, stored: &[u8]);
}

/// Whether a block may be kept beside the drives: one that could be told from another.
pub(crate) fn is_cacheable(block: &Regular) -> bool {
    let judged = !matches!(block.checksum, Checksum::Off | Checksum::NoParity);
    judged && !block.checksum.is_embedded()
}
