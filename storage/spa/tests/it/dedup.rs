//! Tables of dedup, compared with a map after they were written and read again.

use std::collections::BTreeMap;

use dmu::{NewObject, Objset};
use ondisk::dedup::{Copies, DedupKey, DedupValue, LogHeader, Shape, Sums, histogram};
use ondisk::{Blkptr, Checksum, Compression, Dva, ObjectType, Order};
use proptest::prelude::*;
use spa::{DedupTables, PoolDirectory};
use txg::Tx;
use units::{Txg, VdevId};
use zap::Zap;

use crate::clones::empty_mos;

fn dedup_key(number: u64) -> DedupKey {
    let sum = [number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number, 3, 4];
    DedupKey { sum, lsize: 8192, psize: 4096, compression: Compression::Lz4, encrypted: false }
}

fn dedup_value(number: u64, references: u64, shape: Shape) -> DedupValue {
    let dva = Dva { vdev: VdevId::new(0), offset: number << 13, asize: 4096, gang: false };
    let copies = Copies::new([Some(dva), None, None], references, Txg::new(7));
    match shape {
        Shape::Flat => DedupValue::Flat { copies, since: 1_700_000_000 },
        Shape::Traditional => {
            let none = Copies::default();
            DedupValue::Traditional(Box::new([none, copies, none, none]))
        }
    }
}

fn syncing_tx(txg: u64) -> Tx {
    Tx::syncing(Txg::new(txg))
}

/// All blocks with the references that there are to them, and the sums over each table.
fn compare_with_model(mos: &Objset, dedup: &DedupTables, model: &BTreeMap<u64, u64>, fast: bool) {
    let shape = if fast { Shape::Flat } else { Shape::Traditional };
    for number in 0..60 {
        let references = model.get(&number).copied().filter(|count| *count > 0);
        let found = dedup.lookup(Checksum::Sha256, &dedup_key(number)).unwrap();
        assert_eq!(found, references.map(|count| dedup_value(number, count, shape)));
    }
    let root = PoolDirectory::open(mos.clone()).unwrap();
    assert_eq!(
        root.lookup_u64("DDT-sha256").unwrap().is_some(),
        fast && sum_references(model, |_| true) > 0
    );
    let statistics =
        root.object("DDT-statistics").unwrap().map(|object| Zap::open(object).unwrap());
    for (name, class) in [("unique", 1..2), ("duplicate", 2..u64::MAX)] {
        let name = format!("DDT-sha256-zap-{name}");
        let entry = statistics.as_ref().and_then(|table| table.lookup(name.as_bytes()).unwrap());
        let bytes: Vec<u8> =
            entry.iter().flat_map(zap::ZapValue::u64s).flat_map(u64::to_le_bytes).collect();
        let sums = if bytes.is_empty() {
            vec![Sums::default(); 64]
        } else {
            histogram(&bytes, Order::Little).unwrap()
        };
        let wanted = sum_references(model, |count| class.contains(&count));
        assert_eq!(sums.iter().map(|sums| sums.referenced_lsize).sum::<u64>(), wanted * 8192);
        assert_eq!(sums.iter().map(|sums| sums.referenced_dsize).sum::<u64>(), wanted * 4096);
    }
}

fn sum_references(model: &BTreeMap<u64, u64>, wanted: impl Fn(u64) -> bool) -> u64 {
    model.values().copied().filter(|count| *count > 0 && wanted(*count)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]

    #[test]
    fn blocks_move_between_tables(
        fast: bool, steps in proptest::collection::vec((0_u64..60, 0_u64..5), 1..200),
    ) {
        let (mos, memory) = empty_mos();
        let mut dedup = DedupTables::load(&mos, fast).unwrap();
        let shape = dedup.value_format(Checksum::Sha256);
        let mut model = BTreeMap::new();
        let (mut txg, mut uses) = (4, 0);
        for (number, references) in steps.into_iter().chain([(0, 4), (0, 0)]) {
            dedup.update(Checksum::Sha256, &dedup_key(number), dedup_value(number, references, shape)).unwrap();
            model.insert(number, references);
            if references == 4 {
                uses += dedup.sync(&syncing_tx(txg), &|dva| dva.asize, &mut || 7).unwrap();
                memory.sync_objset(&mos, Txg::new(txg)).unwrap();
                txg += 1;
                dedup = DedupTables::load(&mos, fast).unwrap();
                compare_with_model(&mos, &dedup, &model, fast);
                assert_eq!(uses, i64::from(fast && sum_references(&model, |_| true) > 0));
            }
        }
        for number in 0..60 {
            dedup.update(Checksum::Sha256, &dedup_key(number), dedup_value(number, 0, shape)).unwrap();
        }
        model.clear();
        uses += dedup.sync(&syncing_tx(txg), &|dva| dva.asize, &mut || 7).unwrap();
        compare_with_model(&mos, &dedup, &model, fast);
        assert_eq!(uses, 0);
    }
}

/// A block's type, the address of its first copy, and its birth.
fn first_copy(pointer: &Blkptr) -> (DedupKey, u64, Txg) {
    let Blkptr::Regular(block) = pointer else { panic!("{pointer:?}") };
    (DedupKey::from_block(block), block.dvas[0].unwrap().offset, block.birth_physical)
}

#[test]
fn dedup_log_entries_move_to_the_tables() {
    let (mos, _) = empty_mos();
    let dedup = DedupTables::load(&mos, true).unwrap();
    for number in [1, 2] {
        dedup
            .update(Checksum::Sha256, &dedup_key(number), dedup_value(number, 1, Shape::Flat))
            .unwrap();
    }
    dedup.sync(&syncing_tx(4), &|dva| dva.asize, &mut || 7).unwrap();
    // as the real system leaves it: block 1 is referred to twice, 2 no longer, 3 is new
    let header =
        LogHeader { flushing: false, length: 4096, first_txg: Txg::new(4), checkpoint: None };
    let words = ObjectType(0xc3);
    let log = NewObject::new(words, 4096).with_bonus(words, header.encode().to_vec());
    let log = mos.create(&syncing_tx(4), &log).unwrap();
    let mut bytes = Vec::new();
    for (number, references) in [(1, 9), (1, 2), (2, 0), (3, 1)] {
        bytes.extend((1_u64 | (120 << 8) | (2 << 56)).to_le_bytes());
        bytes.extend(dedup_key(number).to_words().into_iter().flat_map(u64::to_le_bytes));
        bytes.extend(dedup_value(number, references, Shape::Flat).encode());
    }
    bytes.resize(4096, 0);
    log.write(&syncing_tx(4), 0, &bytes).unwrap();
    let root = PoolDirectory::open(mos.clone()).unwrap();
    let directory = Zap::open(root.object("DDT-sha256").unwrap().unwrap()).unwrap();
    directory.insert_u64(&syncing_tx(4), b"DDT-log-sha256-0", log.id().get()).unwrap();
    // and another, of which all but the last block is in the tables
    let checkpoint = Some(dedup_key(8).to_words());
    let header = LogHeader { flushing: true, checkpoint, ..header };
    let older = NewObject::new(words, 4096).with_bonus(words, header.encode().to_vec());
    let older = mos.create(&syncing_tx(4), &older).unwrap();
    older.write(&syncing_tx(4), 0, &bytes).unwrap();
    directory.insert_u64(&syncing_tx(4), b"DDT-log-sha256-1", older.id().get()).unwrap();

    for round in 0..2 {
        let dedup = DedupTables::load(&mos, true).unwrap();
        let unwanted: Vec<_> = dedup.drain_unreferenced().iter().map(first_copy).collect();
        let wanted =
            if round == 0 { vec![(dedup_key(2), 2 << 13, Txg::new(7))] } else { Vec::new() };
        assert_eq!(unwanted, wanted, "round {round}");
        for (number, references) in [(1, Some(2)), (2, None), (3, Some(1))] {
            let found = dedup.lookup(Checksum::Sha256, &dedup_key(number)).unwrap();
            assert_eq!(found.map(|value| value.references()), references, "round {round}");
        }
        dedup.sync(&syncing_tx(4), &|dva| dva.asize, &mut || 7).unwrap();
    }
    for (id, flushing) in [(log.id(), false), (older.id(), true)] {
        let log = mos.object(id).unwrap();
        let mut bonus = ondisk::Reader::new("log", log.bonus(), Order::Little);
        let header = LogHeader::read(&mut bonus).unwrap();
        assert_eq!((header.length, header.flushing, header.checkpoint), (0, flushing, None));
    }
}
