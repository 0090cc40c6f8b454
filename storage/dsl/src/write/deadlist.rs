//! Changing deadlists: what the previous snapshot reaches and a dataset no longer does.
//!
//! A deadlist has a list for each stretch between snapshots in which its blocks were born. When a
//! snapshot goes, whole lists move: to the pool's list of what is to be freed, or into the next
//! dataset's deadlist. Livelists have the same form.

use std::collections::BTreeMap;

use ondisk::dsl::Deadlist;
use ondisk::{ObjectType, version};
use units::{ObjectId, Txg};

use super::change::{Change, digits};
use super::list::{self, Item};
use super::old_deadlist as old;
use super::space::Space;
use crate::lists::deadlist_parts;
use crate::{Error, Result};

/// Makes a deadlist without any stretch, or of the old form where the pool's version wants that.
pub(crate) fn create(change: &Change<'_>) -> Result<ObjectId> {
    if change.version < version::DEADLISTS {
        return list::create(change);
    }
    let header = Deadlist::default().encode();
    change.new_table_with(ObjectType::DEADLIST, ObjectType::DEADLIST_HEADER, header)
}

/// Makes an empty deadlist with the stretches of another that begin before `end`. Where the other is
/// of the old form, which has none, there is one for each snapshot from `latest` back.
pub(crate) fn create_like(
    change: &Change<'_>,
    other: ObjectId,
    end: Option<Txg>,
    latest: ObjectId,
) -> Result<ObjectId> {
    let new = create(change)?;
    if old::is_old(change, new)? {
        return Ok(new);
    }
    if old::is_old(change, other)? {
        for start in old::stretches(change, latest)? {
            add_stretch(change, new, start)?;
        }
        return Ok(new);
    }
    for (start, _) in parts(change, other)? {
        if end.is_none_or(|end| start < end) {
            add_stretch(change, new, start)?;
        }
    }
    Ok(new)
}

/// Frees a deadlist with its lists, but not the blocks in them.
pub(crate) fn release(change: &Change<'_>, id: ObjectId) -> Result<()> {
    if old::is_old(change, id)? {
        return list::release(change, id);
    }
    for (_, list) in parts(change, id)? {
        list::release(change, list)?;
    }
    change.free_object(id)
}

/// The stretches: after which txg each begins, and its list.
pub(crate) fn parts(change: &Change<'_>, id: ObjectId) -> Result<Vec<(Txg, ObjectId)>> {
    deadlist_parts(change.mos, id)
}

/// All its space.
pub(crate) fn space(change: &Change<'_>, id: ObjectId) -> Result<Space> {
    if old::is_old(change, id)? {
        return list::space(change, id);
    }
    let header = header(change, id)?;
    Ok(Space::from_counts([header.used, header.compressed, header.uncompressed]))
}

/// The space of its stretches that begin at `from` or later, and before `to`.
pub(crate) fn space_between(
    change: &Change<'_>,
    id: ObjectId,
    from: Txg,
    to: Option<Txg>,
) -> Result<Space> {
    if old::is_old(change, id)? {
        return old::space_between(change, id, from, to);
    }
    let mut sum = Space::default();
    for (start, list) in parts(change, id)? {
        if start >= from && to.is_none_or(|to| start < to) {
            sum = sum + list::space(change, list)?;
        }
    }
    Ok(sum)
}

fn header(change: &Change<'_>, id: ObjectId) -> Result<Deadlist> {
    let object = change.object(id)?;
    let parsed = Deadlist::parse(object.bonus(), object.bonus_order());
    parsed.map_err(|why| Error::Structure { object: id, why })
}

fn add_to_header(change: &Change<'_>, id: ObjectId, delta: Space) -> Result<()> {
    let mut header = header(change, id)?;
    delta.add_to([&mut header.used, &mut header.compressed, &mut header.uncompressed]);
    let object = change.object(id)?;
    object.set_bonus(change.tx, ObjectType::DEADLIST_HEADER, &header.encode())?;
    Ok(())
}

/// Begins a stretch after a txg.
pub(crate) fn add_stretch(change: &Change<'_>, id: ObjectId, start: Txg) -> Result<()> {
    if old::is_old(change, id)? {
        return Ok(());
    }
    let list = list::create_empty(change)?;
    change.insert(id, &digits(start.get()), list.get())
}

/// Joins a stretch with the one before it.
pub(crate) fn join_stretch(change: &Change<'_>, id: ObjectId, start: Txg) -> Result<()> {
    if old::is_old(change, id)? {
        return Ok(());
    }
    let all = parts(change, id)?;
    let at = all.partition_point(|(other, _)| *other < start);
    let found = all.get(at).filter(|(other, _)| *other == start);
    let before = at.checked_sub(1).and_then(|before| all.get(before));
    let (Some((_, list)), Some(before)) = (found, before) else {
        return Err(Error::NoStretch { object: id, txg: start });
    };
    change.remove(id, &digits(start.get()))?;
    put_list(change, id, *before, *list)
}

/// Puts a whole list into one of the stretches.
fn put_list(
    change: &Change<'_>,
    id: ObjectId,
    (start, into): (Txg, ObjectId),
    list: ObjectId,
) -> Result<()> {
    if !list::is_the_empty(change, into)? {
        return list::append_list(change, into, list);
    }
    list::leave_empty(change)?;
    change.put_number(id, &digits(start.get()), list.get())
}

/// Adds pointers, each to the stretch in which its block was born.
pub(crate) fn insert(change: &Change<'_>, id: ObjectId, items: Vec<Item>) -> Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    if old::is_old(change, id)? {
        return list::append(change, id, &items);
    }
    let all = parts(change, id)?;
    let mut sum = Space::default();
    let mut by_stretch: BTreeMap<usize, Vec<Item>> = BTreeMap::new();
    for item in items {
        let space = change.space_of(&item.pointer);
        sum = if item.freed { sum - space } else { sum + space };
        let birth = item.pointer.birth();
        // what is born before the first stretch cannot be; it is put there
        let at = all.partition_point(|(start, _)| *start < birth).saturating_sub(1);
        by_stretch.entry(at).or_default().push(item);
    }
    for (at, items) in by_stretch {
        let missing = Error::NoStretch { object: id, txg: Txg::ZERO };
        let (start, mut list) = *all.get(at).ok_or(missing)?;
        if list::is_the_empty(change, list)? {
            list = list::create(change)?;
            list::leave_empty(change)?;
            change.put_number(id, &digits(start.get()), list.get())?;
        }
        list::append(change, list, &items)?;
    }
    add_to_header(change, id, sum)
}

/// Drops a stretch with its list, but not the blocks in it.
pub(crate) fn drop_stretch(change: &Change<'_>, id: ObjectId, start: Txg) -> Result<()> {
    let all = parts(change, id)?;
    let missing = Error::NoStretch { object: id, txg: start };
    let (_, list) = *all.iter().find(|(other, _)| *other == start).ok_or(missing)?;
    let space = list::space(change, list)?;
    change.remove(id, &digits(start.get()))?;
    add_to_header(change, id, -space)?;
    list::release(change, list)
}

/// Moves the stretches that begin at `from` or later, to the end of a list.
pub(crate) fn move_to_list(
    change: &Change<'_>,
    id: ObjectId,
    from: Txg,
    into: ObjectId,
) -> Result<()> {
    for (start, list) in parts(change, id)?.into_iter().filter(|(start, _)| *start >= from) {
        let space = list::space(change, list)?;
        change.remove(id, &digits(start.get()))?;
        list::append_list(change, into, list)?;
        add_to_header(change, id, -space)?;
    }
    Ok(())
}

/// Moves all that is in `other` into the stretches of `id`; `other` is then empty.
pub(crate) fn merge(change: &Change<'_>, id: ObjectId, other: ObjectId) -> Result<()> {
    if old::is_old(change, other)? {
        return old::for_each_run(change, other, &mut |items| insert(change, id, items));
    }
    for (start, list) in parts(change, other)? {
        let all = parts(change, id)?;
        let at = all.partition_point(|(begin, _)| *begin <= start).saturating_sub(1);
        let into = *all.get(at).ok_or(Error::NoStretch { object: id, txg: start })?;
        let space = list::space(change, list)?;
        change.remove(other, &digits(start.get()))?;
        add_to_header(change, other, -space)?;
        add_to_header(change, id, space)?;
        put_list(change, id, into, list)?;
    }
    Ok(())
}
