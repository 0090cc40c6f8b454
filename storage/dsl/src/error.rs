//! Errors of datasets.

use units::{ObjectId, Txg, Zbookmark};

/// The reason why an operation on a dataset failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A receive_resume_token is invalid (Corrupt).
    #[error("the receive_resume_token is invalid: {why}")]
    InvalidResumeToken {
        /// The rule that it breaks.
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
        /// The object of the MOS that breaks it.
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
        /// The kind of the links.
        links: &'static str,
    },
    /// There is no dataset of this name.
    #[error("cannot open '{name}': dataset does not exist")]
    NoSuchDataset {
        /// The name.
        name: String,
    },
    /// A bookmark has no content, nor does one of the pool's own directories.
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
    #[error("cannot create {}", already_exists(name))]
    Exists {
        /// The name.
        name: String,
    },
    /// It is in use, so that it cannot go or be moved.
    #[error("'{name}' is busy: {why}")]
    Busy {
        /// The dataset.
        name: String,
        /// The obstacle.
        why: &'static str,
    },
    /// An interrupted receive began from a snapshot, in a hidden clone of it.
    #[error(
        "cannot destroy '{name}': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\n{clone}"
    )]
    ReceivedOnto {
        /// The snapshot.
        name: String,
        /// The hidden clone.
        clone: String,
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
    /// A redaction list was not made to its end.
    #[error("redaction bookmark '{name}' is incomplete: destroy it and redact again")]
    IncompleteRedactionList {
        /// The bookmark.
        name: String,
    },
    /// There is no room for the guids of so many snapshots.
    #[error("too many redaction snapshots specified: {count} of at most {most}")]
    TooManyRedactionSnapshots {
        /// Snapshots.
        count: usize,
        /// The most.
        most: usize,
    },
    /// A received dataset references more than the refquota of its target.
    #[error("destination {name} space quota exceeded: raise its refquota")]
    ReceivedAboveQuota {
        /// The target.
        name: String,
    },
    /// A quota that is less than the space in use.
    #[error(
        "size is less than current used or reserved space\n{used} bytes are used or reserved, and the limit would be {limit}"
    )]
    LimitBelowUsed {
        /// Bytes used or reserved.
        used: u64,
        /// The wanted limit.
        limit: u64,
    },
    /// A reservation that does not fit.
    #[error(
        "size is greater than available space\n{needed} bytes are needed, and there is room for {available}"
    )]
    ReservationTooLarge {
        /// Bytes that it takes.
        needed: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// There was a snapshot in this transaction group already; retry in the next.
    #[error("{name} already has a snapshot in this transaction group")]
    SnapshotInSameTxg {
        /// The dataset.
        name: String,
    },
    /// A receive into it is running or was interrupted.
    #[error("{name} is only partially received")]
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
    /// The snapshot is neither one of this dataset nor its origin.
    #[error("{name}: the snapshot is of another dataset")]
    WrongDataset {
        /// The bookmark.
        name: String,
    },
    /// Its key would depend on another encryption root, or be lost.
    #[error("cannot move {name} out of its encryption root")]
    EncryptionRootMismatch {
        /// The dataset.
        name: String,
    },
    /// The pool has not enabled a feature that this takes (Unsupported).
    #[error("this requires feature {guid}, which is not enabled on this pool")]
    FeatureDisabled {
        /// The feature.
        guid: &'static str,
    },
    /// The pool's version is older than the operation requires (Unsupported).
    #[error("this requires pool version {needed}, and the pool has version {version}")]
    UnsupportedPoolVersion {
        /// The pool's version.
        version: u64,
        /// The first version that supports it.
        needed: u64,
    },
    /// A deadlist has no stretch where it must have one (Corrupt).
    #[error("pool object {object}: the deadlist has no entry for txg {txg}")]
    NoDeadlistEntry {
        /// The deadlist.
        object: ObjectId,
        /// Where it should begin.
        txg: Txg,
    },
    /// A property that no user sets.
    #[error("'{property}' is readonly")]
    ReadOnlyProperty {
        /// The property.
        property: String,
    },
    /// A property of other kinds of datasets.
    #[error("'{property}' does not apply to datasets of this type")]
    NotApplicable {
        /// The property.
        property: String,
    },
    /// A property that has a value of its own in each dataset.
    #[error(
        "'{property}' property cannot be inherited\n{}use 'zfs inherit -S {property}' to revert to received value",
        clear_hint(property)
    )]
    NotInheritable {
        /// The property.
        property: String,
    },
    /// A dataset cannot be moved below itself.
    #[error(
        "cannot rename to '{name}': New dataset name cannot be a descendant of current dataset name"
    )]
    BelowItself {
        /// The new name.
        name: String,
    },
    /// Of one dataset there can be one snapshot in a txg.
    #[error(
        "cannot create snapshots : multiple snapshots of same fs not allowed\nno snapshots were created"
    )]
    SeveralSnapshots,
    /// There is no interrupted receive into the dataset.
    #[error("'{name}' does not have any resumable receive state to abort")]
    NoResumableState {
        /// The dataset.
        name: String,
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
    #[error("'{property}' {why}")]
    InvalidValue {
        /// The property.
        property: String,
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
    /// Whether the error means that the operation is not allowed now, rather than damage.
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Exists { .. }
                | Self::InvalidResumeToken { .. }
                | Self::Busy { .. }
                | Self::Held { .. }
                | Self::ReceivedOnto { .. }
                | Self::InvalidName { .. }
                | Self::NoSpace { .. }
                | Self::ReceivedAboveQuota { .. }
                | Self::IncompleteRedactionList { .. }
                | Self::TooManyRedactionSnapshots { .. }
                | Self::LimitBelowUsed { .. }
                | Self::ReservationTooLarge { .. }
                | Self::ReadOnlyProperty { .. }
                | Self::NotApplicable { .. }
                | Self::NotInheritable { .. }
                | Self::BelowItself { .. }
                | Self::SeveralSnapshots
                | Self::NoResumableState { .. }
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

/// How to clear a property that is a limit.
fn clear_hint(property: &str) -> String {
    match property {
        "quota" | "refquota" | "reservation" | "refreservation" => {
            format!("use 'zfs set {property}=none' to clear\n")
        }
        _ => String::new(),
    }
}

/// The end of the message about a name that is taken, in zfs(8)'s words, which scripts search for.
fn already_exists(name: &str) -> String {
    if name.contains('#') {
        return format!("bookmark '{name}': bookmark exists");
    }
    let kind = if name.contains('@') { "snapshot " } else { "" };
    format!("{kind}'{name}': dataset already exists")
}
