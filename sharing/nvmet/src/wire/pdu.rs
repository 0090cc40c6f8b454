//! PDUs of NVMe/TCP.
//!
//! Each begins with the common header:
//! ```text
//! offset  size  field
//!      0     1  PDU type       see `PduType`
//!      1     1  flags          1 header digest, 2 data digest, 4 last PDU of the data, 8 success without response
//!      2     1  HLEN           bytes of the header, without its digest
//!      3     1  PDO            offset of the data from the start of the PDU
//!      4     4  PLEN           bytes of the PDU
//!      8
//! ```
//! The header is followed by its digest (4 bytes, if negotiated), padding up to PDO, data, and the digest of the data
//! (4 bytes, if negotiated and if there are data). After the common header come:
//! ```text
//! ICReq, ICResp (HLEN 128)              CapsuleCmd (HLEN 72)      CapsuleResp (HLEN 24)
//!   8  2  PFV: 0                          8 64  SQE                 8 16  CQE
//!  10  1  HPDA, CPDA: alignment         H2CData, C2HData (24)     R2T (24)
//!         of data in 4 bytes, less 1      8  2  CCCID               8  2  CCCID
//!  11  1  DGST: 1 header, 2 data         10  2  TTAG (H2C)         10  2  TTAG
//!  12  4  MAXR2T less 1, MAXH2CDATA      12  4  DATAO              12  4  R2TO
//! H2CTermReq, C2HTermReq (24)            16  4  DATAL              16  4  R2TL
//!   8  2  FES: the error
//!  10  4  FEI: the offset of the field
//!         up to 128 bytes of data: the header with the error
//! ```
//! Learnt from: NVM Express TCP Transport Specification 1.0, section 3.6.

use super::{le16, le32};

/// Bytes of the common header.
pub const COMMON_SIZE: usize = 8;
/// Bytes of the longest header.
pub const MAX_HEADER_SIZE: usize = 128;
/// Bytes of a digest.
pub const DIGEST_SIZE: usize = 4;
/// Bytes of the headers of data and responses.
pub const RESPONSE_HEADER_SIZE: usize = 24;
/// Bytes of the header of a command.
const COMMAND_HEADER_SIZE: usize = 72;

const HEADER_DIGEST: u8 = 1;
const DATA_DIGEST: u8 = 2;
const LAST_PDU: u8 = 4;
const SUCCESS: u8 = 8;

/// The types of PDUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PduType {
    /// The host begins the connection.
    InitializeRequest = 0,
    /// The controller answers.
    InitializeResponse = 1,
    /// The host ends the connection because of an error.
    HostTerminate = 2,
    /// The controller ends the connection because of an error.
    ControllerTerminate = 3,
    /// A command, perhaps with data.
    Command = 4,
    /// A completion.
    Response = 5,
    /// Data of a write.
    HostData = 6,
    /// Data of a read.
    ControllerData = 7,
    /// The controller is ready for data of a write.
    ReadyToTransfer = 9,
}

/// An error that ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FatalError {
    /// A field of a header is invalid.
    #[error("the field at byte {at} of a PDU header is invalid")]
    HeaderField {
        /// The offset of the field.
        at: u32,
    },
    /// A PDU is not expected in this state of the connection.
    #[error("a PDU is out of sequence")]
    Sequence,
    /// The digest of a header is wrong.
    #[error("the digest of a PDU header is wrong")]
    HeaderDigest,
    /// Data are outside of what was asked for.
    #[error("the data of a PDU are outside of the requested range")]
    DataOutOfRange,
    /// A PDU has more data than is allowed.
    #[error("a PDU has more data than the limit")]
    DataLimit,
    /// A parameter of the initialization is not supported.
    #[error("the parameter at byte {at} of the initialization is not supported")]
    Parameter {
        /// The offset of the field.
        at: u32,
    },
}

impl FatalError {
    /// The code (FES) and the offset of the field (FEI).
    fn code(self) -> (u16, u32) {
        match self {
            Self::HeaderField { at } => (1, at),
            Self::Sequence => (2, 0),
            Self::HeaderDigest => (3, 0),
            Self::DataOutOfRange => (4, 0),
            Self::DataLimit => (5, 0),
            Self::Parameter { at } => (6, at),
        }
    }
}

/// The digests of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digests {
    /// Headers have a digest.
    pub header: bool,
    /// Data have a digest.
    pub data: bool,
}

/// The common header of a PDU of a host, which was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The type.
    pub kind: PduType,
    /// Bytes of the header, with the common header.
    pub size: usize,
    flags: u8,
    data_offset: usize,
    length: usize,
}

/// The parts of a PDU behind its header and the digest of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bytes of padding.
    pub padding: usize,
    /// Bytes of data.
    pub data: usize,
    /// Whether a digest follows the data.
    pub has_data_digest: bool,
}

impl Header {
    /// Parses the common header.
    pub fn parse(bytes: [u8; COMMON_SIZE]) -> Result<Self, FatalError> {
        let [kind, flags, size, data_offset, ..] = bytes;
        let (kind, expected) = match kind {
            0 => (PduType::InitializeRequest, MAX_HEADER_SIZE),
            2 => (PduType::HostTerminate, RESPONSE_HEADER_SIZE),
            4 => (PduType::Command, COMMAND_HEADER_SIZE),
            6 => (PduType::HostData, RESPONSE_HEADER_SIZE),
            _ => return Err(FatalError::HeaderField { at: 0 }),
        };
        let size = usize::from(size);
        if size != expected {
            return Err(FatalError::HeaderField { at: 2 });
        }
        let length = usize::try_from(le32(&bytes, 4)).map_err(|_| FatalError::DataLimit)?;
        let data_offset = usize::from(data_offset);
        Ok(Self { kind, size, flags, data_offset, length })
    }

    /// Whether a digest follows the header.
    pub fn has_digest(&self, digests: Digests) -> bool {
        digests.header && matches!(self.kind, PduType::Command | PduType::HostData)
    }

    /// Whether these are the last data that were asked for.
    pub fn is_last(&self) -> bool {
        self.flags & LAST_PDU != 0
    }

    /// The parts behind the header. Data of more than `limit` bytes are refused.
    pub fn layout(&self, digests: Digests, limit: usize) -> Result<Layout, FatalError> {
        let has_digest = self.has_digest(digests);
        if has_digest != (self.flags & HEADER_DIGEST != 0) {
            return Err(FatalError::HeaderField { at: 1 });
        }
        let end = self.size + if has_digest { DIGEST_SIZE } else { 0 };
        let rest = self.length.checked_sub(end).ok_or(FatalError::HeaderField { at: 4 })?;
        if rest == 0 {
            return Ok(Layout { padding: 0, data: 0, has_data_digest: false });
        }
        if self.kind == PduType::HostTerminate {
            return Ok(Layout { padding: 0, data: rest.min(limit), has_data_digest: false });
        }
        let padding = self.data_offset.checked_sub(end).ok_or(FatalError::HeaderField { at: 3 })?;
        let has_data_digest = self.flags & DATA_DIGEST != 0;
        if has_data_digest != digests.data {
            return Err(FatalError::HeaderField { at: 1 });
        }
        let other = padding + if has_data_digest { DIGEST_SIZE } else { 0 };
        let data = rest.checked_sub(other).ok_or(FatalError::HeaderField { at: 4 })?;
        if data > limit {
            return Err(FatalError::DataLimit);
        }
        Ok(Layout { padding, data, has_data_digest })
    }
}

/// The initialization that a host asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitializeRequest {
    /// Bytes to which the host wants data aligned.
    pub alignment: usize,
    /// The digests that the host wants.
    pub digests: Digests,
}

impl InitializeRequest {
    /// Parses a whole PDU.
    pub fn parse(bytes: &[u8; MAX_HEADER_SIZE]) -> Result<Self, FatalError> {
        let (version, [alignment, digests]) = (le16(bytes, 8), super::array(bytes, 10));
        if version != 0 {
            return Err(FatalError::Parameter { at: 8 });
        }
        if alignment > 31 {
            return Err(FatalError::HeaderField { at: 10 });
        }
        let digests = Digests { header: digests & 1 != 0, data: digests & 2 != 0 };
        Ok(Self { alignment: (usize::from(alignment) + 1) * 4, digests })
    }
}

/// Data of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostData {
    /// The number of the command (CCCID).
    pub command: u16,
    /// The number of the transfer (TTAG).
    pub transfer: u16,
    /// Where the data start in the data of the command, in bytes.
    pub offset: u32,
    /// Bytes of data.
    pub length: u32,
}

impl HostData {
    /// Parses a header.
    pub fn parse(header: &[u8]) -> Self {
        let (command, transfer) = (le16(header, 8), le16(header, 10));
        Self { command, transfer, offset: le32(header, 12), length: le32(header, 16) }
    }
}

/// Bytes between a header that ends at `end` and data that start at a multiple of `alignment`.
fn padding(end: usize, alignment: usize) -> usize {
    end.next_multiple_of(alignment) - end
}

/// The header of a PDU of the controller, with its digest and padding.
struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    fn new(kind: PduType, size: usize, flags: u8) -> Self {
        let mut bytes = vec![0; size];
        bytes[..3].copy_from_slice(&[
            kind as u8,
            flags,
            u8::try_from(size).expect("headers are short"),
        ]);
        Self { bytes }
    }

    fn put(mut self, at: usize, value: &[u8]) -> Self {
        self.bytes[at..at + value.len()].copy_from_slice(value);
        self
    }

    /// Appends the header for data of some bytes, and what lies between.
    fn finish(mut self, digests: Digests, (data, alignment): (usize, usize), out: &mut Vec<u8>) {
        let digest = if digests.header { DIGEST_SIZE } else { 0 };
        let end = self.bytes.len() + digest;
        let mut padding_size = 0;
        let mut length = end;
        if digests.header {
            self.bytes[1] |= HEADER_DIGEST;
        }
        if data > 0 {
            padding_size = padding(end, alignment);
            self.bytes[3] = u8::try_from(end + padding_size).expect("alignments are up to 128");
            length += padding_size + data;
            if digests.data {
                self.bytes[1] |= DATA_DIGEST;
                length += DIGEST_SIZE;
            }
        }
        let length = u32::try_from(length).expect("transfers are bounded");
        self.bytes[4..8].copy_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&self.bytes);
        if digests.header {
            out.extend_from_slice(&super::digest(&[&self.bytes]));
        }
        out.resize(out.len() + padding_size, 0);
    }
}

/// The answer to an initialization.
pub fn encode_initialize_response(digests: Digests, max_host_data: u32) -> Vec<u8> {
    let wanted = u8::from(digests.header) | u8::from(digests.data) << 1;
    let mut out = Vec::new();
    Encoder::new(PduType::InitializeResponse, MAX_HEADER_SIZE, 0)
        .put(11, &[wanted])
        .put(12, &max_host_data.to_le_bytes())
        .finish(Digests::default(), (0, 4), &mut out);
    out
}

/// The end of a connection because of an error, with the header that has it.
pub fn encode_terminate(error: FatalError, header: &[u8]) -> Vec<u8> {
    let (code, at) = error.code();
    let header = &header[..header.len().min(MAX_HEADER_SIZE)];
    let mut out = Vec::new();
    Encoder::new(PduType::ControllerTerminate, RESPONSE_HEADER_SIZE, 0)
        .put(8, &code.to_le_bytes())
        .put(10, &at.to_le_bytes())
        .finish(Digests::default(), (header.len(), 4), &mut out);
    // the PDU has no data offset
    out[3] = 0;
    out.extend_from_slice(header);
    out
}

/// Appends the response of a command.
pub fn encode_response(completion: &[u8; 16], digests: Digests, out: &mut Vec<u8>) {
    Encoder::new(PduType::Response, RESPONSE_HEADER_SIZE, 0).put(8, completion).finish(
        digests,
        (0, 4),
        out,
    );
}

/// Appends a request for all data of a write.
pub fn encode_ready(command: u16, transfer: u16, length: u32, digests: Digests, out: &mut Vec<u8>) {
    Encoder::new(PduType::ReadyToTransfer, RESPONSE_HEADER_SIZE, 0)
        .put(8, &command.to_le_bytes())
        .put(10, &transfer.to_le_bytes())
        .put(16, &length.to_le_bytes())
        .finish(digests, (0, 4), out);
}

/// The data of a read, which the caller sends after the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControllerData {
    /// The number of the command.
    pub command: u16,
    /// Bytes of data: all of the command.
    pub length: u32,
    /// The data are the response, too: the command succeeded.
    pub is_response: bool,
    /// Bytes to which the host wants the data aligned.
    pub alignment: usize,
}

impl ControllerData {
    /// Appends the header.
    ///
    /// # Panics
    /// If the length does not fit into the memory of this machine.
    pub fn encode(&self, digests: Digests, out: &mut Vec<u8>) {
        let flags = LAST_PDU | if self.is_response { SUCCESS } else { 0 };
        let length = usize::try_from(self.length).expect("the engine runs on 64 bits");
        Encoder::new(PduType::ControllerData, RESPONSE_HEADER_SIZE, flags)
            .put(8, &self.command.to_le_bytes())
            .put(16, &self.length.to_le_bytes())
            .finish(digests, (length, self.alignment), out);
    }
}
