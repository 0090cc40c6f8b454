//! Why something about a dataset could not be told.

use units::{ObjectId, Txg, Zbookmark};

/// Why something about a dataset could not be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A token by which a receive is resumed is none (Corrupt).
    #[error("the receive_resume_token is invalid: {why}")]
    InvalidResumeToken {
        /// What is wrong with it.
        why: &'static str,
    },
    /// An object could not be read.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// A table could not be read.
    #[error(transparent)]
    Zap(#[from] zap::Error),
    /// A structure breaks a rule of the format (Corrupt).
    #[error("pool object {object}: {why}")]
    Corrupt {
        /// The object of the MOS that has it.
        object: ObjectId,
        /// The rule.
        why: ondisk::Error,
    },
    /// The pool's directory lacks an entry that every pool has (Corrupt).
    #[error("the pool's directory has no {name}")]
    NoDirectoryEntry {
        /// The entry.
        name: &'static str,
    },
    /// Links between objects go in circles or nest deeper than they can (Corrupt).
    #[error("pool object {object}: {links} go in circles")]
    Cycle {
        /// Where it was noticed.
        object: ObjectId,
        /// What is linked.
        links: &'static str,
    },
    /// There is no dataset of this name.
    #[error("cannot open '{name}': dataset does not exist")]
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
    KeyNotLoaded {
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
    /// There is one of this name already.
    #[error("cannot create {kind}'{name}': dataset already exists", kind = if name.contains('@') { "snapshot " } else { "" })]
    Exists {
        /// The name.
        name: String,
    },
    /// It is in use, so that it cannot go or be moved.
    #[error("'{name}' is busy: {why}")]
    Busy {
        /// The dataset.
        name: String,
        /// What hinders it.
        why: &'static str,
    },
    /// A snapshot with holds cannot be destroyed.
    #[error(
        "cannot destroy snapshot {name}: it's being held. Run 'zfs holds -r {name}' to see holders."
    )]
    Held {
        /// The snapshot.
        name: String,
    },
    /// A name that no dataset can have.
    #[error("cannot create {kind}'{name}': {why}", kind = if name.contains('@') { "snapshot " } else { "" })]
    InvalidName {
        /// The name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// There is no room for it, or it is more than a quota allows.
    #[error("out of space: {needed} bytes are needed, and there is room for {available}")]
    NoSpace {
        /// Bytes that it takes.
        needed: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// There was a snapshot in this transaction group already; the next will do.
    #[error("{name}: its last snapshot is of this very moment")]
    SnapshotInSameTxg {
        /// The dataset.
        name: String,
    },
    /// A receive into it is under way or was broken off.
    #[error("{name} is half received")]
    Inconsistent {
        /// The dataset.
        name: String,
    },
    /// Only the latest snapshot can be gone back to.
    #[error("{name}: there are later snapshots or bookmarks")]
    NotLatest {
        /// The snapshot, or the dataset.
        name: String,
    },
    /// It is no clone, or one that may not change places with its origin.
    #[error("cannot promote '{name}': not a cloned filesystem")]
    NotAClone {
        /// The dataset.
        name: String,
    },
    /// The snapshot is not one of this dataset, nor one that it is made from.
    #[error("{name}: the snapshot is of another dataset")]
    WrongDataset {
        /// The bookmark.
        name: String,
    },
    /// It would come to depend on another key, or lose its own.
    #[error("{name}: its key does not go there")]
    EncryptionRootMismatch {
        /// The dataset.
        name: String,
    },
    /// The pool has not enabled a feature that this takes (Unsupported).
    #[error("that takes the feature {guid}, which the pool has not enabled")]
    FeatureDisabled {
        /// The feature.
        guid: &'static str,
    },
    /// The pool's version is older than what is asked for (Unsupported).
    #[error("this requires pool version {needed}, and the pool has version {version}")]
    UnsupportedPoolVersion {
        /// The pool's version.
        version: u64,
        /// The first version that has what is asked for.
        needed: u64,
    },
    /// A deadlist has no stretch where it must have one (Corrupt).
    #[error("pool object {object}: a deadlist without a stretch from txg {txg} on")]
    NoDeadlistEntry {
        /// The deadlist.
        object: ObjectId,
        /// Where it should begin.
        txg: Txg,
    },
    /// A change would make the space that a directory uses differ from the sum of its breakdown.
    #[error("pool object {object}: its breakdown does not sum up to the {used} bytes that it uses")]
    UsedSum {
        /// The directory.
        object: ObjectId,
        /// The bytes that it would use.
        used: u64,
    },
    /// A property that cannot be set.
    #[error("{property} cannot be set: {why}")]
    InvalidProperty {
        /// The property.
        property: String,
        /// Why not.
        why: &'static str,
    },
    /// A word that a property does not have for a value.
    #[error("'{property}' must be one of '{words}'")]
    UnknownWord {
        /// The property.
        property: String,
        /// The words that it has.
        words: String,
    },
    /// A text that is no number.
    #[error("bad numeric value '{value}'")]
    NotANumber {
        /// The text.
        value: String,
    },
    /// A value that a property cannot have.
    #[error("'{property}' cannot be '{value}': {why}")]
    InvalidValue {
        /// The property.
        property: String,
        /// The value.
        value: String,
        /// Why not.
        why: &'static str,
    },
}

impl Error {
    /// Where the fault is, if it is in a block.
    pub const fn zbookmark(&self) -> Option<Zbookmark> {
        match self {
            Self::Object(error) => Some(error.zbookmark()),
            Self::Zap(error) => Some(error.zbookmark()),
            _ => None,
        }
    }
}

impl Error {
    /// Whether it says that something is not allowed as things stand, and not that something is
    /// wrong.
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Exists { .. }
                | Self::InvalidResumeToken { .. }
                | Self::Busy { .. }
                | Self::Held { .. }
                | Self::InvalidName { .. }
                | Self::NoSpace { .. }
                | Self::SnapshotInSameTxg { .. }
                | Self::NotLatest { .. }
                | Self::NotAClone { .. }
                | Self::WrongDataset { .. }
                | Self::EncryptionRootMismatch { .. }
                | Self::FeatureDisabled { .. }
                | Self::UnsupportedPoolVersion { .. }
                | Self::InvalidProperty { .. }
                | Self::InvalidValue { .. }
                | Self::UnknownWord { .. }
                | Self::NotANumber { .. }
        )
    }
}
