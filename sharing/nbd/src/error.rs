//! Why a server does not start, or does not take a configuration.

use std::net::SocketAddr;

/// Why a server does not start, or does not take a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot listen on an address.
    #[error("NBD cannot listen on {address}: {why}; choose a free address of this machine")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        #[source]
        why: std::io::Error,
    },
    /// A thread of the server could not be started.
    #[error("NBD cannot start a thread: {why}; the limit of threads may be reached")]
    Thread {
        /// The reason.
        #[source]
        why: std::io::Error,
    },
    /// Two exports have the same name.
    #[error("there are two NBD exports '{name}': give each another name")]
    DuplicateExport {
        /// The name.
        name: String,
    },
    /// The name of an export is too long for the protocol.
    #[error("the name of the NBD export '{start}...' has more than 4096 bytes: shorten it")]
    LongName {
        /// The start of the name.
        start: String,
    },
    /// A limit is out of its range.
    #[error("the NBD limit {limit} is {found}, and must be {least} to {most}")]
    Limit {
        /// The name of the field in [`crate::ServerOptions`].
        limit: &'static str,
        /// The value.
        found: usize,
        /// The smallest possible value.
        least: usize,
        /// The largest possible value.
        most: usize,
    },
}

/// The result of a change to the server.
pub type Result<T> = std::result::Result<T, Error>;
