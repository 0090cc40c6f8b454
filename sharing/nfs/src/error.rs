//! Why a server does not start, or does not take a configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server does not start, or does not take a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot listen on an address.
    #[error("NFS cannot listen on {address}: {why}; choose a free address of this machine")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        #[source]
        why: std::io::Error,
    },
    /// A thread of the server could not be started.
    #[error("NFS cannot start a thread: {why}; the limit of threads may be reached")]
    Thread {
        /// The reason.
        #[source]
        why: std::io::Error,
    },
    /// The file with the known clients cannot be read or written.
    #[error(
        "NFS cannot use its list of clients '{path}': {why}; locks of clients may be lost at a restart"
    )]
    ClientList {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        why: std::io::Error,
    },
    /// Two exports have the same path.
    #[error("there are two NFS exports of the path '{path}': share one of them under another path")]
    DuplicatePath {
        /// The path.
        path: String,
    },
    /// The path of an export is not absolute, or has empty parts.
    #[error("the NFS export '{path}' has no absolute path such as /tank/photos: give it one")]
    BadPath {
        /// The path.
        path: String,
    },
    /// The root of a file system cannot be read.
    #[error("the file system of the NFS export '{path}' cannot be read: {why}")]
    BadRoot {
        /// The path of the export.
        path: String,
        /// The reason.
        #[source]
        why: vfs::Error,
    },
    /// A limit is out of its range.
    #[error("the NFS limit {limit} is {found}, and must be {least} to {most}")]
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
