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

use super::context::{BPOBJ_BLOCK_SIZE, POOL_DIRECTORY, SyncTaskContext};
use super::features::{self, guid};
use super::space::SpaceDelta;
use crate::Result;
use crate::block_lists::bpobj_header;
pub(crate) use units::to_u64;

/// The name of the list that all empty lists are.
const EMPTY_BPOBJ: &str = "empty_bpobj";
const U64_SIZE: u64 = 8;
const BLKPTR_SIZE: u64 = 128;

/// A pointer for a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BpobjItem {
    pub(crate) pointer: Blkptr,
    /// In a livelist: the entry is a free.
    pub(crate) is_free: bool,
}

/// Makes a list of its own.
pub(crate) fn create(change: &SyncTaskContext<'_>) -> Result<ObjectId> {
    let size = match change.version {
        ..version::DEFLATE => Bpobj::SIZE_FIRST,
        version::DEFLATE..version::DEADLISTS => Bpobj::SIZE_WITHOUT_SUBLISTS,
        _ if features::is_active(change, guid::LIVELIST)? => Bpobj::SIZE,
        _ => Bpobj::SIZE_PLAIN,
    };
    let header = Bpobj::default().encode(size);
    change.create_object(ObjectType::BPOBJ, BPOBJ_BLOCK_SIZE, ObjectType::BPOBJ_HEADER, header)
}

/// Creates this many empty lists: references to the shared empty list, or lists of their own.
pub(crate) fn create_empty_bpobj(
    change: &SyncTaskContext<'_>,
    count: usize,
) -> Result<Vec<ObjectId>> {
    if !features::is_enabled(change, guid::EMPTY_BPOBJ)? {
        return (0..count).map(|_| create(change)).collect();
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let empty = if let Some(empty) = empty_bpobj(change)? {
        empty
    } else {
        let empty = create(change)?;
        change.insert_u64(POOL_DIRECTORY, EMPTY_BPOBJ, empty.get())?;
        empty
    };
    features::increment_by(change, guid::EMPTY_BPOBJ, to_u64(count))?;
    Ok(vec![empty; count])
}

/// Adds references to the shared empty list, which exists.
pub(crate) fn reference_empty_bpobj(change: &SyncTaskContext<'_>, count: u64) -> Result<()> {
    features::increment_by(change, guid::EMPTY_BPOBJ, count)
}

/// The list that all empty lists are, if there is one.
pub(crate) fn empty_bpobj(change: &SyncTaskContext<'_>) -> Result<Option<ObjectId>> {
    Ok(change.lookup_u64(POOL_DIRECTORY, EMPTY_BPOBJ)?.map(ObjectId::new))
}

/// Whether it is the one that all empty lists are.
pub(crate) fn is_empty_bpobj(change: &SyncTaskContext<'_>, list: ObjectId) -> Result<bool> {
    Ok(empty_bpobj(change)? == Some(list))
}

/// Removes references to the shared empty list.
pub(crate) fn release_empty_bpobj(change: &SyncTaskContext<'_>, count: u64) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    features::decrement_by(change, guid::EMPTY_BPOBJ, count)?;
    if features::is_active(change, guid::EMPTY_BPOBJ)? {
        return Ok(());
    }
    if let Some(empty) = empty_bpobj(change)? {
        change.remove(POOL_DIRECTORY, EMPTY_BPOBJ)?;
        change.free_object(empty)?;
    }
    Ok(())
}

/// Frees a list with its sublists, or leaves the one that all empty lists are.
pub(crate) fn free(change: &SyncTaskContext<'_>, list: ObjectId) -> Result<()> {
    if is_empty_bpobj(change, list)? {
        return release_empty_bpobj(change, 1);
    }
    for id in crate::block_lists::bpobj_objects(change.mos, list)? {
        change.free_object(id)?;
    }
    change.free_object(list)
}

/// The bytes of all blocks of a list and its sublists.
pub(crate) fn space(change: &SyncTaskContext<'_>, list: ObjectId) -> Result<SpaceDelta> {
    let header = bpobj_header(change.mos, list)?;
    Ok(SpaceDelta::from_counts([header.bytes, header.compressed, header.uncompressed]))
}

pub(crate) fn is_empty(header: &Bpobj) -> bool {
    header.count == 0 && header.sublist_count == 0
}

pub(crate) fn update_header<T>(
    change: &SyncTaskContext<'_>,
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

/// Puts pointers at the end of a list, which is not the one that all empty lists are. Returns their space.
pub(crate) fn append(
    change: &SyncTaskContext<'_>,
    list: ObjectId,
    items: &[BpobjItem],
) -> Result<SpaceDelta> {
    let mut bytes = Vec::with_capacity(items.len() * Blkptr::SIZE);
    let mut sum = SpaceDelta::default();
    for item in items {
        bytes.extend(Bpobj::encode_pointer(&item.pointer, item.is_free));
        let space = change.space_of(&item.pointer);
        sum = if item.is_free { sum - space } else { sum + space };
    }
    // Rule: the pointers are written behind the count, which grows with them in the same txg. A list whose count
    // is short after a crash would leak blocks; one that is long would free what is in use.
    assert_eq!(bytes.len(), items.len() * Blkptr::SIZE, "a list has pointers of one size");
    let count = bpobj_header(change.mos, list)?.count;
    change.object(list)?.write(change.tx, count * BLKPTR_SIZE, &bytes)?;
    let freed = items.iter().filter(|item| item.is_free).count();
    update_header(change, list, |header| {
        assert_eq!(header.count, count, "one thread at a time appends to list {list}");
        header.count += to_u64(items.len());
        header.freed += to_u64(freed);
        sum.add_to([&mut header.bytes, &mut header.compressed, &mut header.uncompressed]);
    })?;
    Ok(sum)
}

/// Moves a whole list into another, as a sublist or by its entries.
pub(crate) fn append_subobj(
    change: &SyncTaskContext<'_>,
    list: ObjectId,
    part: ObjectId,
) -> Result<()> {
    if is_empty_bpobj(change, part)? {
        return release_empty_bpobj(change, 1);
    }
    let header = bpobj_header(change.mos, part)?;
    if is_empty(&header) {
        return free(change, part);
    }
    let sublists = header.sublists.exists().then(|| change.object(header.sublists)).transpose()?;
    let few_sublists = sublists.as_ref().is_none_or(fits_one_block);
    let object = change.object(part)?;
    if let Some(sublists) = sublists.filter(|_| few_sublists) {
        let bytes = read_content(&sublists, header.sublist_count * U64_SIZE)?;
        append_subobj_ids(change, list, &bytes)?;
        update_header(change, part, |header| {
            (header.sublists, header.sublist_count) = (ObjectId::META, 0);
        })?;
        change.free_object(sublists.id())?;
    }
    if few_sublists && fits_one_block(&object) {
        let bytes = read_content(&object, header.count * BLKPTR_SIZE)?;
        let at = bpobj_header(change.mos, list)?.count * BLKPTR_SIZE;
        change.object(list)?.write(change.tx, at, &bytes)?;
        update_header(change, list, |to| to.count += header.count)?;
        change.free_object(part)?;
    } else {
        append_subobj_ids(change, list, &part.get().to_le_bytes())?;
    }
    update_header(change, list, |to| {
        let sum = SpaceDelta::from_counts([header.bytes, header.compressed, header.uncompressed]);
        sum.add_to([&mut to.bytes, &mut to.compressed, &mut to.uncompressed]);
    })
}

fn append_subobj_ids(change: &SyncTaskContext<'_>, list: ObjectId, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    assert!(bytes.len().is_multiple_of(8), "list {list} gets whole numbers of sublists");
    let header = bpobj_header(change.mos, list)?;
    let table = if header.sublists.exists() {
        header.sublists
    } else {
        change.create_object(
            ObjectType::BPOBJ_SUBOBJ,
            BPOBJ_BLOCK_SIZE,
            ObjectType::NONE,
            Vec::new(),
        )?
    };
    let at = header.sublist_count * U64_SIZE;
    change.object(table)?.write(change.tx, at, bytes)?;
    update_header(change, list, |header| {
        header.sublists = table;
        let more = to_u64(bytes.len()) / U64_SIZE;
        header.sublist_count += more;
    })
}

fn fits_one_block(object: &Object) -> bool {
    object.max_block().get() == 0
}

fn read_content(object: &Object, length: u64) -> Result<Vec<u8>> {
    // no more than one block, as the limit before
    let length = length.min(object.block_size().into());
    let mut bytes = vec![0; units::to_usize(length)];
    object.read(0, &mut bytes)?;
    Ok(bytes)
}
