//! Random sequences of operations.

use std::collections::{BTreeSet, HashMap};

use dsl::write::{self, By, Change};
use dsl::{Dataset, Error, Kind, Setting};
use ondisk::ObjectType;
use ondisk::feature::Feature;
use proptest::prelude::*;
use units::{Guid, ObjsetId};

use crate::model::{Model, number};
use crate::world::{World, block, deflated};

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

struct Run {
    world: World,
    model: Model,
    random: Random,
    next: u64,
    /// For the names of what is made.
    made: u64,
    /// What bookmarked snapshots reached, by their identity.
    marked: HashMap<Guid, BTreeSet<u64>>,
}

type Made = Result<(), Error>;

impl Run {
    fn new(seed: u64, features: &[&'static Feature]) -> Self {
        let (world, skeleton) = World::new(features);
        let mut run = Self {
            world,
            model: Model::new(Box::new(deflated)),
            random: Random(seed | 1),
            next: 1,
            made: 0,
            marked: HashMap::new(),
        };
        run.write(skeleton.root);
        run.check();
        run
    }

    fn check(&self) {
        let reached = self.model.check(&self.world.tree());
        let freed = self.world.freed.lock().unwrap();
        self.model.check_blocks(&self.world.mos, &reached, &freed);
        let heads = self.world.tree();
        heads.heads().for_each(|head| self.check_bookmarks(&head.unwrap()));
    }

    /// A bookmark knows what of its snapshot the next one, or the head, reaches no more.
    fn check_bookmarks(&self, head: &Dataset) {
        let mut chain = head.snapshots().unwrap();
        chain.push(head.clone());
        for dataset in head.bookmarks().unwrap() {
            let mark = dataset.bookmark_record().unwrap();
            let is_next = |it: &&Dataset| {
                !it.is_snapshot() || it.phys().unwrap().creation_txg > mark.creation_txg
            };
            let next = chain.iter().find(is_next).unwrap();
            let then = &self.marked[&mark.guid];
            let now = &self.model.sets[&next.id().unwrap()];
            let freed = self.model.sum(then.difference(now));
            let found = [mark.freed, mark.freed_compressed, mark.freed_uncompressed];
            let expected = if mark.has_sizes() { freed } else { [0; 3] };
            assert_eq!(found, expected, "{}", dataset.name());
            let here = chain.iter().any(|it| it.is_snapshot() && it.guid() == mark.guid);
            assert_eq!(mark.flags & 2 != 0, here && mark.has_sizes(), "{}", dataset.name());
        }
    }

    fn heads(&self) -> Vec<(String, ObjsetId)> {
        let tree = self.world.tree();
        tree.heads().map(|head| head.unwrap()).map(|it| (it.name(), it.id().unwrap())).collect()
    }

    fn snapshots(&self) -> Vec<(String, ObjsetId)> {
        let tree = self.world.tree();
        let all = tree.heads().flat_map(|head| head.unwrap().snapshots().unwrap());
        all.map(|it| (it.name(), it.id().unwrap())).collect()
    }

    /// Some blocks of a head go, and some come; a new root always.
    fn write(&mut self, head: ObjsetId) {
        let txg = self.world.txg;
        let set = self.model.sets.entry(head).or_default().clone();
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
            born.push(self.block(txg, kind));
        }
        let root = self.block(txg, ObjectType::OBJSET);
        born.push(root.clone());
        let died: Vec<_> = died.iter().map(|it| self.model.blocks[it].clone()).collect();
        self.world.write(head, &born, &died, &root);
        let set = self.model.sets.get_mut(&head).unwrap();
        for it in &died {
            set.remove(&number(it));
        }
        set.extend(born.iter().map(number));
    }

    fn block(&mut self, txg: u64, kind: ObjectType) -> ondisk::Blkptr {
        let block = block(self.next, txg, kind);
        self.model.blocks.insert(self.next, block.clone());
        self.next += 1;
        block
    }

    fn step(&mut self) {
        self.world.txg += 1;
        for (_, head) in self.heads() {
            if self.random.next().is_multiple_of(2) {
                self.write(head);
            }
        }
        self.check();
        for _ in 0..self.random.below(4) {
            let what = self.random.below(15);
            let done = self.operation(what);
            if let Err(why) = done {
                assert!(is_refusal(&why), "{why:?}");
            }
            self.check();
        }
    }

    fn operation(&mut self, what: usize) -> Made {
        let (heads, snapshots) = (self.heads(), self.snapshots());
        let head = self.random.one_of(&heads).cloned().unwrap();
        let Some(snapshot) = self.random.one_of(&snapshots).cloned() else {
            return self.take(&head);
        };
        match what {
            0 => self.create(&head),
            1..=3 => self.take(&head),
            4 => self.clone(&head, &snapshot),
            5 => self.destroy(&head),
            6 => self.destroy_snapshot(&snapshot),
            7 => self.destroy_snapshots(&snapshot, &snapshots),
            8 => self.world.change(|change| write::promote(change, &head.0)),
            9 => self.rename(&head, &heads),
            10 => self.rollback(&head),
            11 => self.limit(&head),
            12 => self.bookmark(&head, &snapshot),
            13 => self.hold(&snapshot),
            _ => self.release(),
        }
    }

    fn name(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    fn create(&mut self, above: &(String, ObjsetId)) -> Made {
        let name = format!("{}/new{}", above.0, self.name());
        let id = self.world.change(|change| write::create(change, &name))?;
        self.model.sets.insert(id, BTreeSet::new());
        self.write(id);
        Ok(())
    }

    fn take(&mut self, head: &(String, ObjsetId)) -> Made {
        let name = format!("{}@s{}", head.0, self.name());
        let made = self.world.change(|change| write::snapshot(change, &[&name]))?;
        let set = self.model.sets[&head.1].clone();
        self.model.sets.insert(made[0], set);
        Ok(())
    }

    fn clone(&mut self, above: &(String, ObjsetId), origin: &(String, ObjsetId)) -> Made {
        let name = format!("{}/clone{}", above.0, self.name());
        let id = self.world.change(|change| write::clone(change, &name, &origin.0))?;
        let set = self.model.sets[&origin.1].clone();
        self.model.sets.insert(id, set);
        Ok(())
    }

    /// A head's root, and all blocks that it reaches.
    fn reached(&self, id: ObjsetId) -> (u64, BTreeSet<u64>) {
        let dataset = self.world.tree().dataset(id).unwrap();
        (number(&dataset.phys().unwrap().root), self.model.sets[&id].clone())
    }

    fn forget_lost(&mut self) {
        let tree = self.world.tree();
        self.model.sets.retain(|id, _| tree.dataset(*id).is_ok());
    }

    fn destroy(&mut self, head: &(String, ObjsetId)) -> Made {
        let (root, reached) = self.reached(head.1);
        self.world.change(|change| write::destroy(change, &head.0))?;
        self.model.trees.insert(root, reached);
        self.forget_lost();
        Ok(())
    }

    fn destroy_snapshot(&mut self, snapshot: &(String, ObjsetId)) -> Made {
        let later = self.random.next().is_multiple_of(2);
        let change = |change: &Change<'_>| write::destroy_snapshot(change, &snapshot.0, later);
        self.world.change(change)?;
        self.forget_lost();
        Ok(())
    }

    /// Several snapshots of one head go at once: neighbours, and others.
    fn destroy_snapshots(&mut self, one: &(String, ObjsetId), all: &[(String, ObjsetId)]) -> Made {
        let (path, _) = one.0.split_once('@').unwrap();
        let mut chosen: Vec<_> = all
            .iter()
            .filter_map(|(name, id)| Some((name.strip_prefix(path)?.strip_prefix('@')?, *id)))
            .collect();
        // one that is no more, and one that has the name of another, are skipped
        chosen.push(("none", one.1));
        let spared = self.random.next() % 3;
        chosen.retain(|_| !self.random.next().is_multiple_of(1 + spared));
        let later = self.random.next().is_multiple_of(2);
        let change = |change: &Change<'_>| write::destroy_snapshots(change, path, &chosen, later);
        self.world.change(change)?;
        self.forget_lost();
        Ok(())
    }

    fn rename(&mut self, head: &(String, ObjsetId), heads: &[(String, ObjsetId)]) -> Made {
        let above = self.random.one_of(heads).cloned().unwrap();
        let name = format!("{}/moved{}", above.0, self.name());
        self.world.change(|change| write::rename(change, &head.0, &name))
    }

    fn rollback(&mut self, head: &(String, ObjsetId)) -> Made {
        let (root, reached) = self.reached(head.1);
        let previous = self.world.tree().dataset(head.1).unwrap().phys().unwrap().previous;
        self.world.change(|change| write::rollback(change, &head.0, None))?;
        self.model.trees.insert(root, reached);
        let set = self.model.sets[&ObjsetId::new(previous.get())].clone();
        self.model.sets.insert(head.1, set);
        Ok(())
    }

    fn limit(&mut self, head: &(String, ObjsetId)) -> Made {
        let names = ["quota", "reservation", "refquota", "refreservation", "snapshot_limit"];
        let property = names[self.random.below(5)];
        if self.random.next().is_multiple_of(4) {
            let kind = Kind::Filesystem;
            let change =
                |change: &Change<'_>| write::inherit(change, &head.0, kind, property, true);
            return self.world.change(change);
        }
        let value = Setting::Number((self.random.next() % 200) * 1024);
        self.world.change(|change| {
            let by = By::User;
            write::set(change, &head.0, Kind::Filesystem, (property, &value), by)
        })
    }

    fn bookmark(&mut self, head: &(String, ObjsetId), snapshot: &(String, ObjsetId)) -> Made {
        let marks: Vec<_> = self.world.tree().find(&head.0)?.bookmarks()?;
        if self.random.next().is_multiple_of(2)
            && let Some(mark) = self.random.one_of(&marks)
        {
            return self.world.change(|change| write::destroy_bookmark(change, &mark.name()));
        }
        let (path, _) = snapshot.0.split_once('@').unwrap();
        let name = format!("{path}#b{}", self.name());
        self.world.change(|change| write::bookmark(change, &name, &snapshot.0))?;
        let guid = self.world.tree().dataset(snapshot.1)?.guid();
        self.marked.insert(guid, self.model.sets[&snapshot.1].clone());
        Ok(())
    }

    fn hold(&mut self, snapshot: &(String, ObjsetId)) -> Made {
        let holds = self.world.tree().find(&snapshot.0)?.holds()?;
        let done = match holds.first() {
            Some(hold) => {
                self.world.change(|change| write::release_hold(change, &snapshot.0, &hold.tag))
            }
            None => self.world.change(|change| write::hold(change, &snapshot.0, "keep")),
        };
        self.forget_lost();
        done
    }

    /// Frees some of what waits; trees cannot be read here.
    fn release(&mut self) -> Made {
        let most = 1 + self.random.next() % 20;
        self.world.change(|change| write::release(change, most)).map(drop)
    }
}

fn is_refusal(why: &Error) -> bool {
    matches!(
        why,
        Error::Exists { .. }
            | Error::Busy { .. }
            | Error::NoRoom { .. }
            | Error::TooSoon { .. }
            | Error::NotLatest { .. }
            | Error::NotAClone { .. }
            | Error::NotOfThis { .. }
            | Error::BadName { .. }
            | Error::NoSuchDataset { .. }
            | Error::FeatureDisabled { .. }
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 10))]

    #[test]
    fn the_records_say_what_the_sets_are(seed: u64, full: bool) {
        let without = ["livelist", "empty_bpobj", "bookmark_written", "redaction_bookmarks"];
        let features: Vec<&Feature> = ondisk::feature::FEATURES
            .iter()
            .filter(|it| full || !without.contains(&it.name))
            .collect();
        let mut run = Run::new(seed, &features);
        for _ in 0..25 {
            run.step();
        }
    }
}
