//! Why something of an object set could not be given.

use units::Zbookmark;

/// Why something of an object set could not be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A block could not be read.
    #[error(transparent)]
    Read {
        /// Why not, and which.
        #[from]
        source: zio::Error,
    },
    /// A block with a valid checksum breaks a rule of the format (Corrupt), or is newer than
    /// this version (Unsupported).
    #[error("{zbookmark}: {why}")]
    Corrupt {
        /// The block.
        zbookmark: Zbookmark,
        /// The rule.
        why: ondisk::Error,
    },
    /// A block pointer is not of the object in which it stands (Corrupt).
    #[error("{zbookmark}: the pointer's {field} is {found}, but its object requires {expected}")]
    Mismatch {
        /// Where the pointer stands.
        zbookmark: Zbookmark,
        /// The differing field: level, type, size.
        field: &'static str,
        /// The value that the object requires.
        expected: u64,
        /// The value of the pointer.
        found: u64,
    },
    /// A block number that the object's tree does not reach (Corrupt).
    #[error("{zbookmark}: the object's tree does not reach so far")]
    OutOfTree {
        /// The block.
        zbookmark: Zbookmark,
    },
    /// The object does not exist.
    #[error("objset {} has no object {}", .zbookmark.objset, .zbookmark.object)]
    NoSuchObject {
        /// The object.
        zbookmark: Zbookmark,
    },
    /// There is an object of this number already.
    #[error("objset {} has an object {} already", .zbookmark.objset, .zbookmark.object)]
    Exists {
        /// The object.
        zbookmark: Zbookmark,
    },
    /// The object set was opened to be read.
    #[error("objset {} was opened read-only", .zbookmark.objset)]
    ReadOnly {
        /// The object.
        zbookmark: Zbookmark,
    },
    /// The size of blocks can be changed while there is one at most.
    #[error("{zbookmark}: the object has more than one block, their size is fixed")]
    BlockSizeFixed {
        /// The block beyond.
        zbookmark: Zbookmark,
    },
    /// The pointer to the object set is empty.
    #[error("objset {} has no content", .zbookmark.objset)]
    NoContent {
        /// The object set.
        zbookmark: Zbookmark,
    },
}

impl Error {
    /// Where the fault is.
    pub const fn zbookmark(&self) -> Zbookmark {
        match self {
            Self::Read { source } => source.zbookmark(),
            Self::Corrupt { zbookmark: place, .. }
            | Self::Mismatch { zbookmark: place, .. }
            | Self::OutOfTree { zbookmark: place }
            | Self::NoSuchObject { zbookmark: place }
            | Self::Exists { zbookmark: place }
            | Self::ReadOnly { zbookmark: place }
            | Self::BlockSizeFixed { zbookmark: place }
            | Self::NoContent { zbookmark: place } => *place,
        }
    }

    /// Whether the error only means that the object does not exist.
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NoSuchObject { .. } | Self::NoContent { .. })
    }
}
