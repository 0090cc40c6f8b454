//! Why something of an object set could not be given.

use units::Place;

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
    /// A block, whose checksum is right, breaks a rule of the format (Corrupt), or is newer than
    /// this version (Unsupported).
    #[error("{place}: {why}")]
    Corrupt {
        /// Where the block belongs.
        place: Place,
        /// The rule.
        why: ondisk::Error,
    },
    /// A block pointer is not of the object in which it stands (Corrupt).
    #[error("{place}: the pointer's {field} is {found}, but its object wants {wanted}")]
    Mismatch {
        /// Where the pointer stands.
        place: Place,
        /// What differs: level, type, size.
        field: &'static str,
        /// What the object wants.
        wanted: u64,
        /// What the pointer says.
        found: u64,
    },
    /// A block number that the object's tree does not reach (Corrupt).
    #[error("{place}: the object's tree does not reach so far")]
    OutOfTree {
        /// The block.
        place: Place,
    },
    /// There is no object of this number.
    #[error("objset {} has no object {}", .place.objset, .place.object)]
    NoSuchObject {
        /// The object.
        place: Place,
    },
    /// There is an object of this number already.
    #[error("objset {} has an object {} already", .place.objset, .place.object)]
    Exists {
        /// The object.
        place: Place,
    },
    /// The object set was opened to be read.
    #[error("objset {} was opened read-only", .place.objset)]
    ReadOnly {
        /// The object.
        place: Place,
    },
    /// The size of blocks can be changed while there is one at most.
    #[error("{place}: the object has more than one block, their size is fixed")]
    TooLate {
        /// The block beyond.
        place: Place,
    },
    /// The pointer to the object set is empty.
    #[error("objset {} has no content", .place.objset)]
    NoContent {
        /// The object set.
        place: Place,
    },
}

impl Error {
    /// Where the fault is.
    pub const fn place(&self) -> Place {
        match self {
            Self::Read { source } => source.place(),
            Self::Corrupt { place, .. }
            | Self::Mismatch { place, .. }
            | Self::OutOfTree { place }
            | Self::NoSuchObject { place }
            | Self::Exists { place }
            | Self::ReadOnly { place }
            | Self::TooLate { place }
            | Self::NoContent { place } => *place,
        }
    }

    /// Whether it says that there is nothing, and not that something is wrong.
    pub const fn is_absence(&self) -> bool {
        matches!(self, Self::NoSuchObject { .. } | Self::NoContent { .. })
    }
}
