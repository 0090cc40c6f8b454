//! Old addresses on removed vdevs of pointers that were rewritten, while a snapshot still has
//! them.
//!
//! The real system rewrites pointers when it writes their blocks anyhow, so that they lead to the
//! new location. The old address is obsolete at once if no snapshot references the block. Otherwise
//! it goes to a list of the dataset in the form of a deadlist and moves like one. With each
//! destroyed snapshot, the addresses unique to it move to the pool's list of obsolete ones, and the
//! rest to the next dataset. We rewrite no pointers, and maintain these lists.

use ondisk::dsl::Dataset as DatasetPhys;
use units::{ObjectId, Txg};

use super::context::{POOL_DIRECTORY, SyncTaskContext};
use super::features::{self, guid};
use super::{bpobj, deadlist};
use crate::{Error, Result};

const REMAP_DEADLIST: &str = DatasetPhys::REMAP_DEADLIST;
/// The pool's list of addresses that are obsolete.
pub(crate) const OBSOLETE_BPOBJ: &str = "com.delphix:obsolete_bpobj";

/// The list of a dataset.
pub(crate) fn find(change: &SyncTaskContext<'_>, dataset: ObjectId) -> Result<Option<ObjectId>> {
    change.zap_field_object(dataset, REMAP_DEADLIST)
}

/// A new snapshot takes the head's list.
pub(crate) fn move_to_snapshot(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    snapshot: ObjectId,
) -> Result<()> {
    if let Some(list) = find(change, head)? {
        change.remove_zap_field(head, REMAP_DEADLIST)?;
        change.set_zap_field(snapshot, REMAP_DEADLIST, &[list.get()])?;
    }
    Ok(())
}

/// A snapshot that follows the txg `previous` is destroyed: addresses unique to it are obsolete,
/// and its list moves to the next dataset.
pub(crate) fn snapshot_destroyed(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    record: &DatasetPhys,
    previous: Txg,
) -> Result<()> {
    let (next, own) = (find(change, record.next)?, find(change, id)?);
    let next = match (next, own) {
        (None, None) => return Ok(()),
        (Some(next), _) => next,
        (None, Some(_)) => create_for_dataset(change, record.next)?,
    };
    let own = own.map(|own| Ok::<_, Error>((own, deadlist::read_contents(change, own)?)));
    let run: Vec<_> = own.transpose()?.into_iter().collect();
    deadlist::merge_destroyed(change, &run, next, previous, open_obsolete_bpobj(change)?)?;
    if run.is_empty() { Ok(()) } else { features::decrement(change, guid::OBSOLETE_COUNTS) }
}

/// A head is destroyed, and its list with it.
pub(crate) fn head_destroyed(change: &SyncTaskContext<'_>, head: ObjectId) -> Result<()> {
    find(change, head)?.map_or(Ok(()), |list| free(change, list))
}

/// Two heads change places.
pub(crate) fn swap_heads(change: &SyncTaskContext<'_>, a: ObjectId, b: ObjectId) -> Result<()> {
    let (of_a, of_b) = (find(change, a)?, find(change, b)?);
    for (at, list) in [(a, of_b), (b, of_a)] {
        match list {
            Some(list) => change.set_zap_field(at, REMAP_DEADLIST, &[list.get()])?,
            None => drop(change.remove_zap_field(at, REMAP_DEADLIST)?),
        }
    }
    Ok(())
}

/// Joins those entries of a head's list that begin at these sorted txgs, each with the one before
/// it.
pub(crate) fn merge_entries(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    starts: &[Txg],
) -> Result<()> {
    let Some(list) = find(change, head)? else { return Ok(()) };
    let all = deadlist::entries(change, list)?.into_iter().map(|(begin, _)| begin);
    let found: Vec<Txg> = all.filter(|begin| starts.binary_search(begin).is_ok()).collect();
    deadlist::merge_entries(change, list, &found)
}

/// Makes the list of a dataset: it has the stretches of its deadlist.
fn create_for_dataset(change: &SyncTaskContext<'_>, dataset: ObjectId) -> Result<ObjectId> {
    let record = change.dataset_phys(dataset)?;
    let list = deadlist::clone_empty(change, record.deadlist, None, record.previous)?;
    change.set_zap_field(dataset, REMAP_DEADLIST, &[list.get()])?;
    features::increment(change, guid::OBSOLETE_COUNTS)?;
    Ok(list)
}

fn free(change: &SyncTaskContext<'_>, list: ObjectId) -> Result<()> {
    deadlist::free(change, list)?;
    features::decrement(change, guid::OBSOLETE_COUNTS)
}

/// The pool's list of obsolete addresses; one is made if there is none.
fn open_obsolete_bpobj(change: &SyncTaskContext<'_>) -> Result<ObjectId> {
    if let Some(list) = change.lookup_u64(POOL_DIRECTORY, OBSOLETE_BPOBJ)? {
        return Ok(ObjectId::new(list));
    }
    let list = bpobj::create(change)?;
    change.insert_u64(POOL_DIRECTORY, OBSOLETE_BPOBJ, list.get())?;
    features::increment(change, guid::OBSOLETE_COUNTS)?;
    Ok(list)
}
