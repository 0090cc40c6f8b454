//! Snapshots and bookmarks of case-insensitive file systems.

use dsl::write;
use dsl::{DatasetKind, Error, PropertyValue};
use ondisk::ObjectType;

use crate::test_pool::{TestPool, new_block};

/// As in OpenZFS: of two names that differ in case only, it would destroy either.
#[test]
fn snapshot_names_ignore_case_with_their_dataset() {
    let (mut world, _) = TestPool::with_all_features();
    let head = world.with_context(|change| {
        let head = write::create_dataset(change, "tank/any").unwrap();
        write::set_case_insensitive(change, head).unwrap();
        head
    });
    let write = |world: &mut TestPool| {
        world.txg += 1;
        let root = new_block(world.txg, world.txg, ObjectType::OBJSET);
        world.write_head(head, std::slice::from_ref(&root), &[], &root);
    };
    write(&mut world);
    world.with_context(|change| write::create_snapshots(change, &["tank/any@Monday"])).unwrap();
    write(&mut world);
    let again = world.with_context(|change| write::create_snapshots(change, &["tank/any@MONDAY"]));
    assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
    assert_eq!(world.tree().find("tank/any@monday").unwrap().name(), "tank/any@Monday");
    world.with_context(|change| write::hold(change, "tank/any@monday", "mine")).unwrap();
    world.with_context(|change| write::release_hold(change, "tank/any@MONday", "mine")).unwrap();
    world
        .with_context(|it| write::rename_snapshot(it, "tank/any@monday", "Tuesday", false))
        .unwrap();
    let names = |world: &TestPool| {
        let head = world.tree().find("tank/any").unwrap();
        let all = [head.snapshots().unwrap(), head.bookmarks().unwrap()].concat();
        all.iter().map(dsl::Dataset::name).collect::<Vec<_>>()
    };
    assert_eq!(names(&world), ["tank/any@Tuesday"]);
    world
        .with_context(|it| write::create_bookmark(it, "tank/any#Mark", "tank/any@TUESDAY"))
        .unwrap();
    let again =
        world.with_context(|it| write::create_bookmark(it, "tank/any#MARK", "tank/any@Tuesday"));
    assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
    assert_eq!(world.tree().find("tank/any#mark").unwrap().name(), "tank/any#Mark");
    world.with_context(|it| write::destroy_bookmark(it, "tank/any#mark")).unwrap();
    let value = PropertyValue::Text("kept".to_owned());
    let of_user = ("org.house:why", &value);
    world
        .with_context(|it| {
            write::set_property(
                it,
                "tank/any@TUESDAY",
                DatasetKind::Snapshot,
                of_user,
                write::SetSource::Local,
            )
        })
        .unwrap();
    world.with_context(|it| write::destroy_snapshot(it, "tank/any@tuesday", false)).unwrap();
    assert_eq!(names(&world), Vec::<String>::new());
    // elsewhere it does
    let root = world.tree().find("tank").unwrap().id().unwrap();
    world.txg += 1;
    let block = new_block(world.txg, world.txg, ObjectType::OBJSET);
    world.write_head(root, std::slice::from_ref(&block), &[], &block);
    world.with_context(|change| write::create_snapshots(change, &["tank@a"])).unwrap();
    world.txg += 1;
    world.with_context(|change| write::create_snapshots(change, &["tank@A"])).unwrap();
    assert!(world.tree().find("tank@A").is_ok() && world.tree().find("tank@a").is_ok());
}
