//! WRITE, SPILL and WRITE_EMBEDDED: blocks, whose bytes are the payload.
//!
//! WRITE:
//!
//! ```text
//! offset  size  field              meaning
//!      0     8  object             number of the object
//!      8     4  kind               type of the object
//!     12     4  pad
//!     16     8  offset             first byte
//!     24     8  logical_size       bytes of the block as its object sees it
//!     32     8  to_guid            guid of the snapshot
//!     40     1  checksum           algorithm of the key's checksum
//!     41     1  flags              0 the checksum can find duplicates, 1 other byte order (raw)
//!     42     1  compression        of the payload; 0: it is not compressed
//!     43     5  pad
//!     48    32  key_checksum       checksum of the sender's block
//!     80     8  key_properties     bits 0-15 lsize, 16-31 psize (in sectors, less one), 32-38
//!                                  compression, 39 encrypted
//!     88     8  compressed_size    bytes of the payload, if it is compressed
//!     96     8  salt               encryption of the block (raw streams only)
//!    104    12  iv
//!    116    16  mac
//!    132
//! ```
//!
//! SPILL:
//!
//! ```text
//! offset  size  field            meaning
//!      0     8  object           number of the object
//!      8     8  length           bytes of the block as its object sees it
//!     16     8  to_guid          guid of the snapshot
//!     24     1  flags            1 other byte order (raw), 2 the block has not changed
//!     25     1  compression      of the payload (raw)
//!     26     6  pad
//!     32     8  compressed_size  bytes of the payload (raw)
//!     40     8  salt             encryption of the block (raw)
//!     48    12  iv
//!     60    16  mac
//!     76     4  kind             type of the object (raw)
//!     80
//! ```
//!
//! WRITE_EMBEDDED; the payload is padded to 8 bytes:
//!
//! ```text
//! offset  size  field          meaning
//!      0     8  object         number of the object
//!      8     8  offset         first byte
//!     16     8  length         bytes of the block as its object sees it
//!     24     8  to_guid        guid of the snapshot
//!     32     1  compression    of the payload
//!     33     1  embedded_type  0: data
//!     34     6  pad
//!     40     4  logical_size   bytes when decompressed
//!     44     4  physical_size  bytes as embedded
//!     48
//! ```
//!
//! Learnt from: zfs_ioctl.h, ddt.h. Proved by: `records_round_trip`.

use super::encode::RecordBuffer;
use super::object_type;
use crate::{ObjectType, Reader, Result};

/// How a block of a raw stream is encrypted; zeros in other streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockCrypt {
    /// Makes the block's key from the dataset's.
    pub salt: [u8; 8],
    /// The nonce.
    pub iv: [u8; 12],
    /// The cipher's tag.
    pub mac: [u8; 16],
}

impl BlockCrypt {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { salt: reader.array()?, iv: reader.array()?, mac: reader.array()? })
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        buffer.bytes(&self.salt).bytes(&self.iv).bytes(&self.mac);
    }
}

/// The sender's block, as a dedup table would know it (ddt_key_t).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DedupKey {
    /// The checksum of the stored block.
    pub checksum: [u64; 4],
    /// Sizes, compression and encryption, as bit fields.
    pub properties: u64,
}

impl DedupKey {
    /// The bit of an encrypted block in `properties`.
    pub const ENCRYPTED: u64 = 1 << 39;
}

/// A data block (drr_write).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Write {
    /// The object's number.
    pub object: u64,
    /// The type of the object.
    pub kind: ObjectType,
    /// The first byte.
    pub offset: u64,
    /// Bytes of the block as its object sees it.
    pub logical_size: u64,
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// The number of the checksum algorithm of the key.
    pub checksum: u8,
    /// Bit 0: the checksum can find duplicates; bit 1: the other byte order (raw).
    pub flags: u8,
    /// The number of the payload's compression; 0: it is not compressed.
    pub compression: u8,
    /// The sender's block.
    pub key: DedupKey,
    /// Bytes of a compressed payload.
    pub compressed_size: u64,
    /// How the block is encrypted, in raw streams.
    pub crypt: BlockCrypt,
}

impl Write {
    /// The flag of a checksum that can find duplicates (DRR_CHECKSUM_DEDUP).
    pub const DEDUP_CHECKSUM: u8 = 1;

    /// Bytes that follow the record.
    pub const fn payload_length(&self) -> u64 {
        if self.compression == 0 { self.logical_size } else { self.compressed_size }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (object, kind) = (reader.u64()?, object_type(reader)?);
        reader.skip(4)?;
        let (offset, logical_size, to_guid) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (checksum, flags, compression) = (reader.u8()?, reader.u8()?, reader.u8()?);
        reader.skip(5)?;
        let key = DedupKey { checksum: reader.words()?, properties: reader.u64()? };
        Ok(Self {
            object,
            kind,
            offset,
            logical_size,
            to_guid,
            checksum,
            flags,
            compression,
            key,
            compressed_size: reader.u64()?,
            crypt: BlockCrypt::read(reader)?,
        })
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        buffer.u64(self.object).u32(self.kind.0.into()).u32(0);
        buffer.words(&[self.offset, self.logical_size, self.to_guid]);
        buffer.u8(self.checksum).u8(self.flags).u8(self.compression).bytes(&[0; 5]);
        buffer.words(&self.key.checksum).u64(self.key.properties).u64(self.compressed_size);
        self.crypt.write(buffer);
    }
}

/// An object's spill block (drr_spill).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spill {
    /// The object's number.
    pub object: u64,
    /// Bytes of the block as its object sees it.
    pub length: u64,
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// Bit 1: the other byte order (raw); bit 2: the block has not changed.
    pub flags: u8,
    /// The number of the payload's compression, in raw streams.
    pub compression: u8,
    /// Bytes of a compressed payload, in raw streams.
    pub compressed_size: u64,
    /// How the block is encrypted, in raw streams.
    pub crypt: BlockCrypt,
    /// The type of the object, in raw streams.
    pub kind: ObjectType,
}

impl Spill {
    /// The flag of a block that has not changed since the base of the stream.
    pub const UNMODIFIED: u8 = 1 << 2;

    /// Whether the block has not changed since the base of the stream.
    pub const fn is_unmodified(&self) -> bool {
        self.flags & Self::UNMODIFIED != 0
    }

    /// Bytes that follow the record.
    pub const fn payload_length(&self) -> u64 {
        if self.compressed_size == 0 { self.length } else { self.compressed_size }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let [object, length, to_guid] = reader.words()?;
        let (flags, compression) = (reader.u8()?, reader.u8()?);
        reader.skip(6)?;
        Ok(Self {
            object,
            length,
            to_guid,
            flags,
            compression,
            compressed_size: reader.u64()?,
            crypt: BlockCrypt::read(reader)?,
            kind: object_type(reader)?,
        })
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        buffer.words(&[self.object, self.length, self.to_guid]);
        buffer.u8(self.flags).u8(self.compression).bytes(&[0; 6]).u64(self.compressed_size);
        self.crypt.write(buffer);
        buffer.u32(self.kind.0.into());
    }
}

/// A data block that is stored in its pointer (drr_write_embedded).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteEmbedded {
    /// The object's number.
    pub object: u64,
    /// The first byte.
    pub offset: u64,
    /// Bytes of the block as its object sees it.
    pub length: u64,
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// The number of the payload's compression.
    pub compression: u8,
    /// The kind of the payload; 0: data.
    pub embedded_type: u8,
    /// Bytes of the payload when decompressed.
    pub logical_size: u32,
    /// Bytes of the payload, without the padding.
    pub physical_size: u32,
}

impl WriteEmbedded {
    /// Bytes that follow the record.
    pub fn payload_length(&self) -> u64 {
        u64::from(self.physical_size).next_multiple_of(8)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let [object, offset, length, to_guid] = reader.words()?;
        let (compression, embedded_type) = (reader.u8()?, reader.u8()?);
        reader.skip(6)?;
        let (logical_size, physical_size) = (reader.u32()?, reader.u32()?);
        Ok(Self {
            object,
            offset,
            length,
            to_guid,
            compression,
            embedded_type,
            logical_size,
            physical_size,
        })
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        buffer.words(&[self.object, self.offset, self.length, self.to_guid]);
        buffer.u8(self.compression).u8(self.embedded_type).bytes(&[0; 6]);
        buffer.u32(self.logical_size).u32(self.physical_size);
    }
}
