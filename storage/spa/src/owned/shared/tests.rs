//! Blocks in pieces among the blocks of dedup.

use std::sync::Arc;

use dmu::memory;
use ondisk::blkptr::{Protection, Regular};
use ondisk::objset::Kind;
use ondisk::{Checksum, Compression, Dva, ObjectType, Order};
use parking_lot::Mutex;
use txg::{Tx, TxgLimits};
use units::{Level, Txg, VdevId};
use vdev::VdevTree;
use zap::{NewZap, Zap};
use zio::{DedupLookup, FreeOutcome, SharedBlocks as _};

use super::{Shared, World};
use crate::clones::Clones;
use crate::dedup::Dedup;
use crate::owned::Moment;

struct Noise;

impl zio::Random for Noise {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// The tables of a pool in which nothing is shared yet.
fn tables(fast: bool) -> Shared {
    let (mos, _) = memory::empty_objset(Kind::Meta);
    let tx = Tx::syncing(Txg::new(4));
    Zap::create(&mos, &tx, ObjectType::OBJECT_DIRECTORY, &NewZap::default()).unwrap();
    Shared {
        tree: Arc::new(VdevTree::new(Vec::new())),
        clones: Clones::load(&mos, std::iter::empty()).unwrap(),
        dedup: Dedup::load(&mos, fast).unwrap(),
        may_clone: true,
        world: World {
            random: Arc::new(Noise),
            now: Arc::new(|| Moment { seconds: 1_700_000_000, nanoseconds: 0 }),
            workers: 1,
            limits: TxgLimits::default(),
            cache: arc::MemoryBudget::default(),
        },
        turn: Mutex::new(()),
        trouble: Mutex::default(),
    }
}

/// A block of always the same content, in pieces, of which there are two headers at that place.
fn in_pieces(place: u64) -> Regular {
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
fn a_block_in_pieces_does_not_push_another_out_of_the_table() {
    let txg = Txg::new(9);
    for fast in [false, true] {
        let shared = tables(fast);
        let [first, second] = [1, 2].map(in_pieces);
        assert!(shared.insert(&first, txg));
        // its content is there once, though it has two addresses
        assert_eq!(shared.find_duplicate(&first, 2, txg), DedupLookup::Unusable, "{fast}");
        match shared.find_duplicate(&first, 1, txg) {
            DedupLookup::Found(known) => {
                assert_eq!(known.dvas, first.dvas);
                assert_eq!(shared.release(&first, txg), FreeOutcome::StillReferenced);
            }
            // by its addresses it stands among those of two copies
            found => assert_eq!((found, fast), (DedupLookup::NotFound, false)),
        }
        assert!(!shared.insert(&second, txg), "{fast}");
        assert_eq!(shared.release(&first, txg), FreeOutcome::Free(first.dvas));
        let second = Regular { dedup: false, ..second };
        assert_eq!(shared.release(&second, txg), FreeOutcome::Free(second.dvas));
        assert!(shared.trouble.lock().is_none());
    }
}
