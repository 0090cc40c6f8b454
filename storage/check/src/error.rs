//! Why a pool could not be examined at all.

/// Why a pool could not be examined at all. What is wrong with it otherwise is in the report.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The pool does not tell what is needed for a start.
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
