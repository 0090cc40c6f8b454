//! Applying the records of a stream to the object set of a dataset that is being received.
//!
//! Records come in the order of object numbers; data follow the OBJECT record of their object. A
//! stream in another order is refused. The dataset is invisible until the caller ends the receive,
//! so a refused record needs no undoing.

use std::borrow::Cow;

use dmu::{Object, Objset};
use ondisk::blkptr::Compression;
use ondisk::dnode::Dnode;
use ondisk::stream::{
    Begin, BeginFlags, FreeObjects, FreeRange, ObjectRecord, Record, RedactRange, Spill,
    StreamFeatures, StreamKind, Write, WriteEmbedded,
};
use ondisk::{Blkptr, ObjectType, Order};
use txg::Tx;
use units::ObjectId;

use crate::objects::{bonus, check_object, invalid, keeps_blocks, new_object, slots};
use crate::raw;
use crate::sender::{ResumePoint, object_record};
use crate::{Error, Result, VerifiedRecord};

/// Features of streams that can be received.
const KNOWN_FEATURES: u64 = StreamFeatures::SA_SPILL
    | StreamFeatures::EMBEDDED_DATA
    | StreamFeatures::LZ4
    | StreamFeatures::LARGE_BLOCKS
    | StreamFeatures::RESUMING
    | StreamFeatures::REDACTED
    | StreamFeatures::COMPRESSED
    | StreamFeatures::LARGE_DNODE
    | StreamFeatures::RAW
    | StreamFeatures::ZSTD
    | StreamFeatures::SWITCH_TO_LARGE_BLOCKS
    | StreamFeatures::LONG_NAME
    | StreamFeatures::LARGE_MICROZAP;
/// The largest spill block.
pub(crate) const MAX_SPILL: u64 = 128 << 10;
/// The number of slots in a dnode block.
pub(crate) const SLOTS_PER_BLOCK: u64 = 32;

/// Refuses a stream that cannot be received.
pub fn check_receivable(begin: &Begin, order: Order) -> Result<()> {
    let unsupported = |what: String| Err(Error::Unsupported { what });
    if order == Order::Big && begin.features.has(StreamFeatures::RAW) {
        return unsupported("receiving a raw stream of a big-endian machine".to_owned());
    }
    if begin.kind == StreamKind::Compound {
        return unsupported("a stream of several snapshots within another".to_owned());
    }
    let unknown = StreamFeatures(begin.features.0 & !KNOWN_FEATURES).names();
    if !unknown.is_empty() {
        return unsupported(format!("receiving a stream with the features {}", unknown.join(", ")));
    }
    if begin.features.has(StreamFeatures::RAW) {
        // the shape of dnodes cannot be known without that
        if !begin.flags.has(BeginFlags::SPILL_BLOCK) {
            return unsupported("receiving a raw stream without spill block flags".to_owned());
        }
        if begin.features.has(StreamFeatures::EMBEDDED_DATA) {
            return unsupported("receiving a raw stream with embedded data".to_owned());
        }
        if begin.features.has(StreamFeatures::REDACTED) {
            return unsupported("receiving a raw stream that is redacted".to_owned());
        }
    }
    if ![2, 3].contains(&begin.objset_type) {
        return unsupported(format!("receiving a dataset of type {}", begin.objset_type));
    }
    Ok(())
}

/// The position at which a receive that stops after this record resumes; `None`: that of the record
/// before. The record is sent again.
pub fn resume_point(record: &Record) -> Option<ResumePoint> {
    let (object, offset) = match record {
        Record::Object(record) => (record.object, 0),
        Record::Write(write) => (write.object, write.offset),
        Record::WriteEmbedded(write) if i64::try_from(write.offset).is_ok() => {
            (write.object, write.offset)
        }
        _ => return None,
    };
    Some(ResumePoint { object, offset })
}

/// Begins transactions of the dataset that is being received. The argument is the number of bytes
/// that will be written; 0 where space is only freed.
pub type BeginTx<'a> = dyn FnMut(u64) -> Result<Tx> + 'a;

/// Receives one stream.
pub struct Receiver<'a> {
    pub(crate) objset: Objset,
    /// The earlier state of the dataset: the base snapshot of an incremental stream.
    base: Option<Objset>,
    begin: Begin,
    /// The byte order of the stream: that of its blocks as well.
    order: Order,
    pub(crate) begin_tx: &'a mut BeginTx<'a>,
    /// The object of the last OBJECT record.
    current: Option<Current>,
    /// Lower object numbers were described already.
    pub(crate) next_object: u64,
    /// In a raw stream: the dnode block whose objects the next records describe.
    pub(crate) dnode_block: Option<u64>,
}

pub(crate) struct Current {
    pub(crate) object: Object,
    pub(crate) record: ObjectRecord,
    /// It is the base's object with its blocks, and not a new one.
    pub(crate) keeps_blocks: bool,
}

impl std::fmt::Debug for Receiver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Receiver({:?}, object {})", self.objset, self.next_object)
    }
}

impl<'a> Receiver<'a> {
    /// Receives into an object set that is writable. `base` is the content that it begins with; `None`
    /// if it is empty.
    ///
    /// `resume` is the position of a resumed stream: lower objects were received before.
    pub fn new(
        objset: Objset,
        base: Option<Objset>,
        (begin, order, resume): (Begin, Order, Option<ResumePoint>),
        begin_tx: &'a mut BeginTx<'a>,
    ) -> Result<Self> {
        let next_object = resume.map_or(1, |point| point.object.max(1));
        let (current, dnode_block) = (None, None);
        let mut receiver =
            Self { objset, base, begin, order, begin_tx, current, next_object, dnode_block };
        // a stream that resumes within an object may not describe it again
        if let Some(object) = receiver.live_object(ObjectId::new(next_object))?
            && resume.is_some()
        {
            let record = object_record(object.id(), object.dnode(), receiver.begin.to_guid);
            receiver.current = Some(Current { object, record, keeps_blocks: true });
        }
        Ok(receiver)
    }

    /// Applies a record. Returns whether the stream ended with it.
    pub fn apply(&mut self, found: &VerifiedRecord) -> Result<bool> {
        if found.record.to_guid() != self.begin.to_guid {
            let why = ondisk::Error::Rule {
                structure: "send stream record",
                at: 0,
                rule: "all records of a stream are of one snapshot",
                found: found.record.to_guid(),
            };
            return Err(Error::Record { at: found.at, why });
        }
        match &found.record {
            Record::Object(record) => {
                // a bonus is swapped as a block of an object of its type
                let bonus = self.in_our_order(record.bonus_kind, &found.payload);
                self.receive_object(record, &bonus)?;
            }
            Record::FreeObjects(range) => self.free_objects(range)?,
            Record::ObjectRange(range) if self.is_raw() => self.receive_object_range(range)?,
            Record::Write(write) if self.is_raw() => self.write_raw(write, &found.payload)?,
            Record::Spill(spill) if self.is_raw() => self.raw_spill(spill, &found.payload)?,
            Record::Write(write) => self.write(write, &found.payload)?,
            Record::WriteEmbedded(_) if self.is_raw() => {
                let what = format!("a {} record in a raw stream", found.record.name());
                return Err(Error::Unsupported { what });
            }
            Record::WriteEmbedded(write) => self.write_embedded(write, &found.payload)?,
            Record::Free(range) => self.free_range(range)?,
            Record::Spill(spill) => self.receive_spill(spill, &found.payload)?,
            Record::End(_) => return Ok(true),
            // a block that is left out reads as a hole; the dataset is marked as redacted
            Record::Redact(range) if self.has(StreamFeatures::REDACTED) && !self.is_raw() => {
                let RedactRange { object, offset, length, to_guid } = *range;
                self.free_range(&FreeRange { object, offset, length, to_guid })?;
            }
            Record::Begin(_) | Record::ObjectRange(_) | Record::Redact(_) => {
                let what = format!("a {} record in this stream", found.record.name());
                return Err(Error::Unsupported { what });
            }
        }
        Ok(false)
    }

    /// The content of a block of an object in the order of our own blocks.
    fn in_our_order<'b>(&self, kind: ObjectType, content: &'b [u8]) -> Cow<'b, [u8]> {
        if self.order == Order::Little {
            return content.into();
        }
        let mut turned = content.to_vec();
        ondisk::swap::to_little(kind, 0, &mut turned);
        turned.into()
    }

    pub(crate) fn has(&self, feature: u64) -> bool {
        self.begin.features.has(feature)
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.has(StreamFeatures::RAW)
    }

    fn receive_object(&mut self, record: &ObjectRecord, payload: &[u8]) -> Result<()> {
        let is_raw = self.is_raw();
        check_object(record, (self.has(StreamFeatures::LARGE_BLOCKS), is_raw), payload)?;
        if is_raw {
            self.check_raw_object(record)?;
        }
        let count = u64::from(slots(record));
        if count > 1 && !self.has(StreamFeatures::LARGE_DNODE) {
            return Err(invalid(record, "the stream does not announce large dnodes"));
        }
        if record.object < self.next_object {
            return Err(invalid(record, "objects are out of order"));
        }
        let end = record.object.checked_add(count);
        let end = end
            .filter(|_| record.object % SLOTS_PER_BLOCK <= SLOTS_PER_BLOCK.saturating_sub(count));
        let end = end.ok_or_else(|| invalid(record, "its dnode crosses a block of dnodes"))?;
        self.free_overlapping(record, end)?;
        let id = ObjectId::new(record.object);
        let there = self.live_object(id)?;
        let kept = there.filter(|there| {
            keeps_blocks(there, (record, is_raw), payload)
                && (!is_raw || raw::keeps_shape(there, record))
        });
        let keeps_blocks = kept.is_some();
        let object = match kept {
            Some(there) => self.update_object(&there, record, payload)?,
            None => self.create_object(id, record, payload)?,
        };
        self.next_object = end;
        self.current = Some(Current { object, record: *record, keeps_blocks });
        Ok(())
    }

    fn create_object(
        &mut self,
        id: ObjectId,
        record: &ObjectRecord,
        payload: &[u8],
    ) -> Result<Object> {
        let exists = self.live_object(id)?.is_some();
        let tx = (self.begin_tx)(u64::from(slots(record)).saturating_mul(512))?;
        if exists {
            self.objset.free(&tx, id)?;
        }
        let mut new = new_object(record, payload);
        if self.is_raw() {
            new.indirect_shift = record.indirect_shift;
            new.shape = Some(raw::shape(record, payload));
        }
        Ok(self.objset.create_at(&tx, id, &new)?)
    }

    fn update_object(
        &mut self,
        there: &Object,
        record: &ObjectRecord,
        payload: &[u8],
    ) -> Result<Object> {
        let tx = (self.begin_tx)(u64::from(slots(record)).saturating_mul(512))?;
        // a dnode without a spill block has more space for its bonus
        if self.begin.flags.has(BeginFlags::SPILL_BLOCK) && !record.has_spill() && there.has_spill()
        {
            there.set_spill(&tx, None)?;
        }
        if self.is_raw() {
            let last = record.max_block;
            let size = u64::from(there.dnode().block_size);
            if let Some(end) = last.checked_add(1).and_then(|blocks| blocks.checked_mul(size)) {
                there.free_range(&tx, end..u64::MAX)?;
            }
            let bonus = (record.bonus_kind, bonus(record, payload));
            there.set_raw_shape(&tx, bonus, &raw::shape(record, payload))?;
            there.set_checksum_compression(&tx, record.checksum, record.compression)?;
            return Ok(self.objset.object(there.id())?);
        }
        there.set_bonus(&tx, record.bonus_kind, bonus(record, payload))?;
        there.set_checksum_compression(&tx, record.checksum, record.compression)?;
        Ok(self.objset.object(there.id())?)
    }

    /// Frees the base's objects whose slots a new object takes.
    fn free_overlapping(&mut self, record: &ObjectRecord, end: u64) -> Result<()> {
        let Some(base) = self.base.clone() else { return Ok(()) };
        let first = record.object.saturating_sub(record.object % SLOTS_PER_BLOCK);
        for found in base.objects_from(ObjectId::new(first)) {
            let (id, _) = found?;
            let number = id.get();
            if number >= end {
                break;
            }
            let Some(live) = self.live_object(id)?.filter(|_| number != record.object) else {
                continue;
            };
            if number > record.object {
                let tx = (self.begin_tx)(0)?;
                self.objset.free(&tx, id)?;
            } else if number.saturating_add(live.dnode().slots.into()) > record.object {
                return Err(invalid(record, "another object has its slot"));
            }
        }
        Ok(())
    }

    fn free_objects(&mut self, range: &FreeObjects) -> Result<()> {
        let broken = |why| Error::Invalid { record: "FREEOBJECTS", object: range.first, why };
        if range.first < self.next_object && range.first != 0 {
            return Err(broken("objects are out of order"));
        }
        let end = range.first.checked_add(range.count);
        let end = end.ok_or_else(|| broken("the range exceeds all object numbers"))?;
        let is_raw = self.is_raw();
        if let Some(base) = self.base.clone() {
            for found in base.objects_from(ObjectId::new(range.first)) {
                let (id, _) = found?;
                if id.get() >= end {
                    break;
                }
                if is_raw && !raw::may_free(id.get(), (range.first, end), self.dnode_block) {
                    return Err(broken(
                        "a part of a block of dnodes is freed without its encryption",
                    ));
                }
                if self.live_object(id)?.is_some() {
                    let tx = (self.begin_tx)(0)?;
                    self.objset.free(&tx, id)?;
                }
            }
        }
        self.next_object = self.next_object.max(end);
        self.current = None;
        Ok(())
    }

    /// An object as it is now.
    fn live_object(&self, id: ObjectId) -> Result<Option<Object>> {
        match self.objset.object(id) {
            Ok(object) => Ok(Some(object)),
            Err(dmu::Error::NoSuchObject { .. }) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// The object of a record: the one of the last OBJECT record.
    pub(crate) fn current(&self, record: &'static str, object: u64) -> Result<&Current> {
        let current = self.current.as_ref().filter(|it| it.record.object == object);
        current.ok_or(Error::Invalid {
            record,
            object,
            why: "its OBJECT record does not precede it",
        })
    }

    /// Makes an object current that the base has, and that the stream does not describe: an increment brings blocks of
    /// it that are redacted, or that the base lacks.
    fn open_unchanged(&mut self, object: u64) -> Result<()> {
        let is_described = self.current.as_ref().is_some_and(|it| it.record.object == object);
        if is_described || self.base.is_none() || self.is_raw() || object < self.next_object {
            return Ok(());
        }
        if let Some(there) = self.live_object(ObjectId::new(object))? {
            let record = object_record(there.id(), there.dnode(), self.begin.to_guid);
            self.next_object = object + u64::from(slots(&record));
            self.current = Some(Current { object: there, record, keeps_blocks: true });
        }
        Ok(())
    }

    fn write(&mut self, write: &Write, payload: &[u8]) -> Result<()> {
        let compression = write.compression;
        if compression == 0 {
            return self.write_bytes("WRITE", write.object, write.offset, payload);
        }
        if !self.has(StreamFeatures::COMPRESSED) {
            let why = "the stream does not announce compressed blocks";
            return Err(Error::Invalid { record: "WRITE", object: write.object, why });
        }
        let size = write.logical_size;
        let plain = decompress("WRITE", write.object, (compression, size), payload)?;
        self.write_bytes("WRITE", write.object, write.offset, &plain)
    }

    fn write_embedded(&mut self, write: &WriteEmbedded, payload: &[u8]) -> Result<()> {
        let broken = |why| Error::Invalid { record: "WRITE_EMBEDDED", object: write.object, why };
        if !self.has(StreamFeatures::EMBEDDED_DATA) {
            return Err(broken("the stream does not announce embedded data"));
        }
        let stored = units::to_usize(write.physical_size);
        if write.embedded_type != 0 || stored > Blkptr::PAYLOAD {
            return Err(broken("its payload is not an embedded block"));
        }
        if u64::from(write.logical_size) > write.length {
            return Err(broken("its payload exceeds the block"));
        }
        let stored = payload.get(..stored).unwrap_or(payload);
        let size = (write.compression, write.logical_size.into());
        let mut plain = decompress("WRITE_EMBEDDED", write.object, size, stored)?;
        // the rest of the block behind the payload is zeros
        let length = usize::try_from(write.length).ok().filter(|length| *length <= 16 << 20);
        plain.resize(length.ok_or_else(|| broken("its block is above 16 MiB"))?, 0);
        // OpenZFS sends a spill block that is embedded so, at the offset of the spill's block number
        if write.offset == dmu::SPILL_BLOCK.get().wrapping_mul(write.length) {
            let (object, length, to_guid) = (write.object, write.length, write.to_guid);
            let spill = Spill { object, length, to_guid, ..Spill::default() };
            return self.receive_spill(&spill, &plain);
        }
        self.write_bytes("WRITE_EMBEDDED", write.object, write.offset, &plain)
    }

    fn write_bytes(
        &mut self,
        record: &'static str,
        object: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let length = units::to_u64(bytes.len());
        let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
        if end.is_none() || bytes.is_empty() || !length.is_multiple_of(512) {
            let why = "its range is invalid";
            return Err(Error::Invalid { record, object, why });
        }
        self.open_unchanged(object)?;
        let object = self.current(record, object)?.object.clone();
        let bytes = self.in_our_order(object.dnode().kind, bytes);
        let tx = (self.begin_tx)(length)?;
        Ok(object.write(&tx, offset, &bytes)?)
    }

    fn free_range(&mut self, range: &FreeRange) -> Result<()> {
        self.open_unchanged(range.object)?;
        let object = self.current("FREE", range.object)?.object.clone();
        let end = match range.length {
            // the last block of a raw stream's object is known from its OBJECT record
            u64::MAX if self.is_raw() => raw::end_of(object.dnode()),
            u64::MAX => u64::MAX,
            length => range.offset.checked_add(length).ok_or(Error::Invalid {
                record: "FREE",
                object: range.object,
                why: "its range is invalid",
            })?,
        };
        if self.is_raw() {
            self.check_raw_free(range, end)?;
        }
        let tx = (self.begin_tx)(0)?;
        Ok(object.free_range(&tx, range.offset..end)?)
    }

    fn receive_spill(&mut self, spill: &Spill, payload: &[u8]) -> Result<()> {
        let broken = |why| Error::Invalid { record: "SPILL", object: spill.object, why };
        let current = self.current("SPILL", spill.object)?;
        let knows_spill = self.begin.flags.has(BeginFlags::SPILL_BLOCK);
        if spill.compressed_size != 0 || !(512..=MAX_SPILL).contains(&spill.length) {
            return Err(broken("its size is invalid"));
        }
        if !spill.length.is_multiple_of(512) {
            return Err(broken("its size is not a multiple of 512"));
        }
        if knows_spill && !current.record.has_spill() {
            return Err(broken("its object has no spill block"));
        }
        // old streams do not announce spill blocks, so the bonus was not measured with one
        let object = current.object.clone();
        let record = ObjectRecord { flags: ObjectRecord::HAS_SPILL, ..current.record };
        if object.dnode().bonus_kind != ObjectType::SA || !fits_with_spill(&record, object.dnode())
        {
            return Err(broken("its object has no room for the pointer"));
        }
        if knows_spill && spill.is_unmodified() && current.keeps_blocks && object.spill()?.is_some()
        {
            return Ok(());
        }
        let tx = (self.begin_tx)(spill.length)?;
        Ok(object.set_spill(&tx, Some(payload))?)
    }
}

/// Whether a pointer to a spill block fits behind the bonus.
pub(crate) fn fits_with_spill(record: &ObjectRecord, dnode: &Dnode) -> bool {
    let taken = dnode
        .pointers
        .len()
        .saturating_add(1)
        .saturating_mul(Blkptr::SIZE)
        .saturating_add(Dnode::CORE);
    usize::try_from(record.bonus_length)
        .is_ok_and(|bonus| bonus.saturating_add(taken) <= dnode.size())
}

/// The content of a data block that is compressed in its record.
pub fn decompress_write(write: &Write, payload: &[u8]) -> Result<Vec<u8>> {
    decompress("WRITE", write.object, (write.compression, write.logical_size), payload)
}

/// A compressed payload as its object sees it. `method` is the number of the compression and the number
/// of bytes that come out.
pub(crate) fn decompress(
    record: &'static str,
    object: u64,
    (method, size): (u8, u64),
    stored: &[u8],
) -> Result<Vec<u8>> {
    let broken = |why| Error::Invalid { record, object, why };
    let method = Compression::from_number(method).ok_or(broken("its compression is unknown"))?;
    let size = usize::try_from(size).ok().filter(|size| *size <= 16 << 20);
    let size = size.ok_or(broken("its block is above 16 MiB"))?;
    if method.is_off() {
        return stored.get(..size).map(<[u8]>::to_vec).ok_or(broken("its payload is cut"));
    }
    let mut plain = vec![0; size];
    transform::compress::decompress(method, stored, &mut plain).map_err(|why| Error::Payload {
        record,
        object,
        why,
    })?;
    Ok(plain)
}
