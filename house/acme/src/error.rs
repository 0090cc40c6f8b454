//! The reasons why there is no certificate.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The owner did not agree to the terms.
    #[error(
        "the CA needs your agreement to its terms of service: poolhouse config set acme.agree true"
    )]
    NoAgreement,
    /// The certificates that the CA's server is checked with.
    #[error("the certificates in '{path}' cannot be used: {why}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The address of the proof is not free.
    #[error("the proof cannot be given on {address}: {why}; acme.listen is another address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        why: std::io::Error,
    },
    /// The CA does not offer proofs by port 80.
    #[error("the CA offers no proof by port 80 (http-01) for {name}")]
    NoChallenge {
        /// The name.
        name: String,
    },
    /// The CA did not accept a proof.
    #[error(
        "the CA could not prove that {name} leads here: {why}. Its address must lead to this machine, and port 80 \
         from outside to acme.listen"
    )]
    Unproved {
        /// The name.
        name: String,
        /// The CA's reason.
        why: String,
    },
    /// The certificate that the CA sent, or the request for it.
    #[error("the certificate cannot be used: {0}")]
    Certificate(String),
    /// The account of an earlier order cannot be read.
    #[error("the account at the CA cannot be read: {0}")]
    Account(String),
    /// The CA cannot be reached.
    #[error("the CA cannot be reached: {0}")]
    Unreachable(String),
    /// The CA refused a request.
    #[error("the CA refused {what}: {why}")]
    Refused {
        /// The request.
        what: &'static str,
        /// The CA's reason.
        why: String,
    },
    /// The answer of the CA does not follow the protocol.
    #[error("the CA sent an answer that is not understood: {0}")]
    Malformed(&'static str),
    /// The CA took too long.
    #[error("the CA took too long to {0}")]
    TooSlow(&'static str),
}
