//! Why a table could not answer.

use units::Place;

/// Why a table could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A block of it could not be read.
    #[error(transparent)]
    Read {
        /// Why not, and which.
        #[from]
        source: dmu::Error,
    },
    /// A block of it breaks a rule of the format.
    #[error("{place}: {why}")]
    Corrupt {
        /// The block.
        place: Place,
        /// The rule.
        why: ondisk::Error,
    },
    /// The object is of a type that holds no table, or has no block 0.
    #[error("objset {} object {} is no name table", .place.objset, .place.object)]
    NotATable {
        /// The object.
        place: Place,
    },
    /// The pointer table leads to a leaf that is for other names.
    #[error("{place}: this leaf is not for hash {hash:#x}")]
    WrongLeaf {
        /// The leaf.
        place: Place,
        /// The first hash that leads to it.
        hash: u64,
    },
    /// The pointer table leads to a block where there is none.
    #[error("{place}: the block is missing from the name table")]
    Missing {
        /// The block.
        place: Place,
    },
    /// The value is not of the kind that was asked for.
    #[error("{place}: the value has {count} integers of {int_size} bytes")]
    OtherValue {
        /// The table.
        place: Place,
        /// Bytes of an integer.
        int_size: u8,
        /// How many integers.
        count: usize,
    },
    /// The name that was to be put in is there already.
    #[error("{place}: the name is in the table already")]
    Exists {
        /// The table.
        place: Place,
    },
    /// A name is empty, too long, or has a NUL in it; a key has no words or too many, or is not of
    /// the table's kind.
    #[error("{place}: a table can have no such name")]
    BadName {
        /// The table.
        place: Place,
    },
    /// A value is too long, or no whole number of integers of 1, 2, 4 or 8 bytes.
    #[error("{place}: a table can have no such value")]
    BadValue {
        /// The table.
        place: Place,
    },
    /// Too many names have hashes that begin with the same bits.
    #[error("{place}: the table has no room for the name")]
    Full {
        /// The table.
        place: Place,
    },
}

impl Error {
    /// Where the fault is.
    pub const fn place(&self) -> Place {
        match self {
            Self::Read { source } => source.zbookmark(),
            Self::Corrupt { place, .. }
            | Self::NotATable { place }
            | Self::WrongLeaf { place, .. }
            | Self::Missing { place }
            | Self::OtherValue { place, .. }
            | Self::Exists { place }
            | Self::BadName { place }
            | Self::BadValue { place }
            | Self::Full { place } => *place,
        }
    }
}
