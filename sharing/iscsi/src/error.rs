//! Why a server does not start, or does not take a configuration.

use std::net::SocketAddr;

/// Why a server does not start, or does not take a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot listen on an address.
    #[error("iSCSI cannot listen on {address}: {why}; choose a free address of this machine")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        #[source]
        why: std::io::Error,
    },
    /// A thread of the server could not be started.
    #[error("iSCSI cannot start a thread: {why}; the limit of threads may be reached")]
    Thread {
        /// The reason.
        #[source]
        why: std::io::Error,
    },
    /// Two targets have the same name.
    #[error("there are two iSCSI targets '{name}': give each another name")]
    DuplicateTarget {
        /// The name.
        name: String,
    },
    /// A name does not have the form of iSCSI names.
    #[error(
        "'{name}' is no iSCSI name: write it like iqn.2026-01.com.example:disk, with small letters, \
         digits, '.', '-' and ':', and at most 223 of them"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A unit has a number that LUNs do not have.
    #[error("the iSCSI target '{target}' has the LUN {number}: choose one from 0 to 16383")]
    UnitNumber {
        /// The name of the target.
        target: String,
        /// The number.
        number: u16,
    },
    /// A CHAP secret is too short.
    #[error(
        "the CHAP secret of '{user}' has {length} bytes: iSCSI needs at least 12, as shorter ones can be guessed \
         from a recorded login"
    )]
    ShortSecret {
        /// The user.
        user: String,
        /// Bytes of the secret.
        length: usize,
    },
    /// Both directions of CHAP have the same secret.
    #[error(
        "the CHAP secrets of '{user}' and of the target are the same: choose two, since with one an \
         initiator proves nothing"
    )]
    SameSecret {
        /// The user of the initiator.
        user: String,
    },
    /// A CHAP user has no name.
    #[error("a CHAP user has no name, or one with more than 255 bytes: give it a name")]
    UserName,
    /// A limit is out of its range.
    #[error("the iSCSI limit {limit} is {found}, and must be {least} to {most}")]
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
