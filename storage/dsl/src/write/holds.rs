//! Holds on snapshots: who has one keeps the snapshot from being destroyed.

use ondisk::{ObjectType, version};
use units::ObjectId;

use super::change::Change;
use super::{destroy_snapshots, names};
use crate::{Error, Result};

/// Bytes of a hold's tag, with a NUL.
const LONGEST: usize = 256;

/// Puts a hold on a snapshot.
pub fn hold(change: &Change<'_>, snapshot: &str, tag: &str) -> Result<()> {
    if tag.is_empty() || tag.len() >= LONGEST {
        return Err(names::bad(tag, "a hold's tag has 1 to 255 bytes"));
    }
    change.require_version(version::HOLDS)?;
    let (_, id) = change.find_snapshot(snapshot)?;
    let record = change.dataset(id)?;
    if change.number(record.holds, tag)?.is_some() {
        return Err(Error::Exists { name: format!("hold {tag} on {snapshot}") });
    }
    let holds = change.table_or_new(record.holds, ObjectType::USERREFS)?;
    change.insert(holds, tag, change.now.seconds)?;
    change.change_dataset(id, |it| it.holds = holds)
}

/// Takes a hold off a snapshot. If that was the last that kept it, it is destroyed.
pub fn release(change: &Change<'_>, snapshot: &str, tag: &str) -> Result<()> {
    let (_, id) = change.find_snapshot(snapshot)?;
    let record = change.dataset(id)?;
    if change.number(record.holds, tag)?.is_none() {
        return Err(Error::NoSuchDataset { name: format!("hold {tag} on {snapshot}") });
    }
    change.remove(record.holds, tag)?;
    destroy_if_awaited(change, id)
}

/// The same by the snapshot's number. If there is no such hold, or no such snapshot any more, nothing
/// is done.
pub(crate) fn take_off(change: &Change<'_>, snapshot: ObjectId, tag: &str) -> Result<()> {
    let Ok(record) = change.dataset(snapshot) else { return Ok(()) };
    if record.is_snapshot() && change.number(record.holds, tag)?.is_some() {
        change.remove(record.holds, tag)?;
        destroy_if_awaited(change, snapshot)?;
    }
    Ok(())
}

/// Destroys a snapshot if that was asked for and nothing keeps it any more.
pub(crate) fn destroy_if_awaited(change: &Change<'_>, snapshot: ObjectId) -> Result<()> {
    let record = change.dataset(snapshot)?;
    let kept = record.children > 1 || change.count(record.holds)? != 0;
    if kept || !record.is_defer_destroy() {
        return Ok(());
    }
    destroy_snapshots::snapshot_goes(change, snapshot)
}
