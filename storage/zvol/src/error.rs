//! Errors of volumes.

use units::ObjsetId;

/// The reason why an operation on a volume failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Blocks or objects could not be read.
    #[error(transparent)]
    Dmu(#[from] dmu::Error),
    /// The table of its properties could not be read.
    #[error(transparent)]
    Zap(#[from] zap::Error),
    /// The intent log could not be read or written.
    #[error(transparent)]
    Log(#[from] zil::Error),
    /// The pool is being closed, or cannot be written any more.
    #[error("the pool accepts no more changes")]
    Stopped,
    /// A block of a volume has a power of two of bytes.
    #[error("volblocksize must be a power of two from 512 bytes to 16 MiB, not {bytes} bytes")]
    BadBlockSize {
        /// The requested value.
        bytes: u32,
    },
    /// A volume has whole blocks, and some.
    #[error("volsize must be a multiple of volblocksize {block_size}, and {bytes} is not")]
    BadSize {
        /// The requested value.
        bytes: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// A range is not within the volume.
    #[error("objset {objset}: the range at {offset} reaches beyond the volume's end")]
    OutOfRange {
        /// The object set.
        objset: ObjsetId,
        /// Its first byte.
        offset: u64,
    },
    /// The log has a record that no volume can have (Corrupt, or Unsupported).
    #[error("objset {objset}: record {seq} of the log is none of a volume")]
    UnexpectedRecord {
        /// The object set.
        objset: ObjsetId,
        /// The record.
        seq: u64,
    },
    /// The dataset is not a volume.
    #[error("objset {objset} is not a volume")]
    NotVolume {
        /// The object set.
        objset: ObjsetId,
    },
    /// The table of its properties has no size (Corrupt).
    #[error("objset {objset}: the volume's properties have no size")]
    MissingSize {
        /// The object set.
        objset: ObjsetId,
    },
}
