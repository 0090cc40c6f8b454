//! Block pointers that wait to be freed: bpobjs, deadlists, livelists, bptrees.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use dmu::{Object, Objset};
use ondisk::dsl::{Bpobj, Bptree, BptreeEntry, Deadlist, is_freed};
use ondisk::{Blkptr, Dva, ObjectType, Reader};
use units::{ObjectId, Txg};
use zap::Zap;

use crate::{Error, Result};

/// A pointer of a list.
#[derive(Clone, Copy, Debug)]
pub struct ListEntry<'a> {
    /// The list that it stands in: a bpobj.
    pub list: ObjectId,
    /// The pointer. Pointers in lists have no checksums and no embedded data.
    pub pointer: &'a Blkptr,
    /// In a livelist: whether the entry is a free, and not an allocation.
    pub is_free: bool,
}

/// The return value of a visitor: continue, or stop.
pub type VisitEntry<'a> = &'a mut dyn FnMut(ListEntry<'_>) -> ControlFlow<()>;

/// Pointers read at a time.
const CHUNK_RECORDS: u64 = 1024;
const BLKPTR_SIZE: u64 = 128;

/// The space of all blocks of a deadlist: bytes allocated, compressed, uncompressed.
pub fn deadlist_space(mos: &Objset, id: ObjectId) -> Result<[u64; 3]> {
    if !id.exists() {
        return Ok([0; 3]);
    }
    let object = mos.object(id)?;
    if object.dnode().kind == ObjectType::BPOBJ {
        return Ok(bpobj_space(&read_header(&object)?));
    }
    let found = Deadlist::parse(object.bonus(), object.bonus_order());
    found
        .map(|header| [header.used, header.compressed, header.uncompressed])
        .map_err(|error| Error::Corrupt { object: id, why: error })
}

/// The same for the blocks of a deadlist that were born in `txg` or before.
pub fn deadlist_space_until(mos: &Objset, id: ObjectId, txg: Txg) -> Result<[u64; 3]> {
    let mut space = [0; 3];
    if !id.exists() {
        return Ok(space);
    }
    if mos.object(id)?.dnode().kind == ObjectType::BPOBJ {
        let _ = walk_bpobj(mos, id, &mut |listed| {
            if listed.pointer.birth() <= txg {
                space = add_space(space, block_space(listed.pointer));
            }
            ControlFlow::Continue(())
        })?;
        return Ok(space);
    }
    for (born_after, list) in deadlist_entries(mos, id)? {
        if born_after < txg {
            space = add_space(space, bpobj_space(&read_header(&mos.object(list)?)?));
        }
    }
    Ok(space)
}

/// The sums of two spaces.
pub(crate) fn add_space(one: [u64; 3], other: [u64; 3]) -> [u64; 3] {
    let mut sum = one;
    sum.iter_mut().zip(other).for_each(|(sum, more)| *sum = sum.wrapping_add(more));
    sum
}

const fn bpobj_space(header: &Bpobj) -> [u64; 3] {
    [header.bytes, header.compressed, header.uncompressed]
}

/// Allocated bytes of a block, from its addresses and sizes. Exact where parity takes no space.
fn block_space(pointer: &Blkptr) -> [u64; 3] {
    match pointer {
        Blkptr::Regular(block) => {
            let asize = block.copies().map(|dva| dva.asize).fold(0, u64::wrapping_add);
            [asize, block.psize.into(), block.lsize.into()]
        }
        _ => [0; 3],
    }
}

/// The parts of a deadlist or livelist, by txg: each has the blocks born after its txg and not
/// after the next one's. A livelist's parts have its events since then.
pub fn deadlist_entries(mos: &Objset, id: ObjectId) -> Result<Vec<(Txg, ObjectId)>> {
    let mut parts = Vec::new();
    let table = Zap::open(mos.object(id)?)?;
    if table.flags().word_keys() {
        for entry in table.entries() {
            let entry = entry?;
            let txg = entry.key64.as_ref().and_then(|words| words.first());
            if let (Some(txg), Some(list)) = (txg, entry.value.u64()) {
                parts.push((Txg::new(*txg), ObjectId::new(list)));
            }
        }
    } else {
        table.scan_numbers(&mut |name, list| {
            // integers as keys are written as hexadecimal digits
            let digits = std::str::from_utf8(name).ok();
            if let Some(txg) = digits.and_then(|it| u64::from_str_radix(it, 16).ok()) {
                parts.push((Txg::new(txg), ObjectId::new(list)));
            }
        })?;
    }
    parts.sort_unstable();
    Ok(parts)
}

/// Shows every pointer of a deadlist, of the new form or the old, or of a livelist.
pub fn walk_deadlist(mos: &Objset, id: ObjectId, visit: VisitEntry<'_>) -> Result<ControlFlow<()>> {
    if !id.exists() {
        return Ok(ControlFlow::Continue(()));
    }
    if mos.object(id)?.dnode().kind == ObjectType::BPOBJ {
        return walk_bpobj(mos, id, visit);
    }
    for (_, list) in deadlist_entries(mos, id)? {
        if walk_bpobj(mos, list, visit)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Shows every pointer of a bpobj and of its sublists.
pub fn walk_bpobj(mos: &Objset, id: ObjectId, visit: VisitEntry<'_>) -> Result<ControlFlow<()>> {
    let mut seen = HashSet::new();
    let mut waiting = vec![id];
    while let Some(list) = waiting.pop() {
        if !seen.insert(list) {
            return Err(Error::Cycle { object: list, links: "lists of block pointers" });
        }
        let object = mos.object(list)?;
        let header = read_header(&object)?;
        if walk_pointers(&object, header.count, visit)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        waiting.extend(read_sublists(mos, &header)?);
    }
    Ok(ControlFlow::Continue(()))
}

/// The blocks of a part of a livelist of which a birth is listed and no death, each once for each birth:
/// as many files of the clone share it.
pub fn visit_live_blocks(
    mos: &Objset,
    part: ObjectId,
    show: &mut dyn FnMut(&Blkptr),
) -> Result<()> {
    let mut alive: HashMap<(Option<Dva>, Txg), (Blkptr, i64)> = HashMap::new();
    let _ = walk_bpobj(mos, part, &mut |listed| {
        if let Blkptr::Regular(block) = listed.pointer {
            let key = (block.dvas[0], block.birth);
            let count = &mut alive.entry(key).or_insert((listed.pointer.clone(), 0)).1;
            *count += if listed.is_free { -1 } else { 1 };
        }
        ControlFlow::Continue(())
    })?;
    for (pointer, count) in alive.into_values() {
        (0..count).for_each(|_| show(&pointer));
    }
    Ok(())
}

/// A bpobj's header.
pub fn bpobj_header(mos: &Objset, id: ObjectId) -> Result<Bpobj> {
    read_header(&mos.object(id)?)
}

fn read_header(object: &Object) -> Result<Bpobj> {
    let parsed = Bpobj::parse(object.bonus(), object.bonus_order());
    let mut header = parsed.map_err(|error| Error::Corrupt { object: object.id(), why: error })?;
    if !header.sublists.exists() {
        // the real system continues to count blocks that it moved into another list
        header.sublist_count = 0;
    }
    Ok(header)
}

/// The other objects of a bpobj: the table of sublists, and the sublists.
pub fn bpobj_objects(mos: &Objset, id: ObjectId) -> Result<Vec<ObjectId>> {
    let mut seen = HashSet::new();
    let mut waiting = vec![id];
    let mut found = Vec::new();
    while let Some(list) = waiting.pop() {
        if !seen.insert(list) {
            return Err(Error::Cycle { object: list, links: "lists of block pointers" });
        }
        let header = bpobj_header(mos, list)?;
        found.extend(Some(header.sublists).filter(|table| table.exists()));
        let more = read_sublists(mos, &header)?;
        found.extend_from_slice(&more);
        waiting.extend(more);
    }
    Ok(found)
}

fn read_sublists(mos: &Objset, header: &Bpobj) -> Result<Vec<ObjectId>> {
    if !header.sublists.exists() {
        return Ok(Vec::new());
    }
    let object = mos.object(header.sublists)?;
    let mut lists = Vec::new();
    let _ = for_each_chunk(&object, header.sublist_count, 8, &mut |reader| {
        while reader.remaining() > 0 {
            lists.push(ObjectId::new(reader.u64()?));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(lists)
}

fn walk_pointers(object: &Object, count: u64, visit: VisitEntry<'_>) -> Result<ControlFlow<()>> {
    let list = object.id();
    for_each_chunk(object, count, BLKPTR_SIZE, &mut |reader| {
        while reader.remaining() > 0 {
            let pointer = Blkptr::read(reader)?;
            let freed = is_freed(&pointer);
            if visit(ListEntry { list, pointer: &pointer, is_free: freed }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })
}

type ReadChunk<'a> = &'a mut dyn FnMut(&mut Reader<'_>) -> ondisk::Result<ControlFlow<()>>;

/// Reads `count` records of `size` bytes of an object, some at a time; `count` is not believed
/// beyond the end of the object.
fn for_each_chunk(
    object: &Object,
    count: u64,
    size: u64,
    each: ReadChunk<'_>,
) -> Result<ControlFlow<()>> {
    let blocks = object.max_block().get() + 1;
    let room = blocks * u64::from(object.block_size());
    let end = count.checked_mul(size).map_or(room, |bytes| bytes.min(room));
    let step = CHUNK_RECORDS * size;
    let mut at = 0_u64;
    while at < end {
        let length = step.min(end - at);
        let mut bytes = vec![0; units::to_usize(length)];
        object.read(at, &mut bytes)?;
        // an object of the MOS has one byte order, that of its dnode
        let mut reader = Reader::new("list", &bytes, object.bonus_order());
        let next = each(&mut reader)
            .map_err(|error| Error::Corrupt { object: object.id(), why: error })?;
        if next.is_break() {
            return Ok(next);
        }
        at += length;
    }
    Ok(ControlFlow::Continue(()))
}

/// The trees that are still to be freed after their datasets were destroyed.
pub fn read_bptree(mos: &Objset, id: ObjectId) -> Result<(Bptree, Vec<BptreeEntry>)> {
    let object = mos.object(id)?;
    let header = Bptree::parse(object.bonus(), object.bonus_order())
        .map_err(|error| Error::Corrupt { object: id, why: error })?;
    let mut entries = Vec::new();
    let mut index = 0;
    let size = units::to_u64(BptreeEntry::SIZE);
    let _ = for_each_chunk(&object, header.end, size, &mut |reader| {
        while reader.remaining() >= BptreeEntry::SIZE {
            let entry = BptreeEntry::read(reader)?;
            if index >= header.begin {
                entries.push(entry);
            }
            index += 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((header, entries))
}
