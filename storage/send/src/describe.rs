//! A record in a line of text, as `zstream dump -v` prints it.

use ondisk::ObjectType;
use ondisk::stream::{Begin, ObjectRecord, Record, StreamKind};

use crate::VerifiedRecord;

/// The record in a line; BEGIN in several.
pub fn describe_record(found: &VerifiedRecord) -> String {
    let name = found.record.name();
    match &found.record {
        Record::Begin(begin) => describe_begin(begin, found.payload.len()),
        Record::Object(it) => describe_object(it),
        Record::FreeObjects(it) => format!("{name} firstobj = {} numobjs = {}", it.first, it.count),
        Record::Write(it) => format!(
            "{name} object = {} type = {} checksum type = {} compression type = {} flags = {} \
             offset = {} logical_size = {} compressed_size = {} payload_size = {}",
            it.object,
            number(it.kind),
            it.checksum,
            it.compression,
            it.flags,
            it.offset,
            it.logical_size,
            it.compressed_size,
            it.payload_length(),
        ),
        Record::Free(it) => format!(
            "{name} object = {} offset = {} length = {}",
            it.object,
            it.offset,
            signed(it.length)
        ),
        Record::Redact(it) => {
            format!("{name} object = {} offset = {} length = {}", it.object, it.offset, it.length)
        }
        Record::End(it) => {
            let [a, b, c, d] = it.checksum;
            format!("{name} checksum = {a:x}/{b:x}/{c:x}/{d:x}")
        }
        Record::Spill(it) => format!(
            "{name} block for object = {} length = {} flags = {} compression type = {} \
             compressed_size = {} payload_size = {}",
            it.object,
            it.length,
            it.flags,
            it.compression,
            it.compressed_size,
            it.payload_length(),
        ),
        Record::WriteEmbedded(it) => format!(
            "{name} object = {} offset = {} length = {} comp = {} etype = {} lsize = {} psize = {}",
            it.object,
            it.offset,
            it.length,
            it.compression,
            it.embedded_type,
            it.logical_size,
            it.physical_size,
        ),
        Record::ObjectRange(it) => {
            format!("{name} firstobj = {} numslots = {} flags = {}", it.first, it.count, it.flags)
        }
    }
}

fn describe_object(it: &ObjectRecord) -> String {
    format!(
        "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} dn_slots = {} \
             raw_bonuslen = {} flags = {} maxblkid = {} indblkshift = {} nlevels = {} nblkptr = {}",
        it.object,
        it.kind.0,
        it.bonus_kind.0,
        it.block_size,
        it.bonus_length,
        it.dnode_slots,
        it.raw_bonus_length,
        it.flags,
        it.max_block,
        it.indirect_shift,
        it.levels,
        it.pointer_count,
    )
}

fn describe_begin(begin: &Begin, payload: usize) -> String {
    let kind = match begin.kind {
        StreamKind::Snapshot => "snapshot",
        StreamKind::Compound => "compound",
    };
    format!(
        "BEGIN {kind}\n\tfeatures = {}\n\tcreation_time = {}\n\ttype = {}\n\tflags = {:#x}\n\
         \ttoguid = {:x}\n\tfromguid = {:x}\n\ttoname = {}\n\tpayloadlen = {payload}",
        begin.features.names().join(" "),
        begin.creation_time,
        begin.objset_type,
        begin.flags.0,
        begin.to_guid,
        begin.from_guid,
        String::from_utf8_lossy(&begin.to_name),
    )
}

fn number(kind: ObjectType) -> u8 {
    kind.0
}

/// A length that reaches to the end is -1.
fn signed(length: u64) -> String {
    if length == u64::MAX { "-1".to_owned() } else { length.to_string() }
}
