//! Remains of interrupted receives and sends.

use dsl::Error;
use dsl::write::{self, TMP_USERREFS};
use ondisk::ObjectType;
use ondisk::dsl::Dataset as Record;
use txg::Tx;
use units::{ObjectId, ObjsetId, Txg};
use zap::{NewZap, Zap};

use crate::test_pool::{TestPool, new_block};

/// A pool with a head `tank/a` and its snapshot `tank/a@one`, and with a clone of that, `tank/a/%recv`.
fn pool_with_recv_clone() -> (TestPool, ObjsetId) {
    let (mut world, skeleton) = TestPool::with_all_features();
    let root = |number| new_block(number, 4, ObjectType::OBJSET);
    world.write_head(skeleton.root_objset, &[root(1)], &[], &root(1));
    let head = world.with_context(|change| write::create_dataset(change, "tank/a")).unwrap();
    world.write_head(head, &[root(2)], &[], &root(2));
    world.txg += 1;
    world.with_context(|change| write::create_snapshots(change, &["tank/a@one"])).unwrap();
    world.txg += 1;
    let clone =
        world.with_context(|change| write::create_clone(change, "tank/a/x", "tank/a@one")).unwrap();
    // names that only a receive gives
    let above = world.tree().find("tank/a").unwrap().dir().phys().children;
    let table = Zap::open(world.mos.object(above).unwrap()).unwrap();
    let dir = table.lookup_u64(b"x").unwrap().unwrap();
    let tx = Tx::syncing(Txg::new(world.txg));
    table.remove(&tx, b"x").unwrap();
    table.insert_u64(&tx, b"%recv", dir).unwrap();
    (world, clone)
}

/// Marks a head as incomplete.
fn mark_inconsistent(world: &TestPool, head: ObjsetId) {
    let object = world.mos.object(ObjectId::new(head.get())).unwrap();
    let mut record = Record::parse(object.bonus(), object.bonus_order()).unwrap();
    record.flags |= Record::INCONSISTENT;
    let tx = Tx::syncing(Txg::new(world.txg));
    object.set_bonus(&tx, ObjectType::DSL_DATASET, &record.encode()).unwrap();
}

fn dataset_names(world: &TestPool) -> Vec<String> {
    world
        .tree()
        .dirs()
        .filter(|dir| dir.phys().head.exists())
        .map(|dir| dir.path().to_owned())
        .filter(|path| !path.contains('$'))
        .collect()
}

#[test]
fn partial_receive_is_destroyed_unless_resumable() {
    let (mut world, clone) = pool_with_recv_clone();
    assert_eq!(world.tree().abandoned_receives(), Vec::<String>::new());
    // not even on request: it may be complete
    let path = "tank/a/%recv";
    assert!(!world.with_context(|change| write::destroy_partial_receive(change, path)).unwrap());
    mark_inconsistent(&world, clone);
    assert_eq!(world.tree().abandoned_receives(), [path]);
    world.txg += 1;
    assert!(world.with_context(|change| write::destroy_partial_receive(change, path)).unwrap());
    assert_eq!(dataset_names(&world), ["tank", "tank/a"]);
    // and the snapshot has no clones any more
    world.with_context(|change| write::destroy_snapshot(change, "tank/a@one", false)).unwrap();
    world.with_context(|change| write::destroy(change, "tank/a")).unwrap();
    assert_eq!(dataset_names(&world), ["tank"]);
}

#[test]
fn inconsistent_dataset_with_descendants_stays() {
    let (world, _) = pool_with_recv_clone();
    let head = world.tree().find("tank/a").unwrap().id().unwrap();
    mark_inconsistent(&world, head);
    assert!(
        !world.with_context(|change| write::destroy_partial_receive(change, "tank/a")).unwrap()
    );
    assert_eq!(dataset_names(&world), ["tank", "tank/a", "tank/a/%recv"]);
}

#[test]
fn destroying_a_head_destroys_its_partial_receive() {
    let (mut world, clone) = pool_with_recv_clone();
    mark_inconsistent(&world, clone);
    world.txg += 1;
    let gone = world.with_context(|change| write::destroy_snapshot(change, "tank/a@one", false));
    assert!(matches!(gone, Err(Error::ReceivedOnto { .. })), "{gone:?}");
    for _ in 0..2 {
        world.with_context(|change| write::destroy_recv_clone(change, "tank/a")).unwrap();
        assert_eq!(dataset_names(&world), ["tank", "tank/a"]);
    }
    world.with_context(|change| write::destroy_snapshot(change, "tank/a@one", false)).unwrap();
    world.with_context(|change| write::destroy(change, "tank/a")).unwrap();
}

#[test]
fn temporary_holds_of_dead_processes_are_released() {
    let (mut world, _) = pool_with_recv_clone();
    let snapshot = world.tree().find("tank/a@one").unwrap().id().unwrap();
    world.with_context(|change| write::hold(change, "tank/a@one", ".send-7-1")).unwrap();
    world.with_context(|change| write::hold(change, "tank/a@one", "mine")).unwrap();
    let tx = Tx::syncing(Txg::new(world.txg));
    let kind = ObjectType::USERREFS;
    let table = Zap::create(&world.mos, &tx, kind, &NewZap::default()).unwrap();
    let directory = Zap::open(world.mos.object(ObjectId::new(1)).unwrap()).unwrap();
    directory.insert_u64(&tx, TMP_USERREFS.as_bytes(), table.object().id().get()).unwrap();
    let add = |name: String| table.insert_u64(&tx, name.as_bytes(), 1_700_000_000).unwrap();
    add(format!("{:x}-.send-7-1", snapshot.get()));
    // holds of snapshots that are gone, released holds, and entries that are not holds
    add("ffff-.send-7-1".to_owned());
    add(format!("{:x}-gone", snapshot.get()));
    add("words".to_owned());
    world.txg += 1;
    world.with_context(write::release_temporary_holds).unwrap();
    let holds = world.tree().find("tank/a@one").unwrap().holds().unwrap();
    assert_eq!(holds.iter().map(|hold| hold.tag.as_str()).collect::<Vec<_>>(), ["mine"]);
    let left = Zap::open(world.mos.object(table.object().id()).unwrap()).unwrap();
    assert_eq!(left.count().unwrap(), 0);
}
