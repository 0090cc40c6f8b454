//! Send stream: the records in which a snapshot travels from one pool to another.
//!
//! A stream begins with [`Begin`] and ends with [`End`]. The records between describe objects, their
//! blocks and what is free, in the order of object numbers and offsets. Every record is 312 bytes; a
//! payload may follow it, whose length the record gives.
//!
//! ```text
//! offset  size  field           meaning
//!      0     4  kind            which record it is, below
//!      4     4  payload_length  bytes of the name/value list behind BEGIN; 0 in other records
//!      8   272  body            drawn with each record type
//!    280    32  checksum        running Fletcher-4; BEGIN has none, its body continues here
//!    312
//! ```
//!
//! Kinds: 0 BEGIN, 1 OBJECT, 2 FREEOBJECTS, 3 WRITE, 4 FREE, 5 END, 6 WRITE_BYREF, 7 SPILL,
//! 8 WRITE_EMBEDDED, 9 OBJECT_RANGE, 10 REDACT. WRITE_BYREF belongs to deduplicated streams, which
//! OpenZFS no longer receives; it is refused here by name.
//!
//! The checksum of a record covers all bytes of the stream before it: records, checksums, payloads.
//! The sums run over 32-bit words in the byte order of the stream, which is the sender's. The
//! magic number in BEGIN shows it.
//!
//! Must hold: a payload is at most [`MAX_PAYLOAD`] bytes, that of BEGIN excepted.
//!
//! Learnt from: the streams of the fixture `streams`, zfs_ioctl.h, dmu_send.c. Proved by:
//! `golden_stream_header`, and the tests of the crate `send`.

mod begin;
mod block;
mod encode;
mod keydata;
mod object;
mod package;
mod range;
#[cfg(test)]
mod tests;

pub use begin::{Begin, BeginFlags, StreamFeatures, StreamKind};
pub use block::{BlockCrypt, DedupKey, Spill, Write, WriteEmbedded};
pub use keydata::{CryptKeydata, MetaShape};
pub use object::ObjectRecord;
pub use package::{Package, PackagedDataset, PackagedValue};
pub use range::{End, FreeObjects, FreeRange, ObjectRange, RedactRange};

use crate::{Error, Order, Reader, Result};
use encode::RecordBuffer;

/// Bytes of a record without its payload.
pub const RECORD_SIZE: usize = 312;
/// Where a record's checksum stands.
pub const CHECKSUM_OFFSET: usize = 280;
/// The most bytes that may follow a record other than BEGIN: a block of 16 MiB.
pub const MAX_PAYLOAD: u64 = 16 << 20;

const WHAT: &str = "send stream record";

/// A record of a send stream (dmu_replay_record_t).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// The start of a stream (DRR_BEGIN).
    Begin(Box<Begin>),
    /// An object's dnode (DRR_OBJECT).
    Object(ObjectRecord),
    /// A range of object numbers that are free (DRR_FREEOBJECTS).
    FreeObjects(FreeObjects),
    /// A data block (DRR_WRITE).
    Write(Box<Write>),
    /// A range of an object that is a hole (DRR_FREE).
    Free(FreeRange),
    /// The end of a stream (DRR_END).
    End(End),
    /// An object's spill block (DRR_SPILL).
    Spill(Box<Spill>),
    /// A data block that is stored in its pointer (DRR_WRITE_EMBEDDED).
    WriteEmbedded(WriteEmbedded),
    /// The encryption parameters of a block of dnodes in a raw stream (DRR_OBJECT_RANGE).
    ObjectRange(Box<ObjectRange>),
    /// A range of an object that the sender left out (DRR_REDACT).
    Redact(RedactRange),
}

/// A record as it stands in a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawRecord {
    /// The record.
    pub record: Record,
    /// Bytes of its payload.
    pub payload_length: u64,
    /// Its checksum; zeros in BEGIN.
    pub checksum: [u64; 4],
}

/// The byte order of a stream, from its first record; `None` if it is not a stream.
pub fn detect_order(begin: &[u8]) -> Option<Order> {
    let magic: [u8; 8] = begin.get(8..16)?.try_into().ok()?;
    if u64::from_le_bytes(magic) == Begin::MAGIC {
        Some(Order::Little)
    } else if u64::from_be_bytes(magic) == Begin::MAGIC {
        Some(Order::Big)
    } else {
        None
    }
}

impl RawRecord {
    /// Reads a record of [`RECORD_SIZE`] bytes.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        let mut reader = Reader::new(WHAT, bytes, order);
        let kind = reader.u32()?;
        let begin_payload = reader.u32()?;
        let record = Record::read_body(kind, &mut reader)?;
        let checksum = if matches!(record, Record::Begin(_)) {
            [0; 4]
        } else {
            reader.seek(CHECKSUM_OFFSET);
            reader.words()?
        };
        reader.expect_end()?;
        let payload_length = match record.payload_length() {
            None => u64::from(begin_payload),
            Some(length) if length <= MAX_PAYLOAD => length,
            Some(length) => {
                return Err(Error::Rule {
                    structure: WHAT,
                    at: 0,
                    rule: "a payload is at most 16 MiB",
                    found: length,
                });
            }
        };
        Ok(Self { record, payload_length, checksum })
    }
}

impl Record {
    fn read_body(kind: u32, reader: &mut Reader<'_>) -> Result<Self> {
        Ok(match kind {
            0 => Self::Begin(Box::new(Begin::read(reader)?)),
            1 => Self::Object(ObjectRecord::read(reader)?),
            2 => Self::FreeObjects(FreeObjects::read(reader)?),
            3 => Self::Write(Box::new(Write::read(reader)?)),
            4 => Self::Free(FreeRange::read(reader)?),
            5 => Self::End(End::read(reader)?),
            6 => {
                let field = "deduplicated record WRITE_BYREF, type";
                return Err(Error::Unknown { structure: WHAT, field, found: 6 });
            }
            7 => Self::Spill(Box::new(Spill::read(reader)?)),
            8 => Self::WriteEmbedded(WriteEmbedded::read(reader)?),
            9 => Self::ObjectRange(Box::new(ObjectRange::read(reader)?)),
            10 => Self::Redact(RedactRange::read(reader)?),
            other => {
                return Err(Error::Unknown { structure: WHAT, field: "type", found: other.into() });
            }
        })
    }

    /// The name of the record type, as `zstream dump` prints it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Begin(_) => "BEGIN",
            Self::Object(_) => "OBJECT",
            Self::FreeObjects(_) => "FREEOBJECTS",
            Self::Write(_) => "WRITE",
            Self::Free(_) => "FREE",
            Self::End(_) => "END",
            Self::Spill(_) => "SPILL",
            Self::WriteEmbedded(_) => "WRITE_EMBEDDED",
            Self::ObjectRange(_) => "OBJECT_RANGE",
            Self::Redact(_) => "REDACT",
        }
    }

    /// The number of the record type.
    pub const fn kind(&self) -> u32 {
        match self {
            Self::Begin(_) => 0,
            Self::Object(_) => 1,
            Self::FreeObjects(_) => 2,
            Self::Write(_) => 3,
            Self::Free(_) => 4,
            Self::End(_) => 5,
            Self::Spill(_) => 7,
            Self::WriteEmbedded(_) => 8,
            Self::ObjectRange(_) => 9,
            Self::Redact(_) => 10,
        }
    }

    /// The guid of the snapshot that the record is part of.
    pub const fn to_guid(&self) -> u64 {
        match self {
            Self::Begin(begin) => begin.to_guid,
            Self::Object(object) => object.to_guid,
            Self::FreeObjects(range) => range.to_guid,
            Self::Write(write) => write.to_guid,
            Self::Free(range) => range.to_guid,
            Self::End(end) => end.to_guid,
            Self::Spill(spill) => spill.to_guid,
            Self::WriteEmbedded(write) => write.to_guid,
            Self::ObjectRange(range) => range.to_guid,
            Self::Redact(range) => range.to_guid,
        }
    }

    /// Bytes of the payload, as the record's own fields give them; `None` for BEGIN.
    pub fn payload_length(&self) -> Option<u64> {
        Some(match self {
            Self::Begin(_) => return None,
            Self::Object(object) => object.payload_length(),
            Self::Write(write) => write.payload_length(),
            Self::Spill(spill) => spill.payload_length(),
            Self::WriteEmbedded(write) => write.payload_length(),
            Self::FreeObjects(_)
            | Self::Free(_)
            | Self::End(_)
            | Self::ObjectRange(_)
            | Self::Redact(_) => 0,
        })
    }

    /// The record's bytes in an order. `begin_payload` counts the bytes that follow a BEGIN. The
    /// checksum is zeros; the sender puts it at [`CHECKSUM_OFFSET`].
    pub fn encode(&self, order: Order, begin_payload: u32) -> [u8; RECORD_SIZE] {
        let mut buffer = RecordBuffer::new(order);
        buffer.u32(self.kind()).u32(begin_payload);
        match self {
            Self::Begin(begin) => begin.write(&mut buffer),
            Self::Object(object) => object.write(&mut buffer),
            Self::FreeObjects(range) => range.write(&mut buffer),
            Self::Write(write) => write.write(&mut buffer),
            Self::Free(range) => range.write(&mut buffer),
            Self::End(end) => end.write(&mut buffer),
            Self::Spill(spill) => spill.write(&mut buffer),
            Self::WriteEmbedded(write) => write.write(&mut buffer),
            Self::ObjectRange(range) => range.write(&mut buffer),
            Self::Redact(range) => range.write(&mut buffer),
        }
        buffer.finish()
    }
}

/// An object type in a field of 4 bytes.
fn object_type(reader: &mut Reader<'_>) -> Result<crate::ObjectType> {
    let found = reader.u32()?;
    match u8::try_from(found) {
        Ok(number) => Ok(crate::ObjectType(number)),
        Err(_) => Err(reader.corrupt_field(4, "an object type is one byte", found.into())),
    }
}
