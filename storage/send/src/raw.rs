//! Records of raw streams, sent and received: blocks as they are stored, and how they are encrypted.
//!
//! A raw stream describes all that the MACs of a dataset cover. OBJECT_RANGE gives salt, nonce and MAC of
//! each block of dnodes. OBJECT gives the shape of the object's tree and the whole encrypted bonus area.

use dmu::{Object, RawShape};
use ondisk::blkptr::{Compression, Protection, Regular};
use ondisk::dnode::Dnode;
use ondisk::stream::{BlockCrypt, FreeRange, ObjectRange, ObjectRecord, Record, Spill, Write};
use ondisk::{Blkptr, ObjectType, Order};
use units::{BlockId, Zbookmark};
use zio::RawBlock;

use crate::objects::{bonus_room, invalid};
use crate::receiver::{MAX_SPILL, Receiver, SLOTS_PER_BLOCK, fits_with_spill};
use crate::sender::slots_per_block;
use crate::{Error, Result};

/// Bytes of a dnode slot.
const SLOT_SIZE: u32 = 512;
/// The sizes of indirect blocks, as log2 of bytes.
const INDIRECT_SHIFTS: std::ops::RangeInclusive<u8> = 12..=17;
/// The largest offset behind a block.
const MAX_END: u64 = 1 << 63;

/// The flag of records whose block is in the other byte order (DRR_RAW_BYTESWAP).
pub(crate) const OTHER_ORDER: u8 = 1 << 1;

/// The OBJECT_RANGE record of a block of dnodes.
pub(crate) fn object_range(
    meta: &Object,
    at: Zbookmark,
    pointer: &Blkptr,
    to_guid: u64,
) -> Result<Record> {
    let Blkptr::Regular(block) = pointer else { return Err(unprotected(meta.id().get())) };
    let count = slots_per_block(meta);
    Ok(Record::ObjectRange(Box::new(ObjectRange {
        first: at.block.get().wrapping_mul(count),
        count,
        to_guid,
        crypt: block_crypt(meta.id().get(), block)?,
        flags: order_flag(block.order),
    })))
}

/// Adds the fields of raw streams to an OBJECT record. Returns its payload: the encrypted bonus area.
pub(crate) fn describe_object(record: &mut ObjectRecord, dnode: &Dnode, area: &[u8]) -> Vec<u8> {
    record.flags |= order_flag(dnode.order);
    record.max_block = dnode.max_block.get();
    record.indirect_shift = dnode.indirect_shift;
    record.levels = dnode.levels;
    record.pointer_count = units::narrow::<u8>(dnode.pointers.len());
    if dnode.bonus.is_empty() {
        return Vec::new();
    }
    let area = area.get(..dnode.bonus_space()).unwrap_or_default();
    record.raw_bonus_length = units::narrow::<u32>(area.len());
    area.to_vec()
}

/// How a block is encrypted. Blocks of types that are only authenticated have no salt and no nonce.
pub(crate) fn block_crypt(object: u64, block: &Regular) -> Result<BlockCrypt> {
    match block.protection {
        Protection::Encrypted { salt, iv, mac } => Ok(BlockCrypt { salt, iv, mac }),
        Protection::Authenticated { mac } => Ok(BlockCrypt { mac, ..BlockCrypt::default() }),
        Protection::None | Protection::Objset | Protection::Indirect { .. } => {
            Err(unprotected(object))
        }
    }
}

/// The MAC that a block's pointer has in place of half of the checksum.
pub(crate) const fn mac_of(block: &Regular) -> Option<[u8; 16]> {
    match block.protection {
        Protection::Encrypted { mac, .. }
        | Protection::Authenticated { mac }
        | Protection::Indirect { mac } => Some(mac),
        Protection::None | Protection::Objset => None,
    }
}

/// The two words in which a pointer keeps a MAC.
pub(crate) fn mac_words(mac: [u8; 16]) -> [u64; 2] {
    let (words, _) = mac.as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    [words.next().unwrap_or(0), words.next().unwrap_or(0)]
}

pub(crate) const fn order_flag(order: Order) -> u8 {
    match order {
        Order::Little => 0,
        Order::Big => OTHER_ORDER,
    }
}

/// A block of an encrypted dataset without encryption is a sign of tampering.
pub(crate) const fn unprotected(object: u64) -> Error {
    Error::Invalid { record: "OBJECT", object, why: "a block of it is not encrypted" }
}

/// The shape of an object, as its record says.
pub(crate) fn shape(record: &ObjectRecord, payload: &[u8]) -> RawShape {
    let bonus = units::to_usize(record.bonus_length);
    RawShape {
        levels: record.levels,
        pointers: record.pointer_count,
        max_block: record.max_block,
        bonus_tail: payload.get(bonus..).unwrap_or_default().to_vec(),
    }
}

/// Whether the tree of an object can become that of the record: it may grow, and nothing else.
pub(crate) fn keeps_shape(there: &Object, record: &ObjectRecord) -> bool {
    let dnode = there.dnode();
    dnode.pointers.len() == usize::from(record.pointer_count)
        && dnode.levels <= record.levels
        && dnode.indirect_shift == record.indirect_shift
}

/// The offset behind the last block of an object.
pub(crate) fn end_of(dnode: &Dnode) -> u64 {
    let blocks = dnode.max_block.get().checked_add(1);
    blocks.and_then(|blocks| blocks.checked_mul(dnode.block_size.into())).unwrap_or(MAX_END)
}

/// Whether a range of free objects may free one: the encryption of its block of dnodes must be known, or no
/// dnode of that block be left.
pub(crate) const fn may_free(object: u64, (first, end): (u64, u64), known: Option<u64>) -> bool {
    let block = object / SLOTS_PER_BLOCK;
    let start = block.saturating_mul(SLOTS_PER_BLOCK);
    let is_known = matches!(known, Some(known) if known == block);
    is_known || (first <= start && start.saturating_add(SLOTS_PER_BLOCK) <= end)
}

fn raw_block(crypt: &BlockCrypt, lsize: u32, compression: Compression) -> RawBlock {
    RawBlock { lsize, compression, salt: crypt.salt, iv: crypt.iv, mac: crypt.mac }
}

impl Receiver<'_> {
    /// Learns how the next block of dnodes is encrypted.
    pub(crate) fn receive_object_range(&mut self, range: &ObjectRange) -> Result<()> {
        let broken = |why| Error::Invalid { record: "OBJECT_RANGE", object: range.first, why };
        if range.count != SLOTS_PER_BLOCK || !range.first.is_multiple_of(SLOTS_PER_BLOCK) {
            return Err(broken("it is not of a whole block of dnodes"));
        }
        if range.flags & OTHER_ORDER != 0 {
            return Err(other_order());
        }
        let block = range.first / SLOTS_PER_BLOCK;
        if self.dnode_block.is_some_and(|known| known >= block)
            || self.next_object / SLOTS_PER_BLOCK > block
        {
            return Err(broken("objects are out of order"));
        }
        let size = SLOT_SIZE.saturating_mul(u32::try_from(range.count).unwrap_or(0));
        let tx = (self.begin_tx)(size.into())?;
        let raw = raw_block(&range.crypt, size, Compression::Off);
        self.objset.set_dnode_block_crypt(&tx, BlockId::new(block), raw)?;
        self.dnode_block = Some(block);
        Ok(())
    }

    /// Refuses an OBJECT record that no dnode of an encrypted dataset can have.
    pub(crate) fn check_raw_object(&self, record: &ObjectRecord) -> Result<()> {
        self.check_range("OBJECT", record.object)?;
        let size = u64::from(record.block_size);
        let end = record.max_block.checked_add(1).and_then(|blocks| blocks.checked_mul(size));
        let area = units::to_usize(record.raw_bonus_length);
        let pointers = usize::from(record.pointer_count);
        let rules = [
            (record.flags & OTHER_ORDER == 0, "it is in the other byte order"),
            ((1..=Dnode::MAX_LEVELS).contains(&record.levels), "its tree has not 1 to 12 levels"),
            (
                (1..=usize::from(Dnode::MAX_POINTERS)).contains(&pointers),
                "it has not 1 to 3 pointers",
            ),
            (
                INDIRECT_SHIFTS.contains(&record.indirect_shift),
                "its indirect blocks are not of 4 to 128 KiB",
            ),
            (end.is_some_and(|end| end <= MAX_END), "its last block is not allowed"),
            (
                record.raw_bonus_length >= record.bonus_length,
                "its bonus area is smaller than its bonus",
            ),
            (area <= bonus_room(record, pointers), "its bonus area exceeds the dnode"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(invalid(record, why)),
            None => Ok(()),
        }
    }

    /// Refuses a change of an object whose block of dnodes has no known encryption.
    fn check_range(&self, record: &'static str, object: u64) -> Result<()> {
        if self.dnode_block == Some(object / SLOTS_PER_BLOCK) {
            return Ok(());
        }
        Err(Error::Invalid { record, object, why: "its OBJECT_RANGE record does not precede it" })
    }

    /// Refuses to free parts of blocks, because the rest cannot be encrypted without the key.
    pub(crate) fn check_raw_free(&self, range: &FreeRange, end: u64) -> Result<()> {
        self.check_range("FREE", range.object)?;
        let size = u64::from(self.current("FREE", range.object)?.object.block_size());
        // a range that reaches the end of all offsets ends with the object
        let is_whole = range.offset.is_multiple_of(size)
            && (end.is_multiple_of(size) || end >= MAX_END || range.length == u64::MAX);
        if is_whole {
            return Ok(());
        }
        let why = "its range is not of whole blocks";
        Err(Error::Invalid { record: "FREE", object: range.object, why })
    }

    /// Stores an encrypted block.
    pub(crate) fn write_raw(&mut self, write: &Write, payload: &[u8]) -> Result<()> {
        let broken = |why| Error::Invalid { record: "WRITE", object: write.object, why };
        self.check_range("WRITE", write.object)?;
        if write.flags & OTHER_ORDER != 0 {
            return Err(other_order());
        }
        let object = self.current("WRITE", write.object)?.object.clone();
        let size = u64::from(object.block_size());
        let block = write.offset.checked_div(size).unwrap_or(0);
        if write.kind != object.dnode().kind {
            return Err(broken("it is of another type than its object"));
        }
        if write.logical_size != size || !write.offset.is_multiple_of(size) {
            return Err(broken("it is not a whole block"));
        }
        if block > object.dnode().max_block.get() {
            return Err(broken("it lies behind the last block"));
        }
        let compression = compression(write.compression, payload, size)
            .ok_or_else(|| broken("its stored size or its compression is not allowed"))?;
        let raw = raw_block(&write.crypt, object.block_size(), compression);
        let tx = (self.begin_tx)(payload.len() as u64)?;
        Ok(object.write_raw(&tx, BlockId::new(block), payload, raw)?)
    }

    /// Stores an encrypted spill block.
    pub(crate) fn raw_spill(&mut self, spill: &Spill, payload: &[u8]) -> Result<()> {
        let broken = |why| Error::Invalid { record: "SPILL", object: spill.object, why };
        self.check_range("SPILL", spill.object)?;
        if spill.flags & OTHER_ORDER != 0 {
            return Err(other_order());
        }
        let current = self.current("SPILL", spill.object)?;
        let object = current.object.clone();
        if !current.record.has_spill() {
            return Err(broken("its object has no spill block"));
        }
        if object.dnode().bonus_kind != ObjectType::SA
            || !fits_with_spill(&current.record, object.dnode())
        {
            return Err(broken("its object has no room for the pointer"));
        }
        if spill.is_unmodified() && current.keeps_blocks && object.has_spill() {
            return Ok(());
        }
        if !(512..=MAX_SPILL).contains(&spill.length) || !spill.length.is_multiple_of(512) {
            return Err(broken("its size is not allowed"));
        }
        let compression = compression(spill.compression, payload, spill.length)
            .ok_or_else(|| broken("its stored size or its compression is not allowed"))?;
        let lsize = u32::try_from(spill.length).unwrap_or(u32::MAX);
        let raw = raw_block(&spill.crypt, lsize, compression);
        let tx = (self.begin_tx)(spill.length)?;
        Ok(object.set_raw_spill(&tx, payload, raw)?)
    }
}

/// The compression of stored bytes; `None` if the sizes are invalid.
fn compression(number: u8, stored: &[u8], lsize: u64) -> Option<Compression> {
    let method = Compression::from_number(number)?;
    let size = stored.len() as u64;
    let is_named = !matches!(method, Compression::On | Compression::Inherit | Compression::Empty);
    let fits = if method.is_off() { size == lsize } else { size < lsize };
    (is_named && fits && size > 0 && size.is_multiple_of(512)).then_some(method)
}

fn other_order() -> Error {
    Error::Unsupported { what: "receiving raw blocks of a big-endian machine".to_owned() }
}
