//! Pools of one name: only one of them is here at a time, and none is changed for being looked for.

use crate::nas::Nas;
use crate::poolhouse::arg;

/// Makes a pool `tank` on the first drive and exports it, and makes another on the second; gives the
/// guid of the first.
fn two_of_one_name(nas: &Nas) -> String {
    let drives = nas.drives(2);
    let make = |drive| format!("zpool create -O canmount=off tank {}", arg(drive));
    nas.good(&make(&drives[0]));
    let guid = nas.good("zpool get -Ho value guid tank").trim().to_owned();
    nas.good("zpool export tank");
    nas.good(&make(&drives[1]));
    guid
}

#[test]
fn a_pool_whose_name_is_taken_is_left_as_it_is() {
    let nas = Nas::new("name-taken", 2);
    let guid = two_of_one_name(&nas);
    let first = &nas.drives(1)[0];
    let before = std::fs::read(first).unwrap();
    let import = format!("zpool import -d {}", arg(first));
    for words in [format!("{import} {guid}"), format!("{import} -a"), format!("{import} tank")] {
        let why = nas.refused(&words, 1);
        assert!(why.contains("tank"), "{why}");
        assert!(std::fs::read(first).unwrap() == before, "{words} changed the drive");
    }
    nas.good(&format!("{import} {guid} barrel"));
    assert_eq!(nas.good("zpool list -Ho name"), "barrel\ntank\n");
}

#[test]
fn a_pool_that_comes_late_does_not_take_the_place_of_another_of_its_name() {
    let nas = Nas::new("late-name", 2);
    let [first, second] = &nas.drives(2)[..] else { panic!("two drives") };
    let away = nas.0.join("away.img");
    nas.create("-O canmount=off tank", 1);
    nas.good("zfs create -o canmount=off tank/old");
    nas.good("serve --stop");
    std::fs::rename(first, &away).unwrap();
    let make = format!("zpool create -O canmount=off tank {}", arg(second));
    let why = nas.refused(&make, 1);
    assert!(why.contains("waited for"), "{why}");
    // under the same name comes one from elsewhere
    let other = Nas::new("late-name-2", 0);
    other.good(&make);
    other.good("zfs create -o canmount=off tank/new");
    other.good("zpool export tank");
    nas.good(&format!("zpool import -d {} tank", arg(second)));
    std::fs::rename(&away, first).unwrap();
    nas.until(|| nas.log().contains("called 'tank'"));
    for _ in 0..2 {
        assert_eq!(nas.good("zfs list -rHo name"), "tank\ntank/new\n");
        let text = nas.good("zpool status tank");
        assert!(text.contains("state: ONLINE") && text.contains("state: UNAVAIL"), "{text}");
        // the one that was here has the name, and not the one that waits
        nas.good("serve --stop");
    }
    nas.good("zpool export tank");
    nas.until(|| nas.run("zfs list tank/old").status == 0);
}

#[test]
fn names_are_those_that_openzfs_allows() {
    let nas = Nas::new("pool-names", 1);
    let drive = arg(&nas.drives(1)[0]).to_owned();
    let make = |name: &str| format!("zpool create -O canmount=off {name} {drive}");
    for name in ["log", "mirror1", "sparerib", &"n".repeat(240)] {
        nas.refused(&make(name), 2);
    }
    for name in ["logs", &"n".repeat(239)] {
        nas.good(&make(name));
        nas.good(&format!("zpool destroy {name}"));
    }
}
