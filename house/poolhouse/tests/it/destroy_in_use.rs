//! Recursive destructions of which a part is in use: the rest is destroyed.

use std::fs;

use crate::test_nas::{TestNas, cannot_mount};

fn datasets(nas: &TestNas) -> Vec<String> {
    let told = nas.run_ok("zfs list -H -o name -t all -r tank/a");
    told.lines().map(str::to_owned).collect()
}

#[test]
fn destroy_leaves_only_what_is_in_use() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("destroy-in-use", 1);
    nas.create_pool("tank", 1);
    for name in ["a", "a/used", "a/used/below", "a/b", "a/b/below"] {
        nas.run_ok(&format!("zfs create tank/{name}"));
    }
    nas.run_ok("zfs create -s -V 8M tank/a/disk");
    nas.run_ok("zfs snapshot -r tank/a@one");
    nas.run_ok("zfs clone tank/a/used@one tank/heir");
    let file = nas.altroot().join("tank/a/used/file");
    fs::write(&file, "text").unwrap();
    let open = fs::File::open(&file).unwrap();
    let why = nas.run_failing("zfs destroy -R tank/a", 1);
    assert!(why.contains("programs have files of 'tank/a/used' open"), "{why}");
    assert!(why.contains("cannot destroy 'tank/a': dataset is busy"), "{why}");
    assert_eq!(datasets(&nas), ["tank/a", "tank/a/used"]);
    nas.run_failing("zfs list tank/heir", 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    // a clone that is in use keeps its origin
    drop(open);
    nas.run_ok("zfs snapshot tank/a/used@two");
    nas.run_ok("zfs clone tank/a/used@two tank/heir");
    nas.run_ok("zfs create tank/a/other");
    let open = fs::File::open(nas.altroot().join("tank/heir/file")).unwrap();
    nas.run_failing("zfs destroy -R tank/a", 1);
    assert_eq!(datasets(&nas), ["tank/a", "tank/a/used", "tank/a/used@two"]);
    drop(open);
    nas.run_ok("zfs destroy -R tank/a");
    nas.run_failing("zfs list tank/heir", 1);
    nas.run_ok("zpool export tank");
}

#[test]
fn held_snapshot_keeps_its_file_system() {
    let nas = TestNas::new("destroy-held", 1);
    nas.create_pool("-O canmount=off tank", 1);
    for name in ["a", "a/held", "a/free"] {
        nas.run_ok(&format!("zfs create tank/{name}"));
    }
    nas.run_ok("zfs snapshot -r tank/a@one");
    nas.run_ok("zfs hold keep tank/a/held@one");
    let why = nas.run_failing("zfs destroy -r tank/a", 1);
    assert!(why.contains("tank/a/held"), "{why}");
    let left = datasets(&nas);
    assert!(left.contains(&"tank/a/held@one".to_owned()), "{left:?}");
    assert!(!left.iter().any(|name| name == "tank/a/free"), "{left:?}");
    nas.run_ok("zfs release keep tank/a/held@one");
    nas.run_ok("zfs destroy -r tank/a");
}
