//! Pools that are rewound at their import.

use std::path::Path;

use crate::command::path_arg;
use crate::test_nas::{TestNas, cannot_mount, kill_daemon};

/// The last txg that is on the drives.
fn sync_txg(nas: &TestNas) -> u64 {
    nas.run_ok("zpool sync tank");
    let status: serde_json::Value =
        serde_json::from_str(&nas.run_ok("zpool status --json tank")).unwrap();
    status["pools"]["tank"]["txg"].as_str().unwrap().parse().unwrap()
}

fn import_pool(nas: &TestNas, words: &str) -> String {
    let (root, drives) = (nas.altroot(), nas.0.join("drives"));
    nas.run_ok(&format!(
        "zpool import -R {} -d {} {words} tank",
        path_arg(&root),
        path_arg(&drives)
    ))
}

fn read_letter(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("letter")).unwrap()
}

/// A pool whose host died after its letter was written twice; the txg of the first.
fn create_crashed_pool(name: &str) -> (TestNas, u64) {
    let nas = TestNas::new(name, 2);
    nas.create_pool("tank mirror", 2);
    nas.run_ok("zfs create tank/a");
    let dir = nas.altroot().join("tank/a");
    std::fs::write(dir.join("letter"), "dear grandma").unwrap();
    let then = sync_txg(&nas);
    std::fs::write(dir.join("letter"), "dear grandpa").unwrap();
    assert!(sync_txg(&nas) > then);
    kill_daemon(&nas.state_dir());
    std::fs::remove_file(nas.state_dir().join("pools.json")).unwrap();
    (nas, then)
}

#[test]
fn rewind_is_permanent() {
    if cannot_mount() {
        return;
    }
    let (nas, then) = create_crashed_pool("rewind");
    let dir = nas.altroot().join("tank/a");
    assert!(import_pool(&nas, "-Fn").contains("nothing would be discarded"));
    assert_eq!(nas.run_ok("zpool list -H"), "", "nothing is imported");
    let would = import_pool(&nas, &format!("-T {then} -o readonly=on"));
    assert!(would.contains(&format!("(txg {then})")), "{would}");
    assert_eq!(read_letter(&dir), "dear grandma");
    // a later import finds it under this name
    nas.run_ok("serve --stop");
    nas.run_ok("zpool status tank");
    assert_eq!(read_letter(&dir), "dear grandma");
    nas.run_ok("zpool export tank");

    assert_eq!(import_pool(&nas, "-F"), "", "nothing is wrong with it");
    assert_eq!(read_letter(&dir), "dear grandpa", "that was to be looked at only");
    kill_daemon(&nas.state_dir());
    std::fs::remove_file(nas.state_dir().join("pools.json")).unwrap();
    let said = import_pool(&nas, &format!("-T {then}"));
    assert!(said.contains("is rewound to its state at"), "{said}");
    assert!(said.contains("`zpool scrub tank`"), "{said}");
    assert_eq!(read_letter(&dir), "dear grandma");
    kill_daemon(&nas.state_dir());
    nas.run_ok("zpool status tank");
    assert_eq!(read_letter(&dir), "dear grandma");
    nas.run_ok("zpool scrub -w tank");
    assert!(nas.run_ok("zpool status tank").contains("errors: No known data errors"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let nas = TestNas::new("rewind-refused", 0);
    for words in ["-n tank", "-X tank", "-F -T 5 tank", "-T 5 --rewind-to-checkpoint tank", "-F"] {
        nas.run_failing(&format!("zpool import {words}"), 2);
    }
}
