//! Errors of the daemon and its client. The engine words the errors of a pool.

use std::path::Path;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The daemon refused, as the client reads it.
    #[error("{message}")]
    Reported {
        /// The sentence.
        message: String,
        /// The exit status.
        status: u8,
    },
    /// The user may not make this call.
    #[error("cannot {action}: permission denied")]
    PermissionDenied {
        /// The action in zfs(8)'s words.
        action: String,
    },
    /// A handler of the daemon panicked.
    #[error("the daemon failed while it handled this call; its log has the place")]
    Panicked {},
    /// A file or directory of the daemon cannot be used.
    #[error("'{path}' cannot be used: {why}")]
    File {
        /// The file.
        path: String,
        /// The system's reason.
        why: String,
    },
    /// Another daemon has the state directory.
    #[error("a daemon with its state in '{state_dir}' runs already")]
    Running {
        /// The directory.
        state_dir: String,
    },
    /// The daemon ended before it replied.
    #[error("the daemon could not be started; the end of its log, '{log}':\n{tail}")]
    NotStarted {
        /// The log.
        log: String,
        /// Its last lines.
        tail: String,
    },
    /// The daemon does not reply.
    #[error("the daemon at '{socket}' does not reply: {why}")]
    Unresponsive {
        /// Its socket.
        socket: String,
        /// The reason.
        why: String,
    },
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Engine(error) => error.exit_status(),
            Self::Reported { status, .. } => *status,
            Self::PermissionDenied { .. } => 1,
            Self::File { .. } => 13,
            Self::Running { .. } => 11,
            Self::NotStarted { .. } | Self::Unresponsive { .. } | Self::Panicked {} => 16,
        }
    }

    /// A call that the present state does not allow.
    pub(crate) fn refused_error(what: impl Into<String>) -> Self {
        Self::Engine(engine::Error::Refused { what: what.into() })
    }

    /// A call that makes no sense.
    pub(crate) fn usage_error(what: impl Into<String>) -> Self {
        Self::Engine(engine::Error::Usage { what: what.into() })
    }

    pub(crate) fn file_error(path: &Path, why: &std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), why: engine::error::io_error_text(why) }
    }
}
