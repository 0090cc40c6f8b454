//! Allocation classes.

/// The class of a top-level vdev, or of a metaslab of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Everything that has no place of its own.
    Normal,
    /// Intent logs, on vdevs of their own (log).
    Log,
    /// Intent logs, in a metaslab of each large normal vdev (embedded_log).
    EmbeddedLog,
    /// Metadata and small blocks (special).
    Special,
    /// Dedup tables (dedup).
    Dedup,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Normal, Self::Log, Self::EmbeddedLog, Self::Special, Self::Dedup];

    /// Where a block of this class may go, the best first. The space of embedded logs is not for
    /// others: there a log finds a long range even in a pool that is nearly full.
    pub const fn fallback_order(self) -> &'static [Self] {
        match self {
            Self::Normal => &[Self::Normal],
            Self::Log => &[Self::Log, Self::EmbeddedLog, Self::Normal],
            Self::EmbeddedLog => &[Self::EmbeddedLog, Self::Normal],
            Self::Special => &[Self::Special, Self::Normal],
            Self::Dedup => &[Self::Dedup, Self::Special, Self::Normal],
        }
    }
}
