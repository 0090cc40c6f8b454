//! A model of the records, computed from sets of blocks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use dmu::Objset;
use dsl::{Dataset, DatasetTree, Dir, block_lists};
use ondisk::Blkptr;
use ondisk::dsl::Dataset as Record;
use ondisk::feature::Feature;
use units::{ObjectId, ObjsetId, Txg};
use zap::Zap;

/// Bytes as they are counted: used, compressed, uncompressed.
type SpaceCounts = [u64; 3];

/// The blocks that each dataset reaches, by object.
pub(crate) struct Model {
    /// Bytes of the pool's space that a block takes.
    pub(crate) dsize: Box<dyn Fn(&Blkptr) -> u64>,
    pub(crate) blocks: BTreeMap<u64, Blkptr>,
    pub(crate) datasets: HashMap<ObjsetId, BTreeSet<u64>>,
    /// Of heads that were destroyed: all that they reached, by the number of the root. Two of them
    /// may have had the same root, if nothing was written between two rollbacks.
    pub(crate) destroyed_trees: HashMap<u64, BTreeSet<u64>>,
}

/// The number of a block: where its first copy is.
pub(crate) fn block_number(pointer: &Blkptr) -> u64 {
    match pointer {
        Blkptr::Regular(block) => {
            let dva = block.dvas[0].unwrap();
            (u64::from(dva.vdev.get()) << 52) | (dva.offset >> 9)
        }
        _ => 0,
    }
}

/// Whether no other pointer of a dataset has the same address.
pub(crate) fn is_unique_address(pointer: &Blkptr) -> bool {
    matches!(pointer, Blkptr::Regular(block) if !block.dedup)
}

fn add_counts(sum: &mut SpaceCounts, more: SpaceCounts) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

impl Model {
    pub(crate) fn new(dsize: Box<dyn Fn(&Blkptr) -> u64>) -> Self {
        let (datasets, destroyed_trees) = (HashMap::new(), HashMap::new());
        Self { dsize, blocks: BTreeMap::new(), datasets, destroyed_trees }
    }

    fn block_counts(&self, pointer: &Blkptr) -> SpaceCounts {
        let (psize, lsize) = match pointer {
            Blkptr::Regular(block) => (u64::from(block.psize), block.lsize),
            Blkptr::Embedded(block) => (0, block.lsize),
            _ => return [0; 3],
        };
        let metadata = pointer.level().get() > 0 || pointer.kind().is_metadata();
        [(self.dsize)(pointer), psize, if metadata { psize } else { lsize.into() }]
    }

    pub(crate) fn sum_blocks<'a>(&self, set: impl IntoIterator<Item = &'a u64>) -> SpaceCounts {
        let mut sum = [0; 3];
        set.into_iter()
            .for_each(|number| add_counts(&mut sum, self.block_counts(&self.blocks[number])));
        sum
    }

    fn birth(&self, number: u64) -> Txg {
        self.blocks[&number].birth()
    }

    fn dataset_blocks(&self, id: ObjectId) -> BTreeSet<u64> {
        self.datasets.get(&ObjsetId::new(id.get())).cloned().unwrap_or_default()
    }

    /// Checks all that is written against the sets. Gives all that a dataset reaches.
    pub(crate) fn check(&self, tree: &DatasetTree) -> BTreeSet<u64> {
        let mut used: HashMap<ObjectId, SpaceCounts> = HashMap::new();
        let mut dirs: Vec<_> = tree.dirs().collect();
        dirs.sort_by_key(|dir| std::cmp::Reverse(dir.path().matches('/').count()));
        let mut reached = BTreeSet::new();
        let mut seen = HashSet::new();
        for dir in dirs {
            if dir.phys().head.exists() {
                let head = tree.dataset(ObjsetId::new(dir.phys().head.get())).unwrap();
                self.check_head(tree, &head, &mut reached, &mut seen);
            }
            self.check_dir(tree, dir, &mut used);
        }
        for id in self.datasets.keys() {
            assert!(seen.contains(id), "dataset {id} is lost");
        }
        check_clones(tree);
        check_empty_lists(tree);
        reached
    }

    fn check_head(
        &self,
        tree: &DatasetTree,
        head: &Dataset,
        reached: &mut BTreeSet<u64>,
        seen: &mut HashSet<ObjsetId>,
    ) {
        let mut chain = head.snapshots().unwrap();
        chain.push(head.clone());
        for dataset in &chain {
            let (id, record) = (dataset.id().unwrap(), dataset.phys().unwrap());
            let name = dataset.name();
            seen.insert(id);
            let set = self.dataset_blocks(ObjectId::new(id.get()));
            reached.extend(&set);
            let counts = [record.referenced, record.compressed, record.uncompressed];
            assert_eq!(counts, self.sum_blocks(&set), "{name} reaches");
            let before = self.dataset_blocks(record.previous);
            let dead: BTreeSet<_> = before.difference(&set).copied().collect();
            self.check_deadlist(tree.mos(), record.deadlist, &dead, &name);
            let own = set.iter().filter(|it| self.birth(**it) > record.previous_txg);
            let after = self.dataset_blocks(record.next);
            let alone = own.filter(|it| !after.contains(it));
            assert_eq!(record.unique, self.sum_blocks(alone)[0], "{name} alone");
            assert!(record.is_unique_accurate());
        }
        check_snapshot_chain(tree.mos(), &chain);
    }

    fn check_deadlist(&self, mos: &Objset, list: ObjectId, dead: &BTreeSet<u64>, name: &str) {
        let parts = block_lists::deadlist_entries(mos, list).unwrap();
        let mut all = [0; 3];
        let mut found = BTreeSet::new();
        for (at, (start, part)) in parts.iter().enumerate() {
            let end = parts.get(at + 1).map_or(Txg::new(u64::MAX), |(end, _)| *end);
            let mut sum = [0; 3];
            let _ = block_lists::walk_bpobj(mos, *part, &mut |listed| {
                let birth = listed.pointer.birth();
                assert!(birth > *start && birth <= end, "{name}: a stretch has {birth}");
                add_counts(&mut sum, self.block_counts(listed.pointer));
                if is_unique_address(listed.pointer) {
                    assert!(found.insert(block_number(listed.pointer)), "{name}: dead twice");
                }
                ControlFlow::Continue(())
            })
            .unwrap();
            let header = block_lists::bpobj_header(mos, *part).unwrap();
            assert_eq!([header.bytes, header.compressed, header.uncompressed], sum, "{name}");
            add_counts(&mut all, sum);
        }
        assert_eq!(all, self.sum_blocks(dead), "{name}: its deadlist");
        let known = dead.iter().copied().filter(|it| is_unique_address(&self.blocks[it]));
        let dead: BTreeSet<u64> = known.collect();
        assert_eq!(found, dead, "{name}: its deadlist");
        assert_eq!(block_lists::deadlist_space(mos, list).unwrap()[0], all[0], "{name}");
    }

    fn check_dir(&self, tree: &DatasetTree, dir: &Dir, used: &mut HashMap<ObjectId, SpaceCounts>) {
        let record = dir.phys();
        let name = dir.path();
        let mut all = [0; 3];
        let mut breakdown = [0; 5];
        if record.head.exists() {
            let head = tree.dataset(ObjsetId::new(record.head.get())).unwrap();
            let origin = if record.origin.exists() {
                dataset_phys(tree.mos(), record.origin).creation_txg
            } else {
                Txg::ZERO
            };
            let now = self.dataset_blocks(record.head);
            let mut union = now.clone();
            for snapshot in head.snapshots().unwrap() {
                union.extend(self.dataset_blocks(ObjectId::new(snapshot.id().unwrap().get())));
            }
            union.retain(|it| self.birth(*it) > origin);
            all = self.sum_blocks(&union);
            breakdown[0] = self.sum_blocks(union.iter().filter(|it| now.contains(it)))[0];
            breakdown[1] = all[0] - breakdown[0];
            let property = head.property("refreservation").unwrap();
            let reserved = property.map_or(0, |it| it.value.parse::<u64>().unwrap());
            breakdown[4] = reserved.saturating_sub(head.phys().unwrap().unique);
            all[0] += breakdown[4];
        } else if name.ends_with("/$MOS") {
            all = [record.used, record.compressed, record.uncompressed];
            breakdown[0] = all[0];
        } else if name.ends_with("/$FREE") {
            all = match self.pending_frees(tree.mos()) {
                Some((_, sum)) => sum,
                None => [record.used, record.compressed, record.uncompressed],
            };
            breakdown[0] = all[0];
        }
        for child in tree.dirs().filter(|it| it.parent().is_some_and(|up| up.id() == dir.id())) {
            let below = used[&child.id()];
            let unused = child.phys().reserved.saturating_sub(below[0]);
            breakdown[2] += below[0];
            breakdown[3] += unused;
            add_counts(&mut all, below);
            all[0] += unused;
        }
        assert_eq!([record.used, record.compressed, record.uncompressed], all, "{name} uses");
        let found = record.breakdown;
        let found = [
            found.head,
            found.snapshots,
            found.children,
            found.child_reservations,
            found.refreservation,
        ];
        assert_eq!(found, breakdown, "{name} uses for");
        used.insert(dir.id(), all);
    }

    /// All that waits to be freed, and its sum; `None` if there is a tree of which nothing is known.
    pub(crate) fn pending_frees(&self, mos: &Objset) -> Option<(BTreeSet<u64>, SpaceCounts)> {
        let directory = pool_directory(mos);
        let mut all = [0; 3];
        let mut waiting = BTreeSet::new();
        let mut wait = |number| assert!(waiting.insert(number), "{number} is to be freed twice");
        if let Some(list) = directory.lookup_u64(b"free_bpobj").unwrap() {
            let _ = block_lists::walk_bpobj(mos, ObjectId::new(list), &mut |listed| {
                if !matches!(listed.pointer, Blkptr::Embedded(_)) {
                    wait(block_number(listed.pointer));
                }
                add_counts(&mut all, self.block_counts(listed.pointer));
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        if let Some(trees) = directory.lookup_u64(b"bptree_obj").unwrap() {
            let (header, entries) = block_lists::read_bptree(mos, ObjectId::new(trees)).unwrap();
            let mut sum = [0; 3];
            for entry in entries {
                let set = self.destroyed_trees.get(&block_number(&entry.root))?;
                let own: BTreeSet<u64> =
                    set.iter().copied().filter(|it| self.birth(*it) > entry.birth).collect();
                for number in &own {
                    wait(*number);
                }
                add_counts(&mut sum, self.sum_blocks(&own));
            }
            assert_eq!([header.bytes, header.compressed, header.uncompressed], sum);
            add_counts(&mut all, sum);
        }
        for list in deleted_clones(mos) {
            for (number, pointer) in live_blocks(mos, list) {
                wait(number);
                add_counts(&mut all, self.block_counts(&pointer));
            }
        }
        Some((waiting, all))
    }

    /// Every block is reached, waits to be freed, or was freed; once.
    pub(crate) fn check_blocks(
        &self,
        mos: &Objset,
        reached: &BTreeSet<u64>,
        freed: &BTreeMap<u64, u32>,
    ) {
        let (waiting, _) = self.pending_frees(mos).unwrap();
        assert!(reached.is_disjoint(&waiting), "a referenced block waits to be freed");
        assert!(freed.values().all(|times| *times == 1), "freed twice");
        for number in self.blocks.keys() {
            let here = reached.contains(number) || waiting.contains(number);
            assert_ne!(here, freed.contains_key(number), "block {number}");
        }
    }
}

fn pool_directory(mos: &Objset) -> Zap {
    Zap::open(mos.object(ObjectId::new(1)).unwrap()).unwrap()
}

fn dataset_phys(mos: &Objset, id: ObjectId) -> Record {
    let object = mos.object(id).unwrap();
    Record::parse(object.bonus(), object.bonus_order()).unwrap()
}

/// The numbers of a table.
fn zap_members(mos: &Objset, id: ObjectId) -> BTreeSet<u64> {
    if !id.exists() {
        return BTreeSet::new();
    }
    let table = Zap::open(mos.object(id).unwrap()).unwrap();
    table.entries().map(|entry| entry.unwrap().value.u64().unwrap()).collect()
}

fn deleted_clones(mos: &Objset) -> Vec<ObjectId> {
    let set = pool_directory(mos).lookup_u64(b"com.delphix:deleted_clones").unwrap().unwrap_or(0);
    zap_members(mos, ObjectId::new(set)).into_iter().map(ObjectId::new).collect()
}

/// The blocks of a livelist that are not dead.
fn live_blocks(mos: &Objset, id: ObjectId) -> BTreeMap<u64, Blkptr> {
    let mut counts: BTreeMap<u64, (Blkptr, i32)> = BTreeMap::new();
    let _ = block_lists::walk_deadlist(mos, id, &mut |listed| {
        let entry = counts.entry(block_number(listed.pointer));
        let (_, count) = entry.or_insert_with(|| (listed.pointer.clone(), 0));
        *count += if listed.is_free { -1 } else { 1 };
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(counts.values().all(|(_, count)| (0..2).contains(count)), "{counts:?}");
    let alive = counts.into_iter().filter(|(_, (_, count))| *count == 1);
    alive.map(|(number, (pointer, _))| (number, pointer)).collect()
}

/// The order of a head's snapshots, and the stretches of its deadlist.
fn check_snapshot_chain(mos: &Objset, chain: &[Dataset]) {
    let head = chain.last().unwrap();
    for pair in chain.windows(2) {
        let (old, new) = (pair[0].phys().unwrap(), pair[1].phys().unwrap());
        assert_eq!(new.previous.get(), pair[0].id().unwrap().get(), "{}", head.name());
        assert_eq!(new.previous_txg, old.creation_txg);
        assert_eq!(old.next.get(), pair[1].id().unwrap().get());
    }
    let mut starts = BTreeSet::new();
    let mut at = head.phys().unwrap().clone();
    while at.previous.exists() {
        let previous = dataset_phys(mos, at.previous);
        starts.insert(previous.previous_txg);
        at = previous;
    }
    let newest = head.phys().unwrap().previous_txg;
    let marks = head.bookmarks().unwrap();
    let marks = marks.iter().filter_map(Dataset::bookmark_record);
    let marks = marks.filter(|mark| mark.has_sizes() && mark.creation_txg < newest);
    starts.extend(marks.map(|mark| mark.creation_txg));
    let parts = block_lists::deadlist_entries(mos, head.phys().unwrap().deadlist).unwrap();
    let found: BTreeSet<_> = parts.iter().map(|(start, _)| *start).collect();
    assert!(starts.is_subset(&found), "{}: {starts:?} {found:?}", head.name());
}

/// Compares the origins of clones: the tables and the counts.
fn check_clones(tree: &DatasetTree) {
    let mos = tree.mos();
    let mut followers: HashMap<ObjectId, BTreeSet<u64>> = HashMap::new();
    let mut clones: HashMap<ObjectId, BTreeSet<u64>> = HashMap::new();
    let mut all = Vec::new();
    for dir in tree.dirs().filter(|dir| dir.phys().head.exists()) {
        let head = tree.dataset(ObjsetId::new(dir.phys().head.get())).unwrap();
        if dir.phys().origin.exists() {
            let from = dataset_phys(mos, dir.phys().origin).dir;
            clones.entry(from).or_default().insert(dir.phys().head.get());
        }
        all.extend(head.snapshots().unwrap());
        all.push(head);
    }
    for dataset in &all {
        let (id, phys) = (dataset.id().unwrap(), dataset.phys().unwrap());
        followers.entry(phys.previous).or_default().insert(id.get());
    }
    for dataset in all.iter().filter(|it| it.is_snapshot()) {
        let (id, phys) = (dataset.id().unwrap(), dataset.phys().unwrap());
        let mut expected = followers.remove(&ObjectId::new(id.get())).unwrap_or_default();
        assert_eq!(phys.children, expected.len() as u64, "{}", dataset.name());
        assert!(expected.remove(&phys.next.get()), "{}", dataset.name());
        assert_eq!(zap_members(mos, phys.next_clones), expected, "{}", dataset.name());
    }
    for dir in tree.dirs() {
        let expected = clones.remove(&dir.id()).unwrap_or_default();
        assert_eq!(zap_members(mos, dir.phys().clones), expected, "{}", dir.path());
    }
}

/// How many refer to the one empty list.
fn check_empty_lists(tree: &DatasetTree) {
    let mos = tree.mos();
    let empty = pool_directory(mos).lookup_u64(b"empty_bpobj").unwrap();
    let mut lists = deleted_clones(mos);
    for dir in tree.dirs().filter(|dir| dir.phys().head.exists()) {
        let head = tree.dataset(ObjsetId::new(dir.phys().head.get())).unwrap();
        let snapshots = head.snapshots().unwrap();
        let datasets = snapshots.iter().chain([&head]);
        lists.extend(datasets.map(|dataset| dataset.phys().unwrap().deadlist));
        let livelist = dir.zap_field("com.delphix:livelist").unwrap();
        lists.extend(livelist.and_then(|it| it.u64()).map(ObjectId::new));
    }
    let parts = lists.iter().flat_map(|id| block_lists::deadlist_entries(mos, *id).unwrap());
    let count = parts.filter(|(_, list)| Some(list.get()) == empty).count();
    let feature = Feature::by_name("empty_bpobj").unwrap();
    let uses = dsl::write::features::refcount(mos, feature).unwrap();
    assert_eq!(uses.unwrap_or(0), count as u64, "uses of the empty list");
    assert_eq!(empty.is_some(), count > 0);
}
