//! Destroying heads, whose whole tree is freed afterwards.

use ondisk::dsl::Dataset as DatasetPhys;
use units::{ObjectId, Txg};

use super::change::{Change, free_log};
use super::features::{self, guid};
use super::names::Head;
use super::pool::own_dir;
use super::pool_property::{pool_number, unset_pool_property};
use super::space::{For, Space, signed};
use super::{bookmark, create, deadlist, holds, keys, limits, livelist, release, remapped};
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

/// The pool is no longer booted from a dataset that goes.
pub(crate) fn no_longer_boots(change: &Change<'_>, id: ObjectId) -> Result<()> {
    const BOOT: &str = "bootfs";
    if pool_number(change, BOOT)? == Some(id.get()) {
        unset_pool_property(change, BOOT)?;
    }
    Ok(())
}

/// Counts anew what only a head reaches, now that its last snapshot is gone.
pub(crate) fn count_head_anew(change: &Change<'_>, dir: ObjectId, head: ObjectId) -> Result<()> {
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

/// Joins the stretches that begin at these sorted txgs, in the deadlists of all heads that are clones of
/// a later snapshot of a directory, and of their clones.
pub(crate) fn join_stretches_of_clones(
    change: &Change<'_>,
    dir: ObjectId,
    starts: &[Txg],
) -> Result<()> {
    let mut waiting = vec![(dir, starts)];
    while let Some((dir, starts)) = waiting.pop() {
        for id in change.numbers(change.dir(dir)?.clones)?.into_iter().map(ObjectId::new) {
            let clone = change.dataset(id)?;
            let origin = change.dataset(change.dir(clone.dir)?.origin)?;
            let before = starts.partition_point(|start| *start < origin.creation_txg);
            let Some(starts) = starts.get(..before).filter(|starts| !starts.is_empty()) else {
                continue;
            };
            deadlist::join_stretches(change, clone.deadlist, starts)?;
            remapped::join_stretches(change, id, starts)?;
            waiting.push((clone.dir, starts));
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
