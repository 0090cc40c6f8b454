//! Prune: snapshots go, and with them the blocks that no other snapshot needs.
//!
//! The order makes each cut safe: new packs and index objects are stored first, then the head that refers to
//! them, and only then is deleted what that head does not refer to. A reader that still uses the head
//! before finds a pack gone, and reads the newest head.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use job::Job;
use zio::Random;

use crate::head::{HEADS, INDEX, PACKS, SNAPSHOTS};
use crate::mark::{mark_live, without_snapshots};
use crate::repack::{Target, rewrite_pool};
use crate::{
    Generation, Head, ObjectId, ObjectInfo, Repository, Result, SnapshotSummary, StoreError,
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
    /// Blocks in the index that no snapshot needs. Those in packs that stay are counted again by the next prune.
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
        random: &Arc<dyn Random>,
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
        let mut packs = HashSet::new();
        next.index = Vec::new();
        for (pool, marks) in &all {
            let target = Target { repository: self, pool: *pool, head: &head, random };
            let rewritten = rewrite_pool(target, marks, &objects, options, &mut report, job)?;
            next.index.extend(rewritten.index);
            packs.extend(rewritten.packs);
        }
        let garbage = objects.garbage(&next, &packs, head.generation);
        if options.dry_run {
            for object in &garbage {
                count_deleted(&mut report, object);
            }
            return Ok(report);
        }
        (next.generation, next.time) = (head.generation.next(), now);
        "prune".clone_into(&mut next.writer);
        // Rule L5: objects are deleted once the head without them is stored. A cut in the other order would leave a
        // head that refers to packs which are gone.
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
pub(crate) struct Objects {
    pub(crate) packs: HashMap<ObjectId, ObjectInfo>,
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
