//! The datasets and features of a new pool.

use dsl::write;
use ondisk::ObjectType;
use ondisk::dsl::Dataset;
use ondisk::feature::Feature;
use units::{ObjectId, Txg};
use zap::Zap;

use crate::test_pool::{TestPool, new_block};

#[test]
fn a_new_pool_has_what_every_pool_has() {
    let (world, skeleton) = TestPool::with_all_features();
    let tree = world.tree();
    let names: Vec<_> = tree.dirs().map(|dir| dir.path().to_owned()).collect();
    assert_eq!(names, ["tank", "tank/$FREE", "tank/$MOS", "tank/$ORIGIN"]);
    assert_eq!(tree.origin_snapshot(), skeleton.origin_snapshot);
    assert_eq!(tree.root(), skeleton.root_dir);

    let origin = tree.dataset(skeleton.origin_snapshot.unwrap()).unwrap();
    let record = origin.phys().unwrap();
    assert_eq!((record.creation_txg, record.children), (Txg::new(1), 2));
    assert!(record.is_snapshot() && !record.previous.exists());
    assert_eq!(origin.name(), "tank/$ORIGIN@$ORIGIN");

    let root = tree.find("tank").unwrap();
    let record = root.phys().unwrap();
    assert_eq!(record.creation_txg, Txg::new(1));
    assert_eq!(record.previous.get(), skeleton.origin_snapshot.unwrap().get());
    assert_eq!(record.previous_txg, Txg::new(1));
    assert_eq!(record.flags, Dataset::UNIQUE_ACCURATE);
    assert!(record.root.is_hole());
    let parts = dsl::block_lists::deadlist_entries(&world.mos, record.deadlist).unwrap();
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].0, Txg::ZERO);
    let dir = root.dir().phys();
    assert_eq!(dir.origin.get(), skeleton.origin_snapshot.unwrap().get());
    assert_eq!(dir.flags, 1);
    assert!(root.clone_origin().unwrap().is_none());

    let (_, free_list) = skeleton.free.unwrap();
    let free = world.mos.object(free_list).unwrap();
    assert_eq!(free.dnode().kind, ObjectType::BPOBJ);
    assert_eq!((free.block_size(), free.bonus().len()), (128 << 10, 48));
    let directory = Zap::open(world.mos.object(ObjectId::new(1)).unwrap()).unwrap();
    assert_eq!(directory.lookup_u64(b"free_bpobj").unwrap(), Some(free_list.get()));
    assert!(directory.lookup_u64(b"root_dataset").unwrap().is_some());
}

#[test]
fn features_are_enabled_with_dependencies_and_counted() {
    let wanted = Feature::by_name("bookmark_written").unwrap();
    let (world, _) = TestPool::new(&[wanted, Feature::by_name("enabled_txg").unwrap()]);
    let uses = |name| {
        let feature = Feature::by_name(name).unwrap();
        write::features::refcount(&world.mos, feature).unwrap()
    };
    for name in ["bookmark_written", "bookmark_v2", "bookmarks"] {
        assert_eq!(uses(name), Some(0), "{name}");
    }
    assert_eq!(uses("enabled_txg"), Some(1));
    assert_eq!(uses("livelist"), None);
    let (world, _) = TestPool::with_all_features();
    let uses = |name| {
        let feature = Feature::by_name(name).unwrap();
        write::features::refcount(&world.mos, feature).unwrap()
    };
    assert_eq!((uses("lz4_compress"), uses("empty_bpobj")), (Some(1), Some(1)));
}

#[test]
fn last_bookmark_frees_table_and_feature() {
    let (mut world, skeleton) = TestPool::with_all_features();
    world.txg += 1;
    let root = new_block(9, world.txg, ObjectType::OBJSET);
    world.write_head(skeleton.root_objset, std::slice::from_ref(&root), &[], &root);
    world.with_context(|change| write::create_snapshots(change, &["tank@s"])).unwrap();
    let uses = || {
        let feature = Feature::by_name("bookmarks").unwrap();
        write::features::refcount(&world.mos, feature).unwrap()
    };
    let table = || world.tree().find("tank").unwrap().zap_field(Dataset::BOOKMARKS).unwrap();
    for mark in ["tank#a", "tank#b"] {
        world.with_context(|change| write::create_bookmark(change, mark, "tank@s")).unwrap();
    }
    world.with_context(|change| write::destroy_bookmark(change, "tank#a")).unwrap();
    assert!(uses() == Some(1) && table().is_some());
    world.with_context(|change| write::destroy_bookmark(change, "tank#b")).unwrap();
    assert!(uses() == Some(0) && table().is_none());
}
