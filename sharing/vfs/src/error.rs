//! Why a request failed, in the words of file protocols.

use engine::files::Reason;
use posix::Ino;
use posix::access::Denied;

use crate::{RecallPending, ShareConflict};

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file or the name does not exist, or no longer.
    #[error("no such file or directory")]
    NotFound,
    /// The file of a handle does not exist any more, or an open file is from before a rollback to a snapshot that does
    /// not have it.
    #[error("stale file handle: the file was removed, or a rollback has undone it")]
    Stale,
    /// A rollback would give an inode number that is in use to another file.
    #[error("inode {ino} is in use, and would be another file")]
    InoReused {
        /// The inode number.
        ino: Ino,
    },
    /// The permissions of the file do not allow it to the caller.
    #[error("permission denied")]
    AccessDenied,
    /// The file was not opened to read, or not to write.
    #[error("the file is not open for that")]
    WrongOpenMode,
    /// Another client has the file open and denies the access of the request.
    #[error(transparent)]
    ShareConflict(#[from] ShareConflict),
    /// Another client has not given its lease of the file back yet.
    #[error(transparent)]
    RecallPending(#[from] RecallPending),
    /// The pool is suspended, and the request was not carried out in the time that it may wait.
    #[error(
        "the pool is suspended: the request was not carried out; see zpool status, and use zpool clear"
    )]
    PoolSuspended,
    /// The request needs a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The request cannot be made of a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The request needs a symbolic link.
    #[error("not a symbolic link")]
    NotSymlink,
    /// The key of the dataset is not loaded.
    #[error("{why}")]
    Locked {
        /// The dataset, and how to load its key.
        why: String,
    },
    /// The file system refuses the request.
    #[error("the file system refuses the request: {reason:?}")]
    Refused {
        /// Why.
        reason: Reason,
    },
    /// The file cannot be read.
    #[error("{why}")]
    Unreadable {
        /// The damaged part.
        why: String,
    },
    /// The object number of the file does not fit an inode number.
    #[error("the object number is too high for an inode number")]
    InoOverflow,
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Denied> for Error {
    fn from(why: Denied) -> Self {
        match why {
            Denied::Access => Self::AccessDenied,
            Denied::NotPermitted => Self::Refused { reason: Reason::NotPermitted },
            Denied::NoData => Self::Refused { reason: Reason::NoXattr },
        }
    }
}

impl From<engine::files::Error> for Error {
    fn from(why: engine::files::Error) -> Self {
        match why.reason() {
            Reason::Locked => Self::Locked { why: why.to_string() },
            Reason::NotFound => Self::NotFound,
            Reason::NotDirectory => Self::NotDirectory,
            Reason::IsDirectory => Self::IsDirectory,
            Reason::NotSymlink => Self::NotSymlink,
            Reason::Unreadable => Self::Unreadable { why: why.to_string() },
            reason => Self::Refused { reason },
        }
    }
}

impl From<engine::Error> for Error {
    fn from(why: engine::Error) -> Self {
        match why {
            engine::Error::Locked { .. } => Self::Locked { why: why.to_string() },
            why => Self::Unreadable { why: why.to_string() },
        }
    }
}
