//! The bytes of ONC RPC, MOUNT v3, NFSv3, NFSv4 and their helpers: each message as a type, parsed and printed without I/O.
//!
//! ```text
//! xdr     numbers, opaque data and strings (RFC 4506)
//! rpc     the header of a call, AUTH_SYS, the header of a reply (RFC 5531)
//! mount   MOUNT v3 (RFC 1813, appendix I)
//! nlm     locks of NFSv3 (X/Open XNFS)
//! nsm     notices of restarts (X/Open XNFS)
//! portmap the ports of these programs (RFC 1833)
//! v3      NFSv3 (RFC 1813)
//! v4      NFSv4.0 to NFSv4.2 (RFC 7530, RFC 5661, RFC 7862, RFC 8276)
//! status  the result of a procedure, whose numbers v3 and v4 share
//! ```
//!
//! Nothing here panics or allocates more than a few times the bytes it is given.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

pub mod mount;
pub mod nlm;
pub mod nsm;
pub mod portmap;
pub mod rpc;
pub mod status;
pub mod v3;
pub mod v4;
pub mod xdr;

/// A message that breaks a rule of XDR or of its protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// A field ends behind the end of its message.
    #[error("the message ends before its fields do")]
    TooShort,
    /// Bytes follow the last field of a message.
    #[error("the message has bytes after its last field")]
    TrailingBytes,
    /// A field or a list is longer than the protocol allows.
    #[error("a field of the message has {found} items, and may have {most}")]
    TooLong {
        /// The length in the message.
        found: usize,
        /// The most that the protocol allows.
        most: usize,
    },
    /// A number stands for nothing in the protocol.
    #[error("the message has {found}, which stands for nothing in the protocol")]
    UnknownValue {
        /// The number.
        found: u32,
    },
    /// The message is no call of ONC RPC version 2.
    #[error("the message is no call of ONC RPC version 2")]
    NotACall,
}

/// The result of parsing a message.
pub type Result<T> = std::result::Result<T, Error>;

/// Bytes of the longest file handle that any version takes.
pub const MAX_HANDLE: usize = 128;
/// Bytes of the longest name that is parsed. Longer ones are refused by the file system.
pub const MAX_NAME: usize = 4096;
