//! Deadlists of the old form, which a pool that was upgraded from a version before 26 still has.

use dmu::NewObject;
use dsl::write;
use ondisk::ObjectType;
use ondisk::dsl::{Bpobj, Dataset};
use ondisk::feature::Feature;
use txg::Tx;
use units::{ObjectId, ObjsetId, Txg};
use zap::{NewZap, Zap, ZapValue};

use crate::test_pool::{TestPool, new_block};

fn dataset_phys(world: &TestPool, name: &str) -> Dataset {
    world.tree().find(name).unwrap().phys().unwrap().clone()
}

fn object_type(world: &TestPool, id: ObjectId) -> ObjectType {
    world.mos.object(id).unwrap().dnode().kind
}

/// Gives a head an empty deadlist of the old form.
fn set_old_deadlist(world: &TestPool, head: ObjsetId) -> ObjectId {
    let tx = Tx::syncing(Txg::new(world.txg));
    let header = Bpobj::default().encode(Bpobj::SIZE_WITHOUT_SUBLISTS);
    let new =
        NewObject::new(ObjectType::BPOBJ, 128 << 10).with_bonus(ObjectType::BPOBJ_HEADER, header);
    let list = world.mos.create(&tx, &new).unwrap().id();
    let object = world.mos.object(ObjectId::new(head.get())).unwrap();
    let record = Dataset::parse(object.bonus(), object.bonus_order()).unwrap();
    let old = Dataset { deadlist: list, ..record };
    object.set_bonus(&tx, ObjectType::DSL_DATASET, &old.encode()).unwrap();
    list
}

#[test]
fn snapshot_of_upgraded_head_begins_new_deadlist() {
    let (mut world, skeleton) = TestPool::with_all_features();
    let head = skeleton.root_objset;
    let root = |world: &TestPool| new_block(9, world.txg, ObjectType::OBJSET);
    let data = |number, txg| new_block(number, txg, ObjectType::PLAIN_FILE);
    world.txg = 10;
    let (first, second) = (data(21, 10), data(22, 10));
    world.write_head(head, &[first.clone(), second.clone()], &[], &root(&world));
    world.with_context(|change| write::create_snapshots(change, &["tank@one"])).unwrap();
    let old = set_old_deadlist(&world, head);

    world.txg = 20;
    let third = data(23, 20);
    world.write_head(
        head,
        std::slice::from_ref(&third),
        std::slice::from_ref(&first),
        &root(&world),
    );
    let list = world.mos.object(old).unwrap();
    let header = Bpobj::parse(list.bonus(), list.bonus_order()).unwrap();
    assert_eq!((header.count, list.bonus().len()), (1, Bpobj::SIZE_WITHOUT_SUBLISTS));
    assert!(header.bytes > 0 && header.uncompressed > 0);
    world.with_context(|change| write::create_snapshots(change, &["tank@two"])).unwrap();
    assert_eq!(dataset_phys(&world, "tank@two").deadlist, old);
    let new = dataset_phys(&world, "tank").deadlist;
    assert_eq!(object_type(&world, new), ObjectType::DEADLIST);
    let stretches = dsl::block_lists::deadlist_entries(&world.mos, new).unwrap();
    let starts: Vec<u64> = stretches.iter().map(|(start, _)| start.get()).collect();
    // after the snapshot of nothing, and after the first
    assert_eq!(starts, [0, 1, 10]);

    world.txg = 30;
    world.with_context(|change| write::destroy_snapshot(change, "tank@one", false)).unwrap();
    let freed = |number| world.freed.lock().unwrap().contains_key(&number);
    assert!(freed(21) && !freed(22) && !freed(23), "what only the first snapshot had is free");
    assert_eq!(dataset_phys(&world, "tank@two").previous_txg, Txg::new(1));
}

#[test]
fn enabling_head_errlog_drops_old_error_logs() {
    let (world, _) = TestPool::new(&[]);
    let tx = Tx::syncing(Txg::new(world.txg));
    let directory = || Zap::open(world.mos.object(ObjectId::new(1)).unwrap()).unwrap();
    let log = Zap::create(&world.mos, &tx, ObjectType::ERROR_LOG, &NewZap::default()).unwrap();
    log.insert(&tx, b"15:2:0:7", &ZapValue::new(1, b"/a\0".to_vec())).unwrap();
    let log = log.object().id();
    directory().insert_u64(&tx, b"errlog_last", log.get()).unwrap();
    let feature = Feature::by_name("head_errlog").unwrap();
    world.with_context(|change| write::features::enable(change, feature)).unwrap();
    assert_eq!(directory().lookup_u64(b"errlog_last").unwrap(), None);
    assert!(world.mos.object(log).is_err(), "the log is freed");
}
