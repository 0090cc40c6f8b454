//! Why something about a dataset could not be told.

use units::{ObjectId, Place};

/// Why something about a dataset could not be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An object could not be read.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// A table could not be read.
    #[error(transparent)]
    Table(#[from] zap::Error),
    /// A structure breaks a rule of the format (Corrupt).
    #[error("pool object {object}: {why}")]
    Structure {
        /// The object of the MOS that has it.
        object: ObjectId,
        /// The rule.
        why: ondisk::Error,
    },
    /// The pool's directory lacks an entry that every pool has (Corrupt).
    #[error("the pool's directory has no {name}")]
    Missing {
        /// The entry.
        name: &'static str,
    },
    /// Links between objects go in circles or nest deeper than they can (Corrupt).
    #[error("pool object {object}: {what} go in circles")]
    Circle {
        /// Where it was noticed.
        object: ObjectId,
        /// What is linked.
        what: &'static str,
    },
    /// There is no dataset of this name.
    #[error("there is no dataset {name}")]
    NoSuchDataset {
        /// The name.
        name: String,
    },
    /// A bookmark has no content, nor has one of the pool's own directories.
    #[error("{name} has no content of its own")]
    NoContent {
        /// Its name.
        name: String,
    },
    /// The dataset is not encrypted, so that there is nothing to unlock.
    #[error("{name} is not encrypted")]
    NotEncrypted {
        /// Its name.
        name: String,
    },
    /// The dataset is encrypted and no key was given.
    #[error("{name} is locked: no key was given")]
    Locked {
        /// Its name.
        name: String,
    },
    /// The key does not fit, or something of the key's record cannot be used.
    #[error("{name}: {why}")]
    Key {
        /// The dataset.
        name: String,
        /// Why not.
        why: transform::Error,
    },
    /// An entry of a dataset's key record is missing or not of its kind (Corrupt).
    #[error("pool object {object}: the key's record lacks {entry}")]
    KeyEntry {
        /// The record.
        object: ObjectId,
        /// The entry.
        entry: &'static str,
    },
}

impl Error {
    /// Where the fault is, if it is in a block.
    pub const fn place(&self) -> Option<Place> {
        match self {
            Self::Object(why) => Some(why.place()),
            Self::Table(why) => Some(why.place()),
            _ => None,
        }
    }
}
