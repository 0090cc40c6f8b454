//! Errors of compression, encryption and checksums.

use thiserror::Error;

/// An error about one block or one key.
///
/// `Corrupt...` and `Forged` mean that the disk breaks a rule; `Unsupported...` that we cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Corrupt: compressed bytes that are not what their method produces.
    #[error("{method} data is corrupt: {rule}")]
    CorruptCompression {
        /// The method's name as `zfs get compression` shows it.
        method: &'static str,
        /// The rule that the bytes break.
        rule: &'static str,
    },
    /// Corrupt: a structure inside an encrypted block that cannot be walked.
    #[error("{structure} is corrupt: {rule}")]
    CorruptLayout {
        /// The structure that was being read.
        structure: &'static str,
        /// The rule that the bytes break.
        rule: &'static str,
    },
    /// Corrupt: a message authentication code does not fit the bytes it protects.
    #[error("the authentication code of {structure} does not match")]
    MacMismatch {
        /// The structure that the code protects.
        structure: &'static str,
    },
    /// The key given does not open the wrapped key.
    #[error("the key does not open this dataset")]
    WrongKey,
    /// The user's key has not the form of the dataset's `keyformat`.
    #[error("the key is not {expected}")]
    KeyFormat {
        /// The expected form, in words.
        expected: &'static str,
    },
    /// A salted checksum needs the pool's salt, which the caller did not give.
    #[error("checksum {checksum} needs the pool's salt")]
    SaltMissing {
        /// The checksum's name.
        checksum: &'static str,
    },
    /// Unsupported: a code or a combination that this version does not know.
    #[error("unsupported {feature} ({code})")]
    Unsupported {
        /// Which feature.
        feature: &'static str,
        /// The code met on disk.
        code: u64,
    },
}
