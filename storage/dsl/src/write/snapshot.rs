//! Takes snapshots: the new snapshot becomes the head's predecessor.

use ondisk::ObjectType;
use ondisk::dsl::{Dataset as DatasetPhys, Dir as DirPhys};
use units::{ObjectId, ObjsetId, Txg};

use super::context::{DatasetEvent, SyncTaskContext};
use super::features::{self, guid};
use super::names;
use super::space::{SpaceDelta, UsedBy, to_i64};
use super::{bookmark, create, deadlist, limits, remap_deadlist};
use crate::{Error, Result};

/// Takes snapshots of heads, all of the same moment; each is named `path@name`. One that cannot be
/// taken hinders all.
pub fn create_snapshots(change: &SyncTaskContext<'_>, wanted: &[&str]) -> Result<Vec<ObjsetId>> {
    let mut heads = Vec::with_capacity(wanted.len());
    for name in wanted {
        let missing = || names::invalid_name(name, "a snapshot's name has an @");
        let (path, part) = name.split_once('@').ok_or_else(missing)?;
        names::check_snapshot_name(path, part)?;
        let head = change.find_head(path)?;
        if heads.iter().any(|(known, _, _)| *known == head) {
            return Err(Error::SeveralSnapshots);
        }
        check_snapshot(change, head, name, part)?;
        heads.push((head, path, part));
    }
    let mut made = Vec::with_capacity(heads.len());
    for (head, _, part) in heads {
        made.push(ObjsetId::new(create_snapshot(change, head.dataset, part)?.get()));
    }
    Ok(made)
}

fn check_snapshot(
    change: &SyncTaskContext<'_>,
    head: names::HeadIds,
    name: &str,
    part: &str,
) -> Result<()> {
    let dataset = change.dataset_phys(head.dataset)?;
    if dataset.previous_txg >= change.txg() {
        return Err(Error::SnapshotInSameTxg { name: name.to_owned() });
    }
    if change.find_snapshot_id(head.dataset, part)?.is_some() {
        return Err(Error::Exists { name: name.to_owned() });
    }
    if dataset.is_inconsistent() {
        return Err(Error::Inconsistent { name: name.to_owned() });
    }
    let needed = dataset.unique.min(limits::head_limits(change, head.dir)?.refreservation);
    let left = limits::available_space(change, head.dir)?;
    if needed > left { Err(Error::NoSpace { needed, available: left }) } else { Ok(()) }
}

/// The pool's snapshot of nothing, which is older than any dataset.
pub(crate) fn create_origin_snapshot(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
) -> Result<ObjectId> {
    create_snapshot_at(change, head, "$ORIGIN", Txg::new(1))
}

pub(crate) fn create_snapshot(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    part: &str,
) -> Result<ObjectId> {
    create_snapshot_at(change, head, part, change.txg())
}

fn create_snapshot_at(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    part: &str,
    txg: Txg,
) -> Result<ObjectId> {
    let now = change.dataset_phys(head)?;
    limits::adjust_snapshot_count(change, now.dir, 1)?;
    let new = DatasetPhys {
        next: head,
        snapshot_names: ObjectId::META,
        children: 1,
        creation_time: change.now.seconds,
        creation_txg: txg,
        fsid_guid: change.new_fsid(),
        guid: change.new_guid(),
        unique: 0,
        next_clones: ObjectId::META,
        properties: ObjectId::META,
        holds: ObjectId::META,
        ..now.clone()
    };
    let snapshot = change.create_bonus_object(ObjectType::DSL_DATASET, new.encode())?;
    create::copy_features(change, head, snapshot)?;
    relink_previous(change, &now, head, snapshot)?;
    let reservation = limits::head_limits(change, now.dir)?.refreservation;
    let more = to_i64(now.unique.min(reservation));
    change.add_space(now.dir, UsedBy::Refreservation, SpaceDelta::only_used(more))?;
    start_deadlist(change, head, &now)?;
    remap_deadlist::move_to_snapshot(change, head, snapshot)?;
    if is_encrypted(change, now.dir)? && features::is_enabled(change, guid::BOOKMARK_V2)? {
        change.set_zap_field(snapshot, DatasetPhys::IVSET_GUID, &[change.new_guid().get()])?;
    }
    change.update_dataset(head, |head| {
        head.previous = snapshot;
        head.previous_txg = txg;
        head.unique = 0;
        head.flags |= create::head_flags(change);
    })?;
    change.insert_u64(now.snapshot_names, part, snapshot.get())?;
    update_snapshots_changed(change, now.dir)?;
    let (head, id) = (ObjsetId::new(head.get()), ObjsetId::new(snapshot.get()));
    (change.dataset_event)(DatasetEvent::Snapshotted { head, snapshot: id });
    Ok(snapshot)
}

/// The head's predecessor becomes the snapshot's.
fn relink_previous(
    change: &SyncTaskContext<'_>,
    now: &DatasetPhys,
    head: ObjectId,
    snapshot: ObjectId,
) -> Result<()> {
    let Some((id, previous)) = change.previous_snapshot(now)? else { return Ok(()) };
    if previous.next == head {
        change.update_dataset(id, |previous| previous.next = snapshot)?;
    } else if previous.next_clones.exists() {
        change.remove_member(previous.next_clones, head.get())?;
        change.insert_member(previous.next_clones, snapshot.get())?;
    }
    Ok(())
}

/// The snapshot keeps the head's deadlist; the head gets a new one with one stretch more.
fn start_deadlist(change: &SyncTaskContext<'_>, head: ObjectId, now: &DatasetPhys) -> Result<()> {
    let new = deadlist::copy_empty_entries(change, now.deadlist, now.previous)?;
    change.update_dataset(head, |head| head.deadlist = new)?;
    deadlist::add_entries(change, new, &[now.previous_txg])?;
    bookmark::add_deadlist_entries(change, head, new, now.previous_txg)
}

pub(crate) fn is_encrypted(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<bool> {
    Ok(change.zap_field_object(dir, DirPhys::CRYPTO_KEY)?.is_some())
}

/// Notes when the set of snapshots was last changed.
pub(crate) fn update_snapshots_changed(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<()> {
    if !features::is_enabled(change, guid::EXTENSIBLE_DATASET)? {
        return Ok(());
    }
    let now = [change.now.seconds, change.now.nanoseconds];
    change.set_zap_field(dir, DirPhys::SNAPSHOTS_CHANGED, &now)
}
