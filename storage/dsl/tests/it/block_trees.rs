//! Heads with real trees of blocks: their records are right, and destroying everything frees each
//! block once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dmu::memory::MemoryStore;
use dmu::{BlockLedger, BlockVisit, NewObject, Objset, SyncContext, WalkControl, WalkOptions};
use dsl::write::{self, DatasetLedger, Moment, SyncTaskContext, pool};
use dsl::{DatasetTree, Error, PoolInfo};
use ondisk::dsl::BptreeEntry;
use ondisk::feature::FEATURES;
use ondisk::objset::Kind;
use ondisk::{Blkptr, ObjectType};
use proptest::prelude::*;
use txg::Tx;
use units::{ObjectId, ObjsetId, Txg};
use zap::{NewZap, Zap};
use zio::{Sink, Source, WritePolicy};

use crate::model::Model;
use crate::random::Random;
use crate::real_pools;
use crate::test_pool::{USABLE_SPACE, dsize};

struct TreePool {
    memory: Arc<MemoryStore>,
    mos: Objset,
    heads: HashMap<ObjsetId, Objset>,
    txg: u64,
    random: Random,
    name_count: u64,
}

impl TreePool {
    fn new(seed: u64) -> Self {
        let (mos, memory) = dmu::memory::empty_objset(Kind::Meta);
        let random = Random(seed | 1);
        let mut pool = Self { memory, mos, heads: HashMap::new(), txg: 4, random, name_count: 0 };
        let tx = Tx::syncing(Txg::new(4));
        let kind = ObjectType::OBJECT_DIRECTORY;
        Zap::create_at(&pool.mos, &tx, ObjectId::new(1), kind, &NewZap::default()).unwrap();
        let all: Vec<_> = FEATURES.iter().collect();
        let skeleton = pool.with_context(|change| pool::create_pool_objects(change, &all)).unwrap();
        pool.create_content(skeleton.root_objset);
        pool.sync_heads();
        pool
    }

    fn with_context<T>(&self, change: impl FnOnce(&SyncTaskContext<'_>) -> T) -> T {
        let tx = Tx::syncing(Txg::new(self.txg));
        let raw: Arc<dyn Source> = Arc::clone(&self.memory) as Arc<dyn Source>;
        let memory = &self.memory;
        change(&SyncTaskContext {
            mos: &self.mos,
            tx: &tx,
            pool: "tank",
            version: 5000,
            now: Moment::default(),
            usable_space: USABLE_SPACE,
            raw_source: &raw,
            random: &|| self.txg,
            free_block: &|pointer| memory.free(pointer, tx.txg()),
            mark_obsolete: &|_| {},
            free_log: &|_, _| {},
            dsize: &dsize,
            dataset_event: &|_| {},
        })
    }

    fn tree(&self) -> DatasetTree {
        let facts = PoolInfo { name: "tank".to_owned(), usable_space: USABLE_SPACE };
        DatasetTree::open(self.mos.clone(), facts).unwrap()
    }

    /// A head's content, that of a new one with an object in it.
    fn create_content(&mut self, id: ObjsetId) {
        let source = Arc::clone(&self.memory) as Arc<dyn Source>;
        let objset = Objset::new_empty(source, id, Kind::Filesystem, None);
        let tx = Tx::syncing(Txg::new(self.txg));
        objset.create(&tx, &new_file()).unwrap();
        self.heads.insert(id, objset);
    }

    /// A head's content, from its record.
    fn reopen_head(&mut self, id: ObjsetId) {
        let dataset = self.tree().dataset(id).unwrap();
        let source = Arc::clone(&self.memory) as Arc<dyn Source>;
        let root = &dataset.phys().unwrap().root;
        let objset = Objset::open(source, id, root, None).unwrap().to_writable();
        self.heads.insert(id, objset);
    }

    /// Files are made, written, cut and removed.
    fn write_head(&mut self, id: ObjsetId) {
        let tx = Tx::syncing(Txg::new(self.txg));
        let objset = self.heads[&id].clone();
        let synced = objset.synced();
        let files: Vec<_> = if synced.root().is_hole() {
            vec![ObjectId::new(1)]
        } else {
            synced.objects().map(|found| found.unwrap().0).collect()
        };
        for _ in 0..=self.random.below(4) {
            let file = *self.random.one_of(&files).unwrap_or(&ObjectId::new(1));
            let at = self.random.below(200) as u64 * 512;
            let Ok(object) = objset.object(file) else { continue };
            match self.random.below(6) {
                0 => drop(objset.create(&tx, &new_file()).unwrap()),
                1 if files.len() > 3 => objset.free(&tx, file).unwrap(),
                2 => object.free_range(&tx, at..u64::MAX).unwrap(),
                _ => {
                    let bytes = self.random.next().to_le_bytes().repeat(256);
                    object.write(&tx, at, &bytes).unwrap();
                }
            }
        }
    }

    /// Writes the group: the heads, then the MOS.
    fn sync_heads(&mut self) {
        let txg = Txg::new(self.txg);
        for (id, objset) in &self.heads {
            if !objset.is_dirty(txg) {
                continue;
            }
            self.with_context(|change| {
                let ledger = DatasetLedger::new(change, *id).unwrap();
                let root = sync_objset(objset, txg, &*self.memory, &ledger);
                ledger.finish(change, &root).unwrap();
            });
        }
    }

    /// The MOS is written and read again, and all is compared.
    fn sync_mos(&mut self) {
        let root = self.memory.sync_objset(&self.mos, Txg::new(self.txg)).unwrap().root;
        let source = Arc::clone(&self.memory) as Arc<dyn Source>;
        self.mos = Objset::open(source, ObjsetId::MOS, &root, None).unwrap().to_writable();
        self.check();
        self.txg += 1;
    }

    fn check(&self) {
        let tree = self.tree();
        let source = Arc::clone(&self.memory) as Arc<dyn Source>;
        let mut model = Model::new(Box::new(dsize));
        for dir in tree.dirs().filter(|dir| dir.phys().head.exists()) {
            let head = tree.dataset(ObjsetId::new(dir.phys().head.get())).unwrap();
            real_pools::add_dataset(&mut model, &source, &head);
            for snapshot in head.snapshots().unwrap() {
                real_pools::add_dataset(&mut model, &source, &snapshot);
            }
        }
        model.check(&tree);
    }

    fn run_operation(&mut self) -> Result<(), Error> {
        let tree = self.tree();
        let heads: Vec<_> = tree.heads().map(Result::unwrap).collect();
        let head = self.random.one_of(&heads).unwrap().clone();
        let snapshots = head.snapshots().unwrap();
        let snapshot = self.random.one_of(&snapshots).cloned();
        self.name_count += 1;
        let (path, made) = (head.name(), self.name_count);
        let part = |kind: char| format!("{path}{kind}new{made}");
        match (self.random.below(9), snapshot) {
            (0, _) => {
                let id = self.with_context(|change| write::create_dataset(change, &part('/')))?;
                self.create_content(id);
                self.sync_heads();
            }
            (1, Some(origin)) => {
                let (name, origin) = (part('/'), origin.name());
                let id = self.with_context(|change| write::create_clone(change, &name, &origin))?;
                self.reopen_head(id);
            }
            (2, _) => {
                self.with_context(|change| write::destroy(change, &path))?;
                self.heads.remove(&head.id().unwrap());
            }
            (3 | 4, Some(snapshot)) => {
                let name = snapshot.name();
                self.with_context(|change| write::destroy_snapshot(change, &name, false))?;
            }
            (5, Some(_)) => {
                self.with_context(|change| write::rollback(change, &path, None))?;
                self.reopen_head(head.id().unwrap());
            }
            (6, _) => drop(self.with_context(|change| write::promote(change, &path))?),
            _ => drop(self.with_context(|change| write::create_snapshots(change, &[&part('@')]))?),
        }
        Ok(())
    }

    /// Destroys all but the pool's own file system.
    fn destroy_all(&mut self) {
        for _ in 0..200 {
            for dataset in self.tree().datasets().map(Result::unwrap) {
                let name = dataset.name();
                let done = if dataset.is_snapshot() {
                    self.with_context(|change| write::destroy_snapshot(change, &name, false))
                } else {
                    self.with_context(|change| write::destroy(change, &name))
                };
                if done.is_ok() {
                    self.heads.remove(&dataset.id().unwrap());
                    continue;
                }
                // it may be above its origin
                if dataset.is_snapshot() || self.random.next().is_multiple_of(2) {
                    continue;
                }
                let _ = self.with_context(|change| write::promote(change, &name));
            }
            if self.tree().datasets().count() == 1 {
                return;
            }
        }
        panic!("something cannot be destroyed");
    }

    /// Blocks that the MOS and the file system that is left reach.
    fn count_reached(&self) -> usize {
        let mut seen = HashSet::new();
        let mut walk = |objset: &Objset| {
            objset.walk(&WalkOptions::default(), &mut |_, found| {
                if let BlockVisit::Pointer(Blkptr::Regular(block)) = found {
                    seen.insert(block.dvas[0]);
                }
                WalkControl::Descend
            })
        };
        let root = self.tree().find("tank").unwrap();
        assert!(walk(&self.mos.synced()) && walk(&root.objset(None).unwrap()));
        seen.len()
    }
}

fn new_file() -> NewObject {
    let mut new = NewObject::new(ObjectType::PLAIN_FILE, 512);
    new.indirect_shift = 12;
    new
}

fn sync_objset(objset: &Objset, txg: Txg, sink: &dyn Sink, ledger: &dyn BlockLedger) -> Blkptr {
    let policy = |_| WritePolicy::default();
    let syncing =
        SyncContext { txg, sink, ledger, policy: &policy, workers: 1, form: dmu::Form::default() };
    objset.sync(&syncing, &mut |_| {}).unwrap().root
}

/// A pool with a file system of files of a block each, which is destroyed and waits to be freed. Gives
/// the tree's root.
fn pool_with_destroyed_tree(files: impl Iterator<Item = u64>) -> (TreePool, Objset) {
    let mut pool = TreePool::new(1);
    let id = pool.with_context(|change| write::create_dataset(change, "tank/a")).unwrap();
    let source = Arc::clone(&pool.memory) as Arc<dyn Source>;
    let objset = Objset::new_empty(source, id, Kind::Filesystem, None);
    let tx = Tx::syncing(Txg::new(pool.txg));
    for number in files {
        let object = objset.create_at(&tx, ObjectId::new(number), &new_file()).unwrap();
        object.write(&tx, 0, &[7; 512]).unwrap();
    }
    pool.heads.insert(id, objset.clone());
    pool.sync_heads();
    pool.with_context(|change| write::destroy(change, "tank/a")).unwrap();
    (pool, objset.synced())
}

#[test]
fn freeing_resumes_behind_openzfs_stopping_point() {
    let (pool, tree) = pool_with_destroyed_tree(1..=40);
    let mut all = 0;
    tree.walk(&WalkOptions::default(), &mut |_, _| {
        all += 1;
        WalkControl::Descend
    });
    let directory = Zap::open(pool.mos.object(ObjectId::new(1)).unwrap()).unwrap();
    let trees = ObjectId::new(directory.lookup_u64(b"bptree_obj").unwrap().unwrap());
    let (_, entries) = dsl::block_lists::read_bptree(&pool.mos, trees).unwrap();
    // the first block of dnodes, with 31 files
    let entry = BptreeEntry { resume: [u64::MAX, 0, 0, 0], ..entries[0].clone() };
    let tx = Tx::syncing(Txg::new(pool.txg));
    pool.mos.object(trees).unwrap().write(&tx, 0, &entry.encode()).unwrap();
    let done = pool.with_context(|change| write::free_pending(change, 1000)).unwrap();
    assert_eq!((done.blocks, done.has_more), (all - 31, false));
}

#[test]
fn blocks_before_unreadable_one_are_freed_once() {
    let (pool, tree) = pool_with_destroyed_tree([1, 2000, 40_000].into_iter());
    tree.walk(&WalkOptions::default(), &mut |zbookmark, found| {
        if let BlockVisit::Pointer(pointer) = found
            && (zbookmark.object, zbookmark.level.get(), zbookmark.block.get())
                == (ObjectId::META, 1, 1)
        {
            pool.memory.make_unreadable(pointer);
        }
        WalkControl::Descend
    });
    let release = || pool.with_context(|change| write::free_pending(change, 1000)).unwrap();
    let done = release();
    // two files, their dnodes, and the block above these
    assert_eq!((done.blocks, done.is_stuck), (5, true));
    let done = release();
    assert_eq!((done.blocks, done.is_stuck), (0, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 16))]

    #[test]
    fn unreferenced_blocks_are_freed_exactly_once(seed: u64) {
        let mut pool = TreePool::new(seed);
        pool.sync_mos();
        for _ in 0..20 {
            let heads: Vec<_> = pool.heads.keys().copied().collect();
            for head in heads {
                if pool.random.next().is_multiple_of(2) {
                    pool.write_head(head);
                }
            }
            pool.sync_heads();
            for _ in 0..pool.random.below(3) {
                // a refused operation changes nothing
                let _ = pool.run_operation();
            }
            let most = pool.random.next() % 30;
            pool.with_context(|change| write::free_pending(change, most)).unwrap();
            pool.sync_mos();
        }
        pool.destroy_all();
        loop {
            let most = 1 + pool.random.next() % 30;
            let done = pool.with_context(|change| write::free_pending(change, most)).unwrap();
            prop_assert!(!done.is_stuck && (done.blocks > 0 || !done.has_more), "{done:?}");
            pool.sync_mos();
            if !done.has_more {
                break;
            }
        }
        let free = pool.tree().dirs().find(|dir| dir.path() == "tank/$FREE").cloned().unwrap();
        prop_assert_eq!(free.phys().used, 0);
        prop_assert_eq!(free.phys().uncompressed, 0);
        prop_assert_eq!(pool.memory.block_count(), pool.count_reached());
    }
}
