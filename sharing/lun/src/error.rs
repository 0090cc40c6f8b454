//! Why a request to a logical unit fails.

use engine::files::Reason;

/// Why a request to a logical unit fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The range ends behind the last block.
    #[error("the range ends at byte {end}, and the volume has {size} bytes")]
    OutOfRange {
        /// The byte after the range; `u64::MAX` on overflow.
        end: u64,
        /// Bytes of the unit.
        size: u64,
    },
    /// The range is not whole logical blocks.
    #[error("the range is not whole blocks of {block_size} bytes")]
    Unaligned {
        /// Bytes of a logical block.
        block_size: u32,
    },
    /// The two buffers of a compare-and-write have different lengths.
    #[error("compare-and-write needs as many new bytes as expected ones")]
    LengthMismatch,
    /// The unit cannot have this logical block size.
    #[error(
        "a logical block has 512 or 4096 bytes, not {block_size}, and at most {volume_block} here"
    )]
    BlockSize {
        /// The requested size.
        block_size: u32,
        /// Bytes of a block of the volume.
        volume_block: u32,
    },
    /// The volume has readonly=on, or its pool was imported read-only.
    #[error("the volume is read-only: set readonly=off to write to it")]
    ReadOnly,
    /// The pool has no space left.
    #[error("the pool has no space left for the volume: free some space, or add drives")]
    NoSpace,
    /// The pool is suspended. The request can be tried again after `zpool clear`.
    #[error("the pool is suspended: attach its drives and run zpool clear")]
    Suspended,
    /// The volume does not exist any more, or its pool was exported.
    #[error("the volume is gone: it was destroyed, or its pool was exported")]
    Gone,
    /// The drives could not give the data.
    #[error("{why}")]
    Medium {
        /// The unreadable part, and the reason.
        why: String,
    },
    /// The volume could not be opened.
    #[error("{why}")]
    Open {
        /// Why not.
        why: String,
    },
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

impl From<engine::files::Error> for Error {
    fn from(why: engine::files::Error) -> Self {
        match why.reason() {
            Reason::ReadOnly => Self::ReadOnly,
            Reason::NoSpace | Reason::OverQuota => Self::NoSpace,
            Reason::Suspended | Reason::NotCommitted => Self::Suspended,
            _ => Self::Medium { why: why.to_string() },
        }
    }
}
