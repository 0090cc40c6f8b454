//! Snapshots and bookmarks of file systems whose names are compared without case.

use dsl::write;
use dsl::{Error, Kind, Setting};
use ondisk::ObjectType;

use crate::world::{World, block};

/// As in OpenZFS: of two names that differ in case only, it would destroy either.
#[test]
fn of_snapshots_of_what_is_caseless_case_tells_nothing_either() {
    let (mut world, _) = World::full();
    let head = world.change(|change| {
        let head = write::create(change, "tank/any").unwrap();
        write::make_caseless(change, head).unwrap();
        head
    });
    let write = |world: &mut World| {
        world.txg += 1;
        let root = block(world.txg, world.txg, ObjectType::OBJSET);
        world.write(head, std::slice::from_ref(&root), &[], &root);
    };
    write(&mut world);
    world.change(|change| write::snapshot(change, &["tank/any@Monday"])).unwrap();
    write(&mut world);
    let again = world.change(|change| write::snapshot(change, &["tank/any@MONDAY"]));
    assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
    assert_eq!(world.tree().find("tank/any@monday").unwrap().name(), "tank/any@Monday");
    world.change(|change| write::hold(change, "tank/any@monday", "mine")).unwrap();
    world.change(|change| write::release_hold(change, "tank/any@MONday", "mine")).unwrap();
    world.change(|it| write::rename_snapshot(it, "tank/any@monday", "Tuesday", false)).unwrap();
    let names = |world: &World| {
        let head = world.tree().find("tank/any").unwrap();
        let all = [head.snapshots().unwrap(), head.bookmarks().unwrap()].concat();
        all.iter().map(dsl::Dataset::name).collect::<Vec<_>>()
    };
    assert_eq!(names(&world), ["tank/any@Tuesday"]);
    world.change(|it| write::bookmark(it, "tank/any#Mark", "tank/any@TUESDAY")).unwrap();
    let again = world.change(|it| write::bookmark(it, "tank/any#MARK", "tank/any@Tuesday"));
    assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
    assert_eq!(world.tree().find("tank/any#mark").unwrap().name(), "tank/any#Mark");
    world.change(|it| write::destroy_bookmark(it, "tank/any#mark")).unwrap();
    let value = Setting::Text("kept".to_owned());
    let of_user = ("org.house:why", &value);
    world
        .change(|it| write::set(it, "tank/any@TUESDAY", Kind::Snapshot, of_user, write::By::User))
        .unwrap();
    world.change(|it| write::destroy_snapshot(it, "tank/any@tuesday", false)).unwrap();
    assert_eq!(names(&world), Vec::<String>::new());
    // elsewhere it does
    let root = world.tree().find("tank").unwrap().id().unwrap();
    world.txg += 1;
    let block = block(world.txg, world.txg, ObjectType::OBJSET);
    world.write(root, std::slice::from_ref(&block), &[], &block);
    world.change(|change| write::snapshot(change, &["tank@a"])).unwrap();
    world.txg += 1;
    world.change(|change| write::snapshot(change, &["tank@A"])).unwrap();
    assert!(world.tree().find("tank@A").is_ok() && world.tree().find("tank@a").is_ok());
}
