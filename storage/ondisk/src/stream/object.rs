//! OBJECT: an object's dnode without its tree of blocks; the bonus is the payload.
//!
//! ```text
//! offset  size  field             meaning
//!      0     8  object            number of the object
//!      8     4  kind              type of the object
//!     12     4  bonus_kind        type of the bonus
//!     16     4  block_size        bytes of a data block
//!     20     4  bonus_length      bytes of the bonus; the payload is padded to 8
//!     24     1  checksum          of blocks to be written; 0 inherits
//!     25     1  compression       of blocks to be written; 0 inherits
//!     26     1  dnode_slots       slots of the dnode; 0 stands for 1
//!     27     1  flags             1 the other byte order (raw), 2 there is a spill block
//!     28     4  raw_bonus_length  bytes of the encrypted bonus (raw streams only)
//!     32     8  to_guid           guid of the snapshot
//!     40     1  indirect_shift    log2 of an indirect block's size (raw)
//!     41     1  levels            height of the tree (raw)
//!     42     1  pointer_count     pointers in the dnode (raw)
//!     43     5  pad
//!     48     8  max_block         the last data block's number (raw)
//!     56
//! ```
//!
//! Learnt from: zfs_ioctl.h. Proved by: `records_round_trip`.

use super::encode::RecordBuffer;
use super::object_type;
use crate::{ObjectType, Reader, Result};

/// An object's dnode (drr_object).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectRecord {
    /// Its number.
    pub object: u64,
    /// The type of the object.
    pub kind: ObjectType,
    /// The type of the bonus.
    pub bonus_kind: ObjectType,
    /// Bytes of a data block.
    pub block_size: u32,
    /// Bytes of its bonus.
    pub bonus_length: u32,
    /// The checksum's number for new blocks; 0 inherits.
    pub checksum: u8,
    /// The compression's number for new blocks; 0 inherits.
    pub compression: u8,
    /// Slots of 512 bytes that its dnode takes; 0 stands for 1.
    pub dnode_slots: u8,
    /// Bit 1: the payload is in the other byte order (raw); bit 2: it has a spill block.
    pub flags: u8,
    /// Bytes of the encrypted bonus; 0 outside raw streams.
    pub raw_bonus_length: u32,
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// log2 of the bytes of an indirect block; 0 outside raw streams.
    pub indirect_shift: u8,
    /// Height of its tree; 0 outside raw streams.
    pub levels: u8,
    /// Pointers in its dnode; 0 outside raw streams.
    pub pointer_count: u8,
    /// Its last data block; 0 outside raw streams.
    pub max_block: u64,
}

impl ObjectRecord {
    /// The flag of an object with a spill block (DRR_OBJECT_SPILL).
    pub const HAS_SPILL: u8 = 1 << 2;

    /// Whether the object has a spill block.
    pub const fn has_spill(&self) -> bool {
        self.flags & Self::HAS_SPILL != 0
    }

    /// Bytes of the bonus as it follows the record.
    pub fn payload_length(&self) -> u64 {
        match self.raw_bonus_length {
            0 => u64::from(self.bonus_length).next_multiple_of(8),
            raw => raw.into(),
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let record = Self {
            object: reader.u64()?,
            kind: object_type(reader)?,
            bonus_kind: object_type(reader)?,
            block_size: reader.u32()?,
            bonus_length: reader.u32()?,
            checksum: reader.u8()?,
            compression: reader.u8()?,
            dnode_slots: reader.u8()?,
            flags: reader.u8()?,
            raw_bonus_length: reader.u32()?,
            to_guid: reader.u64()?,
            indirect_shift: reader.u8()?,
            levels: reader.u8()?,
            pointer_count: reader.u8()?,
            max_block: {
                reader.skip(5)?;
                reader.u64()?
            },
        };
        Ok(record)
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        buffer
            .u64(self.object)
            .u32(self.kind.0.into())
            .u32(self.bonus_kind.0.into())
            .u32(self.block_size)
            .u32(self.bonus_length)
            .u8(self.checksum)
            .u8(self.compression)
            .u8(self.dnode_slots)
            .u8(self.flags)
            .u32(self.raw_bonus_length)
            .u64(self.to_guid)
            .u8(self.indirect_shift)
            .u8(self.levels)
            .u8(self.pointer_count)
            .bytes(&[0; 5])
            .u64(self.max_block);
    }
}
