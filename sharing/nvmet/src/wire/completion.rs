//! Completion queue entries.
//!
//! ```text
//! offset  size  field
//!      0     8  result         of the command
//!      8     2  SQHD           the head of the submission queue
//!     10     2  SQID           0: fabrics have one submission queue a connection
//!     12     2  CID            of the command
//!     14     2  status         bit 0: 0; bits 1-8 code, 9-11 type, 15 do not retry
//!     16
//! ```
//! Learnt from: NVM Express Base Specification 2.0, section 3.3.3.2; the codes from its section 3.3.3.2.1, and from NVM
//! Express over Fabrics 1.1, section 2.2.

/// The status of a command that failed: type and code, and whether a repetition may succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    code: u16,
    can_retry: bool,
}

impl Status {
    /// The opcode is unknown.
    pub const INVALID_OPCODE: Self = Self::fixed(0x001);
    /// A field of the command is invalid.
    pub const INVALID_FIELD: Self = Self::fixed(0x002);
    /// The data were damaged on the way.
    pub const TRANSIENT_TRANSPORT: Self = Self::transient(0x022);
    /// The controller cannot do it now.
    pub const INTERNAL: Self = Self::transient(0x006);
    /// The other command of a fused pair failed.
    pub const FAILED_FUSED: Self = Self::fixed(0x009);
    /// The other command of a fused pair is missing.
    pub const MISSING_FUSED: Self = Self::fixed(0x00a);
    /// The namespace does not exist.
    pub const INVALID_NAMESPACE: Self = Self::fixed(0x00b);
    /// The command is not possible in this state.
    pub const COMMAND_SEQUENCE: Self = Self::fixed(0x00c);
    /// The length of the data is not that of the command.
    pub const SGL_LENGTH: Self = Self::fixed(0x00f);
    /// The descriptor of the data has a wrong type.
    pub const SGL_TYPE: Self = Self::fixed(0x011);
    /// The offset of the data is wrong.
    pub const SGL_OFFSET: Self = Self::fixed(0x016);
    /// The form of the host identifier does not fit.
    pub const HOST_ID_FORMAT: Self = Self::fixed(0x018);
    /// The namespace is read-only.
    pub const WRITE_PROTECTED: Self = Self::fixed(0x020);
    /// Blocks are behind the end.
    pub const LBA_OUT_OF_RANGE: Self = Self::fixed(0x080);
    /// The pool has no space left.
    pub const CAPACITY_EXCEEDED: Self = Self::fixed(0x081);
    /// The pool is suspended.
    pub const NOT_READY: Self = Self::transient(0x082);
    /// Another host has reserved the namespace.
    pub const RESERVATION_CONFLICT: Self = Self::fixed(0x083);
    /// There are too many asynchronous event requests.
    pub const EVENT_LIMIT: Self = Self::fixed(0x105);
    /// The log page does not exist.
    pub const INVALID_LOG_PAGE: Self = Self::fixed(0x109);
    /// The feature cannot be saved.
    pub const NOT_SAVEABLE: Self = Self::fixed(0x10d);
    /// The feature cannot be changed.
    pub const NOT_CHANGEABLE: Self = Self::fixed(0x10e);
    /// The format of Connect is not supported.
    pub const CONNECT_FORMAT: Self = Self::fixed(0x180);
    /// The controller has no resources for the connection now.
    pub const CONNECT_BUSY: Self = Self::transient(0x181);
    /// A parameter of Connect is invalid.
    pub const CONNECT_PARAMETER: Self = Self::fixed(0x182);
    /// The host may not use the subsystem.
    pub const CONNECT_HOST: Self = Self::fixed(0x184);
    /// The host has to prove who it is.
    pub const AUTHENTICATION_REQUIRED: Self = Self::fixed(0x191);
    /// A copy has too many ranges or blocks.
    pub const COPY_LIMIT: Self = Self::fixed(0x183);
    /// The drives could not take the data.
    pub const WRITE_FAULT: Self = Self::fixed(0x280);
    /// The drives could not give the data.
    pub const READ_ERROR: Self = Self::fixed(0x281);
    /// The compared data differ.
    pub const COMPARE_FAILURE: Self = Self::fixed(0x285);

    const fn fixed(code: u16) -> Self {
        Self { code, can_retry: false }
    }

    const fn transient(code: u16) -> Self {
        Self { code, can_retry: true }
    }

    /// The status type (bits 8-10) and code (bits 0-7).
    pub fn code(self) -> u16 {
        self.code
    }

    fn field(self) -> u16 {
        self.code << 1 | if self.can_retry { 0 } else { 1 << 15 }
    }
}

/// A completion queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The number of the command.
    pub command: u16,
    /// The result.
    pub result: u64,
    /// The head of the submission queue.
    pub queue_head: u16,
    /// The failure, if there is one.
    pub failure: Option<Status>,
}

impl Completion {
    /// The bytes.
    pub fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.result.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.queue_head.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.command.to_le_bytes());
        let status = self.failure.map_or(0, Status::field);
        bytes[14..].copy_from_slice(&status.to_le_bytes());
        bytes
    }
}
