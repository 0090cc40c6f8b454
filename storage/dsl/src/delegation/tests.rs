//! Tests of the permissions that users have by delegations.

use ondisk::dsl::DelegationKey;

use super::{DelegationTarget, DelegationUser, Delegations, is_permitted};

fn level(entries: &[(&str, &[&str])]) -> Delegations {
    let entry = |(key, names): &(&str, &[&str])| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        (DelegationKey::parse(key).unwrap(), names)
    };
    Delegations { dataset: String::new(), entries: entries.iter().map(entry).collect() }
}

fn has(levels: &[Delegations], target: DelegationTarget, permission: &str) -> bool {
    let user = DelegationUser { uid: 1000, groups: vec![100, 27] };
    is_permitted(levels, target, &user, permission)
}

#[test]
fn local_and_descendent_permissions_differ() {
    use DelegationTarget::{Dataset, NewDataset, Snapshot};
    let levels = [level(&[("ul$1000", &["mount"]), ("ud$1000", &["snapshot"])])];
    assert!(has(&levels, Dataset, "mount") && !has(&levels, Snapshot, "mount"));
    assert!(!has(&levels, Dataset, "snapshot") && has(&levels, Snapshot, "snapshot"));
    assert!(has(&levels, NewDataset, "snapshot") && !has(&levels, NewDataset, "mount"));
    // of a dataset above, only the downward delegations count
    let levels = [level(&[]), levels[0].clone()];
    assert!(has(&levels, Dataset, "snapshot") && !has(&levels, Dataset, "mount"));
}

#[test]
fn groups_and_everyone_count_and_others_do_not() {
    let target = DelegationTarget::Dataset;
    let levels = [level(&[
        ("gl$27", &["clone"]),
        ("el$", &["hold"]),
        ("ul$1001", &["send"]),
        ("gl$1000", &["destroy"]),
        ("c-$", &["create"]),
    ])];
    assert!(has(&levels, target, "clone") && has(&levels, target, "hold"));
    assert!(["send", "destroy", "create"].iter().all(|name| !has(&levels, target, name)));
    assert!(has(&levels, DelegationTarget::NewDataset, "create"));
}

#[test]
fn sets_name_sets_and_are_defined_above() {
    let target = DelegationTarget::Dataset;
    let user = level(&[("Ul$1000", &["@outer"])]);
    let outer = level(&[("S-$@outer", &["@inner"]), ("s-$@other", &["destroy"])]);
    let inner = level(&[("s-$@inner", &["rollback"])]);
    let levels = [user.clone(), outer.clone(), inner.clone()];
    assert!(has(&levels, target, "rollback") && !has(&levels, target, "destroy"));
    // a set that is defined below its use grants nothing
    assert!(!has(&[inner, outer, user], target, "rollback"));
}

#[test]
fn sets_that_name_each_other_end() {
    let both = level(&[("Ul$1000", &["@a"]), ("S-$@a", &["@b"]), ("S-$@b", &["@a"])]);
    assert!(!has(&[both], DelegationTarget::Dataset, "mount"));
}
