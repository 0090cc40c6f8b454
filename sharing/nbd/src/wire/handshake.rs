//! The greeting, the client's flags, and the headers of options and of their replies.
//!
//! The greeting (server):
//! ```text
//! offset  size  field
//!      0     8  magic          "NBDMAGIC"
//!      8     8  magic          "IHAVEOPT": the newstyle handshake
//!     16     2  flags          1 fixed newstyle, 2 no zeroes
//!     18
//! ```
//! The client's flags:
//! ```text
//! offset  size  field
//!      0     4  flags          the same bits
//!      4
//! ```
//! An option (client):
//! ```text
//! offset  size  field
//!      0     8  magic          "IHAVEOPT"
//!      8     4  code           see `option`
//!     12     4  length         bytes of the payload
//!     16     -  payload
//! ```
//! A reply to an option (server); an option has one or several replies, of which the last is an ACK or an error:
//! ```text
//! offset  size  field
//!      0     8  magic          0x3e889045565a9
//!      8     4  option         the code of the option
//!     12     4  kind           see `option`
//!     16     4  length         bytes of the payload
//!     20     -  payload
//! ```
//! The answer to EXPORT_NAME, which has no reply header:
//! ```text
//! offset  size  field
//!      0     8  size           bytes of the export
//!      8     2  flags          see `TransmissionFlags`
//!     10   124  zeroes         left off if both sides set the flag "no zeroes"
//!    134
//! ```
//! Learnt from: doc/proto.md of the NetworkBlockDevice project, "Newstyle negotiation".

use super::cursor::Cursor;
use super::{Error, Result};

/// "NBDMAGIC".
pub const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// "IHAVEOPT".
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Begins each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// The server reports errors of options, and the client may send others after one that failed.
const FIXED_NEWSTYLE: u16 = 1;
/// The answer to EXPORT_NAME has no zeroes at its end.
const NO_ZEROES: u16 = 2;

/// The greeting of a server that speaks fixed newstyle.
pub fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(GREETING_MAGIC.to_be_bytes());
    bytes.extend(OPTION_MAGIC.to_be_bytes());
    bytes.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    bytes
}

/// The flags with which a client answers the greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientFlags {
    /// The client understands replies to options other than EXPORT_NAME.
    pub is_fixed_newstyle: bool,
    /// The answer to EXPORT_NAME ends after the transmission flags.
    pub omits_zeroes: bool,
}

impl ClientFlags {
    /// Bytes of the flags.
    pub const SIZE: usize = 4;

    /// Parses the flags. Unknown ones are an error, as the connection then means something unknown.
    pub fn parse(bytes: [u8; Self::SIZE]) -> Result<Self> {
        let flags = u32::from_be_bytes(bytes);
        let (fixed, zeroes) = (u32::from(FIXED_NEWSTYLE), u32::from(NO_ZEROES));
        if flags & !(fixed | zeroes) != 0 {
            return Err(Error::UnknownFlags { flags });
        }
        Ok(Self { is_fixed_newstyle: flags & fixed != 0, omits_zeroes: flags & zeroes != 0 })
    }
}

/// The header of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionHeader {
    /// The code of the option.
    pub code: u32,
    /// Bytes of the payload that follows.
    pub length: u32,
}

impl OptionHeader {
    /// Bytes of the header.
    pub const SIZE: usize = 16;

    /// Parses a header.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Result<Self> {
        let mut fields = Cursor::new(bytes);
        let found = fields.u64()?;
        if found != OPTION_MAGIC {
            return Err(Error::BadMagic { expected: OPTION_MAGIC, found });
        }
        Ok(Self { code: fields.u32()?, length: fields.u32()? })
    }
}

/// The properties of an export that a client learns before the transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransmissionFlags(pub u16);

impl TransmissionFlags {
    /// The field has a meaning. Always set.
    pub const HAS_FLAGS: Self = Self(1);
    /// Requests that change the export fail with EPERM.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// FLUSH is supported.
    pub const SEND_FLUSH: Self = Self(1 << 2);
    /// The command flag FUA is supported.
    pub const SEND_FUA: Self = Self(1 << 3);
    /// TRIM is supported.
    pub const SEND_TRIM: Self = Self(1 << 5);
    /// WRITE_ZEROES is supported.
    pub const SEND_WRITE_ZEROES: Self = Self(1 << 6);
    /// The command flag DF is supported.
    pub const SEND_DF: Self = Self(1 << 7);
    /// A flush on one connection covers what was written on all connections to the export.
    pub const CAN_MULTI_CONN: Self = Self(1 << 8);
    /// CACHE is supported.
    pub const SEND_CACHE: Self = Self(1 << 10);
    /// The command flag FAST_ZERO is supported.
    pub const SEND_FAST_ZERO: Self = Self(1 << 11);

    /// The union of flags.
    pub fn union(flags: &[Self]) -> Self {
        Self(flags.iter().fold(0, |all, flag| all | flag.0))
    }
}

/// The answer to EXPORT_NAME.
pub fn export_name_answer(size: u64, flags: TransmissionFlags, client: ClientFlags) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(size.to_be_bytes());
    bytes.extend(flags.0.to_be_bytes());
    if !client.omits_zeroes {
        bytes.extend([0; 124]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_bytes_are_those_of_the_protocol() {
        assert_eq!(greeting(), b"NBDMAGICIHAVEOPT\0\x03");
        let flags = ClientFlags::parse([0, 0, 0, 3]).unwrap();
        assert!(flags.is_fixed_newstyle && flags.omits_zeroes);
        let plain = ClientFlags::parse([0, 0, 0, 1]).unwrap();
        assert_eq!(export_name_answer(1, TransmissionFlags::HAS_FLAGS, plain).len(), 134);
        assert_eq!(export_name_answer(1, TransmissionFlags::HAS_FLAGS, flags).len(), 10);
        assert_eq!(ClientFlags::parse([0, 0, 0, 4]), Err(Error::UnknownFlags { flags: 4 }));
        let header = OptionHeader::parse(b"IHAVEOPT\0\0\0\x07\0\0\x01\0").unwrap();
        assert_eq!((header.code, header.length), (7, 256));
        assert!(OptionHeader::parse(b"IHAVEOPX\0\0\0\x07\0\0\x01\0").is_err());
    }
}
