//! Why the shares cannot be announced.

use std::net::SocketAddr;

/// Why the shares cannot be announced. Clients still reach them by name or address.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The mDNS responder failed.
    #[error("mDNS does not work: {why}; Macs do not show this computer by themselves")]
    Mdns {
        /// The reason.
        why: String,
    },
    /// An address of WS-Discovery cannot be used.
    #[error(
        "WS-Discovery cannot use {address}: {why}; Windows does not show this computer by itself. If \
         wsdd runs, it does the same: end one of them"
    )]
    WsDiscovery {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        why: std::io::Error,
    },
    /// A thread cannot be started.
    #[error("a thread cannot be started: {why}")]
    Thread {
        /// The system's reason.
        why: std::io::Error,
    },
}

/// The result of an announcement.
pub type Result<T> = std::result::Result<T, Error>;
