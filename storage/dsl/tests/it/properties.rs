//! Properties that are set, inherited and refused.

use dsl::property::parse_value;
use dsl::write::{self, SetSource};
use dsl::{DatasetKind, Error, PropertySource, PropertyValue};
use ondisk::ObjectType;
use ondisk::feature::Feature;
use units::ObjectId;
use zap::Zap;

use crate::test_pool::{TestPool, new_block};

const FILESYSTEM: DatasetKind = DatasetKind::Filesystem;

fn set_property(world: &TestPool, name: &str, property: &str, text: &str) -> Result<(), Error> {
    let value = parse_value(property, FILESYSTEM, text)?;
    world.with_context(|change| {
        write::set_property(change, name, FILESYSTEM, (property, &value), SetSource::Local)
    })
}

fn property_value(world: &TestPool, name: &str, property: &str) -> (String, PropertySource) {
    let found = world.tree().find(name).unwrap().property(property).unwrap().unwrap();
    (found.value, found.source)
}

#[test]
fn values_are_inherited_by_descendants() {
    let (world, _) = TestPool::with_all_features();
    world.with_context(|change| write::create_dataset(change, "tank/a")).unwrap();
    set_property(&world, "tank", "compression", "zstd-19").unwrap();
    set_property(&world, "tank", "org.house:note", "of the attic").unwrap();
    let from_tank = || PropertySource::Inherited("tank".to_owned());
    assert_eq!(
        property_value(&world, "tank", "compression"),
        ("zstd-19".to_owned(), PropertySource::Local)
    );
    assert_eq!(
        property_value(&world, "tank/a", "compression"),
        ("zstd-19".to_owned(), from_tank())
    );
    assert_eq!(property_value(&world, "tank/a", "org.house:note").0, "of the attic");
    set_property(&world, "tank/a", "compression", "off").unwrap();
    assert_eq!(
        property_value(&world, "tank/a", "compression"),
        ("off".to_owned(), PropertySource::Local)
    );
    let dir = world.tree().find("tank/a").unwrap().dir().id();
    let effective = |name| {
        world.with_context(|change| write::effective_value(change, dir, name)).unwrap().unwrap()
    };
    assert_eq!(effective("compression"), PropertyValue::Number(2));
    assert_eq!(effective("recordsize"), PropertyValue::Number(131072));
    let change = |received| {
        let inherit = |change: &write::SyncTaskContext<'_>| {
            write::inherit_property(change, "tank/a", FILESYSTEM, "compression", received)
        };
        world.with_context(inherit).unwrap();
    };
    change(false);
    assert_eq!(
        property_value(&world, "tank/a", "compression"),
        ("zstd-19".to_owned(), from_tank())
    );
    let table = world.tree().find("tank/a").unwrap().dir().phys().properties;
    let table = Zap::open(world.mos.object(table).unwrap()).unwrap();
    assert_eq!(table.entries().count(), 0);
}

#[test]
fn new_style_values_are_hidden_from_older_versions() {
    let (world, _) = TestPool::with_all_features();
    set_property(&world, "tank", "redundant_metadata", "some").unwrap();
    assert_eq!(property_value(&world, "tank", "redundant_metadata").0, "some");
    let table = world.tree().find("tank").unwrap().dir().phys().properties;
    let number = |name: &str| {
        let table = Zap::open(world.mos.object(table).unwrap()).unwrap();
        table.lookup_u64(name.as_bytes()).unwrap()
    };
    assert_eq!(
        (number("redundant_metadata"), number("redundant_metadata$iuv")),
        (Some(0), Some(2))
    );
    set_property(&world, "tank", "redundant_metadata", "most").unwrap();
    assert_eq!((number("redundant_metadata"), number("redundant_metadata$iuv")), (Some(1), None));
}

#[test]
fn received_value_counts_until_a_local_one() {
    let (world, _) = TestPool::with_all_features();
    let receive = |property: &str, number| {
        let value = PropertyValue::Number(number);
        let change = |change: &write::SyncTaskContext<'_>| {
            write::set_property(change, "tank", FILESYSTEM, (property, &value), SetSource::Received)
        };
        world.with_context(change).unwrap();
    };
    receive("atime", 0);
    assert_eq!(
        property_value(&world, "tank", "atime"),
        ("off".to_owned(), PropertySource::Received)
    );
    set_property(&world, "tank", "atime", "on").unwrap();
    assert_eq!(property_value(&world, "tank", "atime"), ("on".to_owned(), PropertySource::Local));
    world
        .with_context(|change| write::inherit_property(change, "tank", FILESYSTEM, "atime", true))
        .unwrap();
    assert_eq!(
        property_value(&world, "tank", "atime"),
        ("off".to_owned(), PropertySource::Received)
    );
}

#[test]
fn a_snapshot_has_its_own_users_properties() {
    let (mut world, skeleton) = TestPool::with_all_features();
    world.txg += 1;
    let root = new_block(9, world.txg, ObjectType::OBJSET);
    world.write_head(skeleton.root_objset, std::slice::from_ref(&root), &[], &root);
    world.with_context(|change| write::create_snapshots(change, &["tank@s"])).unwrap();
    let value = PropertyValue::Text("before the move".to_owned());
    let kind = DatasetKind::Snapshot;
    let property = ("org.house:why", &value);
    world
        .with_context(|it| write::set_property(it, "tank@s", kind, property, SetSource::Local))
        .unwrap();
    assert_eq!(property_value(&world, "tank@s", "org.house:why").0, "before the move");
    world
        .with_context(|it| write::inherit_property(it, "tank@s", kind, "org.house:why", false))
        .unwrap();
    let record = world.tree().find("tank@s").unwrap().phys().unwrap().clone();
    assert_eq!(record.properties, ObjectId::META);
}

#[test]
fn what_cannot_be_is_refused() {
    let (world, _) = TestPool::new(&[Feature::by_name("extensible_dataset").unwrap()]);
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
        assert!(set_property(&world, "tank", property, text).is_err(), "{property}={text}");
    }
    set_property(&world, "tank", "recordsize", "16K").unwrap();
    set_property(&world, "tank", "quota", "none").unwrap();
    let too_much = parse_value("reservation", FILESYSTEM, "2T").unwrap();
    let reserve = |change: &write::SyncTaskContext<'_>| {
        write::set_property(
            change,
            "tank",
            FILESYSTEM,
            ("reservation", &too_much),
            SetSource::Local,
        )
    };
    assert!(matches!(world.with_context(reserve), Err(Error::ReservationTooLarge { .. })));
}

#[test]
fn limits_begin_to_count() {
    let (mut world, skeleton) = TestPool::with_all_features();
    world.write_head(skeleton.root_objset, &[], &[], &new_block(9, 4, ObjectType::OBJSET));
    world.txg += 1;
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        world.with_context(|change| write::create_dataset(change, name)).unwrap();
    }
    let feature = Feature::by_name("filesystem_limits").unwrap();
    let is_used = || write::features::refcount(&world.mos, feature).unwrap();
    // to have none takes no counting
    set_property(&world, "tank", "filesystem_limit", "none").unwrap();
    set_property(&world, "tank/a", "snapshot_limit", "none").unwrap();
    assert_eq!(is_used(), Some(0));
    set_property(&world, "tank", "filesystem_limit", "10").unwrap();
    assert_eq!(is_used(), Some(1));
    set_property(&world, "tank/a", "snapshot_limit", "none").unwrap();
    world.txg += 1;
    world
        .with_context(|change| write::create_snapshots(change, &["tank@s", "tank/a/b@s"]))
        .unwrap();
    let counts = |name: &str| {
        let (filesystems, snapshots) = (
            property_value(&world, name, "filesystem_count").0,
            property_value(&world, name, "snapshot_count").0,
        );
        (filesystems, snapshots)
    };
    assert_eq!(counts("tank"), ("3".to_owned(), "2".to_owned()));
    world.with_context(|change| write::rename(change, "tank/a/b", "tank/c/b")).unwrap();
    world.with_context(|change| write::rename_snapshot(change, "tank@s", "t", true)).unwrap();
    assert_eq!(counts("tank/a"), ("0".to_owned(), "0".to_owned()));
    assert_eq!(counts("tank/c"), ("1".to_owned(), "1".to_owned()));
    assert!(world.tree().find("tank@t").is_ok());
    world.with_context(|change| write::destroy_snapshot(change, "tank/c/b@t", false)).unwrap();
    world.with_context(|change| write::destroy(change, "tank/c/b")).unwrap();
    assert_eq!(counts("tank"), ("2".to_owned(), "1".to_owned()));
}

#[test]
fn new_style_value_is_removed_with_its_setting() {
    let (world, _) = TestPool::with_all_features();
    for received in [false, true] {
        set_property(&world, "tank", "redundant_metadata", "none").unwrap();
        let inherit = |change: &write::SyncTaskContext<'_>| {
            write::inherit_property(change, "tank", FILESYSTEM, "redundant_metadata", received)
        };
        world.with_context(inherit).unwrap();
        let seen = property_value(&world, "tank", "redundant_metadata");
        assert_eq!(seen, ("all".to_owned(), PropertySource::Default));
    }
}
