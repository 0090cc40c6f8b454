//! Pools of one name: only one of them is here at a time, and none is changed for being looked for.

use crate::command::path_arg;
use crate::test_nas::TestNas;

/// Makes a pool `tank` on the first drive and exports it, and makes another on the second; gives the
/// guid of the first.
fn create_name_conflict(nas: &TestNas) -> String {
    let drives = nas.drive_paths(2);
    let make = |drive| format!("zpool create -O canmount=off tank {}", path_arg(drive));
    nas.run_ok(&make(&drives[0]));
    let guid = nas.run_ok("zpool get -Ho value guid tank").trim().to_owned();
    nas.run_ok("zpool export tank");
    nas.run_ok(&make(&drives[1]));
    guid
}

#[test]
fn pool_with_a_used_name_is_not_imported() {
    let nas = TestNas::new("name-taken", 2);
    let guid = create_name_conflict(&nas);
    let first = &nas.drive_paths(1)[0];
    let before = std::fs::read(first).unwrap();
    let import = format!("zpool import -d {}", path_arg(first));
    for words in [format!("{import} {guid}"), format!("{import} -a"), format!("{import} tank")] {
        let why = nas.run_failing(&words, 1);
        assert!(why.contains("tank"), "{why}");
        assert!(std::fs::read(first).unwrap() == before, "{words} changed the drive");
    }
    nas.run_ok(&format!("{import} {guid} barrel"));
    assert_eq!(nas.run_ok("zpool list -Ho name"), "barrel\ntank\n");
}

#[test]
fn late_pool_does_not_replace_its_namesake() {
    let nas = TestNas::new("late-name", 2);
    let [first, second] = &nas.drive_paths(2)[..] else { panic!("two drives") };
    let away = nas.0.join("away.img");
    nas.create_pool("-O canmount=off tank", 1);
    nas.run_ok("zfs create -o canmount=off tank/old");
    nas.run_ok("serve --stop");
    std::fs::rename(first, &away).unwrap();
    let make = format!("zpool create -O canmount=off tank {}", path_arg(second));
    let why = nas.run_failing(&make, 1);
    assert!(why.contains("is unavailable"), "{why}");
    // under the same name comes one from elsewhere
    let other = TestNas::new("late-name-2", 0);
    other.run_ok(&make);
    other.run_ok("zfs create -o canmount=off tank/new");
    other.run_ok("zpool export tank");
    nas.run_ok(&format!("zpool import -d {} tank", path_arg(second)));
    std::fs::rename(&away, first).unwrap();
    nas.wait_until(|| nas.read_log().contains("called 'tank'"));
    for _ in 0..2 {
        assert_eq!(nas.run_ok("zfs list -rHo name"), "tank\ntank/new\n");
        let text = nas.run_ok("zpool status tank");
        assert!(text.contains("state: ONLINE") && text.contains("state: UNAVAIL"), "{text}");
        // the one that was here has the name, and not the one that waits
        nas.run_ok("serve --stop");
    }
    nas.run_ok("zpool export tank");
    nas.wait_until(|| nas.run("zfs list tank/old").status == 0);
}

#[test]
fn pool_names_follow_openzfs() {
    let nas = TestNas::new("pool-names", 1);
    let drive = path_arg(&nas.drive_paths(1)[0]).to_owned();
    let make = |name: &str| format!("zpool create -O canmount=off {name} {drive}");
    for name in ["log", "mirror1", "sparerib", &"n".repeat(240)] {
        nas.run_failing(&make(name), 1);
    }
    for name in ["logs", &"n".repeat(239)] {
        nas.run_ok(&make(name));
        nas.run_ok(&format!("zpool destroy {name}"));
    }
}
