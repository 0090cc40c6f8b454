//! The remains of receives and sends that were running when the power failed, or when their process
//! ended. Only the import can know that no process continues them.
//!
//! A receive of a later snapshot goes into a hidden clone `%recv` below the head, one of a new file
//! system into the head itself. Both are marked as inconsistent until they are complete. A
//! resumable one records its progress (`com.delphix:resume_toguid` and the like). A send holds its
//! snapshots while it runs. Such holds are in the pool's directory as well, in the ZAP
//! `tmp_userrefs`, each as the snapshot's object number in hex, a `-` and the hold's tag.

use ondisk::dsl::Dataset as DatasetPhys;
use units::ObjectId;

use super::context::{POOL_DIRECTORY, SyncTaskContext, free_log};
use super::destroy::{destroy_head, has_snapshots};
use super::holds;
use super::names::HeadIds;
use crate::Result;

/// The hidden clone of a receive into an existing head.
pub(super) const RECV_CLONE: &str = "%recv";
/// Holds that last as long as a process.
pub const TMP_USERREFS: &str = "tmp_userrefs";

/// Destroys a partial receive below a head, so that it does not prevent the head's destruction. A
/// hidden clone in another use stays.
pub fn destroy_recv_clone(change: &SyncTaskContext<'_>, head: &str) -> Result<()> {
    let path = format!("{head}/{RECV_CLONE}");
    let Ok(received) = change.find_head(&path) else { return Ok(()) };
    destroy_if_childless(change, received).map(drop)
}

/// Destroys a head that has neither snapshots nor children; false if it has any.
fn destroy_if_childless(change: &SyncTaskContext<'_>, head: HeadIds) -> Result<bool> {
    if change.zap_count(change.dir_phys(head.dir)?.children)? != 0 || has_snapshots(change, head)? {
        return Ok(false);
    }
    free_log(change, head.dataset)?;
    destroy_head(change, head)?;
    Ok(true)
}

/// Destroys a head that was received in part and will never be whole; false: it is not, or not alone.
/// To be called while nothing is received.
pub fn destroy_partial_receive(change: &SyncTaskContext<'_>, path: &str) -> Result<bool> {
    let head = change.find_head(path)?;
    let is_lost = change.dataset_phys(head.dataset)?.is_inconsistent()
        && change.zap_field(head.dataset, DatasetPhys::RESUME_TO_GUID)?.is_none();
    Ok(is_lost && change.dir_phys(head.dir)?.parent.exists() && destroy_if_childless(change, head)?)
}

/// Takes all holds off that last as long as a process. To be called while nothing is sent.
pub fn release_temporary_holds(change: &SyncTaskContext<'_>) -> Result<()> {
    let Some(table) = change.lookup_u64(POOL_DIRECTORY, TMP_USERREFS)?.map(ObjectId::new) else {
        return Ok(());
    };
    for entry in change.zap_entries(table)? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        if let Some((number, tag)) = name.split_once('-')
            && let Ok(number) = u64::from_str_radix(number, 16)
        {
            holds::release_hold_by_id(change, ObjectId::new(number), tag)?;
        }
        change.remove(table, &name)?;
    }
    Ok(())
}
