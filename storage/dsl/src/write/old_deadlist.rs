//! Deadlists of the form that pools before version 26 have: one list of block pointers for all births.
//!
//! A pool that was upgraded since then keeps such a list for each dataset until the next snapshot
//! of it. The destruction of a snapshot reads the list of the dataset after it. Blocks born since
//! the snapshot before are freed at once. The rest goes to the destroyed snapshot's list, which
//! becomes that of the dataset after it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ondisk::ObjectType;
use ondisk::dsl::Dataset as DatasetPhys;
use units::{MinusOrZero, ObjectId, Txg};

use super::bpobj::{self, BpobjItem};
use super::context::SyncTaskContext;
use super::deadlist::{self, DeadlistContents, DeadlistEntry};
use super::space::SpaceDelta;
use crate::block_lists::walk_bpobj;
use crate::{Error, Result};

/// How many pointers are in memory at a time.
const BATCH_POINTERS: usize = 4096;

/// Whether a deadlist is of the old form.
pub(crate) fn is_old_format(change: &SyncTaskContext<'_>, id: ObjectId) -> Result<bool> {
    Ok(change.object(id)?.dnode().kind == ObjectType::BPOBJ)
}

/// Where the stretches of a new deadlist begin, for a snapshot and those before it.
pub(crate) fn new_entry_txgs(change: &SyncTaskContext<'_>, latest: ObjectId) -> Result<Vec<Txg>> {
    let (mut found, mut at) = (Vec::new(), latest);
    while at.exists() {
        let snapshot = change.dataset_phys(at)?;
        if found.last().is_some_and(|last| *last <= snapshot.previous_txg) {
            return Err(Error::Cycle { object: at, links: "snapshots" });
        }
        found.push(snapshot.previous_txg);
        at = snapshot.previous;
    }
    Ok(found)
}

/// The space of blocks that were born after `from`, and not after `to`.
pub(crate) fn space_in_range(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    from: Txg,
    to: Option<Txg>,
) -> Result<SpaceDelta> {
    let mut sum = SpaceDelta::default();
    let _ = walk_bpobj(change.mos, id, &mut |listed| {
        let birth = listed.pointer.birth();
        if birth > from && to.is_none_or(|to| birth <= to) {
            sum = sum + change.space_of(listed.pointer);
        }
        ControlFlow::Continue(())
    })?;
    Ok(sum)
}

/// The space in a list by the txgs in which the blocks were born.
pub(crate) fn read_contents(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
) -> Result<DeadlistContents> {
    let mut births: BTreeMap<Txg, SpaceDelta> = BTreeMap::new();
    let _ = walk_bpobj(change.mos, id, &mut |listed| {
        let space = births.entry(listed.pointer.birth()).or_default();
        *space = *space + change.space_of(listed.pointer);
        ControlFlow::Continue(())
    })?;
    let stretch = |(birth, space): (Txg, SpaceDelta)| DeadlistEntry {
        start: Txg::new(birth.get().minus_or_zero(1)),
        bpobj: id,
        space,
    };
    let filled = births.into_iter().map(stretch).collect();
    Ok(DeadlistContents { entries: filled, empty_count: 0, is_old_format: true })
}

/// Hands over all pointers of a list, some at a time.
pub(crate) fn for_each_batch(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    work: &mut dyn FnMut(Vec<BpobjItem>) -> Result<()>,
) -> Result<()> {
    let mut run = Vec::new();
    let mut failed = None;
    let _ = walk_bpobj(change.mos, id, &mut |listed| {
        run.push(BpobjItem { pointer: listed.pointer.clone(), is_free: false });
        if run.len() >= BATCH_POINTERS
            && let Err(error) = work(std::mem::take(&mut run))
        {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    match failed {
        Some(error) => Err(error),
        None if run.is_empty() => Ok(()),
        None => work(run),
    }
}

/// A snapshot is destroyed whose next dataset has an old deadlist. Frees the blocks unique to the
/// snapshot, and gives the next dataset the snapshot's deadlist with the rest. Returns the freed
/// space.
pub(crate) fn destroy_snapshot_blocks(
    change: &SyncTaskContext<'_>,
    snapshot: &DatasetPhys,
) -> Result<SpaceDelta> {
    let next = change.dataset_phys(snapshot.next)?.deadlist;
    let mut freed = SpaceDelta::default();
    for_each_batch(change, next, &mut |items| {
        let young = |item: &BpobjItem| item.pointer.birth() > snapshot.previous_txg;
        let (gone, kept): (Vec<_>, Vec<_>) = items.into_iter().partition(young);
        for item in gone {
            freed = freed + change.space_of(&item.pointer);
            (change.free_block)(&item.pointer);
        }
        deadlist::insert(change, snapshot.deadlist, kept)
    })?;
    change.update_dataset(snapshot.next, |next| next.deadlist = snapshot.deadlist)?;
    bpobj::free(change, next)?;
    Ok(freed)
}
