//! Destroys heads, whose whole tree is freed afterwards.

use ondisk::dsl::Dataset as DatasetPhys;
use units::{MinusOrZero, ObjectId, ObjsetId, Txg};

use super::context::{DatasetEvent, SyncTaskContext, free_log};
use super::features::{self, guid};
use super::names::HeadIds;
use super::pool::special_dir;
use super::pool_property::{pool_property_u64, unset_pool_property};
use super::space::{SpaceDelta, UsedBy, add_signed, to_i64, with_delta};
use super::{
    async_free, bookmark, create, deadlist, holds, keys, limits, livelist, remap_deadlist,
};
use crate::{Error, Result};

/// Destroys a file system or volume that has neither snapshots nor children. Its blocks are
/// freed over time, those of its intent log at once.
pub fn destroy(change: &SyncTaskContext<'_>, name: &str) -> Result<()> {
    let head = change.find_head(name)?;
    let busy = |why| Err(Error::Busy { name: name.to_owned(), why });
    if !change.dir_phys(head.dir)?.parent.exists() {
        return busy("it is the pool's own");
    }
    if has_snapshots(change, head)? {
        return busy("it has snapshots");
    }
    if change.zap_count(change.dir_phys(head.dir)?.children)? != 0 {
        return busy("there are datasets below it");
    }
    free_log(change, head.dataset)?;
    destroy_head(change, head)
}

pub(crate) fn has_snapshots(change: &SyncTaskContext<'_>, head: HeadIds) -> Result<bool> {
    let previous = change.previous_snapshot(&change.dataset_phys(head.dataset)?)?;
    Ok(previous.is_some_and(|(_, previous)| previous.next == head.dataset))
}

/// The pool is no longer booted from a dataset that goes.
pub(crate) fn clear_bootfs(change: &SyncTaskContext<'_>, id: ObjectId) -> Result<()> {
    const BOOTFS: &str = "bootfs";
    if pool_property_u64(change, BOOTFS)? == Some(id.get()) {
        unset_pool_property(change, BOOTFS)?;
    }
    Ok(())
}

/// Recounts the space unique to a head, because its last snapshot is gone.
pub(crate) fn recompute_head_unique(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    head: ObjectId,
) -> Result<()> {
    let record = change.dataset_phys(head)?;
    let shared = match change.previous_snapshot(&record)? {
        Some((_, previous)) => {
            let dead = deadlist::space(change, record.deadlist)?.used;
            with_delta(previous.referenced, dead.wrapping_neg())
        }
        None => 0,
    };
    let unique = record.referenced.minus_or_zero(shared);
    change.update_dataset(head, |head| {
        head.unique = unique;
        head.flags |= create::head_flags(change);
    })?;
    let reservation = limits::head_limits(change, dir)?.refreservation;
    if record.unique < reservation {
        let gained = unique.minus_or_zero(record.unique);
        let less = to_i64(gained.min(reservation.minus_or_zero(record.unique)));
        let delta = SpaceDelta::only_used(less.wrapping_neg());
        change.add_space(dir, UsedBy::Refreservation, delta)?;
    }
    Ok(())
}

/// Joins the stretches that begin at these sorted txgs, in the deadlists of all heads that are clones of
/// a later snapshot of a directory, and of their clones.
pub(crate) fn merge_clone_deadlist_entries(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    starts: &[Txg],
) -> Result<()> {
    let mut waiting = vec![(dir, starts)];
    while let Some((dir, starts)) = waiting.pop() {
        for id in change.zap_u64s(change.dir_phys(dir)?.clones)?.into_iter().map(ObjectId::new) {
            let clone = change.dataset_phys(id)?;
            let origin = change.dataset_phys(change.dir_phys(clone.dir)?.origin)?;
            let before = starts.partition_point(|start| *start < origin.creation_txg);
            let Some(starts) = starts.get(..before).filter(|starts| !starts.is_empty()) else {
                continue;
            };
            deadlist::merge_entries(change, clone.deadlist, starts)?;
            remap_deadlist::merge_entries(change, id, starts)?;
            waiting.push((clone.dir, starts));
        }
    }
    Ok(())
}

/// Destroys a head that nothing hinders.
pub(crate) fn destroy_head(change: &SyncTaskContext<'_>, head: HeadIds) -> Result<()> {
    let record = change.dataset_phys(head.dataset)?;
    let reservation = limits::head_limits(change, head.dir)?.refreservation;
    if reservation != 0 {
        limits::apply_refreservation(change, head.dir, reservation, 0)?;
    }
    for (feature, _) in create::dataset_features(change, head.dataset)? {
        create::deactivate_feature(change, head.dataset, feature)?;
    }
    let origin = detach_from_origin(change, head.dataset, &record)?;
    deadlist::free(change, record.deadlist)?;
    remap_deadlist::head_destroyed(change, head.dataset)?;
    let id = ObjsetId::new(head.dataset.get());
    (change.dataset_event)(DatasetEvent::HeadDestroyed { head: id });
    queue_blocks_for_free(change, head.dir, &record)?;
    change.update_dir(head.dir, |dir| dir.head = ObjectId::META)?;
    change.free_object(record.snapshot_names)?;
    bookmark::destroy_all(change, head.dataset)?;
    clear_bootfs(change, head.dataset)?;
    change.free_zapified(head.dataset)?;
    destroy_dir(change, head.dir)?;
    match origin {
        Some(origin) => holds::destroy_if_deferred(change, origin),
        None => Ok(()),
    }
}

/// A clone is destroyed: removes it from its origin's record.
fn detach_from_origin(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    record: &DatasetPhys,
) -> Result<Option<ObjectId>> {
    let Some((origin, previous)) = change.previous_snapshot(record)? else { return Ok(None) };
    if previous.next_clones.exists() {
        change.remove_member(previous.next_clones, id.get())?;
    }
    change.update_dataset(origin, |it| add_signed(&mut it.children, -1))?;
    let clones = change.dir_phys(previous.dir)?.clones;
    if clones.exists() {
        change.remove_member(clones, id.get())?;
    }
    Ok(Some(origin))
}

/// All that a directory uses goes to the pool, which frees it over time.
fn queue_blocks_for_free(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    head: &DatasetPhys,
) -> Result<()> {
    let used = change.dir_phys(dir)?;
    let own = SpaceDelta::from_counts([used.used, used.compressed, used.uncompressed]);
    if let Some(livelist) = livelist::find(change, dir)? {
        // a livelist does not know of blocks that stand in their pointers
        let listed = deadlist::space(change, livelist)?;
        let delta = SpaceDelta { uncompressed: own.uncompressed, ..listed };
        livelist::queue_for_delete(change, dir, livelist)?;
        change.add_space(dir, UsedBy::Head, -delta)?;
        return change.add_space(special_dir(change, "$FREE")?, UsedBy::Head, listed);
    }
    if !features::is_enabled(change, guid::ASYNC_DESTROY)? {
        return async_free::free_tree_now(change, dir, head);
    }
    async_free::queue_tree(change, head, own)?;
    change.add_space(dir, UsedBy::Head, -own)?;
    change.add_space(special_dir(change, "$FREE")?, UsedBy::Head, own)
}

/// Removes a directory without a head.
fn destroy_dir(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<()> {
    let part = change.dir_name(dir)?;
    let record = change.dir_phys(dir)?;
    limits::adjust_filesystem_count(change, record.parent, -1)?;
    limits::apply_reservation(change, dir, 0)?;
    keys::release_key_reference(change, dir)?;
    let tables = [record.children, record.properties, record.clones, record.delegations];
    for permissions in change.zap_u64s(record.delegations)? {
        change.free_object(ObjectId::new(permissions))?;
    }
    tables.into_iter().try_for_each(|table| change.free_object_if_set(table))?;
    change.remove(change.dir_phys(record.parent)?.children, &part)?;
    change.free_zapified(dir)
}
