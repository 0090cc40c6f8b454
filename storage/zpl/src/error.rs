//! Why a file system could not answer.

use units::{ObjectId, ObjsetId};

/// Why a file system could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Blocks or objects could not be read.
    #[error(transparent)]
    Dmu(#[from] dmu::Error),
    /// A table of names could not be read.
    #[error(transparent)]
    Zap(#[from] zap::Error),
    /// The intent log could not be read.
    #[error(transparent)]
    Zil(#[from] zil::Error),
    /// A structure of a file breaks a rule of the format (Corrupt).
    #[error("objset {objset} object {object}: {why}")]
    Corrupt {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
        /// The rule.
        why: ondisk::Error,
    },
    /// A file breaks a rule of file systems (Corrupt).
    #[error("objset {objset} object {object}: {rule}")]
    Rule {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
        /// The rule, as words.
        rule: &'static str,
    },
    /// The file system is of a version that is not known (Unsupported).
    #[error("objset {objset}: file system version {version} is not known")]
    Version {
        /// The file system.
        objset: ObjsetId,
        /// Its version.
        version: u64,
    },
    /// The dataset holds no files.
    #[error("objset {objset} is no file system")]
    NotFiles {
        /// The object set.
        objset: ObjsetId,
    },
    /// A name was looked up, or listed, in something that is no directory.
    #[error("objset {objset} object {object} is no directory")]
    NotDirectory {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
    },
    /// The target was asked of something that is no symbolic link.
    #[error("objset {objset} object {object} is no symbolic link")]
    NotSymlink {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
    },
    /// The range may have been left out when the dataset was sent: it is redacted, and on disk that
    /// cannot be told from a hole. To give zeros would be a guess.
    #[error("objset {objset} object {object}: byte {offset} was redacted, or lies in a hole")]
    Redacted {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
        /// The first byte of which that is so.
        offset: u64,
    },
    /// The file is not there (any more).
    #[error("objset {objset} object {object} is not there")]
    Gone {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
    },
}
