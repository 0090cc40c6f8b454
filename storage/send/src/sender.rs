//! Sending a snapshot: a walk over its object set, in the order in which OpenZFS sends.
//!
//! The array of dnodes is walked block by block. A hole in it becomes FREEOBJECTS. For each dnode
//! of a block an OBJECT record is sent, then a FREE record for everything after its last block,
//! then its blocks and holes by offset, then its spill block. An incremental stream leaves out
//! every block born no later than the base snapshot, and its children. Holes of unknown birth are
//! always sent: the object may have been freed and created again since the base.

use std::thread::Builder;

use dmu::{Object, Objset, SPILL_BLOCK, SpecialObject, WalkControl, WalkOptions};
use ondisk::blkptr::{Compression, Regular};
use ondisk::dnode::Dnode;
use ondisk::nvlist::{Encoding, Nvlist, Value};
use ondisk::objset::Kind;
use ondisk::stream::{
    Begin, BeginFlags, CryptKeydata, FreeObjects, FreeRange, ObjectRecord, Record, Spill,
    StreamFeatures, StreamKind, WriteEmbedded,
};
use ondisk::{Blkptr, Order};
use units::{BlockId, ObjectId, Txg, Zbookmark};

use crate::data::OLD_MAX_BLOCK_SIZE;
use crate::overlay::{Overlay, Part};
use crate::queue::{Outlet, SendQueue};
use crate::raw;
use crate::redaction::Redaction;
use crate::walk::walk_pointers;
use crate::writer::StreamWriter;
use crate::{Error, Result};

const RESUME_OBJECT: &str = "resume_object";
const RESUME_OFFSET: &str = "resume_offset";

/// Reads blocks as they are stored, for several threads.
pub trait StoredBlocks: Sync {
    /// The bytes of a block as they are on the drives, verified, still compressed.
    fn read_stored(&self, block: &Regular, zbookmark: Zbookmark) -> Result<Vec<u8>>;
}

/// The snapshot on which an incremental stream is based.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendBase {
    /// Its guid.
    pub guid: u64,
    /// The txg in which it was taken.
    pub txg: Txg,
    /// It is the origin of the clone that is sent, and not a snapshot of the same dataset.
    pub is_origin: bool,
}

/// The position at which an interrupted stream resumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResumePoint {
    /// The object.
    pub object: u64,
    /// The offset in it, in bytes.
    pub offset: u64,
}

impl ResumePoint {
    fn add_to(self, list: &mut Nvlist) {
        list.push(RESUME_OBJECT, Value::U64(self.object));
        list.push(RESUME_OFFSET, Value::U64(self.offset));
    }

    /// The point in the payload of BEGIN.
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        let list = Nvlist::decode(payload).ok()?;
        Some(Self { object: list.u64(RESUME_OBJECT)?, offset: list.u64(RESUME_OFFSET)? })
    }
}

/// The snapshot to be sent.
pub struct SendSource<'a> {
    /// Its content.
    pub objset: &'a Objset,
    /// Its full name.
    pub name: &'a str,
    /// Its guid.
    pub guid: u64,
    /// It is the saved part of an interrupted receive: the stream has no END.
    pub is_partial: bool,
    /// When it was taken, seconds since 1970.
    pub creation_time: u64,
    /// Names in it are compared without case.
    pub case_insensitive: bool,
    /// The snapshot that the receiver has already.
    pub base: Option<SendBase>,
    /// The features of the stream.
    pub features: StreamFeatures,
    /// The position at which the stream resumes; none: it begins at the start.
    pub resume: Option<ResumePoint>,
    /// The wrapped key of the dataset, in a raw stream. The object set is read without the key then.
    pub keydata: Option<CryptKeydata>,
    /// The blocks that the stream leaves out, and those that its base lacks.
    pub redaction: Redaction,
    /// Reads compressed and encrypted blocks.
    pub stored: &'a dyn StoredBlocks,
}

impl std::fmt::Debug for SendSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SendSource({})", self.name)
    }
}

/// Sends a snapshot. A thread walks over it, and others read its blocks.
pub fn send(source: &SendSource<'_>, out: &mut StreamWriter<'_>) -> Result<()> {
    out.record(&begin_record(source)?, &begin_payload(source))?;
    let redaction = &source.redaction;
    let mut overlay = Overlay::new(&redaction.blocks, &redaction.base_blocks);
    if let Some(point) = source.resume {
        overlay.skip_to(point);
    }
    let queue = SendQueue::new();
    std::thread::scope(|scope| {
        let outlet = Outlet::new(&queue, scope);
        let mut sender = Sender { source, out: outlet, to_guid: source.guid, overlay };
        let walk = || {
            queue.run_walk(move || {
                let done = sender.send_dnodes();
                // what precedes an error is sent
                sender.out.flush().and(done)
            });
        };
        Builder::new().name("send walk".to_owned()).spawn_scoped(scope, walk)?;
        queue.write_all(out)
    })?;
    if source.is_partial { out.end_partial() } else { out.end(source.guid) }
}

/// The list behind BEGIN: the resume position, and the key. Empty if neither is needed.
fn begin_payload(source: &SendSource<'_>) -> Vec<u8> {
    let mut list = Nvlist::new();
    source.redaction.add_to(&mut list);
    if let Some(point) = source.resume {
        point.add_to(&mut list);
    }
    if let Some(keydata) = &source.keydata {
        list.push(CryptKeydata::NAME, Value::List(keydata.encode()));
    }
    if list.iter().next().is_none() {
        return Vec::new();
    }
    list.encode(Encoding::Native(Order::Little))
}

fn begin_record(source: &SendSource<'_>) -> Result<Record> {
    let objset_type = match source.objset.header().kind {
        Kind::Filesystem => 2,
        Kind::Volume => 3,
        Kind::None | Kind::Meta | Kind::Other => {
            return Err(Error::Unsupported {
                what: format!(
                    "sending '{}', which is neither a file system nor a volume",
                    source.name
                ),
            });
        }
    };
    let mut flags = BeginFlags::FREE_RECORDS | BeginFlags::SPILL_BLOCK;
    if source.base.is_some_and(|base| base.is_origin) {
        flags |= BeginFlags::CLONE;
    }
    if source.case_insensitive {
        flags |= BeginFlags::CASE_INSENSITIVE;
    }
    Ok(Record::Begin(Box::new(Begin {
        kind: StreamKind::Snapshot,
        features: match source.resume {
            Some(_) => source.features.with(StreamFeatures::RESUMING),
            None => source.features,
        },
        creation_time: source.creation_time,
        objset_type,
        flags: BeginFlags(flags),
        to_guid: source.guid,
        from_guid: source.base.map_or(0, |base| base.guid),
        to_name: source.name.as_bytes().to_vec(),
    })))
}

pub(crate) struct Sender<'scope, 'env, 'a> {
    pub(crate) source: &'a SendSource<'a>,
    pub(crate) out: Outlet<'scope, 'env, 'a>,
    pub(crate) to_guid: u64,
    pub(crate) overlay: Overlay,
}

impl Sender<'_, '_, '_> {
    fn walk_options(&self, start: Option<Zbookmark>) -> WalkOptions {
        WalkOptions {
            born_after: self.source.base.map_or(Txg::ZERO, |base| base.txg),
            include_holes: true,
            include_unborn_holes: true,
            start,
        }
    }

    fn send_dnodes(&mut self) -> Result<()> {
        let Some(meta) = self.source.objset.special_object(SpecialObject::Meta) else {
            return Ok(());
        };
        let first = self.resume_object().checked_div(slots_per_block(&meta)).unwrap_or(0);
        let start = self.source.resume.map(|_| meta.zbookmark(BlockId::new(first)));
        self.walk(&meta, start, |sender, zbookmark, pointer| match pointer {
            Blkptr::Hole(_) => {
                let Some(range) = block_range(meta.dnode(), zbookmark) else { return Ok(()) };
                sender.free_object_numbers(&meta, range)
            }
            _ if zbookmark.level.get() > 0 => Ok(()),
            _ => {
                if sender.is_raw() {
                    let range = raw::object_range(&meta, zbookmark, pointer, sender.to_guid)?;
                    sender.out.record(range, Vec::new())?;
                }
                sender.send_dnode_block(&meta, zbookmark.block)
            }
        })?;
        self.send_segments_before(u64::MAX)
    }

    /// Lower object numbers were sent before the stream was cut.
    fn resume_object(&self) -> u64 {
        self.source.resume.map_or(0, |point| point.object)
    }

    /// Shows every pointer of an object that is due to `visit`, until that fails.
    fn walk(
        &mut self,
        object: &Object,
        start: Option<Zbookmark>,
        mut visit: impl FnMut(&mut Self, Zbookmark, &Blkptr) -> Result<()>,
    ) -> Result<()> {
        let options = self.walk_options(start);
        walk_pointers(object, &options, |zbookmark, pointer| {
            visit(self, zbookmark, pointer).map(|()| WalkControl::Descend)
        })
    }

    /// A hole in the array of dnodes: none of its objects exist. Numbers behind the end of the array
    /// are left out.
    fn free_object_numbers(&mut self, meta: &Object, blocks: [u64; 2]) -> Result<()> {
        let slots = slots_per_block(meta);
        let [first, end] = blocks.map(|block| block.wrapping_mul(slots));
        self.free_objects(meta, first, end.wrapping_sub(first))
    }

    fn free_objects(&mut self, meta: &Object, first: u64, count: u64) -> Result<()> {
        let blocks = meta.dnode().max_block.get() + 1;
        let end = blocks * slots_per_block(meta);
        if first >= end {
            return Ok(());
        }
        let count = count.min(end - first);
        self.send_segments_before(first)?;
        self.out.free_objects(FreeObjects { first, count, to_guid: self.to_guid })
    }

    /// The objects of a block of dnodes.
    fn send_dnode_block(&mut self, meta: &Object, block: BlockId) -> Result<()> {
        let Some(content) = meta.block(block)? else { return Ok(()) };
        let first = block.get() * slots_per_block(meta);
        let (mut rest, mut number) = (&*content, first);
        while !rest.is_empty() {
            let zbookmark = meta.zbookmark(block);
            let dnode = Dnode::parse(rest, Order::Little)
                .map_err(|why| dmu::Error::Corrupt { zbookmark, why })?;
            let slots = dnode.as_ref().map_or(1, |dnode| dnode.slots);
            match dnode {
                // the array's own dnode is not an object
                _ if number == 0 || number < self.resume_object() => {}
                None => self.free_objects(meta, number, 1)?,
                Some(dnode) => self.send_object(ObjectId::new(number), dnode, rest)?,
            }
            number += u64::from(slots);
            rest = rest.get(usize::from(slots) * Dnode::SLOT..).unwrap_or_default();
        }
        Ok(())
    }

    fn send_object(&mut self, id: ObjectId, dnode: Dnode, slots: &[u8]) -> Result<()> {
        let mut record = object_record(id, &dnode, self.to_guid);
        if !self.has(StreamFeatures::LARGE_BLOCKS) {
            record.block_size = record.block_size.min(OLD_MAX_BLOCK_SIZE);
        }
        let bonus = if self.is_raw() {
            raw::describe_object(&mut record, &dnode, bonus_area(&dnode, slots))
        } else {
            let length = dnode.bonus.len().next_multiple_of(8);
            let mut bonus = bonus_area(&dnode, slots).get(..length).unwrap_or_default().to_vec();
            bonus.resize(length, 0);
            bonus
        };
        self.send_segments_before(id.get())?;
        self.out.record(Record::Object(record), bonus)?;
        let end = dnode.max_block.get().wrapping_add(1).wrapping_mul(dnode.block_size.into());
        self.free_range(id, end, u64::MAX)?;
        let object = self.source.objset.object_with_dnode(id, dnode);
        if let (Some(spill), Some(base)) = (&object.dnode().spill, self.source.base)
            && spill.birth() <= base.txg
        {
            self.send_spill(&object, spill, Spill::UNMODIFIED)?;
        }
        let resume = self.source.resume.filter(|point| point.object == id.get());
        let offset = resume.map_or(0, |point| point.offset);
        let block = offset.checked_div(object.block_size().into()).unwrap_or(0);
        let start = (block > 0).then(|| object.zbookmark(BlockId::new(block)));
        self.walk(&object, start, |sender, zbookmark, pointer| {
            sender.send_pointer(&object, zbookmark, pointer)
        })?;
        self.send_segments_of(id.get())
    }

    fn send_pointer(
        &mut self,
        object: &Object,
        zbookmark: Zbookmark,
        pointer: &Blkptr,
    ) -> Result<()> {
        if zbookmark.block == SPILL_BLOCK && zbookmark.level.get() == 0 {
            self.send_segments_of(object.id().get())?;
            return self.send_spill(object, pointer, 0);
        }
        if zbookmark.level.get() > 0 && !pointer.is_hole() {
            return Ok(());
        }
        let dnode = object.dnode();
        let Some([first, end]) = block_range(dnode, zbookmark) else { return Ok(()) };
        if !dnode.kind.is_metadata() && first > dnode.max_block.get() {
            return Ok(());
        }
        if self.overlay.is_empty() {
            return self.send_range(object, zbookmark, pointer, [first, end]);
        }
        // an end that overflows is the end of the object
        let end = if end == 0 { u64::MAX } else { end };
        for part in self.overlay.split(object.id().get(), first, end) {
            match part {
                Part::Segment(segment) => self.send_segment(segment)?,
                Part::Walked(first, end) => {
                    self.send_range(object, zbookmark, pointer, [first, end])?;
                }
            }
        }
        Ok(())
    }

    /// A block, or a range of blocks below a hole.
    pub(crate) fn send_range(
        &mut self,
        object: &Object,
        zbookmark: Zbookmark,
        pointer: &Blkptr,
        [first, end]: [u64; 2],
    ) -> Result<()> {
        let block_size = object.dnode().block_size;
        match pointer {
            Blkptr::Hole(_) => self.send_hole(object.id(), [first, end], block_size),
            Blkptr::Redacted(_) => self.redact_range(object.id(), [first, end], block_size.into()),
            Blkptr::Regular(block) if self.is_raw() => self.send_raw_data(object, zbookmark, block),
            Blkptr::Embedded(_) if self.is_raw() => Err(raw::unprotected(object.id().get())),
            Blkptr::Embedded(block) if self.sends_embedded(block.compression) => {
                self.send_embedded(object, zbookmark, block)
            }
            Blkptr::Regular(_) | Blkptr::Embedded(_) => self.send_data(object, zbookmark, pointer),
        }
    }

    fn send_hole(&mut self, id: ObjectId, blocks: [u64; 2], block_size: u32) -> Result<()> {
        let [first, end] = blocks;
        // a hole whose offset overflows cannot overlap any data
        let Some(offset) = first.checked_mul(block_size.into()) else { return Ok(()) };
        // an end that overflows is the end of the object
        let end = end.saturating_mul(block_size.into());
        self.free_range(id, offset, end.wrapping_sub(offset))
    }

    fn free_range(&mut self, id: ObjectId, offset: u64, length: u64) -> Result<()> {
        let (object, to_guid) = (id.get(), self.to_guid);
        self.out.free_range(FreeRange { object, offset, length, to_guid })
    }

    fn send_spill(&mut self, object: &Object, pointer: &Blkptr, flags: u8) -> Result<()> {
        if self.is_raw() {
            return self.send_raw_spill(object, pointer, flags);
        }
        let Some(content) = object.spill()? else { return Ok(()) };
        if content.order() == Order::Big {
            return Err(big_endian());
        }
        let record = Spill {
            object: object.id().get(),
            length: pointer.lsize().into(),
            to_guid: self.to_guid,
            flags,
            ..Spill::default()
        };
        self.out.record(Record::Spill(Box::new(record)), content.to_vec())
    }

    fn sends_embedded(&self, compression: Compression) -> bool {
        let is_known = match compression {
            Compression::Lz4 => self.has(StreamFeatures::LZ4),
            Compression::Zstd => self.has(StreamFeatures::LZ4) && self.has(StreamFeatures::ZSTD),
            _ => true,
        };
        is_known && self.has(StreamFeatures::EMBEDDED_DATA)
    }

    fn send_embedded(
        &mut self,
        object: &Object,
        zbookmark: Zbookmark,
        block: &ondisk::blkptr::Embedded,
    ) -> Result<()> {
        let size = object.block_size();
        let record = WriteEmbedded {
            object: object.id().get(),
            offset: zbookmark.block.get().wrapping_mul(size.into()),
            length: size.into(),
            to_guid: self.to_guid,
            compression: block.compression.number(),
            embedded_type: 0,
            logical_size: block.lsize,
            physical_size: units::narrow::<u32>(block.payload.len()),
        };
        let mut payload = block.payload.clone();
        payload.resize(payload.len().next_multiple_of(8), 0);
        self.out.record(Record::WriteEmbedded(record), payload)
    }

    fn send_raw_spill(&mut self, object: &Object, pointer: &Blkptr, flags: u8) -> Result<()> {
        let Blkptr::Regular(block) = pointer else {
            return Err(raw::unprotected(object.id().get()));
        };
        let record = Spill {
            object: object.id().get(),
            length: block.lsize.into(),
            to_guid: self.to_guid,
            flags: flags | raw::order_flag(block.order),
            compression: block.compression.number(),
            compressed_size: block.psize.into(),
            crypt: raw::block_crypt(object.id().get(), block)?,
            ..Spill::default()
        };
        let stored = self.source.stored.read_stored(block, object.zbookmark(SPILL_BLOCK))?;
        self.out.record(Record::Spill(Box::new(record)), stored)
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.has(StreamFeatures::RAW)
    }

    pub(crate) fn has(&self, feature: u64) -> bool {
        self.source.features.has(feature)
    }
}

pub(crate) fn object_record(id: ObjectId, dnode: &Dnode, to_guid: u64) -> ObjectRecord {
    ObjectRecord {
        object: id.get(),
        kind: dnode.kind,
        bonus_kind: dnode.bonus_kind,
        block_size: dnode.block_size,
        bonus_length: units::narrow::<u32>(dnode.bonus.len()),
        checksum: dnode.checksum,
        compression: dnode.compression,
        dnode_slots: dnode.slots,
        flags: if dnode.spill.is_some() { ObjectRecord::HAS_SPILL } else { 0 },
        to_guid,
        ..ObjectRecord::default()
    }
}

/// The bytes of a dnode from its bonus on.
fn bonus_area<'a>(dnode: &Dnode, slots: &'a [u8]) -> &'a [u8] {
    let pointers = dnode.pointers.len() * Blkptr::SIZE;
    slots.get(Dnode::CORE + pointers..dnode.size()).unwrap_or_default()
}

/// The data blocks below a pointer: the first, and the one after the last, which is 0 on overflow.
/// `None` if the first overflows.
pub(crate) fn block_range(dnode: &Dnode, at: Zbookmark) -> Option<[u64; 2]> {
    let shift = u32::from(at.level.get()).checked_mul(dnode.fan_out_shift())?;
    let span = 1_u64.checked_shl(shift)?;
    let first = span.checked_mul(at.block.get())?;
    Some([first, first.checked_add(span).unwrap_or(0)])
}

pub(crate) fn slots_per_block(meta: &Object) -> u64 {
    u64::from(meta.block_size() >> 9)
}

fn big_endian() -> Error {
    Error::Unsupported { what: "sending attributes that a big-endian machine wrote".to_owned() }
}
