//! How reading from a vdev, or writing to it, can fail.

use units::{Guid, VdevId};

/// What was wrong with one leaf's part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceError {
    /// The device is not there.
    Missing,
    /// It was away when the block was written, so that what it has is not the block.
    Stale,
    /// The device failed to read, or ends before that.
    ReadFailed,
    /// It read well, and the bytes are wrong.
    Corrupt,
    /// The device failed to write, or to make it last.
    WriteFailed,
}

impl DeviceError {
    /// Whether it goes away where the right bytes are written anew.
    pub fn is_repairable(self) -> bool {
        matches!(self, Self::Corrupt | Self::ReadFailed)
    }
}

/// A leaf's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafError {
    /// The leaf.
    pub leaf: Guid,
    /// What was wrong.
    pub error: DeviceError,
}

/// Why a vdev could not give or take a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The address speaks of a top-level vdev that the pool does not have, or of which nothing is
    /// known (Corrupt, or Unavailable where devices are missing).
    #[error("there is no vdev {0} that holds blocks")]
    NoVdev(VdevId),
    /// The address cannot be one on this vdev (Corrupt).
    #[error("the address is impossible: {0}")]
    InvalidAddress(String),
    /// Too many devices are missing (Unavailable).
    #[error("{missing} devices are missing or failing, and the vdev can do without {redundancy}")]
    Unavailable {
        /// Columns or sides that cannot be read.
        missing: usize,
        /// How many may be lost.
        redundancy: usize,
    },
    /// A kind of vdev that this version does not know (Unsupported).
    #[error("the pool has a vdev of kind '{0}', which this version does not know")]
    UnknownKind(String),
    /// The pool's description of a vdev is impossible (Corrupt).
    #[error("vdev {guid} is described wrongly: {why}")]
    InvalidConfig {
        /// Its identity.
        guid: Guid,
        /// What is wrong.
        why: String,
    },
    /// Everything could be read, and no way to put it together fits the checksum (Corrupt).
    #[error("the checksum does not match, with any copy or any reconstruction")]
    ChecksumMismatch,
}
