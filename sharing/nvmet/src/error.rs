//! Why a server does not start, or does not take a configuration.

use std::net::SocketAddr;

/// Why a server does not start, or does not take a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot listen on an address.
    #[error("NVMe/TCP cannot listen on {address}: {why}; choose a free address of this machine")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        #[source]
        why: std::io::Error,
    },
    /// A thread of the server could not be started.
    #[error("NVMe/TCP cannot start a thread: {why}; the limit of threads may be reached")]
    Thread {
        /// The reason.
        #[source]
        why: std::io::Error,
    },
    /// Two subsystems have the same name.
    #[error("there are two NVMe subsystems '{name}': give each another name")]
    DuplicateSubsystem {
        /// The name.
        name: String,
    },
    /// A name does not have the form of NVMe names.
    #[error(
        "'{name}' is not an NVMe name: write it like nqn.2026-01.com.example:disk, without spaces, in at most 223 \
         characters"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A namespace has a number that namespaces do not have.
    #[error(
        "the NVMe subsystem '{subsystem}' has the namespace {number}: choose one from 1 to 1024"
    )]
    NamespaceNumber {
        /// The name of the subsystem.
        subsystem: String,
        /// The number.
        number: u32,
    },
    /// A secret of DH-HMAC-CHAP cannot be used.
    #[error("a DH-HMAC-CHAP secret is unusable: {why}; make one by `nvme gen-dhchap-key`")]
    Secret {
        /// The reason.
        why: &'static str,
    },
    /// The controller has the secret of a host.
    #[error(
        "a host and the controller have the same DH-HMAC-CHAP secret: make another one by `nvme gen-dhchap-key`, since \
         with one a host proves nothing"
    )]
    SameSecret,
    /// A limit is out of its range.
    #[error("the NVMe/TCP limit {limit} is {found}, and must be {least} to {most}")]
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
