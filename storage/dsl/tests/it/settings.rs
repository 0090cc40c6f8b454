//! Properties that are set, inherited and refused.

use dsl::property::parse;
use dsl::write::{self, By};
use dsl::{Error, Kind, Setting, Source};
use ondisk::ObjectType;
use ondisk::feature::Feature;
use units::ObjectId;
use zap::Zap;

use crate::world::{World, block};

const FILESYSTEM: Kind = Kind::Filesystem;

fn set(world: &World, name: &str, property: &str, text: &str) -> Result<(), Error> {
    let value = parse(property, FILESYSTEM, text)?;
    world.change(|change| write::set(change, name, FILESYSTEM, (property, &value), By::User))
}

fn seen(world: &World, name: &str, property: &str) -> (String, Source) {
    let found = world.tree().find(name).unwrap().property(property).unwrap().unwrap();
    (found.value, found.source)
}

#[test]
fn a_value_is_seen_where_it_is_set_and_below() {
    let (world, _) = World::full();
    world.change(|change| write::create(change, "tank/a")).unwrap();
    set(&world, "tank", "compression", "zstd-19").unwrap();
    set(&world, "tank", "org.house:note", "of the attic").unwrap();
    let from_tank = || Source::Inherited("tank".to_owned());
    assert_eq!(seen(&world, "tank", "compression"), ("zstd-19".to_owned(), Source::Local));
    assert_eq!(seen(&world, "tank/a", "compression"), ("zstd-19".to_owned(), from_tank()));
    assert_eq!(seen(&world, "tank/a", "org.house:note").0, "of the attic");
    set(&world, "tank/a", "compression", "off").unwrap();
    assert_eq!(seen(&world, "tank/a", "compression"), ("off".to_owned(), Source::Local));
    let dir = world.tree().find("tank/a").unwrap().dir().id();
    let effective =
        |name| world.change(|change| write::effective(change, dir, name)).unwrap().unwrap();
    assert_eq!(effective("compression"), Setting::Number(2));
    assert_eq!(effective("recordsize"), Setting::Number(131072));
    let change = |received| {
        let inherit = |change: &write::Change<'_>| {
            write::inherit(change, "tank/a", FILESYSTEM, "compression", received)
        };
        world.change(inherit).unwrap();
    };
    change(false);
    assert_eq!(seen(&world, "tank/a", "compression"), ("zstd-19".to_owned(), from_tank()));
    let table = world.tree().find("tank/a").unwrap().dir().phys().properties;
    let table = Zap::open(world.mos.object(table).unwrap()).unwrap();
    assert_eq!(table.entries().count(), 0);
}

#[test]
fn a_value_that_older_versions_lack_is_hidden_from_them() {
    let (world, _) = World::full();
    set(&world, "tank", "redundant_metadata", "some").unwrap();
    assert_eq!(seen(&world, "tank", "redundant_metadata").0, "some");
    let table = world.tree().find("tank").unwrap().dir().phys().properties;
    let number = |name: &str| {
        let table = Zap::open(world.mos.object(table).unwrap()).unwrap();
        table.lookup_u64(name.as_bytes()).unwrap()
    };
    assert_eq!(
        (number("redundant_metadata"), number("redundant_metadata$iuv")),
        (Some(0), Some(2))
    );
    set(&world, "tank", "redundant_metadata", "most").unwrap();
    assert_eq!((number("redundant_metadata"), number("redundant_metadata$iuv")), (Some(1), None));
}

#[test]
fn what_came_with_a_stream_counts_until_something_is_set() {
    let (world, _) = World::full();
    let receive = |property: &str, number| {
        let value = Setting::Number(number);
        let change = |change: &write::Change<'_>| {
            write::set(change, "tank", FILESYSTEM, (property, &value), By::Stream)
        };
        world.change(change).unwrap();
    };
    receive("atime", 0);
    assert_eq!(seen(&world, "tank", "atime"), ("off".to_owned(), Source::Received));
    set(&world, "tank", "atime", "on").unwrap();
    assert_eq!(seen(&world, "tank", "atime"), ("on".to_owned(), Source::Local));
    world.change(|change| write::inherit(change, "tank", FILESYSTEM, "atime", true)).unwrap();
    assert_eq!(seen(&world, "tank", "atime"), ("off".to_owned(), Source::Received));
}

#[test]
fn a_snapshot_has_its_own_users_properties() {
    let (mut world, skeleton) = World::full();
    world.txg += 1;
    let root = block(9, world.txg, ObjectType::OBJSET);
    world.write(skeleton.root, std::slice::from_ref(&root), &[], &root);
    world.change(|change| write::snapshot(change, &["tank@s"])).unwrap();
    let value = Setting::Text("before the move".to_owned());
    let kind = Kind::Snapshot;
    let property = ("org.house:why", &value);
    world.change(|it| write::set(it, "tank@s", kind, property, By::User)).unwrap();
    assert_eq!(seen(&world, "tank@s", "org.house:why").0, "before the move");
    world.change(|it| write::inherit(it, "tank@s", kind, "org.house:why", false)).unwrap();
    let record = world.tree().find("tank@s").unwrap().phys().unwrap().clone();
    assert_eq!(record.properties, ObjectId::META);
}

#[test]
fn what_cannot_be_is_refused() {
    let (world, _) = World::new(&[Feature::by_name("extensible_dataset").unwrap()]);
    let refused = [
        ("recordsize", "3000"),
        ("recordsize", "32M"),
        ("compression", "zip"),
        ("copies", "4"),
        ("used", "1"),
        ("encryption", "on"),
        ("volsize", "1G"),
        ("sharks", "many"),
        ("Org.house:note", "x"),
        ("quota", "much"),
        // features that the pool has not enabled
        ("compression", "zstd"),
        ("recordsize", "1M"),
        ("checksum", "blake3"),
    ];
    for (property, text) in refused {
        assert!(set(&world, "tank", property, text).is_err(), "{property}={text}");
    }
    set(&world, "tank", "recordsize", "16K").unwrap();
    set(&world, "tank", "quota", "none").unwrap();
    let too_much = parse("reservation", FILESYSTEM, "2T").unwrap();
    let reserve = |change: &write::Change<'_>| {
        write::set(change, "tank", FILESYSTEM, ("reservation", &too_much), By::User)
    };
    assert!(matches!(world.change(reserve), Err(Error::NoRoom { .. })));
}

#[test]
fn limits_begin_to_count() {
    let (mut world, skeleton) = World::full();
    world.write(skeleton.root, &[], &[], &block(9, 4, ObjectType::OBJSET));
    world.txg += 1;
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        world.change(|change| write::create(change, name)).unwrap();
    }
    let feature = Feature::by_name("filesystem_limits").unwrap();
    let is_used = || write::features::uses(&world.mos, feature).unwrap();
    // to have none takes no counting
    set(&world, "tank", "filesystem_limit", "none").unwrap();
    set(&world, "tank/a", "snapshot_limit", "none").unwrap();
    assert_eq!(is_used(), Some(0));
    set(&world, "tank", "filesystem_limit", "10").unwrap();
    assert_eq!(is_used(), Some(1));
    set(&world, "tank/a", "snapshot_limit", "none").unwrap();
    world.txg += 1;
    world.change(|change| write::snapshot(change, &["tank@s", "tank/a/b@s"])).unwrap();
    let counts = |name: &str| {
        let (filesystems, snapshots) =
            (seen(&world, name, "filesystem_count").0, seen(&world, name, "snapshot_count").0);
        (filesystems, snapshots)
    };
    assert_eq!(counts("tank"), ("3".to_owned(), "2".to_owned()));
    world.change(|change| write::rename(change, "tank/a/b", "tank/c/b")).unwrap();
    world.change(|change| write::rename_snapshot(change, "tank@s", "t", true)).unwrap();
    assert_eq!(counts("tank/a"), ("0".to_owned(), "0".to_owned()));
    assert_eq!(counts("tank/c"), ("1".to_owned(), "1".to_owned()));
    assert!(world.tree().find("tank@t").is_ok());
    world.change(|change| write::destroy_snapshot(change, "tank/c/b@t", false)).unwrap();
    world.change(|change| write::destroy(change, "tank/c/b")).unwrap();
    assert_eq!(counts("tank"), ("2".to_owned(), "1".to_owned()));
}

#[test]
fn a_value_that_older_versions_lack_does_not_outlive_its_setting() {
    let (world, _) = World::full();
    for received in [false, true] {
        set(&world, "tank", "redundant_metadata", "none").unwrap();
        let inherit = |change: &write::Change<'_>| {
            write::inherit(change, "tank", FILESYSTEM, "redundant_metadata", received)
        };
        world.change(inherit).unwrap();
        let seen = seen(&world, "tank", "redundant_metadata");
        assert_eq!(seen, ("all".to_owned(), Source::Default));
    }
}
