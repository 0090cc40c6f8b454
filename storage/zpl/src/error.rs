//! Errors of file systems.

use units::{ObjectId, ObjsetId};

/// The reason why an operation on a file system failed.
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
    Malformed {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
        /// The rule, as words.
        rule: &'static str,
    },
    /// The file system is of a version that is not known (Unsupported).
    #[error("objset {objset}: file system version {version} is not supported")]
    Version {
        /// The file system.
        objset: ObjsetId,
        /// Its version.
        version: u64,
    },
    /// The dataset holds no files.
    #[error("objset {objset} is not a file system")]
    NotFilesystem {
        /// The object set.
        objset: ObjsetId,
    },
    /// A name was looked up, or listed, in an object that is not a directory.
    #[error("objset {objset} object {object} is not a directory")]
    NotDirectory {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
    },
    /// The target of an object that is not a symbolic link was requested.
    #[error("objset {objset} object {object} is not a symbolic link")]
    NotSymlink {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
    },
    /// The range may be redacted, and on disk that looks like a hole. Returning zeros could return
    /// wrong data.
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
    #[error("objset {objset} object {object} does not exist")]
    NotFound {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
    },
    /// The file system cannot be changed: it is a snapshot, or opened for reading.
    #[error("objset {objset} is open for reading only")]
    ReadOnly {
        /// The file system.
        objset: ObjsetId,
    },
    /// A change was meant for an earlier version of the file.
    #[error("objset {objset} object {object}: the file was changed meanwhile")]
    ChangedMeanwhile {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
    },
    /// A name that was to be new is taken.
    #[error("objset {objset} directory {object}: the name exists already")]
    Exists {
        /// The file system.
        objset: ObjsetId,
        /// The directory, or the file with the attribute.
        object: ObjectId,
    },
    /// The name does not exist.
    #[error("objset {objset} directory {object}: the name does not exist")]
    NoEntry {
        /// The file system.
        objset: ObjsetId,
        /// The directory.
        object: ObjectId,
    },
    /// The extended attribute does not exist.
    #[error("objset {objset} object {object}: the extended attribute does not exist")]
    NoXattr {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
    },
    /// Names are in a directory that was to be removed.
    #[error("objset {objset} directory {object} is not empty")]
    NotEmpty {
        /// The file system.
        objset: ObjsetId,
        /// The directory.
        object: ObjectId,
    },
    /// The operation is not for directories.
    #[error("objset {objset} object {object} is a directory")]
    IsDirectory {
        /// The file system.
        objset: ObjsetId,
        /// The directory.
        object: ObjectId,
    },
    /// The flags of a file, or its type, forbid the change.
    #[error("objset {objset} object {object}: {rule}")]
    NotPermitted {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
        /// Why not, as words.
        rule: &'static str,
    },
    /// The operation is invalid for this file.
    #[error("objset {objset} object {object}: {rule}")]
    Invalid {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
        /// Why not, as words.
        rule: &'static str,
    },
    /// This kind of file, or this version of file system, has no such thing.
    #[error("objset {objset} object {object}: {rule}")]
    NotSupported {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
        /// Why not, as words.
        rule: &'static str,
    },
    /// A name is longer than the file system takes.
    #[error("objset {objset}: a name has at most {max_len} bytes")]
    NameTooLong {
        /// The file system.
        objset: ObjsetId,
        /// The most bytes of a name.
        max_len: usize,
    },
    /// The compared form of a name (normalized, in upper case) is too long.
    #[error(
        "objset {objset}: a name has at most {max_len} bytes as it is compared here (see the \
         properties normalization and casesensitivity)"
    )]
    NormalizedTooLong {
        /// The file system.
        objset: ObjsetId,
        /// The most bytes of such a name.
        max_len: usize,
    },
    /// A name is not UTF-8, and the file system takes nothing else.
    #[error("objset {objset}: names must be UTF-8")]
    NameNotUtf8 {
        /// The file system.
        objset: ObjsetId,
    },
    /// A file may not be moved or linked into a tree of another project.
    #[error("objset {objset} directory {object} belongs to another project")]
    ProjectMismatch {
        /// The file system.
        objset: ObjsetId,
        /// The directory.
        object: ObjectId,
    },
    /// A file would become larger than any may be, or a value longer.
    #[error("objset {objset} object {object}: the file would become too large")]
    TooLarge {
        /// The file system.
        objset: ObjsetId,
        /// The file.
        object: ObjectId,
    },
    /// The pool has no space left.
    #[error("objset {objset}: no space is left")]
    NoSpace {
        /// The file system.
        objset: ObjsetId,
    },
    /// A quota is used up.
    #[error("objset {objset}: a quota is exceeded")]
    OverQuota {
        /// The file system.
        objset: ObjsetId,
    },
    /// The pool takes no changes any more: it is suspended or on its way out.
    #[error("objset {objset}: the pool accepts no changes now")]
    Stopped {
        /// The file system.
        objset: ObjsetId,
    },
}
