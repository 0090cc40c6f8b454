//! Destroying: snapshots, whose blocks go to the pool's list or to the next dataset, and heads,
//! whose whole tree is freed afterwards.

use ondisk::dsl::Dataset as DatasetPhys;
use ondisk::version;
use units::{ObjectId, Txg};

use super::change::{Change, free_log};
use super::features::{self, guid};
use super::names::Head;
use super::pool::{FREE_LIST, own_dir};
use super::pool_property::{pool_number, unset_pool_property};
use super::space::{For, Space, signed};
use super::{
    bookmark, create, deadlist, holds, keys, limits, livelist, old_deadlist, release, remapped,
    snapshot,
};
use crate::{Error, Result};

/// Destroys a file system or volume that has no snapshots and nothing below it. Its blocks are
/// freed over time, those of its intent log at once.
pub fn destroy(change: &Change<'_>, name: &str) -> Result<()> {
    let head = change.find_head(name)?;
    let busy = |why| Err(Error::Busy { name: name.to_owned(), why });
    if !change.dir(head.dir)?.parent.exists() {
        return busy("it is the pool's own");
    }
    if has_snapshots(change, head)? {
        return busy("it has snapshots");
    }
    if change.count(change.dir(head.dir)?.children)? != 0 {
        return busy("there are datasets below it");
    }
    free_log(change, head.dataset)?;
    destroy_head(change, head)
}

pub(crate) fn has_snapshots(change: &Change<'_>, head: Head) -> Result<bool> {
    let previous = change.previous_of(&change.dataset(head.dataset)?)?;
    Ok(previous.is_some_and(|(_, previous)| previous.next == head.dataset))
}

/// Whether a snapshot is held, so that it is not to be destroyed.
pub fn is_held(change: &Change<'_>, name: &str) -> Result<bool> {
    let (_, id) = change.find_snapshot(name)?;
    Ok(change.count(change.dataset(id)?.holds)? != 0)
}

/// Destroys a snapshot. One that is held or cloned is refused, or with `later` is destroyed as soon
/// as it is neither.
pub fn destroy_snapshot(change: &Change<'_>, name: &str, later: bool) -> Result<()> {
    let (_, id) = change.find_snapshot(name)?;
    let record = change.dataset(id)?;
    let held = change.count(record.holds)? != 0;
    let cloned = record.children > 1;
    if (held || cloned) && later {
        change.require_version(version::HOLDS)?;
        return change.change_dataset(id, |it| it.flags |= DatasetPhys::DEFER_DESTROY);
    }
    if held {
        return Err(Error::Busy { name: name.to_owned(), why: "it is held" });
    }
    if cloned {
        return Err(Error::Busy { name: name.to_owned(), why: "it has clones" });
    }
    snapshot_goes(change, id)
}

/// Destroys a snapshot that is neither held nor cloned.
pub(crate) fn snapshot_goes(change: &Change<'_>, id: ObjectId) -> Result<()> {
    let record = change.dataset(id)?;
    let part = change.snapshot_part(id)?;
    let head = change.dir(record.dir)?.head;
    let next = change.dataset(record.next)?;
    let kept = bookmark::snapshot_goes(change, head, &record, &next)?;
    for (feature, _) in create::features_of(change, id)? {
        create::remove_feature(change, id, feature)?;
    }
    let previous = unlink(change, id, &record)?;
    move_blocks(change, &record, previous)?;
    remapped::snapshot_goes(change, id, &record)?;
    change.change_dataset(id, |it| it.deadlist = ObjectId::META)?;
    if !kept {
        join_stretches_of_clones(change, record.dir, record.creation_txg)?;
    }
    let next = change.dataset(record.next)?;
    if next.is_snapshot() {
        // blocks that it and the next alone reached are now the next's
        let after = change.dataset(next.next)?.deadlist;
        let (from, to) = (record.previous_txg, Some(record.creation_txg));
        let gained = deadlist::space_between(change, after, from, to)?.used;
        change.change_dataset(record.next, |it| add(&mut it.unique, gained))?;
        if !kept {
            let list = change.dataset(head)?.deadlist;
            deadlist::join_stretch(change, list, record.creation_txg)?;
        }
        remapped::join_stretch(change, head, record.creation_txg)?;
    } else {
        count_head_anew(change, record.dir, record.next)?;
    }
    let names = change.dataset(head)?.snapshot_names;
    snapshot::note_snapshots_changed(change, record.dir)?;
    change.remove(names, &part)?;
    limits::count_snapshots(change, record.dir, -1)?;
    for table in [record.next_clones, record.properties, record.holds] {
        change.free_if_any(table)?;
    }
    no_longer_boots(change, id)?;
    change.free_extended(id)
}

/// The pool is no longer booted from a dataset that goes.
fn no_longer_boots(change: &Change<'_>, id: ObjectId) -> Result<()> {
    const BOOT: &str = "bootfs";
    if pool_number(change, BOOT)? == Some(id.get()) {
        unset_pool_property(change, BOOT)?;
    }
    Ok(())
}

fn add(count: &mut u64, delta: i64) {
    *count = count.saturating_add_signed(delta);
}

/// Takes a snapshot out of the chain. Gives the one before it, if that has no other next.
fn unlink(
    change: &Change<'_>,
    id: ObjectId,
    record: &DatasetPhys,
) -> Result<Option<(ObjectId, DatasetPhys)>> {
    change.change_dataset(record.next, |next| {
        next.previous = record.previous;
        next.previous_txg = record.previous_txg;
    })?;
    let Some((at, previous)) = change.previous_of(record)? else { return Ok(None) };
    if previous.next == id {
        change.change_dataset(at, |previous| previous.next = record.next)?;
        return Ok(Some((at, previous)));
    }
    if previous.next_clones.exists() {
        change.remove_member(previous.next_clones, id.get())?;
        if record.next.exists() {
            change.insert_member(previous.next_clones, record.next.get())?;
        }
    }
    Ok(None)
}

/// What the next dataset lacks and only this snapshot had is to be freed; what was lacking here
/// is lacking there.
fn move_blocks(
    change: &Change<'_>,
    record: &DatasetPhys,
    previous: Option<(ObjectId, DatasetPhys)>,
) -> Result<()> {
    let next = change.dataset(record.next)?.deadlist;
    let begin = record.previous_txg;
    if let Some((id, previous)) = previous {
        let from = previous.previous_txg;
        let gained = deadlist::space_between(change, next, from, Some(begin))?.used;
        change.change_dataset(id, |previous| add(&mut previous.unique, gained))?;
    }
    if old_deadlist::is_old(change, next)? {
        let freed = old_deadlist::snapshot_goes(change, record)?;
        return change.add_space(record.dir, For::Snapshots, -freed);
    }
    let freed = deadlist::space_between(change, next, begin, None)?;
    change.add_space(record.dir, For::Snapshots, -freed)?;
    let list = change.number(super::change::DIRECTORY, FREE_LIST)?;
    let list = list.map(ObjectId::new).ok_or(Error::Missing { name: FREE_LIST })?;
    deadlist::move_to_list(change, next, begin, list)?;
    change.add_space(own_dir(change, "$FREE")?, For::Head, freed)?;
    deadlist::merge(change, next, record.deadlist)?;
    deadlist::release(change, record.deadlist)
}

/// Counts anew what only a head reaches, now that its last snapshot is gone.
fn count_head_anew(change: &Change<'_>, dir: ObjectId, head: ObjectId) -> Result<()> {
    let record = change.dataset(head)?;
    let shared = match change.previous_of(&record)? {
        Some((_, previous)) => {
            let dead = deadlist::space(change, record.deadlist)?.used;
            previous.referenced.saturating_add_signed(dead.wrapping_neg())
        }
        None => 0,
    };
    let unique = record.referenced.saturating_sub(shared);
    change.change_dataset(head, |head| {
        head.unique = unique;
        head.flags |= create::flags_of_head(change);
    })?;
    let reservation = limits::of_head(change, dir)?.reservation;
    if record.unique < reservation {
        let gained = unique.saturating_sub(record.unique);
        let less = signed(gained.min(reservation.saturating_sub(record.unique)));
        let delta = Space::only_used(less.wrapping_neg());
        change.add_space(dir, For::Refreservation, delta)?;
    }
    Ok(())
}

/// Joins the stretches that begin at a txg, in the deadlists of all heads that are clones of a
/// later snapshot of a directory, and of their clones.
pub(crate) fn join_stretches_of_clones(change: &Change<'_>, dir: ObjectId, txg: Txg) -> Result<()> {
    let mut waiting = vec![dir];
    while let Some(dir) = waiting.pop() {
        for id in change.numbers(change.dir(dir)?.clones)?.into_iter().map(ObjectId::new) {
            let clone = change.dataset(id)?;
            let origin = change.dir(clone.dir)?.origin;
            if change.dataset(origin)?.creation_txg > txg {
                deadlist::join_stretch(change, clone.deadlist, txg)?;
                remapped::join_stretch(change, id, txg)?;
                waiting.push(clone.dir);
            }
        }
    }
    Ok(())
}

/// Destroys a head that nothing hinders.
pub(crate) fn destroy_head(change: &Change<'_>, head: Head) -> Result<()> {
    let record = change.dataset(head.dataset)?;
    let reservation = limits::of_head(change, head.dir)?.reservation;
    if reservation != 0 {
        limits::reserve_head(change, head.dir, reservation, 0)?;
    }
    for (feature, _) in create::features_of(change, head.dataset)? {
        create::remove_feature(change, head.dataset, feature)?;
    }
    let origin = leave_origin(change, head.dataset, &record)?;
    deadlist::release(change, record.deadlist)?;
    remapped::head_goes(change, head.dataset)?;
    hand_over_blocks(change, head.dir, &record)?;
    change.change_dir(head.dir, |dir| dir.head = ObjectId::META)?;
    change.free_object(record.snapshot_names)?;
    bookmark::destroy_all(change, head.dataset)?;
    no_longer_boots(change, head.dataset)?;
    change.free_extended(head.dataset)?;
    dir_goes(change, head.dir)?;
    match origin {
        Some(origin) => holds::destroy_if_awaited(change, origin),
        None => Ok(()),
    }
}

/// A clone goes: its origin knows of it no more.
fn leave_origin(
    change: &Change<'_>,
    id: ObjectId,
    record: &DatasetPhys,
) -> Result<Option<ObjectId>> {
    let Some((origin, previous)) = change.previous_of(record)? else { return Ok(None) };
    if previous.next_clones.exists() {
        change.remove_member(previous.next_clones, id.get())?;
    }
    change.change_dataset(origin, |it| it.children = it.children.saturating_sub(1))?;
    let clones = change.dir(previous.dir)?.clones;
    if clones.exists() {
        change.remove_member(clones, id.get())?;
    }
    Ok(Some(origin))
}

/// All that a directory uses goes to the pool, which frees it over time.
fn hand_over_blocks(change: &Change<'_>, dir: ObjectId, head: &DatasetPhys) -> Result<()> {
    let used = change.dir(dir)?;
    let own = Space::from_counts([used.used, used.compressed, used.uncompressed]);
    if let Some(livelist) = livelist::of(change, dir)? {
        // a livelist does not know of blocks that stand in their pointers
        let listed = deadlist::space(change, livelist)?;
        let delta = Space { uncompressed: own.uncompressed, ..listed };
        livelist::hand_over(change, dir, livelist)?;
        change.add_space(dir, For::Head, -delta)?;
        return change.add_space(own_dir(change, "$FREE")?, For::Head, listed);
    }
    if !features::is_enabled(change, guid::ASYNC_DESTROY)? {
        return release::free_tree_now(change, dir, head);
    }
    release::add_tree(change, head, own)?;
    change.add_space(dir, For::Head, -own)?;
    change.add_space(own_dir(change, "$FREE")?, For::Head, own)
}

/// Removes a directory without a head.
fn dir_goes(change: &Change<'_>, dir: ObjectId) -> Result<()> {
    let part = change.own_name(dir)?;
    let record = change.dir(dir)?;
    limits::count_filesystems(change, record.parent, -1)?;
    limits::reserve(change, dir, 0)?;
    keys::leave(change, dir)?;
    let tables = [record.children, record.properties, record.clones, record.delegations];
    for permissions in change.numbers(record.delegations)? {
        change.free_object(ObjectId::new(permissions))?;
    }
    tables.into_iter().try_for_each(|table| change.free_if_any(table))?;
    change.remove(change.dir(record.parent)?.children, &part)?;
    change.free_extended(dir)
}
