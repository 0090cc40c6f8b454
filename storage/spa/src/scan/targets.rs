//! What a round has to walk: found in the pool's own object set, so that it has datasets that no
//! directory names any more, too.

use std::collections::HashMap;

use dmu::Objset;
use dsl::block_lists;
use ondisk::dnode::Dnode;
use ondisk::dsl::{BptreeEntry, Dataset};
use ondisk::{Blkptr, ObjectType};
use units::{BlockId, Level, ObjectId, ObjsetId, Txg, Zbookmark};

use crate::{Error, PoolDirectory};

/// An object set to be walked.
#[derive(Clone, Debug)]
pub(super) struct ScanTarget {
    pub(super) id: ObjsetId,
    pub(super) root: Blkptr,
    /// Only what was born after this belongs to it; the rest is found elsewhere.
    pub(super) since_txg: Txg,
    /// Where to begin.
    pub(super) start: Option<Zbookmark>,
    /// Before that place it was walked as it was in this txg: what is newer must be looked at.
    pub(super) walked_txg: Option<Txg>,
    /// Whether all of it was walked then.
    pub(super) is_walked: bool,
    /// Whether it has an intent log of its own.
    pub(super) has_log: bool,
    /// What is left of a destroyed one. Its number says nothing: before the first of it is freed that
    /// is the one of the pool's own object set.
    is_destroyed: bool,
}

impl ScanTarget {
    fn new(id: ObjsetId, root: Blkptr, since_txg: Txg) -> Self {
        let (start, walked_txg) = (None, None);
        Self {
            id,
            root,
            since_txg,
            start,
            walked_txg,
            is_walked: false,
            has_log: false,
            is_destroyed: false,
        }
    }
}

/// What of an object set was walked.
#[derive(Clone, Copy, Debug)]
struct Coverage {
    since_txg: Txg,
    /// Up to there; none: to the end.
    end: Option<Zbookmark>,
    /// As it was in that txg.
    walked_txg: Txg,
}

/// What was walked in the rounds before.
#[derive(Debug, Default)]
pub(super) struct ScanCoverage(HashMap<ObjsetId, Coverage>);

impl ScanCoverage {
    /// A task was walked, as of a txg, up to a place or to its end. What is dying is walked anew each
    /// time, as far as it is still there.
    pub(super) fn record(&mut self, task: &ScanTarget, upto: Option<Zbookmark>, seen: Txg) {
        if !task.is_destroyed {
            self.0.insert(
                task.id,
                Coverage { since_txg: task.since_txg, end: upto, walked_txg: seen },
            );
        }
    }

    /// A task without what was done of it. Datasets may have come, gone, and taken over what was
    /// another's: done is what was walked of the same one, as far back at least.
    fn remaining(&self, task: ScanTarget) -> ScanTarget {
        match self.0.get(&task.id) {
            Some(covered) if covered.since_txg <= task.since_txg && !task.is_destroyed => {
                ScanTarget {
                    start: covered.end.or(task.start),
                    walked_txg: Some(covered.walked_txg),
                    is_walked: covered.end.is_none(),
                    ..task
                }
            }
            _ => task,
        }
    }
}

/// All that is to be walked of a pool whose own object set is `mos`. `lose` is told what may be left
/// out.
pub(super) fn list_targets(
    mos: &Objset,
    done: &ScanCoverage,
    lose: &mut dyn FnMut(Error),
) -> Vec<ScanTarget> {
    let mut tasks = vec![ScanTarget::new(ObjsetId::MOS, mos.root().clone(), Txg::ZERO)];
    for object in mos.objects() {
        match object.map_err(Error::from).and_then(|(id, dnode)| dataset_target(id, &dnode)) {
            Ok(task) => tasks.extend(task),
            Err(error) => lose(error),
        }
    }
    // what is left of destroyed datasets is read once more, to be freed
    match destroyed_targets(mos) {
        Ok(dying) => tasks.extend(dying),
        Err(error) => lose(error),
    }
    tasks.into_iter().map(|task| done.remaining(task)).collect()
}

/// The root of a dataset's object set; none: that is not a dataset.
pub(crate) fn dataset_root(mos: &Objset, id: ObjsetId) -> Result<Option<Blkptr>, Error> {
    let id = ObjectId::new(id.get());
    Ok(dataset_target(id, mos.object(id)?.dnode())?.map(|task| task.root))
}

fn dataset_target(id: ObjectId, dnode: &Dnode) -> Result<Option<ScanTarget>, Error> {
    if dnode.bonus_kind != ObjectType::DSL_DATASET {
        return Ok(None);
    }
    let mut bonus = ondisk::Reader::new("dataset", &dnode.bonus, dnode.order);
    let dataset = Dataset::read(&mut bonus)?;
    let log = !dataset.next.exists();
    let task = ScanTarget::new(ObjsetId::new(id.get()), dataset.root, dataset.previous_txg);
    Ok(Some(ScanTarget { has_log: log, ..task }))
}

fn destroyed_targets(mos: &Objset) -> Result<Vec<ScanTarget>, Error> {
    let directory = PoolDirectory::open(mos.clone())?;
    let Some(list) = directory.lookup_u64("bptree_obj")?.filter(|list| *list != 0) else {
        return Ok(Vec::new());
    };
    let (_, entries) = block_lists::read_bptree(mos, ObjectId::new(list))?;
    let task = |entry: BptreeEntry| {
        let [objset, object, level, block] = entry.resume;
        let level = Level::new(u8::try_from(level).unwrap_or(0));
        let id = ObjsetId::new(objset);
        let zbookmark = Zbookmark::new(id, ObjectId::new(object), level, BlockId::new(block));
        let from = (entry.resume != [0; 4]).then_some(zbookmark);
        ScanTarget {
            start: from,
            is_destroyed: true,
            ..ScanTarget::new(id, entry.root, entry.birth)
        }
    };
    Ok(entries.into_iter().map(task).collect())
}

#[cfg(test)]
mod tests {
    use ondisk::Blkptr;
    use units::{ObjsetId, Txg};

    use super::{ScanCoverage, ScanTarget};

    #[test]
    fn a_destroyed_dataset_is_not_taken_for_the_pools_own_object_set() {
        let of = |id| ScanTarget::new(id, Blkptr::EMPTY, Txg::ZERO);
        let dying = || ScanTarget { is_destroyed: true, ..of(ObjsetId::MOS) };
        let mut done = ScanCoverage::default();
        done.record(&dying(), None, Txg::new(9));
        assert!(!done.remaining(of(ObjsetId::MOS)).is_walked);
        done.record(&of(ObjsetId::MOS), None, Txg::new(9));
        assert!(done.remaining(of(ObjsetId::MOS)).is_walked);
        assert!(!done.remaining(dying()).is_walked);
    }
}
