//! Changing deadlists: what the previous snapshot reaches and a dataset no longer does.
//!
//! A deadlist has a list for each stretch between snapshots in which its blocks were born. When a
//! snapshot goes, whole lists move: to the pool's list of what is to be freed, or into the next
//! dataset's deadlist. Livelists have the same form.

use std::collections::{BTreeMap, BTreeSet};

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

/// Makes an empty deadlist with the stretches of another. Where all empty lists are one, the table is
/// copied: a snapshot of a file system with thousands of them would be slow to take otherwise.
pub(crate) fn copy_stretches(
    change: &Change<'_>,
    other: ObjectId,
    latest: ObjectId,
) -> Result<ObjectId> {
    let is_old = old::is_old(change, other)?;
    let Some(empty) = list::the_empty(change)?.filter(|_| !is_old) else {
        return create_like(change, other, None, latest);
    };
    let kinds = (ObjectType::DEADLIST, ObjectType::DEADLIST_HEADER);
    let header = Deadlist::default().encode();
    match change.copy_table_with(other, kinds, header, empty.get())? {
        Some((new, stretches)) => {
            list::refer_to_empty(change, stretches)?;
            Ok(new)
        }
        None => create_like(change, other, None, latest),
    }
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
    let starts: Vec<Txg> = if old::is_old(change, other)? {
        old::stretches(change, latest)?
    } else {
        let starts = parts(change, other)?.into_iter().map(|(start, _)| start);
        starts.filter(|start| end.is_none_or(|end| *start < end)).collect()
    };
    add_stretches(change, new, &starts)?;
    Ok(new)
}

/// Frees a deadlist with its lists, but not the blocks in them.
pub(crate) fn release(change: &Change<'_>, id: ObjectId) -> Result<()> {
    if old::is_old(change, id)? {
        return list::release(change, id);
    }
    let contents = contents(change, id)?;
    for filled in contents.filled {
        list::release(change, filled.list)?;
    }
    list::leave_empty(change, contents.empty)?;
    change.free_object(id)
}

/// A stretch of a deadlist that has a list of its own, and not the one that all empty lists are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Filled {
    /// The txg after which the stretch begins.
    pub(crate) start: Txg,
    pub(crate) list: ObjectId,
    pub(crate) space: Space,
}

/// What the stretches of a deadlist hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Contents {
    /// The stretches with lists of their own, oldest first.
    pub(crate) filled: Vec<Filled>,
    /// How many stretches have the list that all empty lists are.
    pub(crate) empty: u64,
    /// The deadlist is of the form before version 26, without stretches: for each txg in which blocks of it
    /// were born there is a stretch here that begins with the txg before.
    pub(crate) is_old: bool,
}

impl Contents {
    /// The space of the stretches that begin at `from` or later, and before `to`.
    pub(crate) fn space_between(&self, from: Txg, to: Option<Txg>) -> Space {
        let within = |it: &&Filled| it.start >= from && to.is_none_or(|to| it.start < to);
        let spaces = self.filled.iter().filter(within).map(|it| it.space);
        spaces.fold(Space::default(), std::ops::Add::add)
    }
}

/// Reads what the stretches of a deadlist hold.
pub(crate) fn contents(change: &Change<'_>, id: ObjectId) -> Result<Contents> {
    if old::is_old(change, id)? {
        return old::contents(change, id);
    }
    let the_empty = list::the_empty(change)?;
    let mut found = Contents::default();
    for (start, list) in parts(change, id)? {
        if Some(list) == the_empty {
            found.empty = found.empty.saturating_add(1);
        } else {
            found.filled.push(Filled { start, list, space: list::space(change, list)? });
        }
    }
    Ok(found)
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
    let the_empty = list::the_empty(change)?;
    let mut sum = Space::default();
    for (start, list) in parts(change, id)? {
        if start >= from && to.is_none_or(|to| start < to) && Some(list) != the_empty {
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

/// Begins stretches after these txgs.
pub(crate) fn add_stretches(change: &Change<'_>, id: ObjectId, starts: &[Txg]) -> Result<()> {
    if starts.is_empty() || old::is_old(change, id)? {
        return Ok(());
    }
    let lists = list::create_empty(change, starts.len())?;
    let entries = starts.iter().zip(lists).map(|(start, list)| (digits(start.get()), list.get()));
    change.insert_all(id, &entries.collect::<Vec<_>>())
}

/// Joins each stretch that begins at one of `starts`, which are sorted, with the one before it.
pub(crate) fn join_stretches(change: &Change<'_>, id: ObjectId, starts: &[Txg]) -> Result<()> {
    if starts.is_empty() || old::is_old(change, id)? {
        return Ok(());
    }
    let all = parts(change, id)?;
    let is_joined = |start: &Txg| starts.binary_search(start).is_ok();
    for start in starts {
        // the first stretch has none before it
        let at = all.binary_search_by_key(start, |(start, _)| *start);
        if at.is_err() || at == Ok(0) {
            return Err(Error::NoStretch { object: id, txg: *start });
        }
    }
    let (joined, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|(start, _)| is_joined(start));
    change.remove_all(id, joined.iter().map(|(start, _)| digits(start.get())))?;
    let mut target = Target::new(change, id, left)?;
    for (start, list) in joined {
        target.append(change, start, list)?;
    }
    target.finish(change)
}

/// A deadlist that whole lists are put into, with its stretches in memory.
struct Target {
    id: ObjectId,
    stretches: Vec<(Txg, ObjectId)>,
    the_empty: Option<ObjectId>,
    /// References to the list that all empty lists are that have gone.
    emptied: u64,
    /// Stretches whose list is another than in the table.
    changed: BTreeSet<usize>,
}

impl Target {
    fn new(change: &Change<'_>, id: ObjectId, stretches: Vec<(Txg, ObjectId)>) -> Result<Self> {
        let the_empty = list::the_empty(change)?;
        Ok(Self { id, stretches, the_empty, emptied: 0, changed: BTreeSet::new() })
    }

    /// Puts a whole list, of which nobody else knows any more, into the stretch that contains the txg
    /// `start`, or into the first where that is before all of them.
    fn append(&mut self, change: &Change<'_>, start: Txg, list: ObjectId) -> Result<()> {
        if Some(list) == self.the_empty {
            self.emptied = self.emptied.saturating_add(1);
            return Ok(());
        }
        let behind = self.stretches.partition_point(|(begin, _)| *begin <= start);
        let at = behind.saturating_sub(1);
        let missing = Error::NoStretch { object: self.id, txg: start };
        let (_, into) = self.stretches.get_mut(at).ok_or(missing)?;
        if Some(*into) != self.the_empty {
            return list::append_list(change, *into, list);
        }
        self.emptied = self.emptied.saturating_add(1);
        *into = list;
        self.changed.insert(at);
        Ok(())
    }

    /// Writes the table of the deadlist.
    fn finish(self, change: &Change<'_>) -> Result<()> {
        for (start, list) in self.changed.iter().filter_map(|at| self.stretches.get(*at)) {
            change.put_number(self.id, &digits(start.get()), list.get())?;
        }
        list::leave_empty(change, self.emptied)
    }
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
            list::leave_empty(change, 1)?;
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

/// Empties and frees the deadlists of neighbouring snapshots that go, oldest first. What was born after
/// `previous`, the txg of the snapshot before them, is moved to the end of the list `freed`, from the
/// deadlist `next` of the dataset after them, too; all else is moved into `next`.
pub(crate) fn merge_run(
    change: &Change<'_>,
    run: &[(ObjectId, Contents)],
    next: ObjectId,
    previous: Txg,
    freed: ObjectId,
) -> Result<()> {
    let mut stretches = parts(change, next)?;
    let young = stretches.split_off(stretches.partition_point(|(start, _)| *start < previous));
    let mut target = Target::new(change, next, stretches)?;
    let mut delta = Space::default();
    change.remove_all(next, young.iter().map(|(start, _)| digits(start.get())))?;
    for (_, list) in young {
        if Some(list) == target.the_empty {
            target.emptied = target.emptied.saturating_add(1);
            continue;
        }
        delta = delta - list::space(change, list)?;
        list::append_list(change, freed, list)?;
    }
    let mut old_lists = Vec::new();
    for (at, (id, contents)) in run.iter().enumerate() {
        if contents.is_old {
            old_lists.push(*id);
            continue;
        }
        target.emptied = target.emptied.saturating_add(contents.empty);
        for filled in &contents.filled {
            // what the oldest snapshot lacks is in the snapshot before it
            if at > 0 && filled.start >= previous {
                list::append_list(change, freed, filled.list)?;
            } else {
                delta = delta + filled.space;
                target.append(change, filled.start, filled.list)?;
            }
        }
        change.free_object(*id)?;
    }
    add_to_header(change, next, delta)?;
    target.finish(change)?;
    for list in old_lists {
        old::for_each_run(change, list, &mut |items| insert(change, next, items))?;
        list::release(change, list)?;
    }
    Ok(())
}
