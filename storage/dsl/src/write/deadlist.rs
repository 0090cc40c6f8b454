//! Changes deadlists: the blocks that the previous snapshot references and a dataset no longer
//! does.
//!
//! A deadlist has a list for each interval between snapshots in which its blocks were born. When a
//! snapshot is destroyed, whole lists move: to the pool's list of blocks to free, or into the next
//! dataset's deadlist. Livelists have the same form.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::dsl::Deadlist;
use ondisk::{ObjectType, version};
use units::{MinusOrZero, ObjectId, Txg};

use super::bpobj::{self, BpobjItem};
use super::context::{SyncTaskContext, hex_name};
use super::old_deadlist as old;
use super::space::SpaceDelta;
use crate::block_lists::deadlist_entries;
use crate::{Error, Result};

/// Makes a deadlist without any stretch, or of the old form where the pool's version wants that.
pub(crate) fn create(change: &SyncTaskContext<'_>) -> Result<ObjectId> {
    if change.version < version::DEADLISTS {
        return bpobj::create(change);
    }
    let header = Deadlist::default().encode();
    change.create_zap_with_bonus(ObjectType::DEADLIST, ObjectType::DEADLIST_HEADER, header)
}

/// Makes an empty deadlist with the stretches of another. Where all empty lists are one, the table is
/// copied: a snapshot of a file system with thousands of them would be slow to take otherwise.
pub(crate) fn copy_empty_entries(
    change: &SyncTaskContext<'_>,
    other: ObjectId,
    latest: ObjectId,
) -> Result<ObjectId> {
    let is_old = old::is_old_format(change, other)?;
    let Some(empty) = bpobj::empty_bpobj(change)?.filter(|_| !is_old) else {
        return clone_empty(change, other, None, latest);
    };
    let kinds = (ObjectType::DEADLIST, ObjectType::DEADLIST_HEADER);
    let header = Deadlist::default().encode();
    match change.copy_zap_with_bonus(other, kinds, header, empty.get())? {
        Some((new, stretches)) => {
            bpobj::reference_empty_bpobj(change, stretches)?;
            Ok(new)
        }
        None => clone_empty(change, other, None, latest),
    }
}

/// Creates an empty deadlist with the intervals of another that begin before `end`. If the other
/// has the old form without intervals, there is one for each snapshot from `latest` back.
pub(crate) fn clone_empty(
    change: &SyncTaskContext<'_>,
    other: ObjectId,
    end: Option<Txg>,
    latest: ObjectId,
) -> Result<ObjectId> {
    let new = create(change)?;
    if old::is_old_format(change, new)? {
        return Ok(new);
    }
    let starts: Vec<Txg> = if old::is_old_format(change, other)? {
        old::new_entry_txgs(change, latest)?
    } else {
        let starts = entries(change, other)?.into_iter().map(|(start, _)| start);
        starts.filter(|start| end.is_none_or(|end| *start < end)).collect()
    };
    add_entries(change, new, &starts)?;
    Ok(new)
}

/// Frees a deadlist with its lists, but not the blocks in them.
pub(crate) fn free(change: &SyncTaskContext<'_>, id: ObjectId) -> Result<()> {
    if old::is_old_format(change, id)? {
        return bpobj::free(change, id);
    }
    let contents = read_contents(change, id)?;
    for filled in contents.entries {
        bpobj::free(change, filled.bpobj)?;
    }
    bpobj::release_empty_bpobj(change, contents.empty_count)?;
    change.free_object(id)
}

/// A stretch of a deadlist that has a list of its own, and not the one that all empty lists are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeadlistEntry {
    /// The txg after which the stretch begins.
    pub(crate) start: Txg,
    pub(crate) bpobj: ObjectId,
    pub(crate) space: SpaceDelta,
}

/// The space of a deadlist's intervals.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DeadlistContents {
    /// The stretches with lists of their own, oldest first.
    pub(crate) entries: Vec<DeadlistEntry>,
    /// How many stretches have the list that all empty lists are.
    pub(crate) empty_count: u64,
    /// The deadlist has the form before version 26, without intervals. For each txg in which blocks
    /// of it were born there is an interval here that begins with the txg before.
    pub(crate) is_old_format: bool,
}

impl DeadlistContents {
    /// The space of the stretches that begin at `from` or later, and before `to`.
    pub(crate) fn space_in_range(&self, from: Txg, to: Option<Txg>) -> SpaceDelta {
        let within = |it: &&DeadlistEntry| it.start >= from && to.is_none_or(|to| it.start < to);
        let spaces = self.entries.iter().filter(within).map(|it| it.space);
        spaces.fold(SpaceDelta::default(), std::ops::Add::add)
    }
}

/// Reads the space of a deadlist's intervals.
pub(crate) fn read_contents(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
) -> Result<DeadlistContents> {
    if old::is_old_format(change, id)? {
        return old::read_contents(change, id);
    }
    let the_empty = bpobj::empty_bpobj(change)?;
    let mut found = DeadlistContents::default();
    for (start, list) in entries(change, id)? {
        if Some(list) == the_empty {
            found.empty_count += 1;
        } else {
            found.entries.push(DeadlistEntry {
                start,
                bpobj: list,
                space: bpobj::space(change, list)?,
            });
        }
    }
    Ok(found)
}

/// The stretches: after which txg each begins, and its list.
pub(crate) fn entries(change: &SyncTaskContext<'_>, id: ObjectId) -> Result<Vec<(Txg, ObjectId)>> {
    deadlist_entries(change.mos, id)
}

/// All its space.
pub(crate) fn space(change: &SyncTaskContext<'_>, id: ObjectId) -> Result<SpaceDelta> {
    if old::is_old_format(change, id)? {
        return bpobj::space(change, id);
    }
    let header = read_header(change, id)?;
    Ok(SpaceDelta::from_counts([header.used, header.compressed, header.uncompressed]))
}

/// The space of its stretches that begin at `from` or later, and before `to`.
pub(crate) fn space_in_range(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    from: Txg,
    to: Option<Txg>,
) -> Result<SpaceDelta> {
    if old::is_old_format(change, id)? {
        return old::space_in_range(change, id, from, to);
    }
    let the_empty = bpobj::empty_bpobj(change)?;
    let mut sum = SpaceDelta::default();
    for (start, list) in entries(change, id)? {
        if start >= from && to.is_none_or(|to| start < to) && Some(list) != the_empty {
            sum = sum + bpobj::space(change, list)?;
        }
    }
    Ok(sum)
}

fn read_header(change: &SyncTaskContext<'_>, id: ObjectId) -> Result<Deadlist> {
    let object = change.object(id)?;
    let parsed = Deadlist::parse(object.bonus(), object.bonus_order());
    parsed.map_err(|error| Error::Corrupt { object: id, why: error })
}

fn add_to_header(change: &SyncTaskContext<'_>, id: ObjectId, delta: SpaceDelta) -> Result<()> {
    let mut header = read_header(change, id)?;
    delta.add_to([&mut header.used, &mut header.compressed, &mut header.uncompressed]);
    let object = change.object(id)?;
    object.set_bonus(change.tx, ObjectType::DEADLIST_HEADER, &header.encode())?;
    Ok(())
}

/// Begins stretches after these txgs.
pub(crate) fn add_entries(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    starts: &[Txg],
) -> Result<()> {
    if starts.is_empty() || old::is_old_format(change, id)? {
        return Ok(());
    }
    let lists = bpobj::create_empty_bpobj(change, starts.len())?;
    assert_eq!(lists.len(), starts.len(), "each stretch of deadlist {id} has a list");
    let entries = starts.iter().zip(lists).map(|(start, list)| (hex_name(start.get()), list.get()));
    change.insert_all(id, &entries.collect::<Vec<_>>())
}

/// Joins each stretch that begins at one of `starts`, which are sorted, with the one before it.
pub(crate) fn merge_entries(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    starts: &[Txg],
) -> Result<()> {
    if starts.is_empty() || old::is_old_format(change, id)? {
        return Ok(());
    }
    assert!(starts.is_sorted(), "stretches of deadlist {id} are joined in their order: {starts:?}");
    let all = entries(change, id)?;
    let is_joined = |start: &Txg| starts.binary_search(start).is_ok();
    for start in starts {
        // the first stretch has none before it
        let at = all.binary_search_by_key(start, |(start, _)| *start);
        if at.is_err() || at == Ok(0) {
            return Err(Error::NoDeadlistEntry { object: id, txg: *start });
        }
    }
    let (joined, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|(start, _)| is_joined(start));
    change.remove_all(id, joined.iter().map(|(start, _)| hex_name(start.get())))?;
    let mut target = MergeTarget::new(change, id, left)?;
    for (start, list) in joined {
        target.append_bpobj(change, start, list)?;
    }
    target.write_entries(change)
}

/// A deadlist that whole lists are put into, with its stretches in memory.
struct MergeTarget {
    id: ObjectId,
    entries: Vec<(Txg, ObjectId)>,
    empty_bpobj: Option<ObjectId>,
    /// References to the list that all empty lists are that have gone.
    released_empty: u64,
    /// Intervals whose list differs from the table.
    changed_entries: BTreeSet<usize>,
}

impl MergeTarget {
    fn new(
        change: &SyncTaskContext<'_>,
        id: ObjectId,
        stretches: Vec<(Txg, ObjectId)>,
    ) -> Result<Self> {
        let the_empty = bpobj::empty_bpobj(change)?;
        Ok(Self {
            id,
            entries: stretches,
            empty_bpobj: the_empty,
            released_empty: 0,
            changed_entries: BTreeSet::new(),
        })
    }

    /// Puts a whole list, to which no other reference exists, into the interval of the txg
    /// `start`, or into the first one if `start` is before all of them.
    fn append_bpobj(
        &mut self,
        change: &SyncTaskContext<'_>,
        start: Txg,
        list: ObjectId,
    ) -> Result<()> {
        if Some(list) == self.empty_bpobj {
            self.released_empty += 1;
            return Ok(());
        }
        let behind = self.entries.partition_point(|(begin, _)| *begin <= start);
        let at = behind.minus_or_zero(1);
        let missing = Error::NoDeadlistEntry { object: self.id, txg: start };
        let (_, into) = self.entries.get_mut(at).ok_or(missing)?;
        if Some(*into) != self.empty_bpobj {
            return bpobj::append_subobj(change, *into, list);
        }
        self.released_empty += 1;
        *into = list;
        self.changed_entries.insert(at);
        Ok(())
    }

    /// Writes the table of the deadlist.
    fn write_entries(self, change: &SyncTaskContext<'_>) -> Result<()> {
        for (start, list) in self.changed_entries.iter().filter_map(|at| self.entries.get(*at)) {
            change.update_u64(self.id, &hex_name(start.get()), list.get())?;
        }
        bpobj::release_empty_bpobj(change, self.released_empty)
    }
}

/// Adds pointers, each to the stretch in which its block was born.
pub(crate) fn insert(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    items: Vec<BpobjItem>,
) -> Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    if old::is_old_format(change, id)? {
        return bpobj::append(change, id, &items).map(drop);
    }
    let (all, count) = (entries(change, id)?, items.len());
    let mut sum = SpaceDelta::default();
    let mut by_stretch: BTreeMap<usize, Vec<BpobjItem>> = BTreeMap::new();
    for item in items {
        let space = change.space_of(&item.pointer);
        sum = if item.is_free { sum - space } else { sum + space };
        let birth = item.pointer.birth();
        // what is born before the first stretch cannot be; it is put there
        let at = all.partition_point(|(start, _)| *start < birth).minus_or_zero(1);
        by_stretch.entry(at).or_default().push(item);
    }
    let sorted = by_stretch.values().map(Vec::len).sum::<usize>();
    assert_eq!(sorted, count, "each pointer is in one stretch of deadlist {id}");
    let mut appended = SpaceDelta::default();
    for (at, items) in by_stretch {
        let missing = Error::NoDeadlistEntry { object: id, txg: Txg::ZERO };
        let (start, mut list) = *all.get(at).ok_or(missing)?;
        if bpobj::is_empty_bpobj(change, list)? {
            list = bpobj::create(change)?;
            bpobj::release_empty_bpobj(change, 1)?;
            change.update_u64(id, &hex_name(start.get()), list.get())?;
        }
        appended = appended + bpobj::append(change, list, &items)?;
    }
    assert_eq!(appended, sum, "the lists of deadlist {id} get the space that its header gets");
    add_to_header(change, id, sum)
}

/// Drops a stretch with its list, but not the blocks in it.
pub(crate) fn remove_entry(change: &SyncTaskContext<'_>, id: ObjectId, start: Txg) -> Result<()> {
    let all = entries(change, id)?;
    let missing = Error::NoDeadlistEntry { object: id, txg: start };
    let (_, list) = *all.iter().find(|(other, _)| *other == start).ok_or(missing)?;
    let space = bpobj::space(change, list)?;
    change.remove(id, &hex_name(start.get()))?;
    add_to_header(change, id, -space)?;
    bpobj::free(change, list)
}

/// Empties and frees the deadlists of neighbouring snapshots to destroy, oldest first. Blocks born
/// after `previous`, the txg of the snapshot before them, move to the end of the list `freed`, also
/// those of the deadlist `next` of the dataset after them. All others move into `next`.
pub(crate) fn merge_destroyed(
    change: &SyncTaskContext<'_>,
    run: &[(ObjectId, DeadlistContents)],
    next: ObjectId,
    previous: Txg,
    freed: ObjectId,
) -> Result<()> {
    // Rule: the blocks that are freed move to the pool's list with the txg in which the snapshot goes. The list is
    // freed by later txgs, so that a crash at any of them finds each block in a snapshot or in the list.
    let mut stretches = entries(change, next)?;
    let young = stretches.split_off(stretches.partition_point(|(start, _)| *start < previous));
    let mut target = MergeTarget::new(change, next, stretches)?;
    let mut delta = SpaceDelta::default();
    change.remove_all(next, young.iter().map(|(start, _)| hex_name(start.get())))?;
    for (_, list) in young {
        if Some(list) == target.empty_bpobj {
            target.released_empty += 1;
            continue;
        }
        delta = delta - bpobj::space(change, list)?;
        bpobj::append_subobj(change, freed, list)?;
    }
    let mut old_lists = Vec::new();
    for (at, (id, contents)) in run.iter().enumerate() {
        if contents.is_old_format {
            old_lists.push(*id);
            continue;
        }
        target.released_empty += contents.empty_count;
        for filled in &contents.entries {
            // blocks missing in the oldest snapshot are in the snapshot before it
            if at > 0 && filled.start >= previous {
                bpobj::append_subobj(change, freed, filled.bpobj)?;
            } else {
                delta = delta + filled.space;
                target.append_bpobj(change, filled.start, filled.bpobj)?;
            }
        }
        change.free_object(*id)?;
    }
    add_to_header(change, next, delta)?;
    target.write_entries(change)?;
    for list in old_lists {
        old::for_each_batch(change, list, &mut |items| insert(change, next, items))?;
        bpobj::free(change, list)?;
    }
    Ok(())
}
