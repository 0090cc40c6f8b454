//! Why something cannot be measured.

use std::io;
use std::path::Path;

use thiserror::Error;

/// Why something cannot be measured.
#[derive(Debug, Error)]
pub enum Error {
    /// A file or folder that does not do what is asked of it.
    #[error("{subject} cannot be {action}: {source}")]
    File {
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
    #[error("{subject} has {free} free, and {wanted} are wanted: ask for less with --size")]
    Room {
        /// Where.
        subject: String,
        /// What is free, for people.
        free: String,
        /// What is wanted, for people.
        wanted: String,
    },
    /// What is asked cannot be.
    #[error("{what}")]
    Asked {
        /// Why not.
        what: String,
    },
    /// A pool that is measured.
    #[error(transparent)]
    Pool(#[from] engine::Error),
    /// A file in a pool that is measured.
    #[error("a file of the pool that is measured: {0}")]
    Content(#[from] engine::files::Error),
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
    pub(crate) fn file(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let subject = format!("'{}'", path.display());
        move |source| Self::File { subject, action, source }
    }

    /// What was asked cannot be.
    pub(crate) fn asked(what: impl Into<String>) -> Self {
        Self::Asked { what: what.into() }
    }
}
