//! What can go wrong around a daemon; what goes wrong in a pool is said by the engine.

use std::path::Path;

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The engine says why.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The daemon says why.
    #[error("{message}")]
    Reported {
        /// The sentence.
        message: String,
        /// The exit status.
        status: u8,
    },
    /// A file or folder of the daemon's cannot be used.
    #[error("'{path}' cannot be used: {why}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        why: String,
    },
    /// There is one already.
    #[error("a daemon with its state in '{state_dir}' runs already")]
    Running {
        /// Its folder.
        state_dir: String,
    },
    /// It ended before it answered.
    #[error("the daemon could not be started; the end of its log, '{log}', says why:\n{tail}")]
    NotStarted {
        /// The log.
        log: String,
        /// Its last lines.
        tail: String,
    },
    /// It does not answer.
    #[error("the daemon at '{socket}' does not answer: {why}")]
    Unresponsive {
        /// Its socket.
        socket: String,
        /// What happened.
        why: String,
    },
}

/// What asking for something gives.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Engine(error) => error.exit_status(),
            Self::Reported { status, .. } => *status,
            Self::File { .. } => 13,
            Self::Running { .. } => 11,
            Self::NotStarted { .. } | Self::Unresponsive { .. } => 16,
        }
    }

    /// What was asked for is not allowed as things stand.
    pub(crate) fn refused_error(what: impl Into<String>) -> Self {
        Self::Engine(engine::Error::Refused { what: what.into() })
    }

    /// What was asked for makes no sense.
    pub(crate) fn usage_error(what: impl Into<String>) -> Self {
        Self::Engine(engine::Error::Usage { what: what.into() })
    }

    pub(crate) fn file_error(path: &Path, why: &std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), why: engine::error::io_error_text(why) }
    }
}
