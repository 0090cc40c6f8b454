//! Beginning and ending a receive.
//!
//! A full stream is received into a new head, a stream of a clone into a new clone of its origin,
//! and an incremental stream into a hidden clone `%recv` of the head's newest snapshot. The dataset
//! is marked as inconsistent until the stream has ended: it cannot be opened, and an import
//! destroys it after a crash. The end exchanges the hidden clone with the head, takes the snapshot
//! and gives it the guid and time of the sender's, all in one txg.

use ondisk::dsl::Dataset as DatasetPhys;
use units::{Guid, ObjectId, ObjsetId};

use super::context::{SyncTaskContext, free_log};
use super::interrupted::RECV_CLONE;
use super::limits::head_limits;
use super::names::{self, HeadIds};
use super::rollback::swap_heads;
use super::{create, destroy, resume, snapshot};
use crate::{Error, Result};

/// The sender's snapshot, which the received one equals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedSnapshot {
    /// Its name after the `@`.
    pub name: String,
    /// Its guid.
    pub guid: Guid,
    /// When it was taken, seconds since 1970.
    pub creation_time: u64,
    /// Its set of nonces, if a raw stream brought it; 0 otherwise.
    pub ivset_guid: u64,
}

/// Creates the head for a full stream. Its content is received by the floors above.
pub fn begin_full_receive(change: &SyncTaskContext<'_>, name: &str) -> Result<ObjsetId> {
    let id = create::create_dataset(change, name)?;
    mark_inconsistent(change, id)?;
    Ok(id)
}

/// Creates the clone for a stream of a clone.
pub fn begin_clone_receive(
    change: &SyncTaskContext<'_>,
    name: &str,
    origin: &str,
) -> Result<ObjsetId> {
    let id = create::create_clone(change, name, origin)?;
    mark_inconsistent(change, id)?;
    Ok(id)
}

/// Creates the hidden clone for an incremental stream into a head. `base` is the guid of the head's
/// newest snapshot, `part` the name that the received snapshot is to have.
pub fn begin_incremental_receive(
    change: &SyncTaskContext<'_>,
    head_name: &str,
    base: Guid,
    part: &str,
) -> Result<ObjsetId> {
    names::check_snapshot_name(head_name, part)?;
    let head = change.find_head(head_name)?;
    let record = change.dataset_phys(head.dataset)?;
    if record.is_inconsistent() {
        return Err(Error::Inconsistent { name: head_name.to_owned() });
    }
    let newest = own_newest_snapshot(change, head, &record)?;
    let Some((newest, _)) = newest.filter(|(_, snapshot)| snapshot.guid == base) else {
        let why = "its newest snapshot is not the one that the stream is based on";
        return Err(Error::Busy { name: head_name.to_owned(), why });
    };
    if change.find_snapshot_id(head.dataset, part)?.is_some() {
        return Err(Error::Exists { name: format!("{head_name}@{part}") });
    }
    check_no_receive(change, head, head_name)?;
    if change.dataset_phys(newest)?.creation_txg >= change.txg() {
        return Err(Error::SnapshotInSameTxg { name: head_name.to_owned() });
    }
    let clone = create::create_head(change, head.dir, RECV_CLONE, Some(newest))?;
    let id = ObjsetId::new(clone.dataset.get());
    mark_inconsistent(change, id)?;
    Ok(id)
}

/// Creates the hidden head for a full stream that is to replace a head without snapshots.
pub fn begin_replacing_receive(
    change: &SyncTaskContext<'_>,
    head_name: &str,
    part: &str,
) -> Result<ObjsetId> {
    names::check_snapshot_name(head_name, part)?;
    let head = change.find_head(head_name)?;
    let record = change.dataset_phys(head.dataset)?;
    let busy = |why| Err(Error::Busy { name: head_name.to_owned(), why });
    if own_newest_snapshot(change, head, &record)?.is_some() {
        return busy("it has snapshots; destroy them to replace it by a full stream");
    }
    if record.previous != create::origin_snapshot(change)?.unwrap_or(ObjectId::META) {
        return busy("it is a clone");
    }
    if snapshot::is_encrypted(change, head.dir)? {
        return busy("it is encrypted, and a full stream does not replace it; destroy it first");
    }
    check_no_receive(change, head, head_name)?;
    let new = create::create_head(change, head.dir, RECV_CLONE, None)?;
    let id = ObjsetId::new(new.dataset.get());
    mark_inconsistent(change, id)?;
    Ok(id)
}

/// Refuses a second receive into a head.
fn check_no_receive(change: &SyncTaskContext<'_>, head: HeadIds, name: &str) -> Result<()> {
    let children = change.dir_phys(head.dir)?.children;
    if change.lookup_u64(children, RECV_CLONE)?.is_none() {
        return Ok(());
    }
    let clone = change.find_head(&format!("{name}/{RECV_CLONE}"))?;
    let can_resume = change.zap_field(clone.dataset, DatasetPhys::RESUME_TO_GUID)?.is_some();
    let why = if can_resume {
        "it contains partially-complete state from \"zfs receive -s\": resume it with its \
         receive_resume_token, or abort it with `zfs receive -A`"
    } else {
        "another stream is being received into it"
    };
    Err(Error::Busy { name: name.to_owned(), why })
}

/// Makes a head that was received whole a consistent one, and takes its snapshot.
pub fn end_full_receive(
    change: &SyncTaskContext<'_>,
    name: &str,
    received: &ReceivedSnapshot,
) -> Result<()> {
    names::check_snapshot_name(name, &received.name)?;
    let head = change.find_head(name)?;
    resume::clear_resume_state(change, head.dataset)?;
    change.update_dataset(head.dataset, |head| head.flags &= !DatasetPhys::INCONSISTENT)?;
    take_snapshot(change, head, received)
}

/// Exchanges a head with its completely received hidden clone, and takes the head's snapshot. Open
/// handles of the head's content must be reopened. Changes of the head since its newest snapshot
/// are lost: the caller checks that this is allowed.
pub fn end_incremental_receive(
    change: &SyncTaskContext<'_>,
    head_name: &str,
    received: &ReceivedSnapshot,
) -> Result<()> {
    names::check_snapshot_name(head_name, &received.name)?;
    let head = change.find_head(head_name)?;
    let clone = change.find_head(&format!("{head_name}/{RECV_CLONE}"))?;
    let (old, new) = (change.dataset_phys(head.dataset)?, change.dataset_phys(clone.dataset)?);
    if old.previous != new.previous {
        let why = "a snapshot was taken or destroyed while it was being received into";
        return Err(Error::Busy { name: head_name.to_owned(), why });
    }
    if change.find_snapshot_id(head.dataset, &received.name)?.is_some() {
        return Err(Error::Exists { name: format!("{head_name}@{}", received.name) });
    }
    let refquota = head_limits(change, head.dir)?.refquota;
    if refquota != 0 && new.referenced > refquota {
        return Err(Error::ReceivedAboveQuota { name: head_name.to_owned() });
    }
    // Rule L1: the content, the snapshot and the end of the hidden clone are one txg. A crash before it leaves the
    // head as it was and a receive that resumes; one between them would leave a head without its snapshot.
    resume::clear_resume_state(change, clone.dataset)?;
    free_log(change, head.dataset)?;
    swap_heads(change, clone, head)?;
    destroy::destroy_head(change, clone)?;
    take_snapshot(change, head, received)
}

fn take_snapshot(
    change: &SyncTaskContext<'_>,
    head: HeadIds,
    received: &ReceivedSnapshot,
) -> Result<()> {
    let id = snapshot::create_snapshot(change, head.dataset, &received.name)?;
    if received.ivset_guid != 0 {
        change.set_zap_field(id, DatasetPhys::IVSET_GUID, &[received.ivset_guid])?;
    }
    change.update_dataset(id, |snapshot| {
        snapshot.guid = received.guid;
        snapshot.creation_time = received.creation_time;
        snapshot.flags &= !DatasetPhys::INCONSISTENT;
    })
}

fn mark_inconsistent(change: &SyncTaskContext<'_>, id: ObjsetId) -> Result<()> {
    let id = ObjectId::new(id.get());
    change.update_dataset(id, |dataset| dataset.flags |= DatasetPhys::INCONSISTENT)
}

/// A head's newest snapshot; a clone's origin is none of its own.
fn own_newest_snapshot(
    change: &SyncTaskContext<'_>,
    head: HeadIds,
    record: &DatasetPhys,
) -> Result<Option<(ObjectId, DatasetPhys)>> {
    let newest = change.previous_snapshot(record)?;
    Ok(newest.filter(|(_, snapshot)| snapshot.next == head.dataset))
}
