//! Changing lists of block pointers (bpobj).
//!
//! A list that is put into another keeps its object as a sublist, unless it is short: then its
//! pointers are copied, so that lists do not nest ever deeper.
//!
//! Many lists are empty, and where the feature `empty_bpobj` is enabled all of these are one
//! object, which the pool's directory names and the feature's count refers to.

use dmu::Object;
use ondisk::dsl::Bpobj;
use ondisk::{Blkptr, ObjectType, version};
use units::ObjectId;

use super::change::{Change, DIRECTORY, LIST_BLOCK};
use super::features::{self, guid};
use super::space::Space;
use crate::Result;
use crate::lists::bpobj_header;

/// The name of the list that all empty lists are.
const EMPTY: &str = "empty_bpobj";
const NUMBER: u64 = 8;
const POINTER: u64 = 128;

/// A pointer for a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) pointer: Blkptr,
    /// In a livelist: it tells of a death.
    pub(crate) freed: bool,
}

/// Makes a list of its own.
pub(crate) fn create(change: &Change<'_>) -> Result<ObjectId> {
    let size = match change.version {
        ..version::DEFLATE => Bpobj::SIZE_FIRST,
        version::DEFLATE..version::DEADLISTS => Bpobj::SIZE_WITHOUT_SUBLISTS,
        _ if features::is_active(change, guid::LIVELIST)? => Bpobj::SIZE,
        _ => Bpobj::SIZE_PLAIN,
    };
    let header = Bpobj::default().encode(size);
    change.new_object(ObjectType::BPOBJ, LIST_BLOCK, ObjectType::BPOBJ_HEADER, header)
}

/// So many empty lists: the one that all are, again and again, or each one of its own.
pub(crate) fn create_empty(change: &Change<'_>, count: usize) -> Result<Vec<ObjectId>> {
    if !features::is_enabled(change, guid::EMPTY_BPOBJ)? {
        return (0..count).map(|_| create(change)).collect();
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let empty = if let Some(empty) = the_empty(change)? {
        empty
    } else {
        let empty = create(change)?;
        change.insert(DIRECTORY, EMPTY, empty.get())?;
        empty
    };
    features::add_many(change, guid::EMPTY_BPOBJ, number(count))?;
    Ok(vec![empty; count])
}

/// So many more refer to the one that all empty lists are, which is there.
pub(crate) fn refer_to_empty(change: &Change<'_>, count: u64) -> Result<()> {
    features::add_many(change, guid::EMPTY_BPOBJ, count)
}

/// The list that all empty lists are, if there is one.
pub(crate) fn the_empty(change: &Change<'_>) -> Result<Option<ObjectId>> {
    Ok(change.number(DIRECTORY, EMPTY)?.map(ObjectId::new))
}

/// Whether it is the one that all empty lists are.
pub(crate) fn is_the_empty(change: &Change<'_>, list: ObjectId) -> Result<bool> {
    Ok(the_empty(change)? == Some(list))
}

/// So many less refer to the one that all empty lists are.
pub(crate) fn leave_empty(change: &Change<'_>, count: u64) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    features::take_many(change, guid::EMPTY_BPOBJ, count)?;
    if features::is_active(change, guid::EMPTY_BPOBJ)? {
        return Ok(());
    }
    if let Some(empty) = the_empty(change)? {
        change.remove(DIRECTORY, EMPTY)?;
        change.free_object(empty)?;
    }
    Ok(())
}

/// Frees a list with its sublists, or leaves the one that all empty lists are.
pub(crate) fn release(change: &Change<'_>, list: ObjectId) -> Result<()> {
    if is_the_empty(change, list)? {
        return leave_empty(change, 1);
    }
    for id in crate::lists::bpobj_objects(change.mos, list)? {
        change.free_object(id)?;
    }
    change.free_object(list)
}

/// The bytes of all blocks of a list and its sublists.
pub(crate) fn space(change: &Change<'_>, list: ObjectId) -> Result<Space> {
    let header = bpobj_header(change.mos, list)?;
    Ok(Space::from_counts([header.bytes, header.compressed, header.uncompressed]))
}

pub(crate) fn is_empty(header: &Bpobj) -> bool {
    header.count == 0 && header.sublist_count == 0
}

pub(crate) fn change_header<T>(
    change: &Change<'_>,
    list: ObjectId,
    edit: impl FnOnce(&mut Bpobj) -> T,
) -> Result<T> {
    let object = change.object(list)?;
    let size = object.bonus().len();
    let mut header = bpobj_header(change.mos, list)?;
    let told = edit(&mut header);
    object.set_bonus(change.tx, ObjectType::BPOBJ_HEADER, &header.encode(size))?;
    Ok(told)
}

/// Puts pointers at the end of a list, which is not the one that all empty lists are.
pub(crate) fn append(change: &Change<'_>, list: ObjectId, items: &[Item]) -> Result<()> {
    let mut bytes = Vec::with_capacity(items.len().saturating_mul(Blkptr::SIZE));
    let mut sum = Space::default();
    for item in items {
        bytes.extend(Bpobj::encode_pointer(&item.pointer, item.freed));
        let space = change.space_of(&item.pointer);
        sum = if item.freed { sum - space } else { sum + space };
    }
    let count = bpobj_header(change.mos, list)?.count;
    change.object(list)?.write(change.tx, count.saturating_mul(POINTER), &bytes)?;
    let freed = items.iter().filter(|item| item.freed).count();
    change_header(change, list, |header| {
        header.count = header.count.saturating_add(number(items.len()));
        header.freed = header.freed.saturating_add(number(freed));
        sum.add_to([&mut header.bytes, &mut header.compressed, &mut header.uncompressed]);
    })
}

/// Puts a whole list into another; it is then a part of that, or no more.
pub(crate) fn append_list(change: &Change<'_>, list: ObjectId, part: ObjectId) -> Result<()> {
    if is_the_empty(change, part)? {
        return leave_empty(change, 1);
    }
    let header = bpobj_header(change.mos, part)?;
    if is_empty(&header) {
        return release(change, part);
    }
    let sublists = header.sublists.exists().then(|| change.object(header.sublists)).transpose()?;
    let few_sublists = sublists.as_ref().is_none_or(fits_one_block);
    let object = change.object(part)?;
    if let Some(sublists) = sublists.filter(|_| few_sublists) {
        let bytes = content(&sublists, header.sublist_count.saturating_mul(NUMBER))?;
        append_sublists(change, list, &bytes)?;
        change_header(change, part, |header| {
            (header.sublists, header.sublist_count) = (ObjectId::META, 0);
        })?;
        change.free_object(sublists.id())?;
    }
    if few_sublists && fits_one_block(&object) {
        let bytes = content(&object, header.count.saturating_mul(POINTER))?;
        let at = bpobj_header(change.mos, list)?.count.saturating_mul(POINTER);
        change.object(list)?.write(change.tx, at, &bytes)?;
        change_header(change, list, |to| to.count = to.count.saturating_add(header.count))?;
        change.free_object(part)?;
    } else {
        append_sublists(change, list, &part.get().to_le_bytes())?;
    }
    change_header(change, list, |to| {
        let sum = Space::from_counts([header.bytes, header.compressed, header.uncompressed]);
        sum.add_to([&mut to.bytes, &mut to.compressed, &mut to.uncompressed]);
    })
}

fn append_sublists(change: &Change<'_>, list: ObjectId, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let header = bpobj_header(change.mos, list)?;
    let table = if header.sublists.exists() {
        header.sublists
    } else {
        change.new_object(ObjectType::BPOBJ_SUBOBJ, LIST_BLOCK, ObjectType::NONE, Vec::new())?
    };
    let at = header.sublist_count.saturating_mul(NUMBER);
    change.object(table)?.write(change.tx, at, bytes)?;
    change_header(change, list, |header| {
        header.sublists = table;
        let more = number(bytes.len()) / NUMBER;
        header.sublist_count = header.sublist_count.saturating_add(more);
    })
}

fn fits_one_block(object: &Object) -> bool {
    object.max_block().get() == 0
}

fn content(object: &Object, length: u64) -> Result<Vec<u8>> {
    // no more than one block, as was asked for before
    let length = length.min(object.block_size().into());
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    object.read(0, &mut bytes)?;
    Ok(bytes)
}

pub(crate) fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
