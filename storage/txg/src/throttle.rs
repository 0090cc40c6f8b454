//! How much may wait to be written, and when writers are slowed.

/// How much may wait to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that may be dirty in all groups together; who would add more waits.
    pub dirty: u64,
    /// Bytes from which on the group is closed early, so that writing starts before memory is
    /// short.
    pub start: u64,
    /// Blocks that may be freed with one group; who would free more waits for the next.
    pub freed: u64,
    /// Bytes that a block takes at least: a sector of the drives.
    pub sector: u64,
}

impl Limits {
    /// For so much memory: writing starts at a third. Blocks that are freed take time instead: the blocks that
    /// their pointers are in, one for a thousand of them or so, are read when the group is written.
    pub const fn of(dirty: u64) -> Self {
        Self { dirty, start: dirty / 3, freed: 1 << 19, sector: 512 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(256 << 20)
    }
}
