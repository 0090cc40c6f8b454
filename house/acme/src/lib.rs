//! Certificates of a public CA by ACME (RFC 8555), and when they are renewed.
//!
//! ```text
//! config     the section [acme]
//! order      account, order, challenge, certificate: the talk with the CA
//! client     its requests: JSON signed with the account's key (JWS, RFC 7515), each with a nonce
//! challenge  HTTP-01: the CA reads a file of us by port 80, while an order runs and at no other time
//! validity   from when and until when a certificate holds
//! state      the account's key, the certificate, and when it is renewed or a failure is tried again
//! ```
//!
//! The crate writes no files and reads no clock. The daemon stores [`AcmeState`], and passes the time each minute.
#![forbid(unsafe_code)]

mod challenge;
mod client;
mod config;
mod error;
mod order;
mod state;
mod validity;

pub use config::AcmeConfig;
pub use error::AcmeError;
pub use order::obtain;
pub use state::{AcmeState, IssuedCertificate};
