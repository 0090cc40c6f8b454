//! Options of the handshake, and the replies to them.
//!
//! The payload of INFO (6) and GO (7):
//! ```text
//! offset  size  field
//!      0     4  length n       bytes of the name
//!      4     n  name           of the export; empty: the default export
//!    4+n     2  count
//!    6+n     2  information    count times: 0 export, 1 name, 2 description, 3 block size
//! ```
//! The payload of LIST_META_CONTEXT (9) and SET_META_CONTEXT (10):
//! ```text
//! offset  size  field
//!      0     4  length n       bytes of the name
//!      4     n  name           of the export
//!    4+n     4  count
//!    8+n     4  length m       count times: bytes of the query
//!   12+n     m  query          "base:allocation"
//! ```
//! The payload of EXPORT_NAME (1) is the name. ABORT (2), LIST (3), STARTTLS (5) and STRUCTURED_REPLY (8) have none.
//!
//! Replies, by their kind:
//! ```text
//! kind              payload
//! 1 ACK             none
//! 2 SERVER          length of the name (32 bits), name, description
//! 3 INFO            kind of information (16 bits), then: 0 size (64), transmission flags (16)
//!                   1 name, 2 description, 3 minimum, preferred, maximum block size (32 each)
//! 4 META_CONTEXT    id (32 bits), name
//! 0x80000000 + n    a sentence for the user
//! ```
//! Learnt from: doc/proto.md of the NetworkBlockDevice project, "Option types" and "Option reply types".

use super::cursor::{Cursor, parse_string};
use super::handshake::{OPTION_REPLY_MAGIC, TransmissionFlags};
use super::{MAX_STRING, Result};

/// An option that a client sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientOption {
    /// Start the transmission of an export; an error can only end the connection.
    ExportName(String),
    /// End the connection.
    Abort,
    /// List the exports.
    List,
    /// Continue in TLS.
    StartTls,
    /// Describe an export.
    Info(InfoRequest),
    /// Describe an export and start its transmission.
    Go(InfoRequest),
    /// Use structured replies.
    StructuredReply,
    /// List the metadata contexts of an export.
    ListMetaContext(MetaContextQuery),
    /// Select metadata contexts for BLOCK_STATUS.
    SetMetaContext(MetaContextQuery),
    /// An option that this server does not know.
    Unknown,
}

/// The payload of INFO and GO.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InfoRequest {
    /// The name of the export.
    pub export: String,
    /// The kinds of information that the client requests.
    pub kinds: Vec<u16>,
}

/// The payload of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaContextQuery {
    /// The name of the export.
    pub export: String,
    /// The queries, such as "base:allocation".
    pub queries: Vec<String>,
}

/// Codes of options.
pub mod code {
    /// Start the transmission without a reply.
    pub const EXPORT_NAME: u32 = 1;
    /// End the connection.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Continue in TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and start its transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

impl ClientOption {
    /// Parses the payload of an option.
    pub fn parse(code: u32, payload: &[u8]) -> Result<Self> {
        match code {
            code::EXPORT_NAME => Ok(Self::ExportName(parse_string(payload)?)),
            // bytes after an ABORT are to be ignored
            code::ABORT => Ok(Self::Abort),
            code::LIST => Cursor::new(payload).finish().map(|()| Self::List),
            code::STARTTLS => Cursor::new(payload).finish().map(|()| Self::StartTls),
            code::INFO => InfoRequest::parse(payload).map(Self::Info),
            code::GO => InfoRequest::parse(payload).map(Self::Go),
            code::STRUCTURED_REPLY => Cursor::new(payload).finish().map(|()| Self::StructuredReply),
            code::LIST_META_CONTEXT => MetaContextQuery::parse(payload).map(Self::ListMetaContext),
            code::SET_META_CONTEXT => MetaContextQuery::parse(payload).map(Self::SetMetaContext),
            _ => Ok(Self::Unknown),
        }
    }
}

impl InfoRequest {
    fn parse(payload: &[u8]) -> Result<Self> {
        let mut fields = Cursor::new(payload);
        let export = fields.string()?;
        let count = fields.u16()?;
        let kinds = (0..count).map(|_| fields.u16()).collect::<Result<_>>()?;
        fields.finish()?;
        Ok(Self { export, kinds })
    }
}

impl MetaContextQuery {
    fn parse(payload: &[u8]) -> Result<Self> {
        let mut fields = Cursor::new(payload);
        let export = fields.string()?;
        let count = fields.u32()?;
        // the payload ends before a count that is too large does
        let queries = (0..count).map(|_| fields.string()).collect::<Result<_>>()?;
        fields.finish()?;
        Ok(Self { export, queries })
    }
}

/// Kinds of information about an export.
pub mod info {
    /// The size and the transmission flags.
    pub const EXPORT: u16 = 0;
    /// The name.
    pub const NAME: u16 = 1;
    /// The description.
    pub const DESCRIPTION: u16 = 2;
    /// The block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// The block sizes that a client should keep to, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of this.
    pub minimum: u32,
    /// Requests of whole blocks of this size need no read before a write.
    pub preferred: u32,
    /// No request and no reply has more data.
    pub maximum: u32,
}

/// Why an option is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionError {
    /// The server does not know the option.
    Unsupported = 1,
    /// The payload breaks a rule.
    Invalid = 3,
    /// The server requires TLS first.
    TlsRequired = 5,
    /// The export does not exist.
    UnknownExport = 6,
    /// The option requests too much.
    TooBig = 9,
}

/// The bit of reply kinds that are errors.
const ERROR_BIT: u32 = 1 << 31;

/// A reply to an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionReply<'a> {
    /// The option is done.
    Ack,
    /// One export of the list.
    Server {
        /// The name.
        name: &'a str,
        /// A sentence for the user.
        description: &'a str,
    },
    /// Size and transmission flags of an export.
    Export {
        /// Bytes of the export.
        size: u64,
        /// Its properties.
        flags: TransmissionFlags,
    },
    /// The name of an export.
    Name(&'a str),
    /// A description for the user.
    Description(&'a str),
    /// The block sizes of an export.
    BlockSize(BlockSizes),
    /// A metadata context.
    MetaContext {
        /// The number of the context in replies; 0 in lists.
        id: u32,
        /// The name.
        name: &'a str,
    },
    /// The option fails.
    Error {
        /// The reason.
        why: OptionError,
        /// A sentence for the user.
        message: &'a str,
    },
}

impl OptionReply<'_> {
    fn kind(&self) -> u32 {
        match self {
            Self::Ack => 1,
            Self::Server { .. } => 2,
            Self::Export { .. } | Self::Name(_) | Self::Description(_) | Self::BlockSize(_) => 3,
            Self::MetaContext { .. } => 4,
            Self::Error { why, .. } => ERROR_BIT | *why as u32,
        }
    }

    fn payload(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Ack => {}
            Self::Server { name, description } => {
                let name = shorten(name);
                bytes.extend(length_of(name).to_be_bytes());
                bytes.extend(name);
                bytes.extend(shorten(description));
            }
            Self::Export { size, flags } => {
                bytes.extend(info::EXPORT.to_be_bytes());
                bytes.extend(size.to_be_bytes());
                bytes.extend(flags.0.to_be_bytes());
            }
            Self::Name(name) => {
                bytes.extend(info::NAME.to_be_bytes());
                bytes.extend(shorten(name));
            }
            Self::Description(text) => {
                bytes.extend(info::DESCRIPTION.to_be_bytes());
                bytes.extend(shorten(text));
            }
            Self::BlockSize(sizes) => {
                bytes.extend(info::BLOCK_SIZE.to_be_bytes());
                for size in [sizes.minimum, sizes.preferred, sizes.maximum] {
                    bytes.extend(size.to_be_bytes());
                }
            }
            Self::MetaContext { id, name } => {
                bytes.extend(id.to_be_bytes());
                bytes.extend(shorten(name));
            }
            Self::Error { message, .. } => bytes.extend(shorten(message)),
        }
        bytes
    }

    /// Appends the reply to the option of a code.
    pub fn encode(&self, option: u32, out: &mut Vec<u8>) {
        let payload = self.payload();
        out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        out.extend(option.to_be_bytes());
        out.extend(self.kind().to_be_bytes());
        out.extend(length_of(&payload).to_be_bytes());
        out.extend(payload);
    }
}

/// The longest start of a text that fits into a string of the protocol.
pub(crate) fn shorten(text: &str) -> &[u8] {
    let end = text.floor_char_boundary(MAX_STRING);
    text.as_bytes().get(..end).unwrap_or_default()
}

/// The length of a payload: a few strings, which have 4096 bytes each at most.
pub(crate) fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("payloads of replies to options have a few kilobytes")
}
