//! Destroying snapshots: their blocks go to the pool's list or to the next dataset.
//!
//! Each deadlist has a stretch for every snapshot that was there when it was begun. Snapshots that are
//! neighbours are therefore destroyed as one run: the chain is linked around the run, each deadlist of
//! the run is read once and merged into that of the dataset behind the run, and the stretches of other
//! deadlists are joined in one go. One snapshot is a run of one.

use std::collections::HashSet;

use ondisk::dsl::Dataset as DatasetPhys;
use ondisk::version;
use units::{ObjectId, ObjsetId, Txg};
use zap::Zap;

use super::change::Change;
use super::deadlist::{self, Contents};
use super::destroy::{count_head_anew, join_stretches_of_clones, no_longer_boots};
use super::list::number;
use super::names::{Head, matching};
use super::pool::{FREE_LIST, own_dir};
use super::space::{For, Space, signed};
use super::{bookmark, create, limits, old_deadlist, remapped, snapshot};
use crate::{Error, Result};

/// A snapshot that is destroyed.
struct Doomed {
    id: ObjectId,
    record: DatasetPhys,
    /// Its name behind the `@`, as it stands in the table.
    part: String,
}

/// Finds snapshots of a head by their names behind the `@`.
pub fn find_snapshots(change: &Change<'_>, path: &str, parts: &[&str]) -> Result<Vec<ObjsetId>> {
    let names = SnapshotNames::open(change, change.find_head(path)?)?;
    let find = |part: &&str| match names.find(part)? {
        Some((id, _)) => Ok(ObjsetId::new(id.get())),
        None => Err(Error::NoSuchDataset { name: format!("{path}@{part}") }),
    };
    parts.iter().map(find).collect()
}

/// Whether a snapshot is held, so that it is not to be destroyed.
pub fn is_held(change: &Change<'_>, snapshot: ObjsetId) -> Result<bool> {
    Ok(change.count(change.dataset(ObjectId::new(snapshot.get()))?.holds)? != 0)
}

/// Destroys a snapshot. One that is held or cloned is refused, or with `later` is destroyed as soon
/// as it is neither.
pub fn destroy_snapshot(change: &Change<'_>, name: &str, later: bool) -> Result<()> {
    let missing = || Error::NoSuchDataset { name: name.to_owned() };
    let (path, part) = name.split_once('@').ok_or_else(missing)?;
    let ids = find_snapshots(change, path, &[part])?;
    let all: Vec<_> = ids.into_iter().map(|id| (part, id)).collect();
    destroy_snapshots(change, path, &all, later).map(drop)
}

/// Destroys snapshots of a head, each given by its name behind the `@` and its number, and returns how
/// many. Those that are not there any more under their name are skipped. Held or cloned ones are
/// refused, or with `later` are destroyed as soon as they are neither.
pub fn destroy_snapshots(
    change: &Change<'_>,
    path: &str,
    snapshots: &[(&str, ObjsetId)],
    later: bool,
) -> Result<usize> {
    let head = change.find_head(path)?;
    let names = SnapshotNames::open(change, head)?;
    let (mut doomed, mut deferred, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for (part, wanted) in snapshots {
        let wanted = ObjectId::new(wanted.get());
        let found = names.find(part)?.filter(|(id, _)| *id == wanted);
        let Some((id, own)) = found.filter(|(id, _)| seen.insert(*id)) else { continue };
        let record = change.dataset(id)?;
        let busy = |why| Err(Error::Busy { name: format!("{path}@{part}"), why });
        match (change.count(record.holds)? != 0, record.children > 1) {
            (false, false) => doomed.push(Doomed { id, record, part: own }),
            _ if later => {
                change.require_version(version::HOLDS)?;
                deferred.push(id);
            }
            (true, _) => return busy("it is held"),
            (false, true) => return busy("it has clones"),
        }
    }
    drop(names);
    for id in &deferred {
        change.change_dataset(*id, |it| it.flags |= DatasetPhys::DEFER_DESTROY)?;
    }
    doomed.sort_by_key(|it| it.record.creation_txg);
    let mut joins = Joins::default();
    for run in doomed.chunk_by(|one, other| one.record.next == other.id) {
        destroy_run(change, head, run, &mut joins)?;
    }
    joins.carry_out(change, head)?;
    Ok(doomed.len().saturating_add(deferred.len()))
}

/// Destroys a snapshot that is neither held nor cloned.
pub(crate) fn snapshot_goes(change: &Change<'_>, id: ObjectId) -> Result<()> {
    let record = change.dataset(id)?;
    let part = change.snapshot_part(id)?;
    let head = Head { dir: record.dir, dataset: change.dir(record.dir)?.head };
    let mut joins = Joins::default();
    destroy_run(change, head, &[Doomed { id, record, part }], &mut joins)?;
    joins.carry_out(change, head)
}

/// The table of a head's snapshots, opened once.
struct SnapshotNames {
    table: Zap,
    matching: zap::Matching,
}

impl SnapshotNames {
    fn open(change: &Change<'_>, head: Head) -> Result<Self> {
        let record = change.dataset(head.dataset)?;
        let table = Zap::open(change.object(record.snapshot_names)?)?;
        Ok(Self { table, matching: matching(&record) })
    }

    /// A snapshot, and its name as it stands in the table.
    fn find(&self, part: &str) -> Result<Option<(ObjectId, String)>> {
        let Some(entry) = self.table.lookup_normalized(part.as_bytes(), self.matching)? else {
            return Ok(None);
        };
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        Ok(entry.value.u64().map(|id| (ObjectId::new(id), name)))
    }
}

/// What is around a run.
struct Around {
    head: Head,
    /// The snapshot before the run, if its next dataset is in the run. It is another's where the run
    /// begins with the first snapshot of a clone.
    previous: Option<(ObjectId, Txg)>,
    /// The txg of the snapshot before the run, whoever's it is.
    since: Txg,
    next: ObjectId,
    next_record: DatasetPhys,
}

impl Around {
    /// The space of the blocks that only the run reached.
    fn freed(&self, died: &[(Txg, &Contents)]) -> Space {
        sum(died, self.since, None)
    }
}

/// The space of the blocks that died in stretches which begin at `from` or later, and before `to`.
fn sum(died: &[(Txg, &Contents)], from: Txg, to: Option<Txg>) -> Space {
    let spaces = died.iter().map(|(_, contents)| contents.space_between(from, to));
    spaces.fold(Space::default(), std::ops::Add::add)
}

/// Destroys neighbouring snapshots, oldest first, that are neither held nor cloned.
fn destroy_run(change: &Change<'_>, head: Head, run: &[Doomed], joins: &mut Joins) -> Result<()> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
    let (next, since) = (last.record.next, first.record.previous_txg);
    let next_record = change.dataset(next)?;
    let lists = run.iter().map(|it| it.record.deadlist);
    let contents = |list| Ok::<_, Error>((list, deadlist::contents(change, list)?));
    let lists: Vec<_> = lists.map(contents).collect::<Result<_>>()?;
    let behind = deadlist::contents(change, next_record.deadlist)?;
    let is_old = behind.is_old || lists.iter().any(|(_, contents)| contents.is_old);
    if is_old && run.len() > 1 {
        return run.iter().try_for_each(|doomed| snapshot_goes(change, doomed.id));
    }
    // what died between a snapshot of the run and the dataset after it
    let contents = lists.iter().map(|(_, contents)| contents).skip(1).chain([&behind]);
    let txgs = run.iter().map(|it| it.record.creation_txg);
    let died: Vec<(Txg, &Contents)> = txgs.zip(contents).collect();
    let kept = bookmark::run_goes(change, head.dataset, since, &died)?;
    for doomed in run {
        for (feature, _) in create::features_of(change, doomed.id)? {
            create::remove_feature(change, doomed.id, feature)?;
        }
    }
    let previous = unlink(change, first, last)?;
    let around = Around { head, previous, since, next, next_record };
    count_blocks(change, &around, &died)?;
    for doomed in run {
        remapped::snapshot_goes(change, doomed.id, &doomed.record, since)?;
    }
    if behind.is_old {
        old_deadlist::snapshot_goes(change, &first.record)?;
    } else {
        let freed = change.number(super::change::DIRECTORY, FREE_LIST)?;
        let freed = freed.map(ObjectId::new).ok_or(Error::Missing { name: FREE_LIST })?;
        deadlist::merge_run(change, &lists, around.next_record.deadlist, since, freed)?;
        change.add_space(own_dir(change, "$FREE")?, For::Head, around.freed(&died))?;
    }
    joins.add_run(run, &kept, around.next_record.is_snapshot());
    if !around.next_record.is_snapshot() {
        count_head_anew(change, head.dir, next)?;
    }
    remove_records(change, head, run)
}

/// Takes a run out of the chain. Returns the snapshot before it, with the txg of the one before that, if
/// it has no other next.
fn unlink(change: &Change<'_>, first: &Doomed, last: &Doomed) -> Result<Option<(ObjectId, Txg)>> {
    let next = last.record.next;
    change.change_dataset(next, |next| {
        next.previous = first.record.previous;
        next.previous_txg = first.record.previous_txg;
    })?;
    let Some((at, previous)) = change.previous_of(&first.record)? else { return Ok(None) };
    if previous.next == first.id {
        change.change_dataset(at, |previous| previous.next = next)?;
        return Ok(Some((at, previous.previous_txg)));
    }
    if previous.next_clones.exists() {
        change.remove_member(previous.next_clones, first.id.get())?;
        if next.exists() {
            change.insert_member(previous.next_clones, next.get())?;
        }
    }
    Ok(None)
}

/// Counts the blocks that are freed, and those that only one of the snapshots around the run reaches from
/// now on.
fn count_blocks(change: &Change<'_>, around: &Around, died: &[(Txg, &Contents)]) -> Result<()> {
    let since = around.since;
    if let Some((id, before)) = around.previous {
        let gained = sum(died, before, Some(since));
        change.change_dataset(id, |previous| add(&mut previous.unique, gained.used))?;
    }
    change.add_space(around.head.dir, For::Snapshots, -around.freed(died))?;
    if around.next_record.is_snapshot() {
        // blocks that the run and the next alone reached are now the next's
        let after = change.dataset(around.next_record.next)?.deadlist;
        let newest = died.last().map(|(txg, _)| *txg);
        let gained = deadlist::space_between(change, after, since, newest)?.used;
        change.change_dataset(around.next, |next| add(&mut next.unique, gained))?;
    }
    Ok(())
}

fn add(count: &mut u64, delta: i64) {
    *count = count.saturating_add_signed(delta);
}

/// The stretches of deadlists of later datasets that are joined with the ones before them, as they began
/// with snapshots that are destroyed. Oldest first.
#[derive(Default)]
struct Joins {
    /// In the deadlists of clones of later snapshots; but for those that bookmarks keep.
    clones: Vec<Txg>,
    /// In the head's deadlist; the same.
    head: Vec<Txg>,
    /// In the head's list of addresses on removed vdevs.
    remapped: Vec<Txg>,
}

impl Joins {
    /// Notes the stretches that began with a run, which comes after those that are noted already.
    fn add_run(&mut self, run: &[Doomed], kept: &[Txg], before_snapshot: bool) {
        for start in run.iter().map(|it| it.record.creation_txg) {
            let is_kept = kept.binary_search(&start).is_ok();
            if !is_kept {
                self.clones.push(start);
            }
            // the deadlist of a head that follows the run has none of these stretches any more
            if before_snapshot && !is_kept {
                self.head.push(start);
            }
            if before_snapshot {
                self.remapped.push(start);
            }
        }
    }

    fn carry_out(&self, change: &Change<'_>, head: Head) -> Result<()> {
        join_stretches_of_clones(change, head.dir, &self.clones)?;
        let list = change.dataset(head.dataset)?.deadlist;
        deadlist::join_stretches(change, list, &self.head)?;
        remapped::join_stretches(change, head.dataset, &self.remapped)
    }
}

/// Frees the records of a run, whose blocks have gone elsewhere.
fn remove_records(change: &Change<'_>, head: Head, run: &[Doomed]) -> Result<()> {
    let names = change.dataset(head.dataset)?.snapshot_names;
    snapshot::note_snapshots_changed(change, head.dir)?;
    change.remove_all(names, run.iter().map(|it| it.part.clone()))?;
    limits::count_snapshots(change, head.dir, signed(number(run.len())).wrapping_neg())?;
    for Doomed { id, record, .. } in run {
        for table in [record.next_clones, record.properties, record.holds] {
            change.free_if_any(table)?;
        }
        no_longer_boots(change, *id)?;
        change.free_extended(*id)?;
    }
    Ok(())
}
