//! A daemon's pools: made, filled with datasets, found again after it ended and after it was killed,
//! and given up.

use std::fs::File;

use serde_json::Value;

use crate::nas::{Nas, kill};
use crate::poolhouse::{arg, run, run_in};

#[test]
fn a_pool_outlasts_its_daemon() {
    let nas = Nas::new("outlasts", 6);
    nas.create("-o ashift=12 -O compression=zstd -O canmount=off tank raidz2", 6);
    assert!(nas.good("zpool status tank").contains("raidz2-0"));
    nas.good("zfs create -p -o recordsize=1M tank/media/films");
    nas.good("zfs set org.example:owner=grandma atime=off tank/media");
    nas.good("zfs snapshot -r tank@one");
    nas.good("zfs clone tank/media@one tank/heir");
    assert_eq!(
        nas.good("zfs list -H -o name -t all"),
        "tank\ntank@one\ntank/heir\ntank/media\ntank/media@one\ntank/media/films\n\
         tank/media/films@one\n"
    );
    nas.good("serve --stop");
    assert!(!nas.state().join("socket").exists());

    let got =
        nas.good("zfs get -Hp -o name,value,source org.example:owner,recordsize tank/media/films");
    assert_eq!(
        got,
        "tank/media/films\tgrandma\tinherited from tank/media\n\
                     tank/media/films\t1048576\tlocal\n"
    );
    assert_eq!(nas.good("zfs list -Ho name -t snapshot tank/media"), "tank/media@one\n");

    kill(&nas.state());
    nas.good("zfs promote tank/heir");
    assert_eq!(nas.good("zfs get -Ho value origin tank/media"), "tank/heir@one\n");
    nas.good("zfs inherit -r atime tank");
    assert_eq!(nas.good("zfs get -Ho value,source atime tank/media"), "on\tdefault\n");
    assert!(nas.refused("zfs destroy tank/heir", 1).contains("use -r"));
    assert!(nas.good("zfs destroy -Rnv tank/heir").contains("would destroy tank/media\n"));
    nas.good("zfs rename tank/media/films tank/films");
    nas.good("zfs destroy -R tank/heir");
    assert_eq!(nas.good("zfs list -Ho name"), "tank\ntank/films\n");
    nas.good("zpool destroy tank");
    assert_eq!(nas.good("zpool list"), "no pools available\n");
}

#[test]
fn a_pool_moves_from_one_daemon_to_another() {
    let (here, there) = (Nas::new("here", 3), Nas::new("there", 0));
    here.create("tank mirror", 3);
    here.good("zfs create tank/a");
    let drives = here.0.join("drives");
    let root = there.root();
    let import = format!("zpool import -d {} -R {} tank", arg(&drives), arg(&root));
    assert_eq!(there.run(&import).status, 1, "two daemons never have one pool");
    here.good("zpool export tank");
    let found = there.good(&format!("zpool import -d {}", arg(&drives)));
    assert!(found.contains("pool: tank") && found.contains("mirror-0"), "{found}");
    there.good(&import);
    assert_eq!(there.good("zfs list -Ho name"), "tank\ntank/a\n");
    assert_eq!(here.good("zpool list -Ho name"), "");
}

#[test]
fn one_pool_that_cannot_be_taken_over_keeps_no_other_from_it() {
    let nas = Nas::new("all", 4);
    let drives = nas.drives(4);
    let [first, half, away, last] = &drives[..] else { panic!("four drives") };
    for (name, vdevs) in [("a", vec![first]), ("b", vec![half, away]), ("c", vec![last])] {
        let vdevs: Vec<_> = vdevs.into_iter().map(|path| arg(path)).collect();
        nas.good(&format!("zpool create -R {} {name} {}", arg(&nas.root()), vdevs.join(" ")));
        nas.good(&format!("zpool export {name}"));
    }
    std::fs::remove_file(away).unwrap();
    let place = arg(&nas.0.join("drives")).to_owned();
    let why = nas.refused(&format!("zpool import -a -R {} -d {place}", arg(&nas.root())), 1);
    assert!(why.contains("'b' is not imported") && why.contains("is missing"), "{why}");
    assert_eq!(nas.good("zpool list -Ho name"), "a\nc\n");
    assert_eq!(nas.good("zfs list -Ho name,mounted"), "a\tyes\nc\tyes\n");
}

#[test]
fn pools_have_properties_and_come_back_under_other_names() {
    let nas = Nas::new("named", 2);
    nas.create("-o failmode=continue -o comment=cellar -o feature@draid=disabled tank mirror", 2);
    assert_eq!(
        nas.good(
            "zpool get -Ho property,value,source failmode,comment,autotrim,feature@draid tank"
        ),
        "failmode\tcontinue\tlocal\ncomment\tcellar\tlocal\nautotrim\toff\tdefault\n\
         feature@draid\tdisabled\tlocal\n"
    );
    nas.good("zpool set autotrim=on tank");
    assert_eq!(nas.good("zpool get -Ho value autotrim tank"), "on\n");
    assert!(nas.refused("zpool set colour=red tank", 2).contains("no such property"));
    let figures = "zpool get -Hp -o value capacity,dedupratio,fragmentation,expandsize tank";
    let told = nas.good(figures);
    let told: Vec<&str> = told.lines().collect();
    let broken = format!("{}%", told[2]);
    assert_eq!((told[0], told[1], told[3]), ("0", "1.00", "-"));
    // few metaslabs are in use, and those have long ranges
    assert!(told[2].parse::<u64>().is_ok_and(|figure| (1..20).contains(&figure)), "{broken}");
    let listed = nas.good("zpool list -v tank");
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
        "NAME SIZE ALLOC FREE CKPOINT EXPANDSZ FRAG CAP DEDUP HEALTH ALTROOT"
    );
    let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
    assert_eq!(&words(1)[6..9], &[broken.as_str(), "0%", "1.00x"], "{listed}");
    assert_eq!(
        (words(2)[0], words(2)[6], words(2)[9]),
        ("mirror-0", broken.as_str(), "ONLINE"),
        "{listed}"
    );
    assert_eq!((words(3)[1], words(3)[2], words(3)[7]), ("256M", "-", "-"), "{listed}");
    nas.good("zpool destroy tank");
    let drives = nas.0.join("drives");
    let (drives, root) = (arg(&drives).to_owned(), nas.root());
    let shown = nas.good(&format!("zpool import -d {drives}"));
    assert!(shown.contains("no pools available"), "{shown}");
    let shown = nas.good(&format!("zpool import -D -d {drives}"));
    assert!(shown.contains("pool: tank") && shown.contains("-D"), "{shown}");
    nas.good(&format!("zpool import -D -d {drives} -o altroot={} tank vault", arg(&root)));
    assert_eq!(nas.good("zpool list -Ho name,health"), "vault\tONLINE\n");
    assert_eq!(nas.good("zpool get -Ho value comment vault"), "cellar\n");
}

#[test]
fn pools_are_made_for_other_systems_and_names() {
    let nas = Nas::new("others", 2);
    let drive = arg(&nas.drives(1)[0]).to_owned();
    let why = nas.refused(&format!("zpool create -o compatibility=zol-9 tank {drive}"), 2);
    assert!(why.contains("the set 'zol-9' is not known"), "{why}");
    let why = nas.refused(&format!("zpool create -t vault 9tank {drive}"), 2);
    assert!(why.contains("must begin with a letter"), "{why}");
    nas.create("-t vault -o compatibility=zol-0.7,grub2 tank mirror", 2);
    assert_eq!(nas.good("zpool list -Ho name"), "vault\n");
    assert_eq!(nas.good("zfs get -Ho value mounted vault"), "yes\n");
    let asked = "compatibility,feature@edonr,feature@project_quota,feature@bookmarks";
    assert_eq!(
        nas.good(&format!("zpool get -Ho value,source {asked} vault")),
        "zol-0.7,grub2\tlocal\ndisabled\tlocal\ndisabled\tlocal\nenabled\tlocal\n"
    );
    let why = nas.refused("zpool set feature@edonr=enabled vault", 2);
    assert!(why.contains("kept to compatibility=zol-0.7,grub2") && why.contains("off"), "{why}");
    nas.good("zpool set feature@hole_birth=enabled vault");
    nas.good("zpool export vault");
    let drives = nas.0.join("drives");
    let back = format!("zpool import -d {} -R {} tank", arg(&drives), arg(&nas.root()));
    nas.good(&back);
    assert_eq!(nas.good("zpool list -Ho name"), "tank\n");
    nas.good("zpool export tank");
    for (what, why) in [
        ("-o colour=red", "no such property"),
        ("-o noexec,wet", "-o wet"),
        ("-c /dev/null", "no file with the names of pools"),
    ] {
        let said = nas.refused(&format!("zpool import {what} -R /nowhere tank"), 2);
        assert!(said.contains(why), "{said}");
    }
    nas.good(&format!("{back} -o comment=lent -o ro,noexec -o compatibility=openzfs-2.2"));
    let told = nas.good("zpool get -Ho value comment,compatibility tank");
    assert_eq!(told, "lent\nopenzfs-2.2\n");
    let mounted = nas.good("zfs get -Ho value,source readonly,exec tank");
    assert_eq!(mounted, "on\ttemporary\noff\ttemporary\n");
    nas.good("zfs unmount tank");
    let at = nas.root().join("tank");
    assert!(nas.good("zfs mount -v tank").contains(arg(&at)));
    nas.good("zpool set compatibility=off tank");
    nas.good("zpool set feature@edonr=enabled tank");
    assert_eq!(nas.good(&format!("zpool get -Ho value {asked} tank")).lines().next(), Some("off"));
    assert_eq!(nas.good("zpool get -Ho value feature@edonr tank"), "enabled\n");
}

#[test]
fn commands_are_written_down_and_errors_are_cleared() {
    let nas = Nas::new("history", 1);
    nas.create("tank", 1);
    nas.good("zfs create -o atime=off tank/child");
    nas.good("zfs snapshot tank/child@one");
    nas.refused("zfs create tank/child", 1);
    nas.good("zpool clear tank");
    let state = nas.state();
    let drives = nas.0.join("drives");
    // a path is of where the command is given, not of where the daemon is
    for (drive, status) in [("d0.img", 0), ("./d0.img", 0), ("d1.img", 2)] {
        let words = ["zpool", "clear", "tank", drive, "--state", arg(&state)];
        let cleared = run_in(&drives, &words);
        assert_eq!(cleared.status, status, "{drive}: {}", cleared.err);
    }
    assert_eq!(nas.good("zpool list -Ho name,health"), "tank\tONLINE\n");
    let told = nas.good("zpool history tank");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "History for 'tank':");
    assert!(lines[1].contains(" zpool create -R") && !told.contains("[txg:"), "{told}");
    let told = nas.good("zpool history -i");
    assert!(
        told.contains("] create tank/child (") && told.contains("] set tank/child ("),
        "{told}"
    );
    assert!(nas.good("zpool history -l tank").contains("[user "));
    nas.good("serve --stop");
    assert!(nas.good("zpool history -i tank").contains("] open pool version 5000; software"));
    nas.good("zpool export tank");
    nas.good(&format!("zpool import -R {} -d {} tank", arg(&nas.root()), arg(&drives)));
    let told = nas.good("zpool history -i tank");
    assert!(told.contains("] import pool version 5000") && told.contains(" zpool import -R"));
    nas.good("zpool export tank");
    let told = run(&["inspect", "history", "-d", arg(&drives), "tank"]).out;
    for wanted in [
        "zpool create -R",
        "zfs create -o atime=off tank/child",
        "zfs snapshot tank/child@one",
        "zpool clear tank",
        "zpool export tank",
    ] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    assert!(!told.contains("zfs create tank/child"), "what was refused: {told}");
}

#[test]
fn a_pool_without_two_of_its_drives_is_taken_over() {
    let nas = Nas::new("degraded", 6);
    nas.create("tank raidz2", 6);
    nas.good("zfs create tank/a");
    nas.good("serve --stop");
    for drive in nas.drives(2) {
        std::fs::remove_file(drive).unwrap();
    }
    assert_eq!(nas.good("zpool list -Ho health tank"), "DEGRADED\n");
    // of the vdevs those that are not well, by their numbers, and again
    let unwell = nas.good("zpool status -e tank");
    let count = |text: &str, word: &str| text.matches(word).count();
    assert_eq!((count(&unwell, ".img"), count(&unwell, "UNAVAIL")), (2, 2), "{unwell}");
    let numbers = nas.good("zpool status -g tank");
    assert_eq!((count(&numbers, ".img"), count(&numbers, "UNAVAIL")), (0, 2), "{numbers}");
    assert_eq!(nas.good("zpool list -Ho name -T u tank 0.1 3").lines().count(), 6);
    assert_eq!(count(&nas.good("zpool list tank 0.1 2"), "NAME"), 1);
    nas.refused("zpool status tank 0", 2);
    let status: Value = serde_json::from_str(&nas.good("zpool status --json")).unwrap();
    assert_eq!(status[0]["vdevs"][0]["children"][1]["state"], "UNAVAIL");
    nas.good("zfs create tank/b");
    nas.good("serve --stop");
    assert_eq!(nas.good("zfs list -Ho name"), "tank\ntank/a\ntank/b\n");
}

#[test]
fn what_cannot_be_is_refused_in_sentences() {
    let nas = Nas::new("refused", 2);
    let drives = nas.drives(2);
    let (a, b) = (arg(&drives[0]), arg(&drives[1]));
    for (words, status, why) in [
        (format!("zpool create -m none tank mirror {a}"), 2, "mirror needs 2 drives"),
        (format!("zpool create -m none mirror {a}"), 2, "reserved"),
        (format!("zpool create -m none tank {a} {a}"), 2, "named twice"),
        (format!("zpool create -m none tank mirror {a} {b} /no/such"), 1, "/no/such"),
        (format!("zpool create -m none -o ashift=7 tank {a}"), 2, "9 to 16"),
        (format!("zpool create -m none -O colour=red tank {a}"), 1, "colour"),
        ("zfs create tank/a".to_owned(), 1, "no pool 'tank'"),
        ("zpool export tank".to_owned(), 1, "no pool 'tank'"),
    ] {
        let err = nas.refused(&words, status);
        assert!(err.contains(why), "{words}: {err}");
    }
    let (long, foreign) = (nas.0.join("drives/long"), nas.0.join("drives/foreign"));
    File::create(&long).unwrap().set_len(1 << 30).unwrap();
    let mut bytes = vec![0; 128 << 20];
    bytes[..4].copy_from_slice(b"XFSB");
    std::fs::write(&foreign, bytes).unwrap();
    for (vdevs, status, why) in [
        (format!("mirror {a} {}", arg(&long)), 2, "unlike sizes"),
        (arg(&foreign).to_owned(), 1, "holds an xfs file system"),
    ] {
        let err = nas.refused(&format!("zpool create -m none tank {vdevs}"), status);
        assert!(err.contains(why) && err.contains("use -f"), "{err}");
    }
    nas.create("tank mirror", 2);
    let taken = nas.refused(&format!("zpool create -m none other {a}"), 1);
    assert!(taken.contains(a), "{taken}");
    nas.good("zfs create tank/a");
    for (words, status, why) in [
        ("zfs create tank/a", 1, "exist"),
        ("zfs create tank/no/such", 1, "tank/no"),
        ("zfs create -o recordsize=3 tank/b", 1, "recordsize"),
        ("zfs set used=1 tank/a", 1, "cannot be changed"),
        ("zfs destroy tank/none", 1, "tank/none"),
        ("zfs destroy tank", 1, "zpool destroy"),
        ("zfs rollback tank/a@none", 1, "tank/a@none"),
        ("zfs promote tank/a", 1, "clone"),
    ] {
        let err = nas.refused(words, status);
        assert!(err.contains(why), "{words}: {err}");
    }
    assert_eq!(nas.good("zfs list -Ho name"), "tank\ntank/a\n", "nothing is half made");
}
