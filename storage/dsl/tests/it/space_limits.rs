//! The space available to a head.

use dsl::write::{self, SetSource, SpaceLimit};
use dsl::{DatasetKind, PropertyValue};
use ondisk::ObjectType;

use crate::test_pool::{TestPool, USABLE_SPACE, new_block};

#[test]
fn quotas_and_reservations_limit_available_space() {
    let (mut world, skeleton) = TestPool::with_all_features();
    let (first, second) =
        (new_block(3, 4, ObjectType::OBJSET), new_block(10, 5, ObjectType::OBJSET));
    world.write_head(skeleton.root_objset, std::slice::from_ref(&first), &[], &first);
    world.txg += 1;
    let id = world.with_context(|change| write::create_dataset(change, "tank/a")).unwrap();
    world.write_head(id, std::slice::from_ref(&second), &[], &second);
    // 3: one copy of four sectors; 10: two copies of four and another
    let (root, own) = (2048, 5120);
    let room = || world.with_context(|change| write::space_limit(change, id)).unwrap();
    let set = |name: &str, property: &str, number| {
        let value = PropertyValue::Number(number);
        let set = (property, &value);
        world
            .with_context(|it| {
                write::set_property(it, name, DatasetKind::Filesystem, set, SetSource::Local)
            })
            .unwrap();
    };
    let pool = USABLE_SPACE - root - own;
    assert_eq!(room(), SpaceLimit { bytes: pool, is_quota: false });
    set("tank", "quota", 100_000);
    assert_eq!(room(), SpaceLimit { bytes: 100_000 - root - own, is_quota: true });
    set("tank/a", "refquota", 50_000);
    assert_eq!(room(), SpaceLimit { bytes: 50_000 - own, is_quota: true });
    set("tank/a", "refquota", 0);
    set("tank/a", "refreservation", 30_000);
    // its own reservation is available to it
    assert_eq!(room(), SpaceLimit { bytes: 100_000 - root - own, is_quota: true });
    let other = world.with_context(|change| write::create_dataset(change, "tank/b")).unwrap();
    let room = |id| world.with_context(|change| write::space_limit(change, id)).unwrap();
    assert_eq!(room(other), SpaceLimit { bytes: 100_000 - root - 30_000, is_quota: true });
    set("tank/b", "reservation", 60_000);
    assert_eq!(room(id), SpaceLimit { bytes: 100_000 - root - 60_000 - own, is_quota: true });
}

/// All orders of a few things.
fn permutations<T: Clone>(things: &[T]) -> Vec<Vec<T>> {
    let Some((first, rest)) = things.split_first() else { return vec![Vec::new()] };
    let mut all = Vec::new();
    for shorter in permutations(rest) {
        for at in 0..=shorter.len() {
            let mut longer = shorter.clone();
            longer.insert(at, first.clone());
            all.push(longer);
        }
    }
    all
}

#[test]
fn limits_are_set_together_in_any_order() {
    let (world, _) = TestPool::with_all_features();
    world.with_context(|change| write::create_dataset(change, "tank/a")).unwrap();
    let sizes = |factor: u64| {
        [("quota", 4), ("refquota", 3), ("reservation", 4), ("refreservation", 3)]
            .map(|(name, size)| (name.to_owned(), PropertyValue::Number(size * factor)))
    };
    let set = |settings: &[(String, PropertyValue)]| {
        let kind = DatasetKind::Filesystem;
        world.with_context(|change| write::set_properties(change, "tank/a", kind, settings))
    };
    let value =
        |name: &str| world.tree().find("tank/a").unwrap().property(name).unwrap().unwrap().value;
    // larger and smaller limits in turn, from none on
    for (round, settings) in permutations(&sizes(1)).into_iter().enumerate() {
        let factor = if round % 2 == 0 { 100_000 } else { 20_000 };
        let scaled: Vec<_> = settings
            .into_iter()
            .map(|(name, _)| sizes(factor).into_iter().find(|(other, _)| *other == name).unwrap())
            .collect();
        set(&scaled).unwrap_or_else(|why| panic!("{scaled:?}: {why}"));
        assert_eq!(value("quota"), (4 * factor).to_string());
        assert_eq!(value("refreservation"), (3 * factor).to_string());
    }
    // what is not valid together changes nothing
    for settings in
        permutations(&[("quota".to_owned(), 10_000), ("reservation".to_owned(), 10_001)])
    {
        let settings: Vec<_> =
            settings.into_iter().map(|(name, size)| (name, PropertyValue::Number(size))).collect();
        let _: dsl::Error = set(&settings).unwrap_err();
        assert_eq!(
            (value("quota"), value("reservation")),
            ("80000".to_owned(), "80000".to_owned())
        );
    }
}
