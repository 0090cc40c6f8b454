//! Volumes as network block devices: an NBD server over logical units.
//!
//! ```text
//! server        listeners, the table of exports, the table of clients; start, reload, stop, status
//!  └ connection   one client: the handshake, then threads that read requests and write replies
//!    ├ encryption    TLS, which the client starts in the handshake
//!    ├ negotiation   options to replies, without a socket
//!    ├ request       one request on a unit, to a reply, without a socket
//!    └ wire          bytes to messages and back
//! ```
//!
//! A connection has a few threads that take turns: one of them reads a request from the socket, lets the next one
//! read, carries out its request and sends the reply. So requests of one connection run in parallel, no queue grows,
//! and a client that sends faster than the pool writes is slowed down by TCP. Data in memory is bounded for the whole
//! server ([`ServerOptions::max_buffered_bytes`]).
//!
//! Writes are in the unit's write-back cache until FLUSH or FUA commits them to the intent log. The log is one per
//! volume, and all connections share the unit. A FLUSH therefore covers the answered writes of all connections, which
//! is what CAN_MULTI_CONN announces.
//!
//! While the pool is suspended, clients wait (failmode=wait) or get EIO (failmode=continue).
//!
//! NBD has no message for a new size. A client keeps its size while a volume grows, and learns the new one when it
//! connects again. If a volume shrinks, is rolled back, or is gone, the server ends the connections to it.
#![forbid(unsafe_code)]

mod connection;
mod encryption;
mod error;
mod export;
mod negotiation;
mod options;
mod request;
mod server;
mod status;
pub mod wire;

pub use encryption::{CertificateSource, Encryption};
pub use error::{Error, Result};
pub use export::Export;
pub use options::ServerOptions;
pub use server::Server;
pub use status::{ClientStatus, Counters, ServerStatus};
