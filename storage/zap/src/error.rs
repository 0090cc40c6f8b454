//! Errors of tables.

use units::Zbookmark;

/// The reason why an operation on a table failed.
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
    #[error("{zbookmark}: {why}")]
    Corrupt {
        /// The block.
        zbookmark: Zbookmark,
        /// The rule.
        why: ondisk::Error,
    },
    /// The object is of a type that holds no table, or has no block 0.
    #[error("objset {} object {} is not a name table", .zbookmark.objset, .zbookmark.object)]
    NotZap {
        /// The object.
        zbookmark: Zbookmark,
    },
    /// The pointer table leads to a leaf that is for other names.
    #[error("{zbookmark}: this leaf is not for hash {hash:#x}")]
    WrongLeaf {
        /// The leaf.
        zbookmark: Zbookmark,
        /// The first hash that leads to it.
        hash: u64,
    },
    /// The pointer table leads to a block where there is none.
    #[error("{zbookmark}: the block is missing from the name table")]
    MissingBlock {
        /// The block.
        zbookmark: Zbookmark,
    },
    /// The value has another type than the caller requested.
    #[error("{zbookmark}: the value has {count} integers of {int_size} bytes")]
    WrongValueType {
        /// The table.
        zbookmark: Zbookmark,
        /// Bytes of an integer.
        int_size: u8,
        /// How many integers.
        count: usize,
    },
    /// The name exists already.
    #[error("{zbookmark}: the name is in the table already")]
    Exists {
        /// The table.
        zbookmark: Zbookmark,
    },
    /// A name is empty, too long, or has a NUL in it; a key has no words or too many, or is not of
    /// the table's kind.
    #[error("{zbookmark}: a table can have no such name")]
    BadName {
        /// The table.
        zbookmark: Zbookmark,
    },
    /// A value is too long, or no whole number of integers of 1, 2, 4 or 8 bytes.
    #[error("{zbookmark}: a table can have no such value")]
    BadValue {
        /// The table.
        zbookmark: Zbookmark,
    },
    /// Too many names have hashes that begin with the same bits.
    #[error("{zbookmark}: the table has no space for the name")]
    Full {
        /// The table.
        zbookmark: Zbookmark,
    },
}

impl Error {
    /// Where the fault is.
    pub const fn zbookmark(&self) -> Zbookmark {
        match self {
            Self::Read { source } => source.zbookmark(),
            Self::Corrupt { zbookmark: place, .. }
            | Self::NotZap { zbookmark: place }
            | Self::WrongLeaf { zbookmark: place, .. }
            | Self::MissingBlock { zbookmark: place }
            | Self::WrongValueType { zbookmark: place, .. }
            | Self::Exists { zbookmark: place }
            | Self::BadName { zbookmark: place }
            | Self::BadValue { zbookmark: place }
            | Self::Full { zbookmark: place } => *place,
        }
    }
}
