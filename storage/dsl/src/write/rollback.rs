//! Rollback to the latest snapshot: the head becomes a clone of it, and the old head is
//! destroyed.

use ondisk::dsl::{Dataset as DatasetPhys, Dir as DirPhys};
use units::{ObjectId, ObjsetId, Txg};

use super::context::{DatasetEvent, SyncTaskContext, free_log};
use super::names::HeadIds;
use super::space::{SpaceDelta, UsedBy, to_i64};
use super::{bookmark, create, deadlist, destroy, limits, livelist, remap_deadlist};
use crate::{Error, Result};

/// Rolls a head back to its latest snapshot, which must be `to` if that is given. Open handles of
/// the head's content must be reopened. The snapshot may have a part of an intent log, which does
/// not belong to the head: the caller empties it in the same txg.
pub fn rollback(change: &SyncTaskContext<'_>, name: &str, to: Option<&str>) -> Result<()> {
    let head = change.find_head(name)?;
    let record = change.dataset_phys(head.dataset)?;
    check_rollback(change, head, &record, name, to)?;
    free_log(change, head.dataset)?;
    let part = "%rollback";
    let clone = create::create_head(change, head.dir, part, Some(record.previous))?;
    swap_heads(change, clone, head)?;
    destroy::destroy_head(change, clone)
}

fn check_rollback(
    change: &SyncTaskContext<'_>,
    head: HeadIds,
    record: &DatasetPhys,
    name: &str,
    to: Option<&str>,
) -> Result<()> {
    // a clone's predecessor is its origin, which is not a snapshot of it
    let own = change.previous_snapshot(record)?.is_some_and(|(_, it)| it.next == head.dataset);
    if !own {
        return Err(Error::NoSuchDataset { name: format!("{name}@") });
    }
    if record.previous_txg >= change.txg() {
        return Err(Error::SnapshotInSameTxg { name: name.to_owned() });
    }
    if let Some(to) = to {
        let (_, wanted) = change.find_snapshot(to)?;
        if wanted != record.previous {
            return Err(Error::NotLatest { name: to.to_owned() });
        }
    }
    if bookmark::newest_txg(change, head.dataset)? > record.previous_txg {
        return Err(Error::NotLatest { name: name.to_owned() });
    }
    let limits = limits::head_limits(change, head.dir)?;
    let back = change.dataset_phys(record.previous)?.referenced;
    if limits.refquota != 0 && back > limits.refquota {
        return Err(Error::NoSpace { needed: back, available: limits.refquota });
    }
    let needed = limits.refreservation.min(record.unique);
    let left = limits::available_space(change, head.dir)?;
    if needed > left { Err(Error::NoSpace { needed, available: left }) } else { Ok(()) }
}

/// A head takes the place of another that follows the same snapshot.
pub(crate) fn swap_heads(
    change: &SyncTaskContext<'_>,
    clone: HeadIds,
    head: HeadIds,
) -> Result<()> {
    swap_features(change, clone.dataset, head.dataset)?;
    let (a, b) = (change.dataset_phys(clone.dataset)?, change.dataset_phys(head.dataset)?);
    let origin = change.dataset_phys(a.previous)?;
    let alone = deadlist::space_in_range(change, a.deadlist, origin.previous_txg, None)?.used;
    change.update_dataset(a.previous, |origin| {
        origin.unique = alone.max(0).unsigned_abs();
    })?;
    swap_space(change, [(clone, &a), (head, &b)])?;
    copy_content_fields(change, clone.dataset, &b)?;
    copy_content_fields(change, head.dataset, &a)?;
    let reservation = limits::head_limits(change, head.dir)?.refreservation;
    let unused = |record: &DatasetPhys| to_i64(reservation.min(record.unique));
    let more = SpaceDelta::only_used(unused(&b).wrapping_sub(unused(&a)));
    change.add_space(head.dir, UsedBy::Refreservation, more)?;
    remap_deadlist::swap_heads(change, clone.dataset, head.dataset)?;
    bookmark::refresh_snapshot_bookmarks(change, head.dataset, b.previous)?;
    livelist::remove(change, clone.dir)?;
    livelist::remove(change, head.dir)?;
    let [first, second] = [clone, head].map(|it| ObjsetId::new(it.dataset.get()));
    (change.dataset_event)(DatasetEvent::HeadsSwapped { first, second });
    Ok(())
}

fn swap_features(change: &SyncTaskContext<'_>, a: ObjectId, b: ObjectId) -> Result<()> {
    let (of_a, of_b) = (create::dataset_features(change, a)?, create::dataset_features(change, b)?);
    for (at, features) in [(a, &of_a), (b, &of_b)] {
        for (feature, _) in features {
            create::deactivate_feature(change, at, feature)?;
        }
    }
    for (at, features) in [(b, &of_a), (a, &of_b)] {
        for (feature, numbers) in features {
            create::activate_feature(change, at, feature, numbers)?;
        }
    }
    Ok(())
}

/// The space of two heads and their deadlists moves to the other's directory.
fn swap_space(
    change: &SyncTaskContext<'_>,
    [clone, head]: [(HeadIds, &DatasetPhys); 2],
) -> Result<()> {
    let whole = |(_, record): (HeadIds, &DatasetPhys)| {
        let reached = [record.referenced, record.compressed, record.uncompressed];
        let dead = deadlist::space(change, record.deadlist)?;
        Ok::<_, Error>(SpaceDelta::from_counts(reached) + dead)
    };
    let delta = whole(clone)? - whole(head)?;
    change.add_space(head.0.dir, UsedBy::Head, delta)?;
    change.add_space(clone.0.dir, UsedBy::Head, -delta)?;
    // of the deadlists only the directory's own blocks count as snapshot space
    let origin = change.dir_phys(head.0.dir)?.origin;
    let own = if origin.exists() { change.dataset_phys(origin)?.creation_txg } else { Txg::ZERO };
    let dead = |record: &DatasetPhys| deadlist::space_in_range(change, record.deadlist, own, None);
    let more = dead(clone.1)?.used.wrapping_sub(dead(head.1)?.used);
    change.move_space(head.0.dir, more, [UsedBy::Head, UsedBy::Snapshots])
}

/// A dataset gets the content of another.
fn copy_content_fields(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    other: &DatasetPhys,
) -> Result<()> {
    change.update_dataset(id, |it| {
        it.root = other.root.clone();
        it.referenced = other.referenced;
        it.compressed = other.compressed;
        it.uncompressed = other.uncompressed;
        it.unique = other.unique;
        it.deadlist = other.deadlist;
    })
}

/// Whether a directory is a clone: of a snapshot of something.
pub(crate) fn is_clone(change: &SyncTaskContext<'_>, dir: &DirPhys) -> Result<bool> {
    Ok(dir.origin.exists() && create::origin_snapshot(change)? != Some(dir.origin))
}
