//! Replies of the transmission, simple and structured.
//!
//! A simple reply, after which the data of a READ follows if there is no error:
//! ```text
//! offset  size  field
//!      0     4  magic          0x67446698
//!      4     4  error          see `ErrorCode`; 0: none
//!      8     8  cookie         of the request
//!     16
//! ```
//! A chunk of a structured reply; the last chunk of a reply has the flag 1 (done):
//! ```text
//! offset  size  field
//!      0     4  magic          0x668e33ef
//!      4     2  flags
//!      6     2  kind           see below
//!      8     8  cookie         of the request
//!     16     4  length         bytes of the payload
//!     20     -  payload
//! ```
//! Payloads, by their kind:
//! ```text
//! kind              payload
//! 0 NONE            none
//! 1 OFFSET_DATA     offset (64 bits), data
//! 2 OFFSET_HOLE     offset (64 bits), bytes of zeros (32)
//! 5 BLOCK_STATUS    id of the metadata context (32 bits), then per extent: bytes (32), state (32):
//!                   1 not mapped, 2 reads as zeros
//! 0x8001 ERROR      error (32 bits), length (16), a sentence for the user
//! ```
//! Learnt from: doc/proto.md of the NetworkBlockDevice project, "Structured reply types" and "Error values".

use super::option::{length_of, shorten};

/// Begins each simple reply.
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// Begins each chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// The flag of the last chunk.
const DONE: u16 = 1;
/// Bytes of the offset before the data of an OFFSET_DATA chunk.
const DATA_OFFSET_SIZE: u32 = 8;

/// Why a request fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorCode {
    /// The export is read-only, or reserved by another initiator.
    Eperm = 1,
    /// The drives could not do it.
    Eio = 5,
    /// The request is wrong.
    Einval = 22,
    /// No space is left, or a write goes beyond the end.
    Enospc = 28,
    /// The length is above the maximum.
    Eoverflow = 75,
    /// FAST_ZERO: writing zeros would be as fast.
    Enotsup = 95,
    /// The export was taken away, or the server stops.
    Eshutdown = 108,
}

/// A simple reply without data.
pub fn encode_simple(cookie: u64, error: Option<ErrorCode>, out: &mut Vec<u8>) {
    out.extend(SIMPLE_MAGIC.to_be_bytes());
    out.extend(error.map_or(0, |error| error as u32).to_be_bytes());
    out.extend(cookie.to_be_bytes());
}

/// An extent of a volume in a BLOCK_STATUS chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentStatus {
    /// Bytes of the extent.
    pub length: u32,
    /// Whether the extent takes space. If not, it reads as zeros.
    pub is_mapped: bool,
}

/// A chunk of a structured reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunk<'a> {
    /// None: the request is done.
    None,
    /// Data, which the caller sends after the encoded chunk.
    Data {
        /// Where the data starts in the export, in bytes.
        offset: u64,
        /// Bytes of data: at most the maximum of the export.
        length: u32,
    },
    /// Zeros.
    Hole {
        /// Where the zeros start in the export, in bytes.
        offset: u64,
        /// Bytes of zeros.
        length: u32,
    },
    /// The state of extents, from the offset of the request on.
    BlockStatus {
        /// The id of the metadata context.
        context: u32,
        /// The extents.
        extents: &'a [ExtentStatus],
    },
    /// The request fails.
    Error {
        /// The reason.
        code: ErrorCode,
        /// A sentence for the user.
        message: &'a str,
    },
}

impl Chunk<'_> {
    fn kind(&self) -> u16 {
        match self {
            Self::None => 0,
            Self::Data { .. } => 1,
            Self::Hole { .. } => 2,
            Self::BlockStatus { .. } => 5,
            Self::Error { .. } => 0x8001,
        }
    }

    /// The payload, without the data of a data chunk.
    fn payload(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::None => {}
            Self::Data { offset, .. } => bytes.extend(offset.to_be_bytes()),
            Self::Hole { offset, length } => {
                bytes.extend(offset.to_be_bytes());
                bytes.extend(length.to_be_bytes());
            }
            Self::BlockStatus { context, extents } => {
                bytes.extend(context.to_be_bytes());
                for extent in *extents {
                    let state: u32 = if extent.is_mapped { 0 } else { 3 };
                    bytes.extend(extent.length.to_be_bytes());
                    bytes.extend(state.to_be_bytes());
                }
            }
            Self::Error { code, message } => {
                let message = shorten(message);
                let length = u16::try_from(message.len()).expect("messages are shortened");
                bytes.extend((*code as u32).to_be_bytes());
                bytes.extend(length.to_be_bytes());
                bytes.extend(message);
            }
        }
        bytes
    }

    /// Bytes of the payload, with the data of a data chunk.
    fn payload_length(&self, payload: &[u8]) -> u32 {
        match self {
            Self::Data { length, .. } => {
                length.checked_add(DATA_OFFSET_SIZE).expect("no export announces 4 GiB at once")
            }
            _ => length_of(payload),
        }
    }

    /// Appends the chunk, without the data of a data chunk. `is_last`: the reply ends with it.
    pub fn encode(&self, cookie: u64, is_last: bool, out: &mut Vec<u8>) {
        let payload = self.payload();
        let length = self.payload_length(&payload);
        let flags = if is_last { DONE } else { 0 };
        out.extend(CHUNK_MAGIC.to_be_bytes());
        out.extend(flags.to_be_bytes());
        out.extend(self.kind().to_be_bytes());
        out.extend(cookie.to_be_bytes());
        out.extend(length.to_be_bytes());
        out.extend(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(chunk: Chunk<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        chunk.encode(7, true, &mut bytes);
        bytes
    }

    #[test]
    fn reply_bytes_are_those_of_the_protocol() {
        let mut simple = Vec::new();
        encode_simple(7, Some(ErrorCode::Enospc), &mut simple);
        assert_eq!(simple, b"\x67\x44\x66\x98\0\0\0\x1c\0\0\0\0\0\0\0\x07");
        let head = b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x07\0\0\x02\x08";
        let data = encoded(Chunk::Data { offset: 512, length: 512 });
        assert_eq!(data, [&head[..], &[0, 0, 0, 0, 0, 0, 2, 0]].concat());
        let hole = encoded(Chunk::Hole { offset: 512, length: 512 });
        assert_eq!(hole[16..], [0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0]);
        let extents = [(512, true), (1024, false)]
            .map(|(length, is_mapped)| ExtentStatus { length, is_mapped });
        let status = encoded(Chunk::BlockStatus { context: 1, extents: &extents });
        assert_eq!(status[16..20], [0, 0, 0, 20]);
        assert_eq!(status[20..], *b"\0\0\0\x01\0\0\x02\0\0\0\0\0\0\0\x04\0\0\0\0\x03");
        let error = encoded(Chunk::Error { code: ErrorCode::Eio, message: "no" });
        assert_eq!(error[6..8], [0x80, 0x01]);
        assert_eq!(error[20..], *b"\0\0\0\x05\0\x02no");
    }
}
