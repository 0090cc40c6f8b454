//! Submission queue entries.
//!
//! ```text
//! offset  size  field
//!      0     1  opcode         bits 0-1: 1 the host sends data, 2 the controller does
//!      1     1  flags          bits 0-1: 1 first, 2 second of a fused pair; bits 6-7: 1 data are described by an SGL
//!      2     2  CID            repeated in the completion
//!      4     4  NSID           fabrics: the first byte is the type of the command
//!      8    16  -
//!     24    16  SGL1           address (8), length (4), reserved (3), type (1): 0x01 data in the capsule, at the
//!                              offset `address`; 0x5A data in PDUs of their own
//!     40    24  CDW10 to CDW15
//!     64
//! ```
//! Learnt from: NVM Express Base Specification 2.0, section 3.3.3.1; NVM Express over Fabrics 1.1, section 2.1.

use super::{le16, le32, le64};

/// Bytes of a submission queue entry.
pub const SIZE: usize = 64;
/// The opcode of all commands of fabrics.
pub const FABRICS: u8 = 0x7f;

/// The place of a command in a fused pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fuse {
    /// It is no part of one.
    None,
    /// It is the first.
    First,
    /// It is the second.
    Second,
}

/// The way of the data of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// There are none.
    None,
    /// From the host.
    FromHost,
    /// To the host.
    ToHost,
}

/// The place of the data of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataPlace {
    /// In the capsule, from an offset on.
    Capsule {
        /// Bytes from the start of the data of the capsule.
        offset: u64,
    },
    /// In PDUs of their own.
    Transport,
    /// The descriptor has another type.
    Unknown,
}

/// A submission queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command(pub [u8; SIZE]);

impl Command {
    /// The opcode.
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// The type of a command of fabrics.
    pub fn fabrics_type(&self) -> Option<u8> {
        (self.opcode() == FABRICS).then_some(self.0[4])
    }

    /// The number of the command.
    pub fn id(&self) -> u16 {
        le16(&self.0, 2)
    }

    /// The namespace.
    pub fn namespace(&self) -> u32 {
        le32(&self.0, 4)
    }

    /// The place in a fused pair. None: the flags have no meaning.
    pub fn fuse(&self) -> Option<Fuse> {
        match self.0[1] & 3 {
            0 => Some(Fuse::None),
            1 => Some(Fuse::First),
            2 => Some(Fuse::Second),
            _ => None,
        }
    }

    /// Whether the data are described by an SGL, as fabrics need it.
    pub fn has_sgl(&self) -> bool {
        self.fabrics_type().is_some() || self.0[1] >> 6 == 1
    }

    /// The way of the data.
    pub fn direction(&self) -> Direction {
        match self.fabrics_type().unwrap_or(self.opcode()) & 3 {
            1 => Direction::FromHost,
            2 => Direction::ToHost,
            _ => Direction::None,
        }
    }

    /// Bytes of data.
    pub fn data_length(&self) -> u32 {
        le32(&self.0, 32)
    }

    /// The place of the data.
    pub fn data_place(&self) -> DataPlace {
        match self.0[39] {
            0x01 => DataPlace::Capsule { offset: le64(&self.0, 24) },
            0x5a => DataPlace::Transport,
            _ => DataPlace::Unknown,
        }
    }

    /// A command dword, 10 to 15.
    pub fn dword(&self, number: usize) -> u32 {
        le32(&self.0, number * 4)
    }

    /// Two command dwords, the lower one first.
    pub fn dwords(&self, number: usize) -> u64 {
        le64(&self.0, number * 4)
    }
}
