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
fn a_name_until_the_pool_is_exported() {
    let nas = Nas::new("called", 1);
    nas.create("tank", 1);
    nas.good("zfs create tank/a");
    nas.good("zpool export tank");
    let drives = nas.0.join("drives");
    nas.refused(&format!("zpool import -t -d {} tank", arg(&drives)), 2);
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
