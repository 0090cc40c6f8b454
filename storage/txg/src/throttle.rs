//! How much may wait to be written, and when writers are slowed.

/// How much may wait to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxgLimits {
    /// Bytes that may be dirty in all groups together; who would add more waits.
    pub max_dirty: u64,
    /// Bytes from which on the group is closed early, so that writing starts before memory is
    /// short.
    pub sync_threshold: u64,
    /// Blocks that may be freed with one group; who would free more waits for the next.
    pub max_freed_blocks: u64,
    /// Bytes that a block takes at least: a sector of the drives.
    pub sector_size: u64,
}

impl TxgLimits {
    /// For so much memory: writing starts at a third. Blocks that are freed take time instead: the blocks that
    /// their pointers are in, one for a thousand of them or so, are read when the group is written.
    pub const fn with_max_dirty(max_dirty: u64) -> Self {
        Self {
            max_dirty,
            sync_threshold: max_dirty / 3,
            max_freed_blocks: 1 << 19,
            sector_size: 512,
        }
    }
}

impl Default for TxgLimits {
    fn default() -> Self {
        Self::with_max_dirty(256 << 20)
    }
}
