//! Dnode: what an object is: its type, its tree of blocks, its bonus and spill.
//!
//! Dnodes are the elements of the meta-dnode's array of 512-byte slots; a large one takes up to 32
//! slots in a row, all in one block. The pointers at offset 64 are as many as `pointer_count` says,
//! the bonus follows the last of them, and the spill pointer, if the flag is set, stands in the
//! last 128 bytes of the last slot.
//!
//! ```text
//! offset  size  field           meaning
//!      0     1  kind            what the object is made of; 0: the slot is free
//!      1     1  indirect_shift  log2 of an indirect block's size
//!      2     1  levels          height of the tree; 1: the pointers are those of data blocks
//!      3     1  pointer_count   1 to 3
//!      4     1  bonus_kind      what the bonus is made of
//!      5     1  checksum        of blocks to be written
//!      6     1  compression     of blocks to be written
//!      7     1  flags           bits below
//!      8     2  block_sectors   size of a data block in sectors
//!     10     2  bonus_size      bytes
//!     12     1  extra_slots     slots beyond the first
//!     13     3  pad
//!     16     8  max_block       the last data block's number
//!     24     8  used            on the drives: bytes, or sectors where flag 0 is not set
//!     32    32  pad
//!     64
//! ```
//!
//! Flags: 0 `used` is in bytes, 1 counted in user and group space, 2 has a spill pointer, 3 counted
//! in user and group objects.
//!
//! Learnt from: `zdb -dddddd` of the fixtures and dnode.h. Proved by: `golden_dnodes`.

mod encode;

use units::BlockId;

use crate::{Blkptr, Error, ObjectType, Order, Reader, Result};

/// A dnode: the description of an object (dnode_phys_t).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dnode {
    /// The type of the object.
    pub kind: ObjectType,
    /// log2 of the size of an indirect block in bytes (dn_indblkshift).
    pub indirect_shift: u8,
    /// Levels of the tree: 1 if the pointers are those of data blocks (dn_nlevels).
    pub levels: u8,
    /// The type of the bonus.
    pub bonus_kind: ObjectType,
    /// The checksum's number for new blocks; 0 inherits (dn_checksum).
    pub checksum: u8,
    /// The compression's number for new blocks; 0 inherits (dn_compress).
    pub compression: u8,
    /// Facts about the object, one a bit.
    pub flags: Flags,
    /// Bytes of a data block (dn_datablkszsec).
    pub block_size: u32,
    /// Slots of 512 bytes that it takes: 1 to 32.
    pub slots: u8,
    /// The number of the last data block that was ever written (dn_maxblkid).
    pub max_block: BlockId,
    /// Bytes on the drives (dn_used).
    pub used_bytes: u64,
    /// The roots of the tree: 1 to 3.
    pub pointers: Vec<Blkptr>,
    /// The bonus as it stands, in the order `order`.
    pub bonus: Vec<u8>,
    /// The bytes behind the bonus in its area. The bonus area of an undecrypted dnode is ciphertext
    /// up to its end; for other dnodes this is empty.
    pub bonus_tail: Vec<u8>,
    /// The spill block, which continues the bonus (SA only).
    pub spill: Option<Blkptr>,
    /// The order of the numbers in the bonus.
    pub order: Order,
}

/// The flags of a dnode (dn_flags).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The flag of [`Self::space_accounted`].
    pub const SPACE_ACCOUNTED: u8 = 2;
    /// The flag of [`Self::object_accounted`].
    pub const OBJECT_ACCOUNTED: u8 = 8;

    /// The used space is in bytes and not in sectors.
    pub const fn used_in_bytes(self) -> bool {
        self.0 & 1 != 0
    }

    /// Its space is in the accounts of owner and group.
    pub const fn space_accounted(self) -> bool {
        self.0 & Self::SPACE_ACCOUNTED != 0
    }

    /// There is a spill pointer.
    pub const fn has_spill(self) -> bool {
        self.0 & 4 != 0
    }

    /// It is counted in the objects of owner and group.
    pub const fn object_accounted(self) -> bool {
        self.0 & Self::OBJECT_ACCOUNTED != 0
    }
}

/// Bytes that an object uses at most: more than a pool can have.
const MAX_USED_BYTES: u64 = 1 << 60;

/// Reads the last block's number: offsets within the object fit 64 bits.
fn read_max_block(reader: &mut Reader<'_>, block_size: u32) -> Result<BlockId> {
    let last = reader.u64()?;
    let blocks = last.checked_add(1);
    if blocks.and_then(|blocks| blocks.checked_mul(block_size.into())).is_none() {
        return Err(reader.corrupt_field(8, "an object has less than 2^64 bytes", last));
    }
    Ok(BlockId::new(last))
}

fn read_used_bytes(reader: &mut Reader<'_>, flags: Flags) -> Result<u64> {
    let used = reader.u64()?;
    let bytes = if flags.used_in_bytes() { used } else { used.saturating_mul(512) };
    if bytes > MAX_USED_BYTES {
        return Err(reader.corrupt_field(8, "an object uses at most 2^60 bytes", used));
    }
    Ok(bytes)
}

impl Dnode {
    /// Bytes of a slot, and so of the smallest dnode.
    pub const SLOT: usize = 512;
    /// Bytes of the largest dnode.
    pub const MAX_SIZE: usize = 16384;
    /// Bytes before the pointers.
    pub const CORE: usize = 64;
    /// The most pointers there are in one.
    pub const MAX_POINTERS: u8 = 3;
    /// The tallest tree: 64-bit offsets, 512-byte blocks, 32 pointers in an indirect block.
    pub const MAX_LEVELS: u8 = 12;

    /// How many slots the dnode at the start of `bytes` takes, from its first bytes alone; `None`
    /// where the slot is free or there are not enough bytes.
    pub fn peek_slots(bytes: &[u8]) -> Option<u8> {
        match (bytes.first()?, bytes.get(12)?) {
            (0, _) => None,
            (_, extra) => Some(extra.saturating_add(1)),
        }
    }

    /// Reads the dnode at the start of `bytes`, which may continue behind it; `None` if the slot is
    /// free.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Option<Self>> {
        let mut reader = Reader::new("dnode", bytes, order);
        let kind = ObjectType(reader.u8()?);
        if kind == ObjectType::NONE {
            return Ok(None);
        }
        if !kind.is_known() {
            let found = u64::from(kind.0);
            return Err(Error::Unknown { structure: "dnode", field: "type", found });
        }
        let indirect_shift = reader.u8()?;
        let levels = reader.u8()?;
        if levels == 0 || levels > Self::MAX_LEVELS {
            return Err(reader.corrupt_field(1, "a tree has 1 to 12 levels", levels.into()));
        }
        if levels > 1 && !(9..=24).contains(&indirect_shift) {
            let found = u64::from(indirect_shift);
            return Err(reader.corrupt_field(
                2,
                "indirect blocks are of 512 bytes to 16 MiB",
                found,
            ));
        }
        let pointer_count = reader.u8()?;
        if pointer_count == 0 || pointer_count > Self::MAX_POINTERS {
            return Err(reader.corrupt_field(
                1,
                "a dnode has 1 to 3 pointers",
                pointer_count.into(),
            ));
        }
        let bonus_kind = ObjectType(reader.u8()?);
        let checksum = reader.u8()?;
        let compression = reader.u8()?;
        let flags = Flags(reader.u8()?);
        let block_sectors = reader.u16()?;
        if block_sectors == 0 || block_sectors > 32768 {
            let found = u64::from(block_sectors);
            return Err(reader.corrupt_field(2, "data blocks are of 512 bytes to 16 MiB", found));
        }
        let bonus_size = reader.u16()?;
        let slots = reader.u8()?.saturating_add(1);
        if usize::from(slots) > Self::MAX_SIZE / Self::SLOT {
            return Err(reader.corrupt_field(1, "a dnode takes 1 to 32 slots", slots.into()));
        }
        reader.skip(3)?;
        let block_size = u32::from(block_sectors).saturating_mul(512);
        let max_block = read_max_block(&mut reader, block_size)?;
        let used_bytes = read_used_bytes(&mut reader, flags)?;
        reader.skip(32)?;
        let tail = Tail::read(&mut reader, pointer_count, bonus_size, slots, flags)?;
        Ok(Some(Self {
            kind,
            indirect_shift,
            levels,
            bonus_kind,
            checksum,
            compression,
            flags,
            block_size,
            slots,
            max_block,
            used_bytes,
            pointers: tail.pointers,
            bonus: tail.bonus,
            bonus_tail: Vec::new(),
            spill: tail.spill,
            order,
        }))
    }

    /// Keeps the bytes behind the bonus in its area. `bytes` begin with the dnode, which was parsed
    /// from them.
    pub fn keep_bonus_tail(&mut self, bytes: &[u8]) {
        let space = self.bonus_space();
        let spill = if self.spill.is_some() { Blkptr::SIZE } else { 0 };
        let area = self.size().saturating_sub(spill).saturating_sub(space);
        let area = bytes.get(area..).and_then(|rest| rest.get(..space)).unwrap_or_default();
        self.bonus_tail = area.get(self.bonus.len()..).unwrap_or_default().to_vec();
    }

    /// Bytes of the dnode on disk.
    pub fn size(&self) -> usize {
        usize::from(self.slots).saturating_mul(Self::SLOT)
    }

    /// log2 of the number of pointers in an indirect block.
    pub fn fan_out_shift(&self) -> u32 {
        u32::from(self.indirect_shift).saturating_sub(7)
    }

    /// Bytes of an indirect block.
    pub fn indirect_size(&self) -> u32 {
        1_u32.checked_shl(self.indirect_shift.into()).unwrap_or(0)
    }
}

/// The space behind the fixed fields.
struct Tail {
    pointers: Vec<Blkptr>,
    bonus: Vec<u8>,
    spill: Option<Blkptr>,
}

impl Tail {
    fn read(
        reader: &mut Reader<'_>,
        pointer_count: u8,
        bonus_size: u16,
        slots: u8,
        flags: Flags,
    ) -> Result<Self> {
        let end = usize::from(slots).saturating_mul(Dnode::SLOT);
        if reader.position().saturating_add(reader.remaining()) < end {
            return Err(reader.corrupt_field(0, "a dnode lies within its block", slots.into()));
        }
        let mut pointers = Vec::with_capacity(usize::from(pointer_count));
        let spill_at = end.saturating_sub(Blkptr::SIZE);
        for _ in 0..pointer_count {
            // OpenZFS lets a spill pointer overlap the last pointers of an object that is made
            // without a bonus and has but one block (long redaction lists)
            if flags.has_spill() && reader.position().saturating_add(Blkptr::SIZE) > spill_at {
                reader.skip(Blkptr::SIZE)?;
                pointers.push(Blkptr::EMPTY);
            } else {
                pointers.push(Blkptr::read(reader)?);
            }
        }
        let room = end.saturating_sub(reader.position());
        if usize::from(bonus_size) > room {
            return Err(reader.corrupt_field(0, "the bonus fits the dnode", bonus_size.into()));
        }
        let bonus = reader.bytes(bonus_size.into())?.to_vec();
        let spill = if flags.has_spill() {
            reader.seek(spill_at);
            Some(Blkptr::read(reader)?)
        } else {
            None
        };
        Ok(Self { pointers, bonus, spill })
    }
}

#[cfg(test)]
mod tests {
    use super::Dnode;
    use crate::{ObjectType, Order};

    const REAL: &[u8] = include_bytes!("../tests/golden/objset-names.bin");

    #[test]
    fn golden_dnodes() {
        let dnode = Dnode::parse(REAL, Order::Little).unwrap().unwrap();
        assert_eq!((dnode.kind, dnode.bonus_kind), (ObjectType::DNODE, ObjectType::NONE));
        assert_eq!((dnode.max_block.get(), dnode.bonus.len()), (4, 0));
        assert_eq!(Dnode::peek_slots(REAL), Some(1));
        assert_eq!(Dnode::parse(&[0; 512], Order::Little), Ok(None));
    }

    #[test]
    fn large_dnode_has_spill_at_its_end() {
        let mut bytes = REAL[..512].to_vec();
        bytes.resize(16384, 0);
        (bytes[3], bytes[7], bytes[12]) = (1, 5, 31);
        bytes[10..12].copy_from_slice(&15000_u16.to_le_bytes());
        bytes[192..15192].fill(7);
        bytes.copy_within(64..192, 16384 - 128);
        let dnode = Dnode::parse(&bytes, Order::Little).unwrap().unwrap();
        assert_eq!(dnode.spill.as_ref(), dnode.pointers.first());
        assert_eq!((dnode.bonus, dnode.slots), (vec![7; 15000], 32));
        // it must not reach beyond its block, nor the bonus beyond it
        assert!(Dnode::parse(&bytes[..16383], Order::Little).is_err());
        bytes[10..12].copy_from_slice(&16384_u16.to_le_bytes());
        assert!(Dnode::parse(&bytes, Order::Little).is_err());
    }

    #[test]
    fn spill_pointer_may_overlap_unused_pointers() {
        let mut bytes = REAL[..512].to_vec();
        (bytes[3], bytes[7]) = (3, 4);
        bytes[10..12].fill(0);
        bytes[192..512].fill(0);
        bytes.copy_within(64..192, 384);
        let dnode = Dnode::parse(&bytes, Order::Little).unwrap().unwrap();
        assert_eq!(dnode.spill.as_ref(), dnode.pointers.first());
        assert!(dnode.pointers[2].is_hole());
    }

    #[test]
    fn old_dnodes_count_space_in_sectors() {
        let mut bytes = REAL[..512].to_vec();
        bytes[24..32].copy_from_slice(&3_u64.to_le_bytes());
        bytes[7] = 0;
        let dnode = Dnode::parse(&bytes, Order::Little).unwrap().unwrap();
        assert_eq!(dnode.used_bytes, 1536);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_dnode_or_an_error(bytes in proptest::collection::vec(0_u8.., 0..1024)) {
            let _ = Dnode::parse(&bytes, Order::Little);
        }
    }
}
