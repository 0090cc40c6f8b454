//! The PDUs that targets send.
//!
//! All have the numbers of the session:
//! ```text
//! offset  size  field
//!     24     4  StatSN
//!     28     4  ExpCmdSN
//!     32     4  MaxCmdSN
//! ```
//! Fields beside these and the common ones (see [`super::header`]):
//! ```text
//! SCSI response 0x21   flags 0x80, 0x04 residual overflow, 0x02 residual underflow
//!      2     1  response: 0 completed at target
//!      3     1  SCSI status
//!     36     4  ExpDataSN: data-in PDUs and R2Ts that were sent
//!     44     4  residual count, bytes
//!               data segment: length of the sense data (16 bits), sense data
//! data-in       0x25   flags 0x80 final, 0x04, 0x02 as above, 0x01 has a status
//!      3     1  SCSI status
//!     20     4  target transfer tag: 0xffffffff
//!     36     4  DataSN
//!     40     4  buffer offset, bytes
//!     44     4  residual count, bytes
//! R2T           0x31   flags 0x80
//!      8     8  logical unit
//!     20     4  target transfer tag
//!     36     4  R2TSN
//!     40     4  buffer offset, bytes
//!     44     4  desired length, bytes
//! task management 0x22   flags 0x80
//!      2     1  response: 0 done, 1 no such task, 2 no such unit, 5 unknown function
//! login         0x23   flags as in the request
//!      2     1  greatest version: 0
//!      3     1  active version: 0
//!      8     6  ISID
//!     14     2  TSIH
//!     36     2  status, class and detail
//! text          0x24   flags 0x80 final, 0x40 continue
//!     20     4  target transfer tag: 0xffffffff if final
//! logout        0x26   flags 0x80
//!      2     1  response: 0 closed, 1 no such connection, 2 recovery is not supported
//!     40     2  seconds to wait before a reconnect
//!     42     2  seconds for which tasks are kept
//! NOP-in        0x20   flags 0x80
//!     20     4  target transfer tag: 0xffffffff
//! async message 0x32   flags 0x80
//!      8     8  logical unit, of a SCSI event
//!     16     4  initiator task tag: 0xffffffff
//!     36     1  event: 0 a SCSI event, 3 the target drops all connections of the session
//!     40     2  seconds to wait before a reconnect
//!     42     2  seconds for which tasks are kept
//!               data segment of a SCSI event: length of the sense data (16 bits), sense data
//! reject        0x3f   flags 0x80
//!      2     1  reason: 4 protocol error, 5 unknown opcode, 6 too many immediate commands
//!               data segment: the header that is rejected
//! ```

use super::NO_TAG;
use super::header::{HEADER_SIZE, HeaderWriter};
use super::request::Stage;

/// The numbers of a session in a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// StatSN: the number of the response.
    pub status: u32,
    /// ExpCmdSN: the command that the target expects next.
    pub expected_command: u32,
    /// MaxCmdSN: the last command that the target takes.
    pub last_command: u32,
}

/// The difference between the length that the initiator expects and that of the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residual {
    /// None.
    None,
    /// The command has fewer bytes, by this number.
    Underflow(u32),
    /// The command has more bytes, by this number.
    Overflow(u32),
}

impl Residual {
    fn flags(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Underflow(_) => 0x02,
            Self::Overflow(_) => 0x04,
        }
    }

    fn count(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Underflow(count) | Self::Overflow(count) => count,
        }
    }
}

/// The event of an asynchronous message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// A unit has changed; the data segment has the sense data.
    Scsi {
        /// The logical unit, encoded.
        lun: [u8; 8],
    },
    /// The target drops all connections of the session.
    ConnectionsDropped,
}

/// Seconds that an initiator waits for a target that restarts.
const RECONNECT_SECONDS: u16 = 2;

impl AsyncEvent {
    fn header(self, data_length: usize) -> HeaderWriter {
        let header = HeaderWriter::new(0x32, 0x80, data_length).u32(16, NO_TAG);
        match self {
            Self::Scsi { lun } => header.put(8, lun),
            Self::ConnectionsDropped => header.u8(36, 3).u16(40, RECONNECT_SECONDS),
        }
    }
}

/// Why a login ends, by class and detail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginStatus {
    /// No error.
    Success = 0x0000,
    /// A rule of the protocol is broken.
    InitiatorError = 0x0200,
    /// The initiator did not prove its name, or it must.
    AuthenticationFailure = 0x0201,
    /// The initiator may not use the target.
    AuthorizationFailure = 0x0202,
    /// The target does not exist.
    NotFound = 0x0203,
    /// The versions of both sides have nothing in common.
    UnsupportedVersion = 0x0205,
    /// The session has as many connections as it may have.
    TooManyConnections = 0x0206,
    /// A key is missing.
    MissingParameter = 0x0207,
    /// The session type does not exist.
    SessionType = 0x0209,
    /// The session does not exist.
    NoSuchSession = 0x020a,
    /// The target stops, or has too many sessions.
    ServiceUnavailable = 0x0301,
    /// The target has no memory or threads left.
    OutOfResources = 0x0302,
}

/// A PDU of a target, without its data segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response {
    /// A SCSI command is done.
    Command {
        /// The initiator task tag.
        tag: u32,
        /// SCSI status.
        status: u8,
        /// Data-in PDUs and R2Ts that were sent.
        exp_data_sn: u32,
        /// The residual.
        residual: Residual,
    },
    /// Data of a read.
    DataIn {
        /// The initiator task tag.
        tag: u32,
        /// Whether the sequence ends with it.
        is_final: bool,
        /// The number of the PDU.
        data_sn: u32,
        /// Where the data starts in the task's data, in bytes.
        offset: u32,
        /// The residual, if the command succeeded and ends with this PDU.
        done: Option<Residual>,
    },
    /// The target takes data.
    ReadyToTransfer {
        /// The logical unit, encoded.
        lun: [u8; 8],
        /// The initiator task tag.
        tag: u32,
        /// The tag that the data repeats.
        transfer_tag: u32,
        /// The number of the R2T.
        r2t_sn: u32,
        /// Where the data starts, in bytes.
        offset: u32,
        /// Bytes of data.
        length: u32,
    },
    /// A task management request is done.
    TaskManagement {
        /// The initiator task tag.
        tag: u32,
        /// The result, by its code.
        response: u8,
    },
    /// A step of the login.
    Login {
        /// The stage.
        stage: Stage,
        /// The stage that both sides go to.
        next: Option<Stage>,
        /// The part of the session's name that the initiator chose.
        isid: [u8; 6],
        /// The part that the target chose.
        tsih: u16,
        /// The initiator task tag.
        tag: u32,
        /// The status.
        status: LoginStatus,
    },
    /// The answer to a text request.
    Text {
        /// The initiator task tag.
        tag: u32,
        /// Whether the negotiation ends.
        is_final: bool,
        /// Whether the text continues in the next response.
        continues: bool,
    },
    /// The answer to a logout request.
    Logout {
        /// The initiator task tag.
        tag: u32,
        /// The result, by its code.
        response: u8,
    },
    /// The answer to a ping.
    NopIn {
        /// The logical unit, encoded.
        lun: [u8; 8],
        /// The initiator task tag.
        tag: u32,
    },
    /// A message without a request.
    Async {
        /// The event.
        event: AsyncEvent,
    },
    /// A PDU was not carried out.
    Reject {
        /// The reason, by its code.
        reason: u8,
    },
}

impl Response {
    /// Whether StatSN counts the PDU.
    pub fn counts(&self) -> bool {
        match self {
            Self::DataIn { done, .. } => done.is_some(),
            Self::ReadyToTransfer { .. } => false,
            _ => true,
        }
    }

    /// The header of the PDU.
    pub fn encode(&self, numbers: &Numbers, data_length: usize) -> [u8; HEADER_SIZE] {
        let header = match *self {
            Self::Command { tag, status, exp_data_sn, residual } => {
                HeaderWriter::new(0x21, 0x80 | residual.flags(), data_length)
                    .u8(3, status)
                    .u32(16, tag)
                    .u32(36, exp_data_sn)
                    .u32(44, residual.count())
            }
            Self::DataIn { tag, is_final, data_sn, offset, done } => {
                let flags = if is_final { 0x80 } else { 0 };
                let residual = done.unwrap_or(Residual::None);
                let status = u8::from(done.is_some());
                HeaderWriter::new(0x25, flags | status | residual.flags(), data_length)
                    .u32(16, tag)
                    .u32(20, NO_TAG)
                    .u32(36, data_sn)
                    .u32(40, offset)
                    .u32(44, residual.count())
            }
            Self::ReadyToTransfer { lun, tag, transfer_tag, r2t_sn, offset, length } => {
                HeaderWriter::new(0x31, 0x80, data_length)
                    .put(8, lun)
                    .u32(16, tag)
                    .u32(20, transfer_tag)
                    .u32(36, r2t_sn)
                    .u32(40, offset)
                    .u32(44, length)
            }
            Self::TaskManagement { tag, response } => {
                HeaderWriter::new(0x22, 0x80, data_length).u8(2, response).u32(16, tag)
            }
            Self::Login { stage, next, isid, tsih, tag, status } => {
                let next = next.map_or(0, |next| 0x80 | next as u8);
                HeaderWriter::new(0x23, next | (stage as u8) << 2, data_length)
                    .put(8, isid)
                    .u16(14, tsih)
                    .u32(16, tag)
                    .u16(36, status as u16)
            }
            Self::Text { tag, is_final, continues } => {
                let flags = if is_final { 0x80 } else { 0 } | if continues { 0x40 } else { 0 };
                // the initiator repeats a tag with its next request, where the text continues
                let transfer_tag = if is_final { NO_TAG } else { 0 };
                HeaderWriter::new(0x24, flags, data_length).u32(16, tag).u32(20, transfer_tag)
            }
            Self::Logout { tag, response } => {
                HeaderWriter::new(0x26, 0x80, data_length).u8(2, response).u32(16, tag)
            }
            Self::NopIn { lun, tag } => {
                HeaderWriter::new(0x20, 0x80, data_length).put(8, lun).u32(16, tag).u32(20, NO_TAG)
            }
            Self::Async { event } => event.header(data_length),
            Self::Reject { reason } => {
                HeaderWriter::new(0x3f, 0x80, data_length).u8(2, reason).u32(16, NO_TAG)
            }
        };
        let stat_sn =
            if matches!(self, Self::DataIn { done: None, .. }) { 0 } else { numbers.status };
        header
            .u32(24, stat_sn)
            .u32(28, numbers.expected_command)
            .u32(32, numbers.last_command)
            .finish()
    }
}
