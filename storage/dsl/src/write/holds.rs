//! Holds on snapshots: a snapshot with a hold cannot be destroyed.

use ondisk::{ObjectType, version};
use units::ObjectId;

use super::context::SyncTaskContext;
use super::{destroy_snapshots, names};
use crate::{Error, Result};

/// Bytes of a hold's tag, with a NUL.
const MAX_TAG_LEN: usize = 256;

/// Puts a hold on a snapshot.
pub fn hold(change: &SyncTaskContext<'_>, snapshot: &str, tag: &str) -> Result<()> {
    if tag.is_empty() || tag.len() >= MAX_TAG_LEN {
        return Err(names::invalid_name(tag, "a hold's tag has 1 to 255 bytes"));
    }
    change.require_version(version::HOLDS)?;
    let (_, id) = change.find_snapshot(snapshot)?;
    let record = change.dataset_phys(id)?;
    if change.lookup_u64(record.holds, tag)?.is_some() {
        return Err(Error::Exists { name: format!("hold {tag} on {snapshot}") });
    }
    let holds = change.zap_or_create(record.holds, ObjectType::USERREFS)?;
    change.insert_u64(holds, tag, change.now.seconds)?;
    change.update_dataset(id, |it| it.holds = holds)
}

/// Takes a hold off a snapshot. If that was the last that kept it, it is destroyed.
pub fn release_hold(change: &SyncTaskContext<'_>, snapshot: &str, tag: &str) -> Result<()> {
    let (_, id) = change.find_snapshot(snapshot)?;
    let record = change.dataset_phys(id)?;
    if change.lookup_u64(record.holds, tag)?.is_none() {
        return Err(Error::NoSuchDataset { name: format!("hold {tag} on {snapshot}") });
    }
    change.remove(record.holds, tag)?;
    destroy_if_deferred(change, id)
}

/// The same by the snapshot's number. Does nothing if the hold or the snapshot no longer exists.
pub(crate) fn release_hold_by_id(
    change: &SyncTaskContext<'_>,
    snapshot: ObjectId,
    tag: &str,
) -> Result<()> {
    let Ok(record) = change.dataset_phys(snapshot) else { return Ok(()) };
    if record.is_snapshot() && change.lookup_u64(record.holds, tag)?.is_some() {
        change.remove(record.holds, tag)?;
        destroy_if_deferred(change, snapshot)?;
    }
    Ok(())
}

/// Destroys a snapshot if it is marked for deferred destroy and has neither holds nor clones.
pub(crate) fn destroy_if_deferred(change: &SyncTaskContext<'_>, snapshot: ObjectId) -> Result<()> {
    let record = change.dataset_phys(snapshot)?;
    let kept = record.children > 1 || change.zap_count(record.holds)? != 0;
    if kept || !record.is_defer_destroy() {
        return Ok(());
    }
    destroy_snapshots::destroy_unreferenced_snapshot(change, snapshot)
}
