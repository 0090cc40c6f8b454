//! Why something of the tree could not be given, in the words of file protocols.

use engine::files::Reason;
use posix::Ino;
use posix::access::Denied;

use crate::{RecallPending, ShareConflict};

/// Why something of the tree could not be given.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such thing, or no more.
    #[error("it is not there")]
    NotFound,
    /// It was open when its file system was taken back to a snapshot that does not have it.
    #[error("it is no more, since its file system was taken back to a snapshot")]
    Stale,
    /// A file's number would be another file's.
    #[error("file {ino} would be another one than the one that is in use")]
    InoReused {
        /// The number.
        ino: Ino,
    },
    /// The permissions of the file do not allow it to the caller.
    #[error("permission denied")]
    AccessDenied,
    /// The open file was opened to read only, or to write only.
    #[error("the file is not open for that")]
    WrongOpenMode,
    /// Another client has the file open and denies others what the request does.
    #[error(transparent)]
    ShareConflict(#[from] ShareConflict),
    /// Another client has not given its lease of the file back yet.
    #[error(transparent)]
    RecallPending(#[from] RecallPending),
    /// Something was asked that only a directory can answer.
    #[error("it is no directory")]
    NotDirectory,
    /// Something was asked that a directory cannot answer.
    #[error("it is a directory")]
    IsDirectory,
    /// Something was asked that only a symbolic link can answer.
    #[error("it is no symbolic link")]
    NotSymlink,
    /// Its dataset is locked.
    #[error("{why}")]
    Locked {
        /// Which, and what to do.
        why: String,
    },
    /// It was to be changed, and cannot be.
    #[error("it is refused: {reason:?}")]
    Refused {
        /// Why.
        reason: Reason,
    },
    /// It cannot be read.
    #[error("{why}")]
    Unreadable {
        /// Why not.
        why: String,
    },
    /// Its object's number is too high for a number in the tree.
    #[error("its number is too high to be shown")]
    InoOverflow,
}

/// What asking the tree gives.
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
