//! Why something cannot be measured.

use std::io;
use std::path::Path;

use thiserror::Error;

/// Why something cannot be measured.
#[derive(Debug, Error)]
pub enum Error {
    /// A file or folder that does not do what is asked of it.
    #[error("{subject} cannot be {action}: {source}")]
    Io {
        /// Which.
        subject: String,
        /// What was asked: `opened`, `read`.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// What would be overwritten holds something, or is in use.
    #[error("'{subject}' is not written to: {why}")]
    Refused {
        /// What.
        subject: String,
        /// Why not.
        why: String,
    },
    /// Too little room.
    #[error("{subject} has {available} free, and {needed} are wanted: ask for less with --size")]
    NoSpace {
        /// Where.
        subject: String,
        /// What is free, for people.
        available: String,
        /// What is wanted, for people.
        needed: String,
    },
    /// What is asked cannot be.
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
        /// What is wrong.
        why: String,
    },
    /// A program that copies.
    #[error("{program} failed: {why}")]
    Program {
        /// Which.
        program: String,
        /// What it said.
        why: String,
    },
}

impl Error {
    /// About a path.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let subject = format!("'{}'", path.display());
        move |source| Self::Io { subject, action, source }
    }

    /// What was asked cannot be.
    pub(crate) fn invalid_request(what: impl Into<String>) -> Self {
        Self::InvalidRequest { message: what.into() }
    }
}
