//! Why a repository could not be read or changed.

use crate::StoreError;

/// Why a repository could not be read or changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The store failed (Unavailable).
    #[error("{location}: cannot {action} '{object}': {why}")]
    Store {
        /// The store's address.
        location: String,
        /// The request: "read", "store", "list", "delete".
        action: &'static str,
        /// The object or the prefix.
        object: String,
        /// The store's own words.
        why: StoreError,
    },
    /// The repository does not exist.
    #[error(
        "{location} holds no backup repository; `poolhouse backup init {location}` creates one"
    )]
    NoRepository {
        /// The store's address.
        location: String,
    },
    /// There is one already.
    #[error("{location} holds a backup repository already; nothing was changed")]
    RepositoryExists {
        /// The store's address.
        location: String,
    },
    /// An object breaks a rule of the format (Corrupt).
    #[error("{location}: the object '{object}' is damaged: {why}")]
    Corrupt {
        /// The store's address.
        location: String,
        /// The object.
        object: String,
        /// The rule that it breaks.
        why: String,
    },
    /// The store overwrites objects that were to be created (Unsupported).
    #[error(
        "{location} cannot hold a repository: the store ignores conditional writes (If-None-Match), so two \
         writers could overwrite each other's work; use a store that supports them"
    )]
    NoConditionalWrites {
        /// The store's address.
        location: String,
    },
    /// A newer version of this program wrote it (Unsupported).
    #[error(
        "{location}: the repository has format {found}, and this version of Poolhouse knows format {known}"
    )]
    Version {
        /// The store's address.
        location: String,
        /// The format of the repository.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// Another writer was faster.
    #[error(
        "{location}: another backup or prune changed the repository meanwhile; \
         nothing was lost, run the command again"
    )]
    Conflict {
        /// The store's address.
        location: String,
    },
    /// The newest head could be stored or not: the store failed then (Unavailable).
    #[error(
        "{location}: it is not known whether the last step was stored: {why}; run the command again"
    )]
    Undecided {
        /// The store's address.
        location: String,
        /// The store's own words.
        why: StoreError,
    },
    /// No snapshot of that name is stored.
    #[error("{location}: there is no snapshot '{name}' in the repository")]
    NoSuchSnapshot {
        /// The store's address.
        location: String,
        /// The name.
        name: String,
    },
    /// A block of a snapshot cannot be read.
    #[error("'{snapshot}': {why}")]
    Block {
        /// The snapshot.
        snapshot: String,
        /// The reader's own words.
        why: dmu::Error,
    },
    /// Two blocks without checksum have one key: the pool was rewound between their backups.
    #[error(
        "'{snapshot}': a block without checksum differs from the one in the repository that has its address \
         and txg, since the pool was rewound; back it up into a new repository"
    )]
    Ambiguous {
        /// The snapshot.
        snapshot: String,
    },
    /// The reader stopped on request.
    #[error("stopped on request; the next run continues where this one stopped")]
    Cancelled,
}

impl Error {
    /// Whether the store is out of reach, so that a later try may succeed.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Store { why: StoreError::Unavailable { .. }, .. } | Self::Undecided { .. }
        )
    }
}
