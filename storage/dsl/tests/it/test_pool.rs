//! A MOS in memory, and blocks that exist only as pointers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dmu::{BlockLedger, Objset};
use dsl::write::{DatasetLedger, Moment, SyncTaskContext, pool};
use dsl::{DatasetTree, PoolInfo};
use ondisk::blkptr::{Checksum, Compression, Protection, Regular};
use ondisk::feature::{FEATURES, Feature};
use ondisk::objset::Kind;
use ondisk::{Blkptr, Dva, ObjectType, Order};
use txg::Tx;
use units::{Level, ObjectId, ObjsetId, Txg, VdevId, Zbookmark};
use zap::{NewZap, Zap};
use zio::{Block, Error, Key, Source};

use crate::model::block_number;

/// There is nothing to be read.
struct EmptySource;

impl Source for EmptySource {
    fn read(&self, _: &Blkptr, place: Zbookmark, _: Option<&Key>) -> Result<Block, Error> {
        Err(Error::Unreadable { zbookmark: place, faults: Vec::new() })
    }
}

pub(crate) struct TestPool {
    pub(crate) mos: Objset,
    pub(crate) txg: u64,
    raw_source: Arc<dyn Source>,
    random_state: AtomicU64,
    /// Blocks that were freed, by their number.
    pub(crate) freed: Mutex<BTreeMap<u64, u32>>,
}

pub(crate) const USABLE_SPACE: u64 = 1 << 40;

impl TestPool {
    /// A new pool.
    pub(crate) fn new(features: &[&'static Feature]) -> (Self, pool::NewPoolObjects) {
        let raw: Arc<dyn Source> = Arc::new(EmptySource);
        let mos = Objset::new_empty(Arc::clone(&raw), ObjsetId::MOS, Kind::Meta, None);
        let world = Self {
            mos,
            txg: 4,
            raw_source: raw,
            random_state: AtomicU64::new(1),
            freed: Mutex::default(),
        };
        let tx = Tx::syncing(Txg::new(4));
        let kind = ObjectType::OBJECT_DIRECTORY;
        Zap::create_at(&world.mos, &tx, ObjectId::new(1), kind, &NewZap::default()).unwrap();
        let skeleton =
            world.with_context(|change| pool::create_pool_objects(change, features).unwrap());
        (world, skeleton)
    }

    /// With all features.
    pub(crate) fn with_all_features() -> (Self, pool::NewPoolObjects) {
        let all: Vec<_> = FEATURES.iter().collect();
        Self::new(&all)
    }

    pub(crate) fn with_context<T>(&self, change: impl FnOnce(&SyncTaskContext<'_>) -> T) -> T {
        let tx = Tx::syncing(Txg::new(self.txg));
        let random = || {
            self.random_state.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let free = |pointer: &Blkptr| {
            *self.freed.lock().unwrap().entry(block_number(pointer)).or_default() += 1;
        };
        change(&SyncTaskContext {
            mos: &self.mos,
            tx: &tx,
            pool: "tank",
            version: 5000,
            now: Moment { seconds: 1_700_000_000 + self.txg, nanoseconds: 7 },
            usable_space: USABLE_SPACE,
            raw_source: &self.raw_source,
            random: &random,
            free_block: &free,
            mark_obsolete: &|_| {},
            free_log: &|_, _| {},
            dsize: &dsize,
            dataset_event: &|_| {},
        })
    }

    pub(crate) fn tree(&self) -> DatasetTree {
        let facts = PoolInfo { name: "tank".to_owned(), usable_space: USABLE_SPACE };
        let tree = DatasetTree::open(self.mos.clone(), facts).unwrap();
        assert!(tree.errors().is_empty(), "{:?}", tree.errors());
        tree
    }

    /// Writes a head: blocks come and go.
    pub(crate) fn write_head(
        &self,
        head: ObjsetId,
        born: &[Blkptr],
        died: &[Blkptr],
        root: &Blkptr,
    ) {
        self.with_context(|change| {
            let ledger = DatasetLedger::new(change, head).unwrap();
            for pointer in born {
                ledger.block_born(pointer);
            }
            for pointer in died {
                ledger.block_kill(pointer);
            }
            ledger.finish(change, root).unwrap();
        });
    }
}

pub(crate) fn dsize(pointer: &Blkptr) -> u64 {
    match pointer {
        Blkptr::Regular(block) => block.copies().map(|dva| dva.asize).sum(),
        _ => 0,
    }
}

/// A block; its number determines its size.
pub(crate) fn new_block(number: u64, birth: u64, kind: ObjectType) -> Blkptr {
    let psize = 512 * (1 + u32::try_from(number % 7).unwrap());
    let dva = |vdev| {
        let asize = u64::from(psize) + 512 * (number % 3);
        Some(Dva { vdev: VdevId::new(vdev), offset: number << 9, asize, gang: false })
    };
    Blkptr::Regular(Box::new(Regular {
        dvas: [dva(0), if number.is_multiple_of(2) { dva(1) } else { None }, None],
        lsize: psize + 512 * u32::try_from(number % 5).unwrap(),
        psize,
        compression: Compression::Lz4,
        checksum: Checksum::Fletcher4,
        kind,
        level: Level::new(0),
        dedup: false,
        order: Order::Little,
        birth: Txg::new(birth),
        birth_physical: Txg::new(birth),
        fill: 1,
        sum: [number, 0, 0, 1],
        protection: Protection::None,
    }))
}
