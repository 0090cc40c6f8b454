//! Blocks in pieces among the blocks of dedup.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dmu::memory;
use lock::Mutex;
use ondisk::blkptr::{Protection, Regular};
use ondisk::objset::Kind;
use ondisk::{Checksum, Compression, Dva, ObjectType, Order};
use txg::{Tx, TxgLimits};
use units::{Level, Txg, VdevId};
use vdev::VdevTree;
use zap::{NewZap, Zap};
use zio::{DedupLookup, FreeOutcome, SharedBlocks as _};

use super::{BlockRefs, Environment, NO_QUOTA};
use crate::active::Moment;
use crate::clones::CloneTables;
use crate::dedup::DedupTables;

struct FixedRandom;

impl zio::Random for FixedRandom {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// The tables of a pool in which nothing is shared yet.
fn empty_block_refs(fast: bool) -> BlockRefs {
    let (mos, _) = memory::empty_objset(Kind::Meta);
    let tx = Tx::syncing(Txg::new(4));
    Zap::create(&mos, &tx, ObjectType::OBJECT_DIRECTORY, &NewZap::default()).unwrap();
    BlockRefs {
        tree: Arc::new(VdevTree::new(Vec::new())),
        clones: CloneTables::load(&mos, std::iter::empty()).unwrap(),
        dedup: DedupTables::load(&mos, fast).unwrap(),
        can_clone: true,
        environment: Environment {
            random: Arc::new(FixedRandom),
            now: Arc::new(|| Moment { seconds: 1_700_000_000, nanoseconds: 0 }),
            workers: 1,
            limits: TxgLimits::default(),
            cache: arc::MemoryBudget::default(),
        },
        dedup_quota: AtomicU64::new(NO_QUOTA),
        dedup_bytes: AtomicU64::default(),
        dedup_lock: Mutex::new(()),
        deferred_error: Mutex::default(),
    }
}

/// A block of always the same content, in pieces, of which there are two headers at that place.
fn gang_block(place: u64) -> Regular {
    let dva = |offset| Dva { vdev: VdevId::new(0), offset, asize: 8192, gang: true };
    Regular {
        dvas: [Some(dva(place << 20)), Some(dva((place << 20) + 8192)), None],
        lsize: 131_072,
        psize: 131_072,
        compression: Compression::Off,
        checksum: Checksum::Sha256,
        kind: ObjectType::PLAIN_FILE,
        level: Level::new(0),
        dedup: true,
        order: Order::Little,
        birth: Txg::new(9),
        birth_physical: Txg::new(9),
        fill: 1,
        sum: [1, 2, 3, 4],
        protection: Protection::None,
    }
}

#[test]
fn gang_block_does_not_displace_a_table_entry() {
    let txg = Txg::new(9);
    for fast in [false, true] {
        let shared = empty_block_refs(fast);
        let [first, second] = [1, 2].map(gang_block);
        assert!(shared.insert(&first, txg));
        // its content is stored once, though it has two addresses
        assert_eq!(shared.find_duplicate(&first, 2, txg), DedupLookup::Unusable, "{fast}");
        match shared.find_duplicate(&first, 1, txg) {
            DedupLookup::Found(known) => {
                assert_eq!(known.dvas, first.dvas);
                assert_eq!(shared.release(&first, txg), FreeOutcome::StillReferenced);
            }
            // by its addresses it is among those of two copies
            found => assert_eq!((found, fast), (DedupLookup::NotFound, false)),
        }
        assert!(!shared.insert(&second, txg), "{fast}");
        assert_eq!(shared.release(&first, txg), FreeOutcome::Free(first.dvas));
        let second = Regular { dedup: false, ..second };
        assert_eq!(shared.release(&second, txg), FreeOutcome::Free(second.dvas));
        assert!(shared.deferred_error.lock().is_none());
    }
}
