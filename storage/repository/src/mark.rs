//! Which blocks of a pool the snapshots of a repository need.
//!
//! A snapshot whose base is in the repository needs no block born until the base's txg that the
//! base does not need. So only later blocks are walked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use job::Job;
use units::Txg;

use crate::blocks::PoolIndex;
use crate::live::SnapshotWalk;
use crate::{BlockKey, Error, Head, Repository, Result, SnapshotSummary};

/// Marks on the records of a pool's index.
pub(crate) struct Marks {
    pub(crate) index: Arc<PoolIndex>,
    /// For each index object, a bit for each record.
    bits: Vec<Vec<u64>>,
}

impl Marks {
    fn new(index: Arc<PoolIndex>) -> Self {
        let bits = vec![Vec::new(); index.len()];
        Self { index, bits }
    }

    /// Marks a block. Returns whether the index has it.
    fn mark(&mut self, key: &BlockKey) -> Result<bool> {
        let Some((object, record, _)) = self.index.find(key)? else { return Ok(false) };
        let word = record / 64;
        if let Some(bits) = self.bits.get_mut(object) {
            if bits.len() <= word {
                bits.resize(word + 1, 0);
            }
            if let Some(bits) = bits.get_mut(word) {
                *bits |= 1_u64.rotate_left(units::narrow::<u32>(record % 64));
            }
        }
        Ok(true)
    }

    /// Whether a record is marked.
    pub(crate) fn is_marked(&self, object: usize, record: usize) -> bool {
        let word = self.bits.get(object).and_then(|bits| bits.get(record / 64));
        let bit = 1_u64.rotate_left(units::narrow::<u32>(record % 64));
        word.is_some_and(|word| word & bit != 0)
    }
}

/// Marks the blocks that the snapshots of a head need, for each pool. The first block that is missing or
/// cannot be read is an error, so that nothing is taken for garbage by mistake.
pub(crate) fn mark_live(
    repository: &Repository,
    head: &Head,
    job: &Job,
) -> Result<BTreeMap<u64, Marks>> {
    let pools: BTreeSet<u64> = head.index.iter().map(|object| object.pool).collect();
    if let Some(lost) = head.snapshots.iter().find(|snapshot| !pools.contains(&snapshot.pool)) {
        let why = format!("no block of the pool of '{}' is in it", lost.name());
        return Err(repository.corrupt("index", why));
    }
    let mut all = BTreeMap::new();
    for pool in pools {
        let mut marks = Marks::new(Arc::new(PoolIndex::new(repository.clone(), head, pool)));
        for snapshot in head.snapshots.iter().filter(|snapshot| snapshot.pool == pool) {
            mark_snapshot(repository, head, snapshot, &mut marks, job)?;
        }
        marks.index.release();
        all.insert(pool, marks);
    }
    Ok(all)
}

fn mark_snapshot(
    repository: &Repository,
    head: &Head,
    snapshot: &SnapshotSummary,
    marks: &mut Marks,
    job: &Job,
) -> Result<()> {
    job.progress.set_message(snapshot.name());
    let walk = SnapshotWalk::open(repository, &repository.manifest(snapshot)?)?;
    walk.walk(walk_start(head, snapshot), &mut |block, _| {
        if job.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        job.progress.add(block.psize.into(), 1);
        let key = BlockKey::new(block);
        if key.map(|key| marks.mark(&key)).transpose()? == Some(true) {
            return Ok(());
        }
        let why = format!("a block of '{}' is not in it", snapshot.name());
        Err(repository.corrupt("index", why))
    })
}

/// The txg from which on a snapshot is walked: that of its base, if that is in the repository.
pub(crate) fn walk_start(head: &Head, snapshot: &SnapshotSummary) -> Txg {
    base_of(head, snapshot).map_or(Txg::ZERO, |base| Txg::new(base.txg))
}

fn base_of<'a>(head: &'a Head, snapshot: &SnapshotSummary) -> Option<&'a SnapshotSummary> {
    let guid = snapshot.base?;
    let is_base = |it: &&SnapshotSummary| {
        it.guid == guid && it.pool == snapshot.pool && it.txg < snapshot.txg
    };
    head.snapshots.iter().find(is_base)
}

/// A head without some snapshots. Snapshots based on them are then based on their bases.
pub(crate) fn without_snapshots(
    head: &Head,
    is_removed: &dyn Fn(&SnapshotSummary) -> bool,
) -> Vec<SnapshotSummary> {
    let mut kept: Vec<SnapshotSummary> =
        head.snapshots.iter().filter(|it| !is_removed(it)).cloned().collect();
    for snapshot in &mut kept {
        // each step goes to an older txg, so that this ends
        let mut base = base_of(head, snapshot);
        while let Some(removed) = base.filter(|base| is_removed(base)) {
            base = base_of(head, removed);
        }
        snapshot.base = base.map(|base| base.guid);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::without_snapshots;
    use crate::{Generation, Head, ObjectId, SnapshotSummary};

    fn snapshot(guid: u64, base: Option<u64>) -> SnapshotSummary {
        SnapshotSummary {
            manifest: ObjectId { generation: Generation(1), id: [0; 16] },
            dataset: "tank".to_owned(),
            snapshot: guid.to_string(),
            guid,
            pool: 1,
            txg: guid,
            creation: 0,
            encrypted: false,
            volume: false,
            referenced: 0,
            added: 0,
            base,
        }
    }

    #[test]
    fn removed_bases_are_replaced_by_their_bases() {
        let head = Head {
            repository: String::new(),
            generation: Generation(1),
            time: 0,
            writer: "run".to_owned(),
            snapshots: vec![
                snapshot(1, None),
                snapshot(2, Some(1)),
                snapshot(3, Some(2)),
                snapshot(4, Some(3)),
            ],
            index: Vec::new(),
        };
        let kept = without_snapshots(&head, &|it| [2, 3].contains(&it.guid));
        assert_eq!(kept, [snapshot(1, None), snapshot(4, Some(1))]);
        let kept = without_snapshots(&head, &|it| it.guid == 1);
        assert_eq!(kept, [snapshot(2, None), snapshot(3, Some(2)), snapshot(4, Some(3))]);
    }
}
