//! The bytes of iSCSI: each PDU as a type, parsed and printed without I/O.
//!
//! All numbers are big-endian. A PDU is a header, in which the length of its other parts stands ([`header`]):
//! ```text
//! bytes            part
//!    48            header
//!  0 to 1020       additional header segments, whole 4-byte words
//!     4            header digest, if negotiated: CRC32C of both
//!  0 to 2^24 - 1   data segment
//!  0 to 3          padding, so that the data ends at a 4-byte word
//!     4            data digest, if negotiated and there is data: CRC32C of data and padding
//! ```
//! An initiator sends [`request`]s, a target sends [`response`]s. Login and text PDUs carry keys ([`text`]).
//!
//! Nothing here panics or allocates more than a few times the bytes it is given.
//! Learnt from: RFC 7143, chapters 11 and 6.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

pub mod header;
pub mod request;
pub mod response;
pub mod text;

/// A tag that names no task.
pub const NO_TAG: u32 = u32::MAX;

/// A PDU that breaks a rule of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The initiator sent an opcode that initiators do not have.
    #[error("the initiator sent the opcode {opcode:#04x}, which targets do not take")]
    UnknownOpcode {
        /// The opcode.
        opcode: u8,
    },
    /// A login request names a stage that does not exist.
    #[error("a login request has the stage {stage}")]
    UnknownStage {
        /// The number of the stage.
        stage: u8,
    },
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    NotUtf8,
    /// A text has a part that is not `key=value`.
    #[error("a text has a part without '='")]
    NoKey,
    /// A text has a key twice, or more keys than any initiator needs.
    #[error("a text has a key twice, or too many keys")]
    TooManyKeys,
    /// A key or a value is longer than the protocol allows.
    #[error("a key has more than 63 bytes, or a value more than 8192")]
    TooLong,
}

/// The result of parsing a PDU.
pub type Result<T> = std::result::Result<T, Error>;

/// CRC32C of a part of a PDU, as it is sent.
pub fn digest(parts: &[&[u8]]) -> [u8; 4] {
    let sum = parts.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part));
    sum.to_le_bytes()
}

/// Bytes of padding behind a data segment.
pub fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}
