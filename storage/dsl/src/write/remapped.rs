//! Addresses on removed vdevs that pointers had before they were renewed, while a snapshot still has
//! them.
//!
//! The real system renews the pointers of what it writes anyhow, so that they lead to where blocks
//! lie now. The old address of a block that no snapshot reaches is obsolete at once; one that the last
//! snapshot reaches is put into a list of the dataset, in the form of a deadlist, and goes the ways of
//! the dead: with each snapshot that goes, the addresses that it alone kept come to the pool's list
//! of obsolete ones, and the rest to the next dataset. We renew no pointers, and carry these lists on.

use ondisk::dsl::Dataset as DatasetPhys;
use units::{ObjectId, Txg};

use super::change::{Change, DIRECTORY};
use super::features::{self, guid};
use super::{deadlist, list};
use crate::{Error, Result};

const FIELD: &str = DatasetPhys::REMAP_DEADLIST;
/// The pool's list of addresses that are obsolete.
pub(crate) const OBSOLETE: &str = "com.delphix:obsolete_bpobj";

/// The list of a dataset.
pub(crate) fn of(change: &Change<'_>, dataset: ObjectId) -> Result<Option<ObjectId>> {
    change.field_object(dataset, FIELD)
}

/// What a head has is the snapshot's that is made of it.
pub(crate) fn snapshot_comes(
    change: &Change<'_>,
    head: ObjectId,
    snapshot: ObjectId,
) -> Result<()> {
    if let Some(list) = of(change, head)? {
        change.remove_field(head, FIELD)?;
        change.set_field(snapshot, FIELD, &[list.get()])?;
    }
    Ok(())
}

/// A snapshot goes that follows the txg `previous`: what it alone kept is obsolete, and what it has is
/// the next dataset's.
pub(crate) fn snapshot_goes(
    change: &Change<'_>,
    id: ObjectId,
    record: &DatasetPhys,
    previous: Txg,
) -> Result<()> {
    let (next, own) = (of(change, record.next)?, of(change, id)?);
    let next = match (next, own) {
        (None, None) => return Ok(()),
        (Some(next), _) => next,
        (None, Some(_)) => begin(change, record.next)?,
    };
    let own = own.map(|own| Ok::<_, Error>((own, deadlist::contents(change, own)?)));
    let run: Vec<_> = own.transpose()?.into_iter().collect();
    deadlist::merge_run(change, &run, next, previous, obsolete(change)?)?;
    if run.is_empty() { Ok(()) } else { features::take(change, guid::OBSOLETE_COUNTS) }
}

/// A head goes, and with it what it has.
pub(crate) fn head_goes(change: &Change<'_>, head: ObjectId) -> Result<()> {
    of(change, head)?.map_or(Ok(()), |list| release(change, list))
}

/// Two heads change places.
pub(crate) fn swap(change: &Change<'_>, a: ObjectId, b: ObjectId) -> Result<()> {
    let (of_a, of_b) = (of(change, a)?, of(change, b)?);
    for (at, list) in [(a, of_b), (b, of_a)] {
        match list {
            Some(list) => change.set_field(at, FIELD, &[list.get()])?,
            None => drop(change.remove_field(at, FIELD)?),
        }
    }
    Ok(())
}

/// Joins those of a head's stretches that begin at these sorted txgs, each with the one before it.
pub(crate) fn join_stretches(change: &Change<'_>, head: ObjectId, starts: &[Txg]) -> Result<()> {
    let Some(list) = of(change, head)? else { return Ok(()) };
    let all = deadlist::parts(change, list)?.into_iter().map(|(begin, _)| begin);
    let found: Vec<Txg> = all.filter(|begin| starts.binary_search(begin).is_ok()).collect();
    deadlist::join_stretches(change, list, &found)
}

/// Makes the list of a dataset: it has the stretches of its deadlist.
fn begin(change: &Change<'_>, dataset: ObjectId) -> Result<ObjectId> {
    let record = change.dataset(dataset)?;
    let list = deadlist::create_like(change, record.deadlist, None, record.previous)?;
    change.set_field(dataset, FIELD, &[list.get()])?;
    features::add(change, guid::OBSOLETE_COUNTS)?;
    Ok(list)
}

fn release(change: &Change<'_>, list: ObjectId) -> Result<()> {
    deadlist::release(change, list)?;
    features::take(change, guid::OBSOLETE_COUNTS)
}

/// The pool's list of obsolete addresses; one is made if there is none.
fn obsolete(change: &Change<'_>) -> Result<ObjectId> {
    if let Some(list) = change.number(DIRECTORY, OBSOLETE)? {
        return Ok(ObjectId::new(list));
    }
    let list = list::create(change)?;
    change.insert(DIRECTORY, OBSOLETE, list.get())?;
    features::add(change, guid::OBSOLETE_COUNTS)?;
    Ok(list)
}
