//! Deadlists of the form that pools before version 26 have: one list of block pointers for all births.
//!
//! A pool that was upgraded since then keeps such a list for each dataset until the next snapshot of it.
//! When a snapshot is destroyed, the list of the dataset after it is read from its start to its end: what
//! was born since the snapshot before is freed at once, and the rest goes to the destroyed snapshot's
//! list, which becomes that of the dataset after it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ondisk::ObjectType;
use ondisk::dsl::Dataset as DatasetPhys;
use units::{ObjectId, Txg};

use super::change::Change;
use super::deadlist::{self, Contents, Filled};
use super::list::{self, Item};
use super::space::Space;
use crate::lists::walk_bpobj;
use crate::{Error, Result};

/// How many pointers are in memory at a time.
const RUN: usize = 4096;

/// Whether a deadlist is of the old form.
pub(crate) fn is_old(change: &Change<'_>, id: ObjectId) -> Result<bool> {
    Ok(change.object(id)?.dnode().kind == ObjectType::BPOBJ)
}

/// Where the stretches of a new deadlist begin, for a snapshot and those before it.
pub(crate) fn stretches(change: &Change<'_>, latest: ObjectId) -> Result<Vec<Txg>> {
    let (mut found, mut at) = (Vec::new(), latest);
    while at.exists() {
        let snapshot = change.dataset(at)?;
        if found.last().is_some_and(|last| *last <= snapshot.previous_txg) {
            return Err(Error::Circle { object: at, what: "snapshots" });
        }
        found.push(snapshot.previous_txg);
        at = snapshot.previous;
    }
    Ok(found)
}

/// The space of blocks that were born after `from`, and not after `to`.
pub(crate) fn space_between(
    change: &Change<'_>,
    id: ObjectId,
    from: Txg,
    to: Option<Txg>,
) -> Result<Space> {
    let mut sum = Space::default();
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
pub(crate) fn contents(change: &Change<'_>, id: ObjectId) -> Result<Contents> {
    let mut births: BTreeMap<Txg, Space> = BTreeMap::new();
    let _ = walk_bpobj(change.mos, id, &mut |listed| {
        let space = births.entry(listed.pointer.birth()).or_default();
        *space = *space + change.space_of(listed.pointer);
        ControlFlow::Continue(())
    })?;
    let stretch = |(birth, space): (Txg, Space)| Filled {
        start: Txg::new(birth.get().saturating_sub(1)),
        list: id,
        space,
    };
    let filled = births.into_iter().map(stretch).collect();
    Ok(Contents { filled, empty: 0, is_old: true })
}

/// Hands over all pointers of a list, some at a time.
pub(crate) fn for_each_run(
    change: &Change<'_>,
    id: ObjectId,
    work: &mut dyn FnMut(Vec<Item>) -> Result<()>,
) -> Result<()> {
    let mut run = Vec::new();
    let mut failed = None;
    let _ = walk_bpobj(change.mos, id, &mut |listed| {
        run.push(Item { pointer: listed.pointer.clone(), freed: false });
        if run.len() >= RUN
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

/// A snapshot is destroyed whose next dataset has an old deadlist. Frees what only the snapshot reached,
/// and gives the next dataset the snapshot's deadlist with what is left. Returns the space that was freed.
pub(crate) fn snapshot_goes(change: &Change<'_>, snapshot: &DatasetPhys) -> Result<Space> {
    let next = change.dataset(snapshot.next)?.deadlist;
    let mut freed = Space::default();
    for_each_run(change, next, &mut |items| {
        let young = |item: &Item| item.pointer.birth() > snapshot.previous_txg;
        let (gone, kept): (Vec<_>, Vec<_>) = items.into_iter().partition(young);
        for item in gone {
            freed = freed + change.space_of(&item.pointer);
            (change.free)(&item.pointer);
        }
        deadlist::insert(change, snapshot.deadlist, kept)
    })?;
    change.change_dataset(snapshot.next, |next| next.deadlist = snapshot.deadlist)?;
    list::release(change, next)?;
    Ok(freed)
}
