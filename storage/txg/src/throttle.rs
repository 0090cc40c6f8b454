//! How much may wait to be written, and when writers are slowed.

/// How much may wait to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxgLimits {
    /// The most dirty bytes in all txgs together; a thread that would exceed it waits.
    pub max_dirty: u64,
    /// Bytes from which on the group is closed early, so that writing starts before memory is
    /// short.
    pub sync_threshold: u64,
    /// The most blocks that one txg may free; a thread that would exceed it waits for the next.
    pub max_freed_blocks: u64,
    /// Bytes that a block takes at least: a sector of the drives.
    pub sector_size: u64,
}

impl TxgLimits {
    /// Limits for this much memory: a sync starts at a third. Freed blocks cost time instead: the
    /// sync reads the indirect blocks with their pointers, about one for a thousand of them.
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
