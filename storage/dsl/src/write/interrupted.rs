//! What is left of receives and sends that were under way when the power failed, or when who ran them
//! ended: nobody but the pool can know that nobody goes on with them.
//!
//! A receive of a later snapshot goes into a hidden clone `%recv` below the head, one of a new file
//! system into the head itself; both are marked as inconsistent until they are whole. If it can be
//! gone on with, the record says how far it came (`com.delphix:resume_toguid` and its like). A send
//! holds its snapshots for as long as it lasts: such holds stand in the pool's directory as well, in
//! the ZAP `tmp_userrefs`, each as the snapshot's object number in hex, a `-` and the hold's tag.

use ondisk::dsl::Dataset as DatasetPhys;
use units::ObjectId;

use super::context::{POOL_DIRECTORY, SyncTaskContext, free_log};
use super::destroy::{destroy_head, has_snapshots};
use super::holds;
use super::names::HeadIds;
use crate::Result;

/// What is received into a head that is there already.
pub(super) const RECV_CLONE: &str = "%recv";
/// Holds that last as long as a process.
pub const TMP_USERREFS: &str = "tmp_userrefs";

/// Gives up what was begun to be received below a head, so that nothing hinders who wants to destroy
/// that. What is in use in some other way stays.
pub fn destroy_recv_clone(change: &SyncTaskContext<'_>, head: &str) -> Result<()> {
    let path = format!("{head}/{RECV_CLONE}");
    let Ok(received) = change.find_head(&path) else { return Ok(()) };
    destroy_if_childless(change, received).map(drop)
}

/// Destroys a head that has neither snapshots nor something below it; false: it has.
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
