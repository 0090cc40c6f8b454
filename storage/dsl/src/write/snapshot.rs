//! Taking snapshots: a head becomes the next of what it was.

use ondisk::ObjectType;
use ondisk::dsl::{Dataset as DatasetPhys, Dir as DirPhys};
use units::{ObjectId, ObjsetId, Txg};

use super::change::Change;
use super::features::{self, guid};
use super::names;
use super::space::{For, Space, signed};
use super::{bookmark, create, deadlist, limits, remapped};
use crate::{Error, Result};

/// Takes snapshots of heads, all of the same moment; each is named `path@name`. One that cannot be
/// taken hinders all.
pub fn snapshot(change: &Change<'_>, wanted: &[&str]) -> Result<Vec<ObjsetId>> {
    let mut heads = Vec::with_capacity(wanted.len());
    for name in wanted {
        let missing = || names::bad(name, "a snapshot's name has an @");
        let (path, part) = name.split_once('@').ok_or_else(missing)?;
        names::judge_snapshot(path, part)?;
        let head = change.find_head(path)?;
        if heads.iter().any(|(known, _, _)| *known == head) {
            return Err(names::bad(name, "there can be but one snapshot of a moment"));
        }
        judge(change, head, name, part)?;
        heads.push((head, path, part));
    }
    let mut made = Vec::with_capacity(heads.len());
    for (head, _, part) in heads {
        made.push(ObjsetId::new(take(change, head.dataset, part)?.get()));
    }
    Ok(made)
}

fn judge(change: &Change<'_>, head: names::Head, name: &str, part: &str) -> Result<()> {
    let dataset = change.dataset(head.dataset)?;
    if dataset.previous_txg >= change.txg() {
        return Err(Error::TooSoon { name: name.to_owned() });
    }
    if change.snapshot_of(head.dataset, part)?.is_some() {
        return Err(Error::Exists { name: name.to_owned() });
    }
    if dataset.is_inconsistent() {
        return Err(Error::Inconsistent { name: name.to_owned() });
    }
    let needed = dataset.unique.min(limits::of_head(change, head.dir)?.reservation);
    let left = limits::available(change, head.dir)?;
    if needed > left { Err(Error::NoRoom { needed, left }) } else { Ok(()) }
}

/// The pool's snapshot of nothing, which is older than any dataset.
pub(crate) fn of_nothing(change: &Change<'_>, head: ObjectId) -> Result<ObjectId> {
    take_at(change, head, "$ORIGIN", Txg::new(1))
}

pub(crate) fn take(change: &Change<'_>, head: ObjectId, part: &str) -> Result<ObjectId> {
    take_at(change, head, part, change.txg())
}

fn take_at(change: &Change<'_>, head: ObjectId, part: &str, txg: Txg) -> Result<ObjectId> {
    let now = change.dataset(head)?;
    limits::count_snapshots(change, now.dir, 1)?;
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
    let snapshot = change.new_record(ObjectType::DSL_DATASET, new.encode())?;
    create::copy_features(change, head, snapshot)?;
    follow(change, &now, head, snapshot)?;
    let reservation = limits::of_head(change, now.dir)?.reservation;
    let more = signed(now.unique.min(reservation));
    change.add_space(now.dir, For::Refreservation, Space::only_used(more))?;
    begin_deadlist(change, head, &now)?;
    remapped::snapshot_comes(change, head, snapshot)?;
    if encrypted(change, now.dir)? && features::is_enabled(change, guid::BOOKMARK_V2)? {
        change.set_field(snapshot, DatasetPhys::IVSET_GUID, &[change.new_guid().get()])?;
    }
    change.change_dataset(head, |head| {
        head.previous = snapshot;
        head.previous_txg = txg;
        head.unique = 0;
        head.flags |= create::flags_of_head(change);
    })?;
    change.insert(now.snapshot_names, part, snapshot.get())?;
    note_snapshots_changed(change, now.dir)?;
    Ok(snapshot)
}

/// What was before the head is now before the snapshot.
fn follow(
    change: &Change<'_>,
    now: &DatasetPhys,
    head: ObjectId,
    snapshot: ObjectId,
) -> Result<()> {
    let Some((id, previous)) = change.previous_of(now)? else { return Ok(()) };
    if previous.next == head {
        change.change_dataset(id, |previous| previous.next = snapshot)?;
    } else if previous.next_clones.exists() {
        change.remove_member(previous.next_clones, head.get())?;
        change.insert_member(previous.next_clones, snapshot.get())?;
    }
    Ok(())
}

/// The snapshot keeps the head's deadlist; the head gets a new one with one stretch more.
fn begin_deadlist(change: &Change<'_>, head: ObjectId, now: &DatasetPhys) -> Result<()> {
    let new = deadlist::copy_stretches(change, now.deadlist, now.previous)?;
    change.change_dataset(head, |head| head.deadlist = new)?;
    deadlist::add_stretches(change, new, &[now.previous_txg])?;
    bookmark::add_stretches(change, head, new, now.previous_txg)
}

pub(crate) fn encrypted(change: &Change<'_>, dir: ObjectId) -> Result<bool> {
    Ok(change.field_object(dir, DirPhys::CRYPTO_KEY)?.is_some())
}

/// Notes when the set of snapshots was last changed.
pub(crate) fn note_snapshots_changed(change: &Change<'_>, dir: ObjectId) -> Result<()> {
    if !features::is_enabled(change, guid::EXTENSIBLE_DATASET)? {
        return Ok(());
    }
    let now = [change.now.seconds, change.now.nanoseconds];
    change.set_field(dir, DirPhys::SNAPSHOTS_CHANGED, &now)
}
