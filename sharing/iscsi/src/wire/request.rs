//! The PDUs that initiators send.
//!
//! Fields behind the common ones (see [`super::header`]):
//! ```text
//! SCSI command  0x01   flags 0x80 final, 0x40 read, 0x20 write, 0x07 task attribute
//!     20     4  expected data transfer length, bytes
//!     24     4  CmdSN
//!     28     4  ExpStatSN
//!     32    16  command descriptor block
//! data-out      0x05   flags 0x80 final
//!     20     4  target transfer tag; 0xffffffff: unsolicited data
//!     28     4  ExpStatSN
//!     36     4  DataSN
//!     40     4  buffer offset, bytes
//! task management 0x02   flags 0x7f function
//!     20     4  referenced task tag
//!     24     4  CmdSN
//!     28     4  ExpStatSN
//!     32     4  RefCmdSN
//! login         0x03   flags 0x80 transit, 0x40 continue, 0x0c current stage, 0x03 next stage
//!      2     1  greatest version
//!      3     1  least version
//!      8     6  ISID
//!     14     2  TSIH
//!     20     2  connection id
//!     24     4  CmdSN
//!     28     4  ExpStatSN
//! text          0x04   flags 0x80 final, 0x40 continue
//!     20     4  target transfer tag
//!     24     4  CmdSN
//!     28     4  ExpStatSN
//! logout        0x06   flags 0x7f reason
//!     20     2  connection id
//!     24     4  CmdSN
//!     28     4  ExpStatSN
//! NOP-out       0x00
//!     20     4  target transfer tag
//!     24     4  CmdSN
//!     28     4  ExpStatSN
//! ```

use super::header::Header;
use super::{Error, Result};

/// A number by which commands are delivered in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandNumber {
    /// CmdSN.
    pub cmd_sn: u32,
    /// Whether the request is delivered at once and leaves the numbers as they are.
    pub is_immediate: bool,
}

/// How a task is ordered among the others of its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskAttribute {
    /// In any order.
    Simple,
    /// After all older tasks and before all younger ones.
    Ordered,
    /// Before all others.
    HeadOfQueue,
    /// For the time of an auto contingent allegiance, which this target does not have.
    Aca,
}

/// A SCSI command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScsiCommand {
    /// Whether no unsolicited data-out PDU follows.
    pub is_final: bool,
    /// Whether the initiator expects data.
    pub is_read: bool,
    /// Whether the initiator has data.
    pub is_write: bool,
    /// The order.
    pub attribute: TaskAttribute,
    /// The logical unit, encoded.
    pub lun: [u8; 8],
    /// The initiator task tag.
    pub tag: u32,
    /// Bytes of data that the initiator has or expects.
    pub expected_length: u32,
    /// The number of the command.
    pub number: CommandNumber,
    /// The command descriptor block.
    pub cdb: [u8; 16],
}

/// Data of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataOut {
    /// Whether the sequence ends with it.
    pub is_final: bool,
    /// The initiator task tag.
    pub tag: u32,
    /// The tag of the R2T; [`super::NO_TAG`]: the data is unsolicited.
    pub transfer_tag: u32,
    /// The number of the PDU within its sequence.
    pub data_sn: u32,
    /// Where the data starts in the task's data, in bytes.
    pub offset: u32,
}

/// A task management request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskManagement {
    /// The function, by its code.
    pub function: u8,
    /// The logical unit, encoded.
    pub lun: [u8; 8],
    /// The initiator task tag of the request.
    pub tag: u32,
    /// The tag of the task that it is about.
    pub referenced_tag: u32,
    /// The number of the request.
    pub number: CommandNumber,
}

/// A stage of the login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Authentication.
    Security = 0,
    /// Parameters of the session and the connection.
    Operational = 1,
    /// The login is over.
    FullFeature = 3,
}

impl Stage {
    fn from_code(stage: u8) -> Result<Self> {
        match stage & 3 {
            0 => Ok(Self::Security),
            1 => Ok(Self::Operational),
            3 => Ok(Self::FullFeature),
            stage => Err(Error::UnknownStage { stage }),
        }
    }
}

/// A login request, without its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginRequest {
    /// The stage that the initiator wants to go to.
    pub next: Option<Stage>,
    /// Whether the text continues in the next request.
    pub continues: bool,
    /// The stage.
    pub stage: Stage,
    /// The least version of the protocol that the initiator speaks.
    pub least_version: u8,
    /// The part of the session's name that the initiator chose.
    pub isid: [u8; 6],
    /// The part that the target chose; 0: a new session.
    pub tsih: u16,
    /// The initiator task tag.
    pub tag: u32,
    /// The number that the initiator gave the connection.
    pub connection_id: u16,
    /// The number of the request.
    pub cmd_sn: u32,
}

/// A text request, without its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextRequest {
    /// Whether the negotiation may end with the answer.
    pub is_final: bool,
    /// Whether the text continues in the next request.
    pub continues: bool,
    /// The initiator task tag.
    pub tag: u32,
    /// The tag of a response that was not complete.
    pub transfer_tag: u32,
    /// The number of the request.
    pub number: CommandNumber,
}

/// A logout request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogoutRequest {
    /// 0: close the session, 1: close a connection, 2: remove a connection for recovery.
    pub reason: u8,
    /// The initiator task tag.
    pub tag: u32,
    /// The connection for reasons 1 and 2.
    pub connection_id: u16,
    /// The number of the request.
    pub number: CommandNumber,
}

/// A ping of the initiator, or its answer to one of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NopOut {
    /// The logical unit, encoded.
    pub lun: [u8; 8],
    /// The initiator task tag; [`super::NO_TAG`]: no reply is wanted.
    pub tag: u32,
    /// The number of the request.
    pub number: CommandNumber,
}

/// A PDU of an initiator, without its data segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// A ping.
    NopOut(NopOut),
    /// A SCSI command.
    Command(ScsiCommand),
    /// A task management request.
    TaskManagement(TaskManagement),
    /// A login request.
    Login(LoginRequest),
    /// A text request.
    Text(TextRequest),
    /// Data of a write.
    DataOut(DataOut),
    /// A logout request.
    Logout(LogoutRequest),
}

impl Request {
    /// Parses a header.
    pub fn parse(header: &Header) -> Result<Self> {
        let tag = header.task_tag();
        let number =
            CommandNumber { cmd_sn: header.u32_at(24), is_immediate: header.is_immediate() };
        let flags = header.flags();
        let (is_final, continues) = (flags & 0x80 != 0, flags & 0x40 != 0);
        Ok(match header.opcode() {
            0x00 => Self::NopOut(NopOut { lun: header.array_at(8), tag, number }),
            0x01 => Self::Command(parse_command(header, number)),
            0x02 => Self::TaskManagement(TaskManagement {
                function: flags & 0x7f,
                lun: header.array_at(8),
                tag,
                referenced_tag: header.u32_at(20),
                number,
            }),
            0x03 => Self::Login(parse_login(header)?),
            0x04 => {
                let transfer_tag = header.u32_at(20);
                Self::Text(TextRequest { is_final, continues, tag, transfer_tag, number })
            }
            0x05 => Self::DataOut(DataOut {
                is_final,
                tag,
                transfer_tag: header.u32_at(20),
                data_sn: header.u32_at(36),
                offset: header.u32_at(40),
            }),
            0x06 => {
                let (reason, connection_id) = (flags & 0x7f, header.u16_at(20));
                Self::Logout(LogoutRequest { reason, tag, connection_id, number })
            }
            opcode => return Err(Error::UnknownOpcode { opcode }),
        })
    }
}

fn parse_command(header: &Header, number: CommandNumber) -> ScsiCommand {
    let flags = header.flags();
    ScsiCommand {
        is_final: flags & 0x80 != 0,
        is_read: flags & 0x40 != 0,
        is_write: flags & 0x20 != 0,
        attribute: match flags & 7 {
            2 => TaskAttribute::Ordered,
            3 => TaskAttribute::HeadOfQueue,
            4 => TaskAttribute::Aca,
            _ => TaskAttribute::Simple,
        },
        lun: header.array_at(8),
        tag: header.task_tag(),
        expected_length: header.u32_at(20),
        number,
        cdb: header.array_at(32),
    }
}

fn parse_login(header: &Header) -> Result<LoginRequest> {
    let flags = header.flags();
    let is_transit = flags & 0x80 != 0;
    Ok(LoginRequest {
        next: if is_transit { Some(Stage::from_code(flags)?) } else { None },
        continues: flags & 0x40 != 0,
        stage: Stage::from_code(flags >> 2)?,
        least_version: header.0[3],
        isid: header.array_at(8),
        tsih: header.u16_at(14),
        tag: header.task_tag(),
        connection_id: header.u16_at(20),
        cmd_sn: header.u32_at(24),
    })
}

#[cfg(test)]
mod tests {
    use super::super::header::HeaderWriter;
    use super::*;

    #[test]
    fn commands_are_parsed() {
        let header = HeaderWriter::new(0x01, 0xa2, 512)
            .put(8, [0, 3, 0, 0, 0, 0, 0, 0])
            .u32(16, 7)
            .u32(20, 8192)
            .u32(24, 9)
            .u8(32, 0x2a);
        let header = Header(header.finish());
        assert_eq!((header.data_length(), header.ahs_length()), (512, 0));
        let Ok(Request::Command(command)) = Request::parse(&header) else { panic!("a command") };
        assert!(command.is_final && command.is_write && !command.is_read);
        assert_eq!(command.attribute, TaskAttribute::Ordered);
        assert_eq!((command.tag, command.expected_length, command.cdb[0]), (7, 8192, 0x2a));
        assert_eq!(command.number, CommandNumber { cmd_sn: 9, is_immediate: false });
    }

    #[test]
    fn opcodes_of_targets_and_bad_stages_are_refused() {
        let parse =
            |opcode, flags| Request::parse(&Header(HeaderWriter::new(opcode, flags, 0).finish()));
        assert_eq!(parse(0x21, 0), Err(Error::UnknownOpcode { opcode: 0x21 }));
        assert_eq!(parse(0x43, 0x08), Err(Error::UnknownStage { stage: 2 }));
        assert_eq!(parse(0x43, 0x82), Err(Error::UnknownStage { stage: 2 }));
    }
}
