//! The commands of fabrics: Connect, Property Get, Property Set.
//!
//! ```text
//! Connect                            its data                     Property Get, Set
//! offset  size  field                offset  size  field          offset  size  field
//!      4     1  type: 1                   0    16  HOSTID              4     1  type: 4, 0
//!     40     2  RECFMT: 0                16     2  CNTLID             40     1  ATTRIB: 0 4 bytes, 1 8 bytes
//!     42     2  QID                     256   256  SUBNQN             44     4  OFST
//!     44     2  SQSIZE, less 1          512   256  HOSTNQN            48     8  VALUE (Set)
//!     46     1  CATTR: 4 no flow       1024
//!               control
//!     48     4  KATO, milliseconds
//! ```
//! Learnt from: NVM Express over Fabrics 1.1, section 3.

use super::command::Command;
use super::{le16, le32};

/// Bytes of the data of Connect.
pub const DATA_SIZE: usize = 1024;
/// The number of a controller that does not exist yet.
pub const NEW_CONTROLLER: u16 = 0xffff;
/// Bytes of the longest NQN.
pub const MAX_NQN: usize = 223;
/// The name of discovery controllers.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// The identity of a host (HOSTID).
pub type HostId = [u8; 16];

/// The command Connect with its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The format of the record: 0.
    pub format: u16,
    /// The queue: 0 is the admin queue.
    pub queue: u16,
    /// Entries of the queue, less one.
    pub last_entry: u16,
    /// The host does without flow control of the submission queue.
    pub is_without_flow_control: bool,
    /// The time after which a silent host is gone, in milliseconds; 0: none.
    pub keep_alive: u32,
    /// The identity of the host.
    pub host_id: HostId,
    /// The controller.
    pub controller: u16,
    /// The name of the subsystem.
    pub subsystem: String,
    /// The name of the host.
    pub host: String,
}

/// A field of Connect that is invalid: its offset, and whether it is in the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidField {
    /// The offset in bytes.
    pub at: u16,
    /// The field is in the data, and not in the command.
    pub is_in_data: bool,
}

impl InvalidField {
    /// The result that a completion shows.
    pub fn result(self) -> u64 {
        u64::from(self.at) | u64::from(self.is_in_data) << 16
    }
}

impl Connect {
    /// Parses the command and its data.
    pub fn parse(command: &Command, data: &[u8]) -> Result<Self, InvalidField> {
        if data.len() != DATA_SIZE {
            return Err(InvalidField { at: 32, is_in_data: false });
        }
        let name = |at: u16| {
            parse_name(data, usize::from(at)).ok_or(InvalidField { at, is_in_data: true })
        };
        let bytes = &command.0;
        Ok(Self {
            format: le16(bytes, 40),
            queue: le16(bytes, 42),
            last_entry: le16(bytes, 44),
            is_without_flow_control: bytes[46] & 4 != 0,
            keep_alive: le32(bytes, 48),
            host_id: super::array(data, 0),
            controller: le16(data, 16),
            subsystem: name(256)?,
            host: name(512)?,
        })
    }
}

/// The name in a field of 256 bytes, which ends with a zero.
fn parse_name(data: &[u8], at: usize) -> Option<String> {
    let field = data.get(at..at + 256)?;
    let end = field.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&field[..end]).ok()?;
    is_nqn(name).then(|| name.to_owned())
}

/// Whether a name has the form of NVMe qualified names.
pub fn is_nqn(name: &str) -> bool {
    let is_plain = |letter: char| !letter.is_control() && !letter.is_whitespace();
    name.starts_with("nqn.") && name.len() <= MAX_NQN && name.chars().all(is_plain)
}

/// The command Property Get or Set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Property {
    /// Whether the value has 8 bytes; otherwise it has 4.
    pub is_long: bool,
    /// The offset of the property.
    pub offset: u32,
    /// The value of Property Set.
    pub value: u64,
}

impl Property {
    /// Parses the command.
    pub fn parse(command: &Command) -> Self {
        let is_long = command.0[40] & 7 == 1;
        Self { is_long, offset: command.dword(11), value: command.dwords(12) }
    }
}
