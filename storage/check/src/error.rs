//! Why a pool could not be examined at all.

/// The reason why a pool could not be examined at all. All other damage is in the report.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The structures that the walk starts from are unreadable.
    #[error(transparent)]
    Pool(#[from] spa::Error),
    /// An object that is needed for a start cannot be read.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// A table that is needed for a start cannot be read.
    #[error(transparent)]
    Zap(#[from] zap::Error),
    /// A list cannot be read.
    #[error(transparent)]
    BlockList(#[from] dsl::Error),
    /// A structure breaks a rule.
    #[error(transparent)]
    Corrupt(#[from] ondisk::Error),
}
