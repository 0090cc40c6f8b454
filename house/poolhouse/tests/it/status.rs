//! What `zpool status` shows if it is asked for more.

use crate::nas::Nas;
use crate::poolhouse::arg;

/// The words of the line of a drive.
fn of<'a>(shown: &'a str, drive: &str) -> Vec<&'a str> {
    let line = shown.lines().find(|line| line.contains(drive));
    line.unwrap_or_else(|| panic!("{drive}: {shown}")).split_whitespace().collect()
}

#[test]
fn what_went_over_the_drives_of_a_pool_of_openzfs() {
    let nas = Nas::new("swept", 0);
    let fixture = fixtures::load("swept");
    nas.good(&format!("zpool import -N -o readonly=on -d {} tank", arg(&fixture.dir)));
    let plain = nas.good("zpool status tank");
    assert!(!plain.contains("initialized") && !plain.contains("SLOW"), "{plain}");
    let shown = nas.good("zpool status -i tank");
    let state = |drive| of(&shown, drive)[5..8].join(" ");
    assert_eq!(state("d0.img"), "(100% initialized, completed");
    assert_eq!(state("d2.img"), "(0% initialized, suspended,");
    assert_eq!(of(&shown, "d1.img")[5..], ["(uninitialized)"]);
    let shown = nas.good("zpool status -st tank");
    assert_eq!(of(&shown, "NAME")[5..], ["SLOW"]);
    assert_eq!(of(&shown, "d1.img")[5..9].join(" "), "0 (100% trimmed, completed");
    assert_eq!(of(&shown, "d2.img")[5..], ["0", "(untrimmed)"]);
}

#[test]
fn what_deduplication_stores() {
    let nas = Nas::new("deduplicated", 0);
    let fixture = fixtures::load("dedup-legacy");
    nas.good(&format!("zpool import -N -o readonly=on -d {} tank", arg(&fixture.dir)));
    let shown = nas.good("zpool status -D tank");
    assert_eq!(of(&shown, "refcnt")[..5], ["refcnt", "blocks", "LSIZE", "PSIZE", "DSIZE"]);
    let status: serde_json::Value =
        serde_json::from_str(&nas.good("zpool status --json tank")).unwrap();
    let all = status[0]["dedup"].as_array().unwrap();
    let sum = |part: &str, at: usize| -> u64 {
        all.iter().map(|sums| sums[part][at].as_u64().unwrap()).sum()
    };
    let (blocks, references) = (sum("allocated", 0), sum("referenced", 0));
    assert!(blocks > 0 && references > blocks, "{shown}");
    let total = of(&shown, "Total");
    assert_eq!((total[1], total[5]), (&*blocks.to_string(), &*references.to_string()));
    // the same as the ratio that OpenZFS has in the manifest
    let ratio = sum("referenced", 3) * 100 / sum("allocated", 3);
    assert_eq!(status[0]["dedup_ratio"].as_u64(), Some(ratio));
    nas.good("zpool export tank");
    let none = fixtures::load("mirror-2");
    nas.good(&format!("zpool import -N -o readonly=on -d {} tank", arg(&none.dir)));
    assert!(nas.good("zpool status -D tank").contains("dedup: no DDT entries"));
}

#[test]
fn a_name_until_the_pool_is_exported() {
    let nas = Nas::new("called", 1);
    nas.create("tank", 1);
    nas.good("zfs create tank/a");
    nas.good("zpool export tank");
    let drives = nas.0.join("drives");
    // as OpenZFS has it, that is no other name
    nas.good(&format!("zpool import -N -t -d {} tank", arg(&drives)));
    assert_eq!(nas.good("zpool status -x tank"), "pool 'tank' is healthy\n");
    nas.good("zpool export tank");
    nas.good(&format!("zpool import -N -t -d {} tank guest", arg(&drives)));
    nas.good("zfs create -u guest/b");
    assert_eq!(nas.good("zfs list -Ho name"), "guest\nguest/a\nguest/b\n");
    // also for a daemon that comes after this one
    nas.good("serve --stop");
    assert_eq!(nas.good("zpool list -Ho name"), "guest\n");
    nas.good("zpool export guest");
    let listed = nas.good(&format!("zpool import -d {}", arg(&drives)));
    assert!(listed.contains("pool: tank"), "{listed}");
    nas.good(&format!("zpool import -N -d {} tank host", arg(&drives)));
    nas.good("zpool export host");
    let listed = nas.good(&format!("zpool import -d {}", arg(&drives)));
    assert!(listed.contains("pool: host"), "{listed}");
}
