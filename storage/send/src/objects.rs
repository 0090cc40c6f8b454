//! Validates an OBJECT record, and decides whether it describes the existing object.

use dmu::{NewObject, Object};
use ondisk::dnode::Dnode;
use ondisk::sa::Header;
use ondisk::stream::ObjectRecord;
use ondisk::{Blkptr, ObjectType, Reader};

use crate::{Error, Result};

/// The largest block of streams without large blocks.
const OLD_MAX_BLOCK_SIZE: u32 = 128 << 10;
/// The largest block of the format.
const MAX_BLOCK_SIZE: u32 = 16 << 20;
/// Object types whose blocks describe a whole object set; no file system or volume contains them.
const STRUCTURAL: [ObjectType; 3] = [ObjectType::DNODE, ObjectType::OBJSET, ObjectType::INTENT_LOG];
/// Numbers of checksums and compressions end before these.
const CHECKSUMS: u8 = 15;
const COMPRESSIONS: u8 = 17;

/// Dnode slots of an object.
pub(crate) fn slots(record: &ObjectRecord) -> u8 {
    record.dnode_slots.max(1)
}

/// Refuses what no object can be.
pub(crate) fn check_object(
    record: &ObjectRecord,
    (large_blocks, is_raw): (bool, bool),
    payload: &[u8],
) -> Result<()> {
    let max_block_size = if large_blocks { MAX_BLOCK_SIZE } else { OLD_MAX_BLOCK_SIZE };
    let bonus_length = units::to_usize(record.bonus_length);
    let rules = [
        (record.object != 0, "object 0 is the array of dnodes"),
        (record.kind != ObjectType::NONE && record.kind.is_known(), "its type is unknown"),
        (record.bonus_kind.is_known(), "the type of its bonus is unknown"),
        (!STRUCTURAL.contains(&record.kind), "its type is reserved for the object set itself"),
        (record.checksum < CHECKSUMS, "its checksum is unknown"),
        (record.compression < COMPRESSIONS, "its compression is unknown"),
        (
            record.block_size >= 512
                && record.block_size <= max_block_size
                && record.block_size.is_multiple_of(512),
            "its block size is not allowed",
        ),
        (
            usize::from(slots(record)) <= Dnode::MAX_SIZE / Dnode::SLOT,
            "its dnode has more than 32 slots",
        ),
        (
            is_raw
                || record.raw_bonus_length == 0
                    && record.levels == 0
                    && record.pointer_count == 0
                    && record.indirect_shift == 0,
            "it has fields of raw streams",
        ),
        (payload.len() >= bonus_length, "its bonus is cut"),
        (
            is_raw || bonus_length <= bonus_room(record, pointer_count(record)),
            "its bonus exceeds the dnode",
        ),
    ];
    match rules.into_iter().find(|(holds, _)| !holds) {
        Some((_, why)) => Err(invalid(record, why)),
        None => Ok(()),
    }
}

/// The object that a record describes.
pub(crate) fn new_object(record: &ObjectRecord, payload: &[u8]) -> NewObject {
    let new = NewObject::new(record.kind, record.block_size);
    NewObject {
        slots: slots(record),
        checksum: record.checksum,
        compression: record.compression,
        ..new.with_bonus(record.bonus_kind, bonus(record, payload).to_vec())
    }
}

/// The bonus in a record's payload.
pub(crate) fn bonus<'a>(record: &ObjectRecord, payload: &'a [u8]) -> &'a [u8] {
    let length = units::to_usize(record.bonus_length);
    payload.get(..length).unwrap_or(payload)
}

/// Pointers of a new dnode: as many as fit beside the bonus.
fn pointer_count(record: &ObjectRecord) -> usize {
    if record.bonus_kind == ObjectType::SA {
        return 1;
    }
    let bonus = units::to_usize(record.bonus_length);
    let room = usize::from(slots(record)).saturating_mul(Dnode::SLOT);
    let room = room.saturating_sub(Dnode::CORE).saturating_sub(Blkptr::SIZE);
    let spare = room.saturating_sub(bonus).checked_div(Blkptr::SIZE).unwrap_or(0);
    spare.saturating_add(1).min(Dnode::MAX_POINTERS.into())
}

/// The most bonus bytes of a dnode with this many pointers.
pub(crate) fn bonus_room(record: &ObjectRecord, pointers: usize) -> usize {
    let spill = if record.has_spill() { Blkptr::SIZE } else { 0 };
    let room = usize::from(slots(record)).saturating_mul(Dnode::SLOT);
    room.saturating_sub(Dnode::CORE)
        .saturating_sub(pointers.saturating_mul(Blkptr::SIZE))
        .saturating_sub(spill)
}

/// Whether the existing object can take the record's shape and keep its blocks. If not, the
/// sender freed it and created another of the same number, all of whose blocks follow.
pub(crate) fn keeps_blocks(
    there: &Object,
    (record, is_raw): (&ObjectRecord, bool),
    payload: &[u8],
) -> bool {
    let dnode = there.dnode();
    // block pointers name the types of object and bonus
    let same_shape = dnode.kind == record.kind
        && dnode.bonus_kind == record.bonus_kind
        && dnode.slots == slots(record)
        && (is_raw || dnode.pointers.len() <= pointer_count(record))
        && usize::try_from(record.bonus_length)
            .is_ok_and(|bonus| bonus <= bonus_room(record, dnode.pointers.len()));
    same_shape
        && (dnode.block_size == record.block_size
            || (!is_raw && is_switch_to_large(there, record, payload)))
}

/// Whether the block size grows only because this stream has large blocks and those before had not.
fn is_switch_to_large(there: &Object, record: &ObjectRecord, payload: &[u8]) -> bool {
    let dnode = there.dnode();
    let file = ObjectType::PLAIN_FILE;
    dnode.kind == file
        && record.kind == file
        && dnode.max_block.get() > 0
        && record.block_size > dnode.block_size
        && generation(dnode.bonus_kind, &dnode.bonus).is_some_and(|known| {
            generation(record.bonus_kind, bonus(record, payload)) == Some(known)
        })
}

/// The generation of a file, which differs from that of any other file with its number.
fn generation(kind: ObjectType, bonus: &[u8]) -> Option<u64> {
    let (at, order) = match kind {
        ObjectType::SA => {
            let header = Header::parse(bonus).ok()?;
            (header.size.checked_add(16)?, header.order)
        }
        ObjectType::ZNODE => (64, ondisk::Order::Little),
        _ => return None,
    };
    Reader::new("generation", bonus.get(at..)?, order).u64().ok()
}

pub(crate) fn invalid(record: &ObjectRecord, why: &'static str) -> Error {
    Error::Invalid { record: "OBJECT", object: record.object, why }
}
