//! Why a volume could not answer.

use units::ObjsetId;

/// Why a volume could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Blocks or objects could not be read.
    #[error(transparent)]
    Dmu(#[from] dmu::Error),
    /// The table of its properties could not be read.
    #[error(transparent)]
    Zap(#[from] zap::Error),
    /// The intent log could not be read, or nothing can be promised.
    #[error(transparent)]
    Log(#[from] zil::Error),
    /// The pool is being closed, or cannot be written any more.
    #[error("the pool takes no more changes")]
    Stopped,
    /// A block of a volume has a power of two of bytes.
    #[error("a volume has blocks of 512 bytes to 16 MiB, in powers of two, not of {bytes} bytes")]
    BadBlockSize {
        /// What was asked for.
        bytes: u32,
    },
    /// A volume has whole blocks, and some.
    #[error("a volume of {bytes} bytes has not whole blocks of {block_size}")]
    BadSize {
        /// What was asked for.
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
    /// The dataset is no volume.
    #[error("objset {objset} is no volume")]
    NotVolume {
        /// The object set.
        objset: ObjsetId,
    },
    /// The table of its properties does not say how large it is (Corrupt).
    #[error("objset {objset}: the volume does not say how large it is")]
    MissingSize {
        /// The object set.
        objset: ObjsetId,
    },
}
