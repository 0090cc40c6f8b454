//! The bytes of the NBD protocol: each message as a type, parsed and printed without I/O.
//!
//! All numbers are big-endian. A connection begins with the handshake ([`handshake`]): the server greets, the client
//! answers with flags, and then sends options, each of which the server answers with replies. The option GO (or the
//! old EXPORT_NAME) starts the transmission, in which the client sends requests ([`request`]) and the server sends
//! replies ([`reply`]), in any order.
//!
//! Nothing here panics or allocates more than a few times the bytes it is given.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod cursor;
pub mod handshake;
pub mod option;
pub mod reply;
pub mod request;

/// Bytes of the longest string (export names, queries, messages).
pub const MAX_STRING: usize = 4096;

/// A message that breaks a rule of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// A magic number is wrong: the peer does not speak this protocol, or has lost its place in the stream.
    #[error("the client sent {found:#x} where the protocol has the magic number {expected:#x}")]
    BadMagic {
        /// The magic number of the protocol.
        expected: u64,
        /// The number in its place.
        found: u64,
    },
    /// The client has set handshake flags that the server did not offer.
    #[error("the client set unknown handshake flags: {flags:#x}")]
    UnknownFlags {
        /// All flags of the client.
        flags: u32,
    },
    /// A field ends behind the end of its message.
    #[error("the option ends before its fields do")]
    TooShort,
    /// Bytes follow the last field of a message.
    #[error("the option has bytes after its last field")]
    TrailingBytes,
    /// A string is longer than the protocol allows.
    #[error("a string of the option has more than 4096 bytes")]
    StringTooLong,
    /// A string is not UTF-8.
    #[error("a string of the option is not UTF-8")]
    NotUtf8,
}

/// The result of parsing a message.
pub type Result<T> = std::result::Result<T, Error>;
