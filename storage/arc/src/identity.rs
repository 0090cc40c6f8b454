//! The key of a block's content.

use ondisk::Blkptr;
use units::Txg;

/// The key of a block's content: its first address, its birth, and its whole checksum, since a
/// block born in the syncing txg may be overwritten in place. (The first word alone is a plain sum:
/// two compressed versions of a table may have the same.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BlockIdentity {
    vdev: u32,
    offset: u64,
    birth: u64,
    size: u32,
    sum: [u64; 4],
}

impl BlockIdentity {
    /// None for pointers that need no reading.
    pub(crate) fn from_pointer(pointer: &Blkptr) -> Option<Self> {
        let Blkptr::Regular(block) = pointer else { return None };
        let dva = block.dvas[0]?;
        Some(Self {
            vdev: dva.vdev.get(),
            offset: dva.offset,
            birth: block.birth_physical.get(),
            size: block.lsize,
            sum: block.sum,
        })
    }

    /// When it was written there.
    pub(crate) fn birth(&self) -> Txg {
        Txg::new(self.birth)
    }

    pub(crate) fn shard_index(self, shards: usize) -> usize {
        // addresses are multiples of some sector size: spread them
        let mixed = (self.offset >> 9 ^ u64::from(self.vdev)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        units::to_usize(mixed >> 40) % shards
    }
}
