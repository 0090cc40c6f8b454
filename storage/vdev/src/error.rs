//! How reading from a vdev, or writing to it, can fail.

use units::{Guid, VdevId};

/// The error of one leaf's part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceError {
    /// The device is not there.
    Missing,
    /// It was missing when the block was written, so its content is not the block.
    Stale,
    /// The device failed to read, or ends before that.
    ReadFailed,
    /// It read well, and the bytes are wrong.
    Corrupt,
    /// The device failed to write, or to make it last.
    WriteFailed,
}

impl DeviceError {
    /// Whether rewriting the right bytes repairs it.
    pub fn is_repairable(self) -> bool {
        matches!(self, Self::Corrupt | Self::ReadFailed)
    }
}

/// A leaf's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafError {
    /// The leaf.
    pub leaf: Guid,
    /// The error.
    pub error: DeviceError,
}

/// Why a vdev could not give or take a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The address is on a top-level vdev that the pool does not have, or whose configuration is
    /// unknown (Corrupt, or Unavailable if devices are missing).
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
        /// Its guid.
        guid: Guid,
        /// The error.
        why: String,
    },
    /// Everything could be read, and no way to put it together fits the checksum (Corrupt).
    #[error("the checksum does not match, with any copy or any reconstruction")]
    ChecksumMismatch,
}
