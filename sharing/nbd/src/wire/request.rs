//! Requests of the transmission.
//!
//! ```text
//! offset  size  field
//!      0     4  magic          0x25609513
//!      4     2  flags          see `CommandFlags`
//!      6     2  command        see `Command`
//!      8     8  cookie         chosen by the client, repeated in the reply
//!     16     8  offset         bytes
//!     24     4  length         bytes; WRITE has this many after the header
//!     28
//! ```
//! Learnt from: doc/proto.md of the NetworkBlockDevice project, "Request message" and "Request types".

use super::cursor::Cursor;
use super::{Error, Result};

/// Begins each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;

/// The command of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read a range.
    Read,
    /// Write a range.
    Write,
    /// End the connection after all requests are answered.
    Disconnect,
    /// Make durable all writes that were answered.
    Flush,
    /// Free a range.
    Trim,
    /// Read a range into the server's cache.
    Cache,
    /// Fill a range with zeros.
    WriteZeroes,
    /// Report which parts of a range are mapped.
    BlockStatus,
    /// A command that this server does not know.
    Unknown(u16),
}

impl Command {
    fn from_code(code: u16) -> Self {
        match code {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            _ => Self::Unknown(code),
        }
    }

    /// The flags that the command may have. FUA is allowed, if without effect, with every command.
    fn allowed_flags(self) -> CommandFlags {
        let own = match self {
            Self::WriteZeroes => CommandFlags::NO_HOLE.0 | CommandFlags::FAST_ZERO.0,
            Self::Read => CommandFlags::DF.0,
            Self::BlockStatus => CommandFlags::REQ_ONE.0,
            _ => 0,
        };
        CommandFlags(own | CommandFlags::FUA.0)
    }
}

/// The flags of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandFlags(pub u16);

impl CommandFlags {
    /// The change is durable before the reply.
    pub const FUA: Self = Self(1);
    /// WRITE_ZEROES: write zeros as data.
    pub const NO_HOLE: Self = Self(1 << 1);
    /// READ: reply in one chunk.
    pub const DF: Self = Self(1 << 2);
    /// BLOCK_STATUS: reply with one extent.
    pub const REQ_ONE: Self = Self(1 << 3);
    /// WRITE_ZEROES: fail if this is not faster than to write zeros.
    pub const FAST_ZERO: Self = Self(1 << 4);

    /// Whether all of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A request, without the data of a WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The flags.
    pub flags: CommandFlags,
    /// The command.
    pub command: Command,
    /// The number that the reply repeats.
    pub cookie: u64,
    /// Start of the range, in bytes.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u32,
}

impl Request {
    /// Bytes of a request.
    pub const SIZE: usize = 28;

    /// Parses a request.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Result<Self> {
        let mut fields = Cursor::new(bytes);
        let magic = fields.u32()?;
        if magic != REQUEST_MAGIC {
            let (expected, found) = (REQUEST_MAGIC.into(), magic.into());
            return Err(Error::BadMagic { expected, found });
        }
        Ok(Self {
            flags: CommandFlags(fields.u16()?),
            command: Command::from_code(fields.u16()?),
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }

    /// Whether the command may have all of its flags.
    pub fn has_valid_flags(&self) -> bool {
        self.command.allowed_flags().contains(self.flags)
    }

    /// Bytes of data that follow the request.
    pub fn payload_length(&self) -> u32 {
        if self.command == Command::Write { self.length } else { 0 }
    }

    /// The byte after the range; none on overflow.
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.length.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed() {
        let bytes = b"\x25\x60\x95\x13\0\x01\0\x01AAAAAAAA\0\0\0\0\0\0\x10\0\0\0\x02\0";
        let request = Request::parse(bytes).unwrap();
        assert_eq!(request.flags, CommandFlags::FUA);
        assert_eq!((request.command, request.payload_length()), (Command::Write, 512));
        assert_eq!((request.cookie, request.end()), (0x4141_4141_4141_4141, Some(4608)));
        assert!(request.has_valid_flags());
        let mixed = Request { command: Command::Trim, flags: CommandFlags::DF, ..request };
        assert!(!mixed.has_valid_flags());
        assert_eq!(Request { offset: u64::MAX, ..request }.end(), None);
        assert!(Request::parse(&[0; 28]).is_err());
    }
}
