//! Many snapshots of one head: how much is read to destroy them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dmu::memory::MemoryStore;
use dmu::{BlockLedger, Objset};
use dsl::write::{self, DatasetLedger, Moment, SyncTaskContext, pool};
use dsl::{DatasetTree, PoolInfo};
use ondisk::feature::FEATURES;
use ondisk::objset::Kind;
use ondisk::{Blkptr, ObjectType};
use txg::Tx;
use units::{ObjectId, ObjsetId, Txg, Zbookmark};
use zap::{NewZap, Zap};
use zio::{Block, Error, Key, Source};

use crate::test_pool::{USABLE_SPACE, dsize, new_block};

/// Counts the blocks that are read.
struct CountingSource {
    memory: Arc<MemoryStore>,
    reads: AtomicUsize,
}

impl Source for CountingSource {
    fn read(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.memory.read(pointer, zbookmark, key)
    }
}

/// A pool whose MOS is read from memory.
struct MosPool {
    source: Arc<CountingSource>,
    mos: Objset,
    txg: u64,
}

impl MosPool {
    fn new() -> Self {
        let memory = Arc::new(MemoryStore::default());
        let source = Arc::new(CountingSource { memory, reads: AtomicUsize::new(0) });
        let blocks = Arc::clone(&source) as Arc<dyn Source>;
        let mos = Objset::new_empty(blocks, ObjsetId::MOS, Kind::Meta, None);
        let pool = Self { source, mos, txg: 4 };
        let tx = Tx::syncing(Txg::new(4));
        let kind = ObjectType::OBJECT_DIRECTORY;
        Zap::create_at(&pool.mos, &tx, ObjectId::new(1), kind, &NewZap::default()).unwrap();
        let all: Vec<_> = FEATURES.iter().collect();
        pool.change(|change| pool::create_pool_objects(change, &all)).unwrap();
        pool
    }

    fn change<T>(&self, change: impl FnOnce(&SyncTaskContext<'_>) -> T) -> T {
        let tx = Tx::syncing(Txg::new(self.txg));
        let raw = Arc::clone(&self.source) as Arc<dyn Source>;
        change(&SyncTaskContext {
            mos: &self.mos,
            tx: &tx,
            pool: "tank",
            version: 5000,
            now: Moment::default(),
            usable_space: USABLE_SPACE,
            raw_source: &raw,
            random: &|| 7,
            free_block: &|_| {},
            mark_obsolete: &|_| {},
            free_log: &|_, _| {},
            dsize: &dsize,
            dataset_event: &|_| {},
        })
    }

    /// Writes the MOS, and reads it from there from now on.
    fn sync(&mut self) {
        let root = self.source.memory.sync_objset(&self.mos, Txg::new(self.txg)).unwrap().root;
        let blocks = Arc::clone(&self.source) as Arc<dyn Source>;
        self.mos = Objset::open(blocks, ObjsetId::MOS, &root, None).unwrap().to_writable();
        self.txg += 1;
    }

    fn snapshots(&self) -> Vec<(String, ObjsetId)> {
        let facts = PoolInfo { name: "tank".to_owned(), usable_space: USABLE_SPACE };
        let tree = DatasetTree::open(self.mos.clone(), facts).unwrap();
        let all = tree.find("tank/a").unwrap().snapshots().unwrap();
        all.iter().map(|it| (it.short_name().unwrap().to_owned(), it.id().unwrap())).collect()
    }
}

/// The number of block reads for destroying this many snapshots, in each of which a block died.
fn count_destroy_reads(count: u64) -> usize {
    let mut pool = MosPool::new();
    let head = pool.change(|change| write::create_dataset(change, "tank/a")).unwrap();
    let file = |number| new_block(number, number, ObjectType::PLAIN_FILE);
    let first = pool.txg;
    for _ in 0..count {
        pool.change(|change| {
            let ledger = DatasetLedger::new(change, head).unwrap();
            ledger.block_born(&file(pool.txg));
            if pool.txg > first {
                ledger.block_kill(&file(pool.txg - 1));
            }
            ledger.finish(change, &Blkptr::EMPTY).unwrap();
            let name = format!("tank/a@{}", pool.txg);
            write::create_snapshots(change, &[&name]).unwrap();
        });
        pool.sync();
    }
    let all = pool.snapshots();
    assert_eq!(all.len(), usize::try_from(count).unwrap());
    let all: Vec<_> = all.iter().map(|(part, id)| (part.as_str(), *id)).collect();
    pool.source.reads.store(0, Ordering::Relaxed);
    let done = pool.change(|change| write::destroy_snapshots(change, "tank/a", &all, false));
    assert_eq!(done.unwrap(), all.len());
    let reads = pool.source.reads.load(Ordering::Relaxed);
    assert!(pool.snapshots().is_empty());
    reads
}

/// Destroyed one by one, each snapshot takes some 50 blocks, as each deadlist is read again for its
/// neighbours.
#[test]
fn destroying_neighbours_reads_each_deadlist_once() {
    for count in [40, 160] {
        let reads = count_destroy_reads(count);
        let each = reads / usize::try_from(count).unwrap();
        assert!(each < 20, "{reads} blocks are read to destroy {count} snapshots");
    }
}
