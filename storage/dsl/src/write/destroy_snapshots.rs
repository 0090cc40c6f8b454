//! Destroying snapshots: their blocks go to the pool's list or to the next dataset.
//!
//! Each deadlist has an entry for every snapshot that existed when it was created. Neighbouring
//! snapshots are therefore destroyed as one run. The chain is linked around the run. Each deadlist
//! of the run is read once and merged into that of the dataset after the run. The entries of other
//! deadlists are joined in one go. One snapshot is a run of one.

use std::collections::HashSet;

use ondisk::dsl::Dataset as DatasetPhys;
use ondisk::version;
use units::{ObjectId, ObjsetId, Txg};
use zap::Zap;

use super::bpobj::to_u64;
use super::context::{DatasetEvent, SyncTaskContext};
use super::deadlist::{self, DeadlistContents};
use super::destroy::{clear_bootfs, merge_clone_deadlist_entries, recompute_head_unique};
use super::interrupted::RECV_CLONE;
use super::names::{HeadIds, name_matching};
use super::pool::{FREE_BPOBJ, special_dir};
use super::space::{SpaceDelta, UsedBy, add_signed, to_i64};
use super::{bookmark, create, limits, old_deadlist, remap_deadlist, snapshot};
use crate::{Error, Result};

/// A snapshot that is destroyed.
struct DestroyedSnapshot {
    id: ObjectId,
    phys: DatasetPhys,
    /// Its name behind the `@`, as it stands in the table.
    short_name: String,
}

/// Finds snapshots of a head by their names behind the `@`.
pub fn find_snapshots(
    change: &SyncTaskContext<'_>,
    path: &str,
    parts: &[&str],
) -> Result<Vec<ObjsetId>> {
    let names = SnapshotNames::open(change, change.find_head(path)?)?;
    let find = |part: &&str| match names.find(part)? {
        Some((id, _)) => Ok(ObjsetId::new(id.get())),
        None => Err(Error::NoSuchDataset { name: format!("{path}@{part}") }),
    };
    parts.iter().map(find).collect()
}

/// Whether a snapshot has a hold, so that it must not be destroyed.
pub fn is_held(change: &SyncTaskContext<'_>, snapshot: ObjsetId) -> Result<bool> {
    Ok(change.zap_count(change.dataset_phys(ObjectId::new(snapshot.get()))?.holds)? != 0)
}

/// Destroys a snapshot. One with holds or clones is refused, or with `later` is destroyed as soon
/// as it has neither.
pub fn destroy_snapshot(change: &SyncTaskContext<'_>, name: &str, later: bool) -> Result<()> {
    let missing = || Error::NoSuchDataset { name: name.to_owned() };
    let (path, part) = name.split_once('@').ok_or_else(missing)?;
    let ids = find_snapshots(change, path, &[part])?;
    let all: Vec<_> = ids.into_iter().map(|id| (part, id)).collect();
    destroy_snapshots(change, path, &all, later).map(drop)
}

/// Destroys snapshots of a head, each given by its name after the `@` and its number, and returns
/// how many. Those that no longer exist under their name are skipped. Those with holds or clones
/// are refused, or with `later` are destroyed as soon as they have neither.
pub fn destroy_snapshots(
    change: &SyncTaskContext<'_>,
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
        let record = change.dataset_phys(id)?;
        let name = || format!("{path}@{part}");
        match (change.zap_count(record.holds)? != 0, record.children > 1) {
            (false, false) => doomed.push(DestroyedSnapshot { id, phys: record, short_name: own }),
            _ if later => {
                change.require_version(version::HOLDS)?;
                deferred.push(id);
            }
            (true, _) => return Err(Error::Held { name: name() }),
            (false, true) => return Err(clone_error(change, path, (id, name()))?),
        }
    }
    drop(names);
    for id in &deferred {
        change.update_dataset(*id, |it| it.flags |= DatasetPhys::DEFER_DESTROY)?;
    }
    doomed.sort_by_key(|it| it.phys.creation_txg);
    let mut joins = EntryMerges::default();
    for run in doomed.chunk_by(|one, other| one.phys.next == other.id) {
        destroy_run(change, head, run, &mut joins)?;
    }
    joins.apply(change, head)?;
    Ok(doomed.len() + deferred.len())
}

/// The refusal to destroy a snapshot with clones. Lists of datasets leave the hidden clone of an interrupted receive out,
/// so that only the error can name it.
fn clone_error(
    change: &SyncTaskContext<'_>,
    path: &str,
    (id, name): (ObjectId, String),
) -> Result<Error> {
    let clone = format!("{path}/{RECV_CLONE}");
    let origin = match change.find_head(&clone) {
        Ok(hidden) => change.dir_phys(hidden.dir)?.origin,
        Err(Error::NoSuchDataset { .. }) => ObjectId::META,
        Err(why) => return Err(why),
    };
    Ok(if origin == id {
        Error::ReceivedOnto { name, clone }
    } else {
        Error::Busy { name, why: "it has clones" }
    })
}

/// Destroys a snapshot that has neither holds nor clones.
pub(crate) fn destroy_unreferenced_snapshot(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
) -> Result<()> {
    let record = change.dataset_phys(id)?;
    let part = change.snapshot_name(id)?;
    let head = HeadIds { dir: record.dir, dataset: change.dir_phys(record.dir)?.head };
    let mut joins = EntryMerges::default();
    destroy_run(
        change,
        head,
        &[DestroyedSnapshot { id, phys: record, short_name: part }],
        &mut joins,
    )?;
    joins.apply(change, head)
}

/// The table of a head's snapshots, opened once.
struct SnapshotNames {
    zap: Zap,
    matching: zap::Matching,
}

impl SnapshotNames {
    fn open(change: &SyncTaskContext<'_>, head: HeadIds) -> Result<Self> {
        let record = change.dataset_phys(head.dataset)?;
        let table = Zap::open(change.object(record.snapshot_names)?)?;
        Ok(Self { zap: table, matching: name_matching(&record) })
    }

    /// A snapshot, and its name as it stands in the table.
    fn find(&self, part: &str) -> Result<Option<(ObjectId, String)>> {
        let Some(entry) = self.zap.lookup_normalized(part.as_bytes(), self.matching)? else {
            return Ok(None);
        };
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        Ok(entry.value.u64().map(|id| (ObjectId::new(id), name)))
    }
}

/// The datasets around a run.
struct RunContext {
    head: HeadIds,
    /// The snapshot before the run, if its next dataset is in the run. It is another's where the run
    /// begins with the first snapshot of a clone.
    previous: Option<(ObjectId, Txg)>,
    /// The txg of the snapshot before the run, even if another dataset owns it.
    since_txg: Txg,
    next: ObjectId,
    next_phys: DatasetPhys,
}

impl RunContext {
    /// The space of the blocks that only the run reached.
    fn freed_space(&self, died: &[(Txg, &DeadlistContents)]) -> SpaceDelta {
        sum_space(died, self.since_txg, None)
    }
}

/// The space of the blocks that died in stretches which begin at `from` or later, and before `to`.
fn sum_space(died: &[(Txg, &DeadlistContents)], from: Txg, to: Option<Txg>) -> SpaceDelta {
    let spaces = died.iter().map(|(_, contents)| contents.space_in_range(from, to));
    spaces.fold(SpaceDelta::default(), std::ops::Add::add)
}

/// Destroys neighbouring snapshots, oldest first, that have neither holds nor clones.
fn destroy_run(
    change: &SyncTaskContext<'_>,
    head: HeadIds,
    run: &[DestroyedSnapshot],
    joins: &mut EntryMerges,
) -> Result<()> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
    let (next, since) = (last.phys.next, first.phys.previous_txg);
    let next_record = change.dataset_phys(next)?;
    let lists = run.iter().map(|it| it.phys.deadlist);
    let contents = |list| Ok::<_, Error>((list, deadlist::read_contents(change, list)?));
    let lists: Vec<_> = lists.map(contents).collect::<Result<_>>()?;
    let behind = deadlist::read_contents(change, next_record.deadlist)?;
    let is_old = behind.is_old_format || lists.iter().any(|(_, contents)| contents.is_old_format);
    if is_old && run.len() > 1 {
        return run.iter().try_for_each(|doomed| destroy_unreferenced_snapshot(change, doomed.id));
    }
    // what died between a snapshot of the run and the dataset after it
    let contents = lists.iter().map(|(_, contents)| contents).skip(1).chain([&behind]);
    let txgs = run.iter().map(|it| it.phys.creation_txg);
    let died: Vec<(Txg, &DeadlistContents)> = txgs.zip(contents).collect();
    assert_eq!(died.len(), run.len(), "each snapshot of a run has a deadlist behind it");
    let kept = bookmark::snapshots_destroyed(change, head.dataset, since, &died)?;
    for doomed in run {
        for (feature, _) in create::dataset_features(change, doomed.id)? {
            create::deactivate_feature(change, doomed.id, feature)?;
        }
    }
    let previous = unlink_run(change, first, last)?;
    let around = RunContext { head, previous, since_txg: since, next, next_phys: next_record };
    update_space_counts(change, &around, &died)?;
    for doomed in run {
        remap_deadlist::snapshot_destroyed(change, doomed.id, &doomed.phys, since)?;
        let snapshot = ObjsetId::new(doomed.id.get());
        let next = ObjsetId::new(doomed.phys.next.get());
        (change.dataset_event)(DatasetEvent::SnapshotDestroyed { snapshot, next });
    }
    if behind.is_old_format {
        old_deadlist::destroy_snapshot_blocks(change, &first.phys)?;
    } else {
        let freed = change.lookup_u64(super::context::POOL_DIRECTORY, FREE_BPOBJ)?;
        let freed = freed.map(ObjectId::new).ok_or(Error::NoDirectoryEntry { name: FREE_BPOBJ })?;
        deadlist::merge_destroyed(change, &lists, around.next_phys.deadlist, since, freed)?;
        change.add_space(special_dir(change, "$FREE")?, UsedBy::Head, around.freed_space(&died))?;
    }
    joins.add_run(run, &kept, around.next_phys.is_snapshot());
    if !around.next_phys.is_snapshot() {
        recompute_head_unique(change, head.dir, next)?;
    }
    free_snapshot_objects(change, head, run)
}

/// Takes a run out of the chain. Returns the snapshot before it, with the txg of the one before that, if
/// it has no other next.
fn unlink_run(
    change: &SyncTaskContext<'_>,
    first: &DestroyedSnapshot,
    last: &DestroyedSnapshot,
) -> Result<Option<(ObjectId, Txg)>> {
    let next = last.phys.next;
    change.update_dataset(next, |next| {
        next.previous = first.phys.previous;
        next.previous_txg = first.phys.previous_txg;
    })?;
    let Some((at, previous)) = change.previous_snapshot(&first.phys)? else { return Ok(None) };
    if previous.next == first.id {
        change.update_dataset(at, |previous| previous.next = next)?;
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

/// Counts the freed blocks, and those that are now unique to one of the snapshots around the run.
fn update_space_counts(
    change: &SyncTaskContext<'_>,
    around: &RunContext,
    died: &[(Txg, &DeadlistContents)],
) -> Result<()> {
    let since = around.since_txg;
    if let Some((id, before)) = around.previous {
        let gained = sum_space(died, before, Some(since));
        change.update_dataset(id, |previous| add_signed(&mut previous.unique, gained.used))?;
    }
    change.add_space(around.head.dir, UsedBy::Snapshots, -around.freed_space(died))?;
    if around.next_phys.is_snapshot() {
        // blocks that the run and the next alone reached are now the next's
        let after = change.dataset_phys(around.next_phys.next)?.deadlist;
        let newest = died.last().map(|(txg, _)| *txg);
        let gained = deadlist::space_in_range(change, after, since, newest)?.used;
        change.update_dataset(around.next, |next| add_signed(&mut next.unique, gained))?;
    }
    Ok(())
}

/// The stretches of deadlists of later datasets that are joined with the ones before them, as they began
/// with snapshots that are destroyed. Oldest first.
#[derive(Default)]
struct EntryMerges {
    /// Removes the entries in the deadlists of clones of later snapshots, except those that
    /// bookmarks need.
    clones: Vec<Txg>,
    /// In the head's deadlist; the same.
    head: Vec<Txg>,
    /// In the head's list of addresses on removed vdevs.
    remap_deadlist: Vec<Txg>,
}

impl EntryMerges {
    /// Records the entries that began with a run, which comes after the recorded ones.
    fn add_run(&mut self, run: &[DestroyedSnapshot], kept: &[Txg], before_snapshot: bool) {
        assert!(kept.is_sorted(), "bookmarks keep entries in their order: {kept:?}");
        let first = run.first().map(|it| it.phys.creation_txg);
        assert!(
            self.clones.last().copied() <= first || first.is_none(),
            "runs are destroyed oldest first: {first:?} after {:?}",
            self.clones.last()
        );
        for start in run.iter().map(|it| it.phys.creation_txg) {
            let is_kept = kept.binary_search(&start).is_ok();
            if !is_kept {
                self.clones.push(start);
            }
            // the deadlist of a head that follows the run has none of these stretches any more
            if before_snapshot && !is_kept {
                self.head.push(start);
            }
            if before_snapshot {
                self.remap_deadlist.push(start);
            }
        }
    }

    fn apply(&self, change: &SyncTaskContext<'_>, head: HeadIds) -> Result<()> {
        merge_clone_deadlist_entries(change, head.dir, &self.clones)?;
        let list = change.dataset_phys(head.dataset)?.deadlist;
        deadlist::merge_entries(change, list, &self.head)?;
        remap_deadlist::merge_entries(change, head.dataset, &self.remap_deadlist)
    }
}

/// Frees the records of a run, whose blocks were moved already.
fn free_snapshot_objects(
    change: &SyncTaskContext<'_>,
    head: HeadIds,
    run: &[DestroyedSnapshot],
) -> Result<()> {
    let names = change.dataset_phys(head.dataset)?.snapshot_names;
    snapshot::update_snapshots_changed(change, head.dir)?;
    change.remove_all(names, run.iter().map(|it| it.short_name.clone()))?;
    limits::adjust_snapshot_count(change, head.dir, to_i64(to_u64(run.len())).wrapping_neg())?;
    for DestroyedSnapshot { id, phys: record, .. } in run {
        for table in [record.next_clones, record.properties, record.holds] {
            change.free_object_if_set(table)?;
        }
        clear_bootfs(change, *id)?;
        change.free_zapified(*id)?;
    }
    Ok(())
}
