//! Random sequences of operations.

use std::collections::{BTreeSet, HashMap};

use dsl::write::{self, SetSource, SyncTaskContext};
use dsl::{Dataset, DatasetKind, Error, PropertyValue};
use ondisk::ObjectType;
use ondisk::feature::Feature;
use proptest::prelude::*;
use units::{Guid, ObjsetId};

use crate::model::{Model, block_number};
use crate::test_pool::{TestPool, dsize, new_block};

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { all.get(self.below(all.len())) }
    }
}

struct RandomRun {
    pool: TestPool,
    model: Model,
    random: Random,
    next_block: u64,
    /// A counter for names of new datasets.
    name_count: u64,
    /// The referenced blocks of bookmarked snapshots, by their guid.
    bookmarked: HashMap<Guid, BTreeSet<u64>>,
}

type OperationResult = Result<(), Error>;

impl RandomRun {
    fn new(seed: u64, features: &[&'static Feature]) -> Self {
        let (world, skeleton) = TestPool::new(features);
        let mut run = Self {
            pool: world,
            model: Model::new(Box::new(dsize)),
            random: Random(seed | 1),
            next_block: 1,
            name_count: 0,
            bookmarked: HashMap::new(),
        };
        run.write_head(skeleton.root_objset);
        run.check();
        run
    }

    fn check(&self) {
        let reached = self.model.check(&self.pool.tree());
        let freed = self.pool.freed.lock().unwrap();
        self.model.check_blocks(&self.pool.mos, &reached, &freed);
        let heads = self.pool.tree();
        heads.heads().for_each(|head| self.check_bookmarks(&head.unwrap()));
    }

    /// A bookmark counts the blocks of its snapshot that the next one, or the head, no longer
    /// references.
    fn check_bookmarks(&self, head: &Dataset) {
        let mut chain = head.snapshots().unwrap();
        chain.push(head.clone());
        for dataset in head.bookmarks().unwrap() {
            let mark = dataset.bookmark_record().unwrap();
            let is_next = |it: &&Dataset| {
                !it.is_snapshot() || it.phys().unwrap().creation_txg > mark.creation_txg
            };
            let next = chain.iter().find(is_next).unwrap();
            let then = &self.bookmarked[&mark.guid];
            let now = &self.model.datasets[&next.id().unwrap()];
            let freed = self.model.sum_blocks(then.difference(now));
            let found = [mark.freed, mark.freed_compressed, mark.freed_uncompressed];
            let expected = if mark.has_sizes() { freed } else { [0; 3] };
            assert_eq!(found, expected, "{}", dataset.name());
            let here = chain.iter().any(|it| it.is_snapshot() && it.guid() == mark.guid);
            assert_eq!(mark.flags & 2 != 0, here && mark.has_sizes(), "{}", dataset.name());
        }
    }

    fn heads(&self) -> Vec<(String, ObjsetId)> {
        let tree = self.pool.tree();
        tree.heads().map(|head| head.unwrap()).map(|it| (it.name(), it.id().unwrap())).collect()
    }

    fn snapshots(&self) -> Vec<(String, ObjsetId)> {
        let tree = self.pool.tree();
        let all = tree.heads().flat_map(|head| head.unwrap().snapshots().unwrap());
        all.map(|it| (it.name(), it.id().unwrap())).collect()
    }

    /// Some blocks of a head go, and some come; a new root always.
    fn write_head(&mut self, head: ObjsetId) {
        let txg = self.pool.txg;
        let set = self.model.datasets.entry(head).or_default().clone();
        let spared = self.random.next() % 4;
        let mut died: BTreeSet<u64> = BTreeSet::new();
        for old in &set {
            let root = self.model.blocks[old].kind() == ObjectType::OBJSET;
            if root || self.random.next() % 4 > spared {
                died.insert(*old);
            }
        }
        let mut born = Vec::new();
        for _ in 0..self.random.below(6) {
            let kinds = [ObjectType::PLAIN_FILE, ObjectType::DNODE];
            let kind = kinds[self.random.below(2)];
            born.push(self.new_block(txg, kind));
        }
        let root = self.new_block(txg, ObjectType::OBJSET);
        born.push(root.clone());
        let died: Vec<_> = died.iter().map(|it| self.model.blocks[it].clone()).collect();
        self.pool.write_head(head, &born, &died, &root);
        let set = self.model.datasets.get_mut(&head).unwrap();
        for it in &died {
            set.remove(&block_number(it));
        }
        set.extend(born.iter().map(block_number));
    }

    fn new_block(&mut self, txg: u64, kind: ObjectType) -> ondisk::Blkptr {
        let block = new_block(self.next_block, txg, kind);
        self.model.blocks.insert(self.next_block, block.clone());
        self.next_block += 1;
        block
    }

    fn run_step(&mut self) {
        self.pool.txg += 1;
        for (_, head) in self.heads() {
            if self.random.next().is_multiple_of(2) {
                self.write_head(head);
            }
        }
        self.check();
        for _ in 0..self.random.below(4) {
            let what = self.random.below(15);
            let done = self.run_operation(what);
            if let Err(error) = done {
                assert!(is_refusal(&error), "{error:?}");
            }
            self.check();
        }
    }

    fn run_operation(&mut self, what: usize) -> OperationResult {
        let (heads, snapshots) = (self.heads(), self.snapshots());
        let head = self.random.one_of(&heads).cloned().unwrap();
        let Some(snapshot) = self.random.one_of(&snapshots).cloned() else {
            return self.take_snapshot(&head);
        };
        match what {
            0 => self.create(&head),
            1..=3 => self.take_snapshot(&head),
            4 => self.clone(&head, &snapshot),
            5 => self.destroy(&head),
            6 => self.destroy_snapshot(&snapshot),
            7 => self.destroy_snapshots(&snapshot, &snapshots),
            8 => self.pool.with_context(|change| write::promote(change, &head.0).map(drop)),
            9 => self.rename(&head, &heads),
            10 => self.rollback(&head),
            11 => self.set_limit(&head),
            12 => self.toggle_bookmark(&head, &snapshot),
            13 => self.toggle_hold(&snapshot),
            _ => self.free_some(),
        }
    }

    fn next_name(&mut self) -> u64 {
        self.name_count += 1;
        self.name_count
    }

    fn create(&mut self, above: &(String, ObjsetId)) -> OperationResult {
        let name = format!("{}/new{}", above.0, self.next_name());
        let id = self.pool.with_context(|change| write::create_dataset(change, &name))?;
        self.model.datasets.insert(id, BTreeSet::new());
        self.write_head(id);
        Ok(())
    }

    fn take_snapshot(&mut self, head: &(String, ObjsetId)) -> OperationResult {
        let name = format!("{}@s{}", head.0, self.next_name());
        let made = self.pool.with_context(|change| write::create_snapshots(change, &[&name]))?;
        let set = self.model.datasets[&head.1].clone();
        self.model.datasets.insert(made[0], set);
        Ok(())
    }

    fn clone(
        &mut self,
        above: &(String, ObjsetId),
        origin: &(String, ObjsetId),
    ) -> OperationResult {
        let name = format!("{}/clone{}", above.0, self.next_name());
        let id = self.pool.with_context(|change| write::create_clone(change, &name, &origin.0))?;
        let set = self.model.datasets[&origin.1].clone();
        self.model.datasets.insert(id, set);
        Ok(())
    }

    /// A head's root, and all blocks that it reaches.
    fn reached_blocks(&self, id: ObjsetId) -> (u64, BTreeSet<u64>) {
        let dataset = self.pool.tree().dataset(id).unwrap();
        (block_number(&dataset.phys().unwrap().root), self.model.datasets[&id].clone())
    }

    fn remove_destroyed(&mut self) {
        let tree = self.pool.tree();
        self.model.datasets.retain(|id, _| tree.dataset(*id).is_ok());
    }

    fn destroy(&mut self, head: &(String, ObjsetId)) -> OperationResult {
        let (root, reached) = self.reached_blocks(head.1);
        self.pool.with_context(|change| write::destroy(change, &head.0))?;
        self.model.destroyed_trees.insert(root, reached);
        self.remove_destroyed();
        Ok(())
    }

    fn destroy_snapshot(&mut self, snapshot: &(String, ObjsetId)) -> OperationResult {
        let later = self.random.next().is_multiple_of(2);
        let change =
            |change: &SyncTaskContext<'_>| write::destroy_snapshot(change, &snapshot.0, later);
        self.pool.with_context(change)?;
        self.remove_destroyed();
        Ok(())
    }

    /// Several snapshots of one head are destroyed at once: neighbours, and others.
    fn destroy_snapshots(
        &mut self,
        one: &(String, ObjsetId),
        all: &[(String, ObjsetId)],
    ) -> OperationResult {
        let (path, _) = one.0.split_once('@').unwrap();
        let mut chosen: Vec<_> = all
            .iter()
            .filter_map(|(name, id)| Some((name.strip_prefix(path)?.strip_prefix('@')?, *id)))
            .collect();
        // a destroyed one, and one that has the name of another, are skipped
        chosen.push(("none", one.1));
        let spared = self.random.next() % 3;
        chosen.retain(|_| !self.random.next().is_multiple_of(1 + spared));
        let later = self.random.next().is_multiple_of(2);
        let change =
            |change: &SyncTaskContext<'_>| write::destroy_snapshots(change, path, &chosen, later);
        self.pool.with_context(change)?;
        self.remove_destroyed();
        Ok(())
    }

    fn rename(
        &mut self,
        head: &(String, ObjsetId),
        heads: &[(String, ObjsetId)],
    ) -> OperationResult {
        let above = self.random.one_of(heads).cloned().unwrap();
        let name = format!("{}/moved{}", above.0, self.next_name());
        self.pool.with_context(|change| write::rename(change, &head.0, &name))
    }

    fn rollback(&mut self, head: &(String, ObjsetId)) -> OperationResult {
        let (root, reached) = self.reached_blocks(head.1);
        let previous = self.pool.tree().dataset(head.1).unwrap().phys().unwrap().previous;
        self.pool.with_context(|change| write::rollback(change, &head.0, None))?;
        self.model.destroyed_trees.insert(root, reached);
        let set = self.model.datasets[&ObjsetId::new(previous.get())].clone();
        self.model.datasets.insert(head.1, set);
        Ok(())
    }

    fn set_limit(&mut self, head: &(String, ObjsetId)) -> OperationResult {
        let names = ["quota", "reservation", "refquota", "refreservation", "snapshot_limit"];
        let property = names[self.random.below(5)];
        if self.random.next().is_multiple_of(4) {
            let kind = DatasetKind::Filesystem;
            let change = |change: &SyncTaskContext<'_>| {
                write::inherit_property(change, &head.0, kind, property, true)
            };
            return self.pool.with_context(change);
        }
        let value = PropertyValue::Number((self.random.next() % 200) * 1024);
        self.pool.with_context(|change| {
            let by = SetSource::Local;
            write::set_property(change, &head.0, DatasetKind::Filesystem, (property, &value), by)
        })
    }

    fn toggle_bookmark(
        &mut self,
        head: &(String, ObjsetId),
        snapshot: &(String, ObjsetId),
    ) -> OperationResult {
        let marks: Vec<_> = self.pool.tree().find(&head.0)?.bookmarks()?;
        if self.random.next().is_multiple_of(2)
            && let Some(mark) = self.random.one_of(&marks)
        {
            return self.pool.with_context(|change| write::destroy_bookmark(change, &mark.name()));
        }
        let (path, _) = snapshot.0.split_once('@').unwrap();
        let name = format!("{path}#b{}", self.next_name());
        self.pool.with_context(|change| write::create_bookmark(change, &name, &snapshot.0))?;
        let guid = self.pool.tree().dataset(snapshot.1)?.guid();
        self.bookmarked.insert(guid, self.model.datasets[&snapshot.1].clone());
        Ok(())
    }

    fn toggle_hold(&mut self, snapshot: &(String, ObjsetId)) -> OperationResult {
        let holds = self.pool.tree().find(&snapshot.0)?.holds()?;
        let done = match holds.first() {
            Some(hold) => {
                self.pool.with_context(|change| write::release_hold(change, &snapshot.0, &hold.tag))
            }
            None => self.pool.with_context(|change| write::hold(change, &snapshot.0, "keep")),
        };
        self.remove_destroyed();
        done
    }

    /// Frees some of the waiting blocks; trees cannot be read here.
    fn free_some(&mut self) -> OperationResult {
        let most = 1 + self.random.next() % 20;
        self.pool.with_context(|change| write::free_pending(change, most)).map(drop)
    }
}

fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::Exists { .. }
            | Error::Busy { .. }
            | Error::Held { .. }
            | Error::NoSpace { .. }
            | Error::LimitBelowUsed { .. }
            | Error::ReservationTooLarge { .. }
            | Error::SnapshotInSameTxg { .. }
            | Error::NotLatest { .. }
            | Error::NotAClone { .. }
            | Error::WrongDataset { .. }
            | Error::InvalidName { .. }
            | Error::BelowItself { .. }
            | Error::NoSuchDataset { .. }
            | Error::FeatureDisabled { .. }
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 10))]

    #[test]
    fn records_equal_the_model_after_random_changes(seed: u64, full: bool) {
        let without = ["livelist", "empty_bpobj", "bookmark_written", "redaction_bookmarks"];
        let features: Vec<&Feature> = ondisk::feature::FEATURES
            .iter()
            .filter(|it| full || !without.contains(&it.name))
            .collect();
        let mut run = RandomRun::new(seed, &features);
        for _ in 0..25 {
            run.run_step();
        }
    }
}
