//! Pools that are taken back when they are imported.

use std::path::Path;

use crate::nas::{Nas, cannot_mount, kill};
use crate::poolhouse::arg;

/// The last txg that is on the drives.
fn synced(nas: &Nas) -> u64 {
    nas.good("zpool sync tank");
    let status: serde_json::Value =
        serde_json::from_str(&nas.good("zpool status --json tank")).unwrap();
    status[0]["txg"].as_u64().unwrap()
}

fn import(nas: &Nas, words: &str) -> String {
    let (root, drives) = (nas.root(), nas.0.join("drives"));
    nas.good(&format!("zpool import -R {} -d {} {words} tank", arg(&root), arg(&drives)))
}

fn letter(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("letter")).unwrap()
}

/// A pool whose host died after its letter was written twice; the txg of the first.
fn killed(name: &str) -> (Nas, u64) {
    let nas = Nas::new(name, 2);
    nas.create("tank mirror", 2);
    nas.good("zfs create tank/a");
    let dir = nas.root().join("tank/a");
    std::fs::write(dir.join("letter"), "dear grandma").unwrap();
    let then = synced(&nas);
    std::fs::write(dir.join("letter"), "dear grandpa").unwrap();
    assert!(synced(&nas) > then);
    kill(&nas.state());
    std::fs::remove_file(nas.state().join("pools.json")).unwrap();
    (nas, then)
}

#[test]
fn a_pool_is_taken_back_for_good() {
    if cannot_mount() {
        return;
    }
    let (nas, then) = killed("rewind");
    let dir = nas.root().join("tank/a");
    assert!(import(&nas, "-Fn").contains("nothing would be given up"));
    assert_eq!(nas.good("zpool list -H"), "", "nothing is taken over");
    let would = import(&nas, &format!("-T {then} -o readonly=on"));
    assert!(would.contains(&format!("(txg {then})")), "{would}");
    assert_eq!(letter(&dir), "dear grandma");
    // as which it comes back when somebody asks for it
    nas.good("serve --stop");
    nas.good("zpool status tank");
    assert_eq!(letter(&dir), "dear grandma");
    nas.good("zpool export tank");

    assert_eq!(import(&nas, "-F"), "", "nothing is wrong with it");
    assert_eq!(letter(&dir), "dear grandpa", "that was to be looked at only");
    kill(&nas.state());
    std::fs::remove_file(nas.state().join("pools.json")).unwrap();
    let said = import(&nas, &format!("-T {then}"));
    assert!(said.contains("is taken back to how it was at"), "{said}");
    assert!(said.contains("`zpool scrub tank`"), "{said}");
    assert_eq!(letter(&dir), "dear grandma");
    kill(&nas.state());
    nas.good("zpool status tank");
    assert_eq!(letter(&dir), "dear grandma");
    nas.good("zpool scrub -w tank");
    assert!(nas.good("zpool status tank").contains("errors: No known data errors"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let nas = Nas::new("rewind-refused", 0);
    for words in ["-n tank", "-X tank", "-F -T 5 tank", "-T 5 --rewind-to-checkpoint tank", "-F"] {
        nas.refused(&format!("zpool import {words}"), 2);
    }
}
