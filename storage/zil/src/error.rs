//! Why a log could not be read to its end.

use units::Zbookmark;

/// Why a log could not be read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A block of the log, or one that a record points to, could not be read.
    #[error(transparent)]
    Block(#[from] zio::Error),
    /// A block that may hold acknowledged changes is on devices that are missing or failing
    /// (Unavailable).
    #[error("{why}")]
    OutOfReach {
        /// The block's own fault.
        why: zio::Error,
    },
    /// The data of a write could not be read from its object.
    #[error(transparent)]
    Data(#[from] dmu::Error),
    /// The pool is being closed, or cannot be written any more.
    #[error("the pool accepts no more changes")]
    Stopped,
    /// A block or record of the log is whole and breaks a rule (Corrupt), or is of a kind that is
    /// not known (Unsupported).
    #[error("{zbookmark}: {why}")]
    Structure {
        /// The block of the log: its number in the chain is the block.
        zbookmark: Zbookmark,
        /// The rule.
        why: ondisk::Error,
    },
    /// A block's successor is not the next in the chain (Corrupt).
    #[error("{zbookmark}: the next block of the log is not of this chain")]
    Chain {
        /// The block.
        zbookmark: Zbookmark,
    },
}
