//! Faults of a drive while the power is on.

use std::ops::Range;
use std::time::Duration;

/// Something that is wrong with a drive. Ranges are in bytes from the drive's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Reading any of the range fails.
    Read(Range<u64>),
    /// Writing any of the range fails, after some of it has been written.
    Write(Range<u64>),
    /// Flushing fails.
    Flush,
    /// Nothing succeeds.
    Removed,
    /// It ends there, whatever size it reported.
    Truncated(u64),
    /// Writes that touch the range never reach the medium, without an error.
    LostWrite(Range<u64>),
    /// Each request takes so much longer.
    Slow(Duration),
    /// Writes that begin in the range are stored this many bytes further on, without an error.
    MisdirectedWrite(Range<u64>, u64),
}

impl Fault {
    /// Whether a read of the range fails.
    pub(crate) fn fails_read(&self, wanted: &Range<u64>) -> bool {
        match self {
            Self::Read(range) => ranges_overlap(range, wanted),
            Self::Removed => true,
            Self::Truncated(size) => wanted.end > *size,
            _ => false,
        }
    }

    /// Whether a write of the range fails.
    pub(crate) fn fails_write(&self, wanted: &Range<u64>) -> bool {
        match self {
            Self::Write(range) => ranges_overlap(range, wanted),
            Self::Removed => true,
            Self::Truncated(size) => wanted.end > *size,
            _ => false,
        }
    }

    /// Whether a flush fails.
    pub(crate) const fn fails_flush(&self) -> bool {
        matches!(self, Self::Flush | Self::Removed)
    }
}

/// Whether two ranges have something in common.
pub(crate) const fn ranges_overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
