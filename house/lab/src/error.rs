//! Why something cannot be measured.

use std::io;
use std::path::Path;

use thiserror::Error;

/// Why something cannot be measured.
#[derive(Debug, Error)]
pub enum Error {
    /// A file or folder operation failed.
    #[error("{subject} cannot be {action}: {source}")]
    Io {
        /// Which.
        subject: String,
        /// The operation: `opened`, `read`.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The target has data, or is in use.
    #[error("'{subject}' is not written to: {why}")]
    Refused {
        /// The target.
        subject: String,
        /// Why not.
        why: String,
    },
    /// Too little free space.
    #[error("{subject} has {available} free, and {needed} are needed: request less with --size")]
    NoSpace {
        /// Where.
        subject: String,
        /// The free space, formatted.
        available: String,
        /// The needed space, formatted.
        needed: String,
    },
    /// The request is invalid.
    #[error("{message}")]
    InvalidRequest {
        /// Why not.
        message: String,
    },
    /// A pool that is measured.
    #[error(transparent)]
    Pool(#[from] engine::Error),
    /// A file in a pool that is measured.
    #[error("a file of the pool that is measured: {0}")]
    PoolFile(#[from] engine::files::Error),
    /// The other end of the network.
    #[error("{peer}: {why}")]
    Peer {
        /// Its name or address.
        peer: String,
        /// The problem.
        why: String,
    },
    /// A program that copies.
    #[error("{program} failed: {why}")]
    Program {
        /// Which.
        program: String,
        /// Its output.
        why: String,
    },
}

impl Error {
    /// About a path.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let subject = format!("'{}'", path.display());
        move |source| Self::Io { subject, action, source }
    }

    /// The request is invalid.
    pub(crate) fn invalid_request(what: impl Into<String>) -> Self {
        Self::InvalidRequest { message: what.into() }
    }
}
