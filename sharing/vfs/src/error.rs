//! Why something of the tree could not be given, in the words of file protocols.

/// Why something of the tree could not be given.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such thing, or no more.
    #[error("it is not there")]
    Absent,
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
    /// It cannot be read.
    #[error("{why}")]
    Unreadable {
        /// Why not.
        why: String,
    },
    /// Its object's number is too high for a number in the tree.
    #[error("its number is too high to be shown")]
    TooHigh,
}

/// What asking the tree gives.
pub type Result<T> = std::result::Result<T, Error>;

impl From<engine::files::Error> for Error {
    fn from(why: engine::files::Error) -> Self {
        if why.is_locked() {
            Self::Locked { why: why.to_string() }
        } else if why.is_absence() {
            Self::Absent
        } else if why.is_no_directory() {
            Self::NotDirectory
        } else {
            Self::Unreadable { why: why.to_string() }
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
