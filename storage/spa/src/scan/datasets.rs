//! What a round has to walk: found in the pool's own object set, so that it has datasets that no
//! directory names any more, too.

use std::collections::HashMap;

use dmu::Objset;
use dsl::lists;
use ondisk::dnode::Dnode;
use ondisk::dsl::{BptreeEntry, Dataset};
use ondisk::{Blkptr, ObjectType};
use units::{BlockId, Level, ObjectId, ObjsetId, Txg, Zbookmark};

use crate::{Directory, Error};

/// An object set to be walked.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) id: ObjsetId,
    pub(super) root: Blkptr,
    /// Only what was born after this belongs to it; the rest is found elsewhere.
    pub(super) since: Txg,
    /// Where to begin.
    pub(super) from: Option<Zbookmark>,
    /// Before that place it was walked as it was in this txg: what is newer must be looked at.
    pub(super) seen: Option<Txg>,
    /// Whether all of it was walked then.
    pub(super) whole: bool,
    /// Whether it has an intent log of its own.
    pub(super) log: bool,
    /// What is left of a destroyed one. Its number says nothing: before the first of it is freed that
    /// is the one of the pool's own object set.
    dying: bool,
}

impl Task {
    fn of(id: ObjsetId, root: Blkptr, since: Txg) -> Self {
        let (from, seen) = (None, None);
        Self { id, root, since, from, seen, whole: false, log: false, dying: false }
    }
}

/// What of an object set was walked.
#[derive(Clone, Copy, Debug)]
struct Covered {
    since: Txg,
    /// Up to there; none: to the end.
    upto: Option<Zbookmark>,
    /// As it was in that txg.
    seen: Txg,
}

/// What was walked in the rounds before.
#[derive(Debug, Default)]
pub(super) struct Done(HashMap<ObjsetId, Covered>);

impl Done {
    /// A task was walked, as of a txg, up to a place or to its end. What is dying is walked anew each
    /// time, as far as it is still there.
    pub(super) fn note(&mut self, task: &Task, upto: Option<Zbookmark>, seen: Txg) {
        if !task.dying {
            self.0.insert(task.id, Covered { since: task.since, upto, seen });
        }
    }

    /// A task without what was done of it. Datasets may have come, gone, and taken over what was
    /// another's: done is what was walked of the same one, as far back at least.
    fn rest(&self, task: Task) -> Task {
        match self.0.get(&task.id) {
            Some(covered) if covered.since <= task.since && !task.dying => Task {
                from: covered.upto.or(task.from),
                seen: Some(covered.seen),
                whole: covered.upto.is_none(),
                ..task
            },
            _ => task,
        }
    }
}

/// All that is to be walked of a pool whose own object set is `mos`. `lose` is told what may be left
/// out.
pub(super) fn tasks(mos: &Objset, done: &Done, lose: &mut dyn FnMut(Error)) -> Vec<Task> {
    let mut tasks = vec![Task::of(ObjsetId::MOS, mos.root().clone(), Txg::ZERO)];
    for object in mos.objects() {
        match object.map_err(Error::from).and_then(|(id, dnode)| dataset(id, &dnode)) {
            Ok(task) => tasks.extend(task),
            Err(error) => lose(error),
        }
    }
    // what is left of destroyed datasets is read once more, to be freed
    match dying(mos) {
        Ok(dying) => tasks.extend(dying),
        Err(error) => lose(error),
    }
    tasks.into_iter().map(|task| done.rest(task)).collect()
}

/// The root of a dataset's object set; none: that is no dataset.
pub(crate) fn root_of(mos: &Objset, id: ObjsetId) -> Result<Option<Blkptr>, Error> {
    let id = ObjectId::new(id.get());
    Ok(dataset(id, mos.object(id)?.dnode())?.map(|task| task.root))
}

fn dataset(id: ObjectId, dnode: &Dnode) -> Result<Option<Task>, Error> {
    if dnode.bonus_kind != ObjectType::DSL_DATASET {
        return Ok(None);
    }
    let mut bonus = ondisk::Reader::new("dataset", &dnode.bonus, dnode.order);
    let dataset = Dataset::read(&mut bonus)?;
    let log = !dataset.next.exists();
    let task = Task::of(ObjsetId::new(id.get()), dataset.root, dataset.previous_txg);
    Ok(Some(Task { log, ..task }))
}

fn dying(mos: &Objset) -> Result<Vec<Task>, Error> {
    let directory = Directory::open(mos.clone())?;
    let Some(list) = directory.number("bptree_obj")?.filter(|list| *list != 0) else {
        return Ok(Vec::new());
    };
    let (_, entries) = lists::bptree(mos, ObjectId::new(list))?;
    let task = |entry: BptreeEntry| {
        let [objset, object, level, block] = entry.resume;
        let level = Level::new(u8::try_from(level).unwrap_or(0));
        let id = ObjsetId::new(objset);
        let place = Zbookmark::new(id, ObjectId::new(object), level, BlockId::new(block));
        let from = (entry.resume != [0; 4]).then_some(place);
        Task { from, dying: true, ..Task::of(id, entry.root, entry.birth) }
    };
    Ok(entries.into_iter().map(task).collect())
}

#[cfg(test)]
mod tests {
    use ondisk::Blkptr;
    use units::{ObjsetId, Txg};

    use super::{Done, Task};

    #[test]
    fn a_destroyed_dataset_is_not_taken_for_the_pools_own_object_set() {
        let of = |id| Task::of(id, Blkptr::EMPTY, Txg::ZERO);
        let dying = || Task { dying: true, ..of(ObjsetId::MOS) };
        let mut done = Done::default();
        done.note(&dying(), None, Txg::new(9));
        assert!(!done.rest(of(ObjsetId::MOS)).whole);
        done.note(&of(ObjsetId::MOS), None, Txg::new(9));
        assert!(done.rest(of(ObjsetId::MOS)).whole);
        assert!(!done.rest(dying()).whole);
    }
}
