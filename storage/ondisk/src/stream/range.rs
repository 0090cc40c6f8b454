//! FREEOBJECTS, FREE, END, OBJECT_RANGE and REDACT: records without a payload.
//!
//! FREEOBJECTS: no object of the range exists.
//!
//! ```text
//! offset  size  field    meaning
//!      0     8  first    first object number
//!      8     8  count    how many numbers
//!     16     8  to_guid  guid of the snapshot
//!     24
//! ```
//!
//! FREE and REDACT: a range of an object is a hole, or was left out by the sender.
//!
//! ```text
//! offset  size  field    meaning
//!      0     8  object   number of the object
//!      8     8  offset   first byte
//!     16     8  length   bytes; all ones: to the end of the object
//!     24     8  to_guid  guid of the snapshot
//!     32
//! ```
//!
//! END:
//!
//! ```text
//! offset  size  field     meaning
//!      0    32  checksum  Fletcher-4 of all bytes before this record
//!     32     8  to_guid   guid of the snapshot
//!     40
//! ```
//!
//! OBJECT_RANGE, in raw streams, before the objects of each block of dnodes:
//!
//! ```text
//! offset  size  field    meaning
//!      0     8  first    first object number of the block
//!      8     8  count    dnode slots in the block
//!     16     8  to_guid  guid of the snapshot
//!     24     8  salt     encryption of the block, as its pointer has it
//!     32    12  iv
//!     44    16  mac
//!     60     1  flags    1 the block is in the other byte order
//!     61     3  pad
//!     64
//! ```
//!
//! Learnt from: zfs_ioctl.h. Proved by: `records_round_trip`.

use super::block::BlockCrypt;
use super::encode::RecordBuffer;
use crate::{Reader, Result};

/// A range of object numbers that are free (drr_freeobjects).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeObjects {
    /// The first number.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The guid of the snapshot.
    pub to_guid: u64,
}

impl FreeObjects {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { first: reader.u64()?, count: reader.u64()?, to_guid: reader.u64()? })
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        buffer.u64(self.first).u64(self.count).u64(self.to_guid);
    }
}

/// A range of an object that is a hole (drr_free).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeRange {
    /// The object's number.
    pub object: u64,
    /// The first byte.
    pub offset: u64,
    /// Bytes; `u64::MAX` reaches to the end of the object.
    pub length: u64,
    /// The guid of the snapshot.
    pub to_guid: u64,
}

impl FreeRange {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let [object, offset, length, to_guid] = reader.words()?;
        Ok(Self { object, offset, length, to_guid })
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        buffer.words(&[self.object, self.offset, self.length, self.to_guid]);
    }
}

/// A range of an object that the sender left out (drr_redact).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RedactRange {
    /// The object's number.
    pub object: u64,
    /// The first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The guid of the snapshot.
    pub to_guid: u64,
}

impl RedactRange {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let [object, offset, length, to_guid] = reader.words()?;
        Ok(Self { object, offset, length, to_guid })
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        buffer.words(&[self.object, self.offset, self.length, self.to_guid]);
    }
}

/// The end of a stream (drr_end).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Fletcher-4 of all bytes before this record.
    pub checksum: [u64; 4],
    /// The guid of the snapshot.
    pub to_guid: u64,
}

impl End {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { checksum: reader.words()?, to_guid: reader.u64()? })
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        buffer.words(&self.checksum).u64(self.to_guid);
    }
}

/// The encryption parameters of a block of dnodes (drr_object_range).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectRange {
    /// The first object number of the block.
    pub first: u64,
    /// Dnode slots in the block.
    pub count: u64,
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// How the block is encrypted.
    pub crypt: BlockCrypt,
    /// Bit 1: the block is in the other byte order.
    pub flags: u8,
}

impl ObjectRange {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let record = Self {
            first: reader.u64()?,
            count: reader.u64()?,
            to_guid: reader.u64()?,
            crypt: BlockCrypt::read(reader)?,
            flags: reader.u8()?,
        };
        reader.skip(3)?;
        Ok(record)
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        buffer.words(&[self.first, self.count, self.to_guid]);
        self.crypt.write(buffer);
        buffer.u8(self.flags);
    }
}
