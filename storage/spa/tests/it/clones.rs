//! References to cloned blocks, compared with a map after they were written and read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use dmu::Objset;
use dmu::memory::{self, MemoryStore};
use ondisk::dedup::{CloneTable, clone_table_name};
use ondisk::objset::Kind;
use ondisk::{ObjectType, Reader};
use proptest::prelude::*;
use spa::{CloneTables, ClonedBlock};
use txg::Tx;
use units::{Txg, VdevId};
use zap::{NewZap, Zap};

pub(crate) fn empty_mos() -> (Objset, Arc<MemoryStore>) {
    let (mos, memory) = memory::empty_objset(Kind::Meta);
    let tx = Tx::syncing(Txg::new(4));
    Zap::create(&mos, &tx, ObjectType::OBJECT_DIRECTORY, &NewZap::default()).unwrap();
    (mos, memory)
}

fn cloned_block(number: u16) -> ClonedBlock {
    let vdev = VdevId::new(u32::from(number % 2));
    let offset = u64::from(number / 2) * (5 << 20);
    ClonedBlock { vdev, offset, size: 4096 * (1 + u64::from(number % 7)) }
}

fn vdev_ids() -> impl Iterator<Item = VdevId> {
    [VdevId::new(0), VdevId::new(1)].into_iter()
}

/// The references of every block that there may be, and the sums over them.
fn compare_with_model(clones: &CloneTables, model: &BTreeMap<u16, u64>) {
    let (mut used, mut saved) = (0, 0);
    for number in 0..200 {
        let references = model.get(&number).copied().unwrap_or(0);
        assert_eq!(clones.references(&cloned_block(number)).unwrap(), references);
        used += cloned_block(number).size * u64::from(references > 0);
        saved += cloned_block(number).size * references;
    }
    assert_eq!(clones.space_totals(), (used, saved));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]

    #[test]
    fn references_are_counted(steps in proptest::collection::vec((0_u16..200, 0_u8..9), 1..300)) {
        let (mos, memory) = empty_mos();
        let mut clones = CloneTables::load(&mos, vdev_ids()).unwrap();
        let mut model = BTreeMap::new();
        let (mut txg, mut uses) = (4, 0);
        for (number, what) in steps {
            let references: &mut u64 = model.entry(number).or_default();
            match what {
                0 => {
                    uses += clones.sync(&Tx::syncing(Txg::new(txg)), &mut || 7).unwrap();
                    memory.sync_objset(&mos, Txg::new(txg)).unwrap();
                    txg += 1;
                    clones = CloneTables::load(&mos, vdev_ids()).unwrap();
                    compare_with_model(&clones, &model);
                    let tables = |vdev| {
                        let on = |(number, count): (&u16, &u64)| {
                            *count > 0 && cloned_block(*number).vdev == vdev
                        };
                        i64::from(model.iter().any(on))
                    };
                    assert_eq!(uses, vdev_ids().map(tables).sum::<i64>());
                }
                1..4 => {
                    clones.add_references(&cloned_block(number), u64::from(what)).unwrap();
                    *references += u64::from(what);
                }
                _ => {
                    assert_eq!(clones.release_reference(&cloned_block(number)).unwrap(), *references > 0);
                    *references = references.saturating_sub(1);
                }
            }
        }
        compare_with_model(&clones, &model);
    }
}

#[test]
fn tables_go_with_the_last_clone() {
    let (mos, _) = empty_mos();
    let clones = CloneTables::load(&mos, vdev_ids()).unwrap();
    let tx = Tx::syncing(Txg::new(4));
    clones.add_references(&cloned_block(3), 1).unwrap();
    assert_eq!(clones.sync(&tx, &mut || 7).unwrap(), 1);
    assert!(clones.release_reference(&cloned_block(3)).unwrap());
    assert!(!clones.release_reference(&cloned_block(3)).unwrap());
    assert_eq!(clones.sync(&tx, &mut || 7).unwrap(), -1);
    let directory = spa::PoolDirectory::open(mos).unwrap();
    assert_eq!(directory.zap().count().unwrap(), 0);
}

#[test]
fn wrong_sums_do_not_block_frees() {
    let (mos, _) = empty_mos();
    let clones = CloneTables::load(&mos, vdev_ids()).unwrap();
    let tx = Tx::syncing(Txg::new(4));
    clones.add_references(&cloned_block(2), 2).unwrap();
    clones.sync(&tx, &mut || 7).unwrap();
    let directory = spa::PoolDirectory::open(mos.clone()).unwrap();
    let array = directory.object(&clone_table_name(VdevId::new(0))).unwrap().unwrap();
    let mut reader = Reader::new("clone table", array.bonus(), array.bonus_order());
    let told = CloneTable::read(&mut reader).unwrap();
    // less than it is, and less than nothing
    for wrong in [512, 0_u64.wrapping_sub(512)] {
        let facts = CloneTable { used: wrong, saved: wrong, ..told };
        array.set_bonus(&tx, array.dnode().bonus_kind, &facts.encode()).unwrap();
        let clones = CloneTables::load(&mos, vdev_ids()).unwrap();
        clones.add_references(&cloned_block(2), 1).unwrap();
        for _ in 0..3 {
            assert!(clones.release_reference(&cloned_block(2)).unwrap());
        }
        assert!(!clones.release_reference(&cloned_block(2)).unwrap());
    }
}

#[test]
fn too_many_range_counts_are_refused() {
    let (mos, _) = empty_mos();
    let clones = CloneTables::load(&mos, vdev_ids()).unwrap();
    let far = ClonedBlock { vdev: VdevId::new(0), offset: 1 << 62, size: 512 };
    assert!(clones.add_references(&far, 1).is_err());
    let tx = Tx::syncing(Txg::new(4));
    clones.add_references(&cloned_block(2), 1).unwrap();
    clones.sync(&tx, &mut || 7).unwrap();
    let directory = spa::PoolDirectory::open(mos.clone()).unwrap();
    let array = directory.object(&clone_table_name(VdevId::new(0))).unwrap().unwrap();
    // a block far behind: the holes before it cost nothing
    array.write(&tx, 1 << 40, &[1]).unwrap();
    let mut bonus = array.bonus().to_vec();
    let ranges = (1_u64 << 39).to_le_bytes();
    let at = bonus.windows(8).position(|word| word == 1_u64.to_le_bytes()).unwrap();
    bonus[at..at + 8].copy_from_slice(&ranges);
    array.set_bonus(&tx, array.dnode().bonus_kind, &bonus).unwrap();
    assert!(CloneTables::load(&mos, vdev_ids()).is_err());
}
