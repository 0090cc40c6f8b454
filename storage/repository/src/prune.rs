//! Prune: snapshots go, and with them the blocks that no other snapshot needs.
//!
//! The order makes each cut safe: new packs and index objects are stored first, then the head that refers to
//! them, and only then is deleted what that head does not refer to. A reader that still uses the head
//! before finds a pack gone, and reads the newest head.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use job::Job;
use zio::Random;

use crate::backup::{PackWriter, new_id, store_index};
use crate::head::{HEADS, INDEX, PACKS, SNAPSHOTS};
use crate::mark::{Marks, mark_live, without_snapshots};
use crate::{
    BlockLocation, Error, Generation, Head, IndexSummary, ObjectId, ObjectInfo, Repository, Result,
    SnapshotSummary, StoreError,
};

/// The number of heads that stay; older ones are deleted once they are old enough.
const KEPT_HEADS: u64 = 100;
/// Seconds for which each head is kept, so that no list of a store can be older.
const KEPT_HEAD_AGE: u64 = 7 * 24 * 60 * 60;

/// The options of a prune.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PruneOptions {
    /// Packs with less than this percentage of needed bytes are repacked.
    pub repack_below_percent: u8,
    /// A dry run; the report lists the changes.
    pub dry_run: bool,
}

impl Default for PruneOptions {
    fn default() -> Self {
        Self { repack_below_percent: 50, dry_run: false }
    }
}

/// The result of a prune.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// The snapshots that went.
    pub removed_snapshots: Vec<String>,
    /// Blocks that are no longer needed.
    pub dead_blocks: u64,
    /// Packs that were repacked.
    pub repacked_packs: u64,
    /// Bytes of blocks that were stored again.
    pub repacked_bytes: u64,
    /// Objects that were deleted.
    pub deleted_objects: u64,
    /// Bytes of these objects.
    pub deleted_bytes: u64,
    /// Objects that could not be deleted, with the store's words: the next prune tries again.
    pub undeleted: Vec<(String, String)>,
}

impl Repository {
    /// Removes the snapshots that `is_removed` names, and what no other snapshot needs. `now` is in seconds
    /// since 1970.
    pub fn prune(
        &self,
        is_removed: &dyn Fn(&SnapshotSummary) -> bool,
        options: PruneOptions,
        random: Arc<dyn Random>,
        now: u64,
        job: &Job,
    ) -> Result<PruneReport> {
        let head = self.refresh()?;
        let mut report = PruneReport::default();
        for removed in head.snapshots.iter().filter(|it| is_removed(it)) {
            report.removed_snapshots.push(removed.name());
        }
        let mut next = Head { snapshots: without_snapshots(&head, is_removed), ..(*head).clone() };
        let all = mark_live(self, &next, job)?;
        // an object that is stored from here on is garbage only for a later prune
        let objects = Objects::list(self)?;
        let mut repack = Repack {
            repository: self,
            head: &head,
            random,
            options,
            report: &mut report,
            packs: HashSet::new(),
        };
        next.index = Vec::new();
        for (pool, marks) in &all {
            next.index.extend(repack.rewrite_pool(*pool, marks, &objects, job)?);
        }
        let packs = repack.packs;
        let garbage = objects.garbage(&next, &packs, head.generation);
        if options.dry_run {
            for object in &garbage {
                count_deleted(&mut report, object);
            }
            return Ok(report);
        }
        (next.generation, next.time) = (head.generation.next(), now);
        "prune".clone_into(&mut next.writer);
        self.publish(next)?;
        self.remove_leftovers();
        for object in garbage {
            match self.delete(&object.name) {
                Ok(()) | Err(StoreError::NotFound) => count_deleted(&mut report, &object),
                Err(why) => report.undeleted.push((object.name, why.to_string())),
            }
        }
        Ok(report)
    }
}

fn count_deleted(report: &mut PruneReport, object: &ObjectInfo) {
    report.deleted_objects += 1;
    report.deleted_bytes += object.size;
}

/// The objects in the store.
struct Objects {
    packs: HashMap<ObjectId, ObjectInfo>,
    index: HashMap<ObjectId, ObjectInfo>,
    snapshots: HashMap<ObjectId, ObjectInfo>,
    heads: BTreeMap<Generation, ObjectInfo>,
}

impl Objects {
    fn list(repository: &Repository) -> Result<Self> {
        let list = |folder: &str| -> Result<HashMap<ObjectId, ObjectInfo>> {
            let named =
                |info: ObjectInfo| Some((info.name.strip_prefix(folder)?.parse().ok()?, info));
            Ok(repository.list(folder)?.into_iter().filter_map(named).collect())
        };
        let head = |info: ObjectInfo| Some((info.name.strip_prefix(HEADS)?.parse().ok()?, info));
        Ok(Self {
            packs: list(PACKS)?,
            index: list(INDEX)?,
            snapshots: list(SNAPSHOTS)?,
            heads: repository.list(HEADS)?.into_iter().filter_map(head).collect(),
        })
    }

    /// The objects that the next head does not refer to, and old heads. Objects that are named after a newer
    /// generation are none of ours.
    fn garbage(
        self,
        next: &Head,
        packs: &HashSet<ObjectId>,
        generation: Generation,
    ) -> Vec<ObjectInfo> {
        let index: HashSet<ObjectId> = next.index.iter().map(|object| object.id).collect();
        let manifests: HashSet<ObjectId> = next.snapshots.iter().map(|it| it.manifest).collect();
        let folders = [(self.packs, packs), (self.index, &index), (self.snapshots, &manifests)];
        let mut garbage = Vec::new();
        for (objects, needed) in folders {
            let is_garbage = |id: &ObjectId| id.generation <= generation && !needed.contains(id);
            garbage.extend(objects.into_iter().filter(|(id, _)| is_garbage(id)).map(|it| it.1));
        }
        garbage.extend(old_heads(self.heads, generation));
        garbage
    }
}

/// The heads that no list can name any more.
fn old_heads(heads: BTreeMap<Generation, ObjectInfo>, newest: Generation) -> Vec<ObjectInfo> {
    let modified = |info: &ObjectInfo| info.modified;
    let Some(newest_time) = heads.get(&newest).and_then(modified) else { return Vec::new() };
    let is_old = |generation: &Generation, info: &ObjectInfo| {
        let age = info.modified.and_then(|time| newest_time.checked_sub(time));
        let distance = newest.0.checked_sub(generation.0);
        distance.is_some_and(|it| it >= KEPT_HEADS) && age.is_some_and(|age| age > KEPT_HEAD_AGE)
    };
    heads.into_iter().filter(|(number, info)| is_old(number, info)).map(|it| it.1).collect()
}

/// Writes a new index, and repacks packs that are mostly garbage.
struct Repack<'a> {
    repository: &'a Repository,
    head: &'a Arc<Head>,
    random: Arc<dyn Random>,
    options: PruneOptions,
    report: &'a mut PruneReport,
    /// The packs to which the new index refers.
    packs: HashSet<ObjectId>,
}

impl Repack<'_> {
    fn rewrite_pool(
        &mut self,
        pool: u64,
        marks: &Marks,
        objects: &Objects,
        job: &Job,
    ) -> Result<Vec<IndexSummary>> {
        let (mut live, dead) = live_locations(marks)?;
        self.report.dead_blocks += dead;
        let sparse = sparse_packs(&live, objects, self.options.repack_below_percent);
        let packs: u64 = sparse.len() as u64;
        self.report.repacked_packs += packs;
        if self.options.dry_run {
            let packs = live.iter().map(|location| location.pack);
            self.packs.extend(packs.filter(|pack| !sparse.contains(pack)));
            return Ok(Vec::new());
        }
        let mut writer =
            PackWriter::new(self.repository.clone(), pool, Arc::clone(&self.random), self.head);
        // in the order in which they lie, so that each pack is read once
        live.sort_unstable_by_key(|location| (location.pack, location.block.position));
        for location in live.iter_mut().filter(|location| sparse.contains(&location.pack)) {
            if job.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let stored = marks.index.read(location)?;
            *location = writer.add(location.kind, location.block.key, &stored)?;
            let length = u64::from(location.block.length);
            self.report.repacked_bytes += length;
        }
        writer.flush()?;
        live.sort_unstable_by_key(|location| location.block.key);
        live.dedup_by_key(|location| location.block.key);
        self.packs.extend(live.iter().map(|location| location.pack));
        let (random, head) = (Arc::clone(&self.random), Arc::clone(self.head));
        store_index(self.repository, pool, &live, &mut || new_id(&*random, &head))
    }
}

/// The records that are needed, and how many are not.
fn live_locations(marks: &Marks) -> Result<(Vec<BlockLocation>, u64)> {
    let (mut live, mut dead) = (Vec::new(), 0_u64);
    for number in 0..marks.index.len() {
        let object = marks.index.object(number)?;
        for (record, location) in object.iter().enumerate() {
            if marks.is_marked(number, record) {
                live.push(location);
            } else {
                dead += 1;
            }
        }
    }
    Ok((live, dead))
}

/// The packs to repack: those with less than this percentage of needed bytes.
fn sparse_packs(live: &[BlockLocation], objects: &Objects, percent: u8) -> BTreeSet<ObjectId> {
    let mut bytes: HashMap<ObjectId, u64> = HashMap::new();
    for location in live {
        let sum = bytes.entry(location.pack).or_default();
        *sum += u64::from(location.block.length);
        // a record is part of what a pack has to hold
        *sum += crate::StoredBlock::SIZE as u64;
    }
    let is_sparse = |(pack, live): &(ObjectId, u64)| {
        let size = objects.packs.get(pack).map_or(0, |info| info.size);
        u128::from(*live) * 100 < u128::from(size) * u128::from(percent)
    };
    bytes.into_iter().filter(is_sparse).map(|(pack, _)| pack).collect()
}
