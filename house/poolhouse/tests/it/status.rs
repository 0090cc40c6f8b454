//! The output of `zpool status` with further options.

use crate::command::path_arg;
use crate::test_nas::TestNas;

/// The words of the line of a drive.
fn drive_columns<'a>(shown: &'a str, drive: &str) -> Vec<&'a str> {
    let line = shown.lines().find(|line| line.contains(drive));
    line.unwrap_or_else(|| panic!("{drive}: {shown}")).split_whitespace().collect()
}

#[test]
fn scan_history_of_an_openzfs_pool_is_shown() {
    let nas = TestNas::new("swept", 0);
    let fixture = fixtures::load("swept");
    nas.run_ok(&format!("zpool import -N -o readonly=on -d {} tank", path_arg(&fixture.dir)));
    let plain = nas.run_ok("zpool status tank");
    assert!(!plain.contains("initialized") && !plain.contains("SLOW"), "{plain}");
    let shown = nas.run_ok("zpool status -i tank");
    let state = |drive| drive_columns(&shown, drive)[5..8].join(" ");
    assert_eq!(state("d0.img"), "(100% initialized, completed");
    assert_eq!(state("d2.img"), "(9% initialized, suspended,");
    assert_eq!(drive_columns(&shown, "d1.img")[5..], ["(uninitialized)"]);
    let shown = nas.run_ok("zpool status -st tank");
    assert_eq!(drive_columns(&shown, "NAME")[5..], ["SLOW"]);
    assert_eq!(drive_columns(&shown, "d1.img")[5..9].join(" "), "0 (100% trimmed, completed");
    assert_eq!(drive_columns(&shown, "d2.img")[5..], ["0", "(untrimmed)"]);
}

#[test]
fn what_deduplication_stores() {
    let nas = TestNas::new("deduplicated", 0);
    let fixture = fixtures::load("dedup-legacy");
    nas.run_ok(&format!("zpool import -N -o readonly=on -d {} tank", path_arg(&fixture.dir)));
    let shown = nas.run_ok("zpool status -D tank");
    assert_eq!(
        drive_columns(&shown, "refcnt")[..5],
        ["refcnt", "blocks", "LSIZE", "PSIZE", "DSIZE"]
    );
    let status: serde_json::Value =
        serde_json::from_str(&nas.run_ok("zpool status --json tank")).unwrap();
    let all = status["pools"]["tank"]["poolhouse"]["dedup"].as_array().unwrap();
    let sum = |part: &str, at: usize| -> u64 {
        all.iter().map(|sums| sums[part][at].as_u64().unwrap()).sum()
    };
    let (blocks, references) = (sum("allocated", 0), sum("referenced", 0));
    assert!(blocks > 0 && references > blocks, "{shown}");
    let total = drive_columns(&shown, "Total");
    assert_eq!((total[1], total[5]), (&*blocks.to_string(), &*references.to_string()));
    // the same as the ratio that OpenZFS has in the manifest
    let ratio = sum("referenced", 3) * 100 / sum("allocated", 3);
    assert_eq!(status["pools"]["tank"]["poolhouse"]["dedup_ratio_percent"].as_u64(), Some(ratio));
    nas.run_ok("zpool export tank");
    let none = fixtures::load("mirror-2");
    nas.run_ok(&format!("zpool import -N -o readonly=on -d {} tank", path_arg(&none.dir)));
    assert!(nas.run_ok("zpool status -D tank").contains("dedup: no DDT entries"));
}

#[test]
fn a_name_until_the_pool_is_exported() {
    let nas = TestNas::new("called", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create tank/a");
    nas.run_ok("zpool export tank");
    let drives = nas.0.join("drives");
    // in OpenZFS that is not another name
    nas.run_ok(&format!("zpool import -N -t -d {} tank", path_arg(&drives)));
    assert_eq!(nas.run_ok("zpool status -x tank"), "pool 'tank' is healthy\n");
    nas.run_ok("zpool export tank");
    nas.run_ok(&format!("zpool import -N -t -d {} tank guest", path_arg(&drives)));
    nas.run_ok("zfs create -u guest/b");
    assert_eq!(nas.run_ok("zfs list -Ho name"), "guest\nguest/a\nguest/b\n");
    // also for a daemon that comes after this one
    nas.run_ok("serve --stop");
    assert_eq!(nas.run_ok("zpool list -Ho name"), "guest\n");
    nas.run_ok("zpool export guest");
    let listed = nas.run_ok(&format!("zpool import -d {}", path_arg(&drives)));
    assert!(listed.contains("pool: tank"), "{listed}");
    nas.run_ok(&format!("zpool import -N -d {} tank host", path_arg(&drives)));
    nas.run_ok("zpool export host");
    let listed = nas.run_ok(&format!("zpool import -d {}", path_arg(&drives)));
    assert!(listed.contains("pool: host"), "{listed}");
}
