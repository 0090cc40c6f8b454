//! A daemon's pools: created, filled with datasets, imported again after it ended and after it was
//! killed, and exported.

use std::fs::File;

use serde_json::Value;

use crate::command::{path_arg, run, run_in};
use crate::test_nas::{TestNas, kill_daemon};

#[test]
fn a_pool_outlasts_its_daemon() {
    let nas = TestNas::new("outlasts", 6);
    nas.create_pool("-o ashift=12 -O compression=zstd -O canmount=off tank raidz2", 6);
    assert!(nas.run_ok("zpool status tank").contains("raidz2-0"));
    nas.run_ok("zfs create -p -o recordsize=1M tank/media/films");
    nas.run_ok("zfs set org.example:owner=grandma atime=off tank/media");
    nas.run_ok("zfs snapshot -r tank@one");
    nas.run_ok("zfs clone tank/media@one tank/heir");
    assert_eq!(
        nas.run_ok("zfs list -H -o name -t all"),
        "tank\ntank@one\ntank/heir\ntank/media\ntank/media@one\ntank/media/films\n\
         tank/media/films@one\n"
    );
    nas.run_ok("serve --stop");
    assert!(!nas.state_dir().join("socket").exists());

    let got = nas
        .run_ok("zfs get -Hp -o name,value,source org.example:owner,recordsize tank/media/films");
    assert_eq!(
        got,
        "tank/media/films\tgrandma\tinherited from tank/media\n\
                     tank/media/films\t1048576\tlocal\n"
    );
    assert_eq!(nas.run_ok("zfs list -Ho name -t snapshot tank/media"), "tank/media@one\n");

    kill_daemon(&nas.state_dir());
    nas.run_ok("zfs promote tank/heir");
    assert_eq!(nas.run_ok("zfs get -Ho value origin tank/media"), "tank/heir@one\n");
    nas.run_ok("zfs inherit -r atime tank");
    assert_eq!(nas.run_ok("zfs get -Ho value,source atime tank/media"), "on\tdefault\n");
    assert!(nas.run_failing("zfs destroy tank/heir", 1).contains("use '-r' to destroy"));
    assert!(nas.run_ok("zfs destroy -Rnv tank/heir").contains("would destroy tank/media\n"));
    nas.run_ok("zfs rename tank/media/films tank/films");
    nas.run_ok("zfs destroy -R tank/heir");
    assert_eq!(nas.run_ok("zfs list -Ho name"), "tank\ntank/films\n");
    nas.run_ok("zpool destroy tank");
    assert_eq!(nas.run_ok("zpool list"), "no pools available\n");
}

#[test]
fn a_pool_moves_from_one_daemon_to_another() {
    let (here, there) = (TestNas::new("here", 3), TestNas::new("there", 0));
    here.create_pool("tank mirror", 3);
    here.run_ok("zfs create tank/a");
    let drives = here.0.join("drives");
    let root = there.altroot();
    let import = format!("zpool import -d {} -R {} tank", path_arg(&drives), path_arg(&root));
    assert_eq!(there.run(&import).status, 1, "two daemons never have one pool");
    here.run_ok("zpool export tank");
    let found = there.run_ok(&format!("zpool import -d {}", path_arg(&drives)));
    assert!(found.contains("pool: tank") && found.contains("mirror-0"), "{found}");
    there.run_ok(&import);
    assert_eq!(there.run_ok("zfs list -Ho name"), "tank\ntank/a\n");
    assert_eq!(here.run_ok("zpool list -Ho name"), "");
}

#[test]
fn failed_import_does_not_stop_the_others() {
    let nas = TestNas::new("all", 4);
    let drives = nas.drive_paths(4);
    let [first, half, away, last] = &drives[..] else { panic!("four drives") };
    for (name, vdevs) in [("a", vec![first]), ("b", vec![half, away]), ("c", vec![last])] {
        let vdevs: Vec<_> = vdevs.into_iter().map(|path| path_arg(path)).collect();
        nas.run_ok(&format!(
            "zpool create -R {} {name} {}",
            path_arg(&nas.altroot()),
            vdevs.join(" ")
        ));
        nas.run_ok(&format!("zpool export {name}"));
    }
    std::fs::remove_file(away).unwrap();
    let place = path_arg(&nas.0.join("drives")).to_owned();
    let why =
        nas.run_failing(&format!("zpool import -a -R {} -d {place}", path_arg(&nas.altroot())), 1);
    assert!(why.contains("'b' is not imported") && why.contains("is missing"), "{why}");
    assert_eq!(nas.run_ok("zpool list -Ho name"), "a\nc\n");
    assert_eq!(nas.run_ok("zfs list -Ho name,mounted"), "a\tyes\nc\tyes\n");
}

#[test]
fn pool_properties_and_new_names_survive_imports() {
    let nas = TestNas::new("named", 2);
    nas.create_pool(
        "-o failmode=continue -o comment=cellar -o feature@draid=disabled tank mirror",
        2,
    );
    assert_eq!(
        nas.run_ok(
            "zpool get -Ho property,value,source failmode,comment,autotrim,feature@draid tank"
        ),
        "failmode\tcontinue\tlocal\ncomment\tcellar\tlocal\nautotrim\toff\tdefault\n\
         feature@draid\tdisabled\tlocal\n"
    );
    nas.run_ok("zpool set autotrim=on tank");
    assert_eq!(nas.run_ok("zpool get -Ho value autotrim tank"), "on\n");
    assert!(nas.run_failing("zpool set colour=red tank", 1).contains("invalid property"));
    let figures = "zpool get -Hp -o value capacity,dedupratio,fragmentation,expandsize tank";
    let told = nas.run_ok(figures);
    let told: Vec<&str> = told.lines().collect();
    let broken = format!("{}%", told[2]);
    assert_eq!((told[0], told[1], told[3]), ("0", "1.00", "-"));
    // few metaslabs are in use, and those have long ranges
    assert!(told[2].parse::<u64>().is_ok_and(|figure| (1..20).contains(&figure)), "{broken}");
    let listed = nas.run_ok("zpool list -v tank");
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
    nas.run_ok("zpool destroy tank");
    let drives = nas.0.join("drives");
    let (drives, root) = (path_arg(&drives).to_owned(), nas.altroot());
    let shown = nas.run_ok(&format!("zpool import -d {drives}"));
    assert!(shown.contains("no pools available"), "{shown}");
    let shown = nas.run_ok(&format!("zpool import -D -d {drives}"));
    assert!(shown.contains("pool: tank") && shown.contains("-D"), "{shown}");
    nas.run_ok(&format!("zpool import -D -d {drives} -o altroot={} tank vault", path_arg(&root)));
    assert_eq!(nas.run_ok("zpool list -Ho name,health"), "vault\tONLINE\n");
    assert_eq!(nas.run_ok("zpool get -Ho value comment vault"), "cellar\n");
}

#[test]
fn pools_are_made_for_other_systems_and_names() {
    let nas = TestNas::new("others", 2);
    let drive = path_arg(&nas.drive_paths(1)[0]).to_owned();
    let why = nas.run_failing(&format!("zpool create -o compatibility=zol-9 tank {drive}"), 1);
    assert!(why.contains("the set 'zol-9' is not known"), "{why}");
    let why = nas.run_failing(&format!("zpool create -t vault 9tank {drive}"), 1);
    assert!(why.contains("must begin with a letter"), "{why}");
    nas.create_pool("-t vault -o compatibility=zol-0.7,grub2 tank mirror", 2);
    assert_eq!(nas.run_ok("zpool list -Ho name"), "vault\n");
    assert_eq!(nas.run_ok("zfs get -Ho value mounted vault"), "yes\n");
    let asked = "compatibility,feature@edonr,feature@project_quota,feature@bookmarks";
    assert_eq!(
        nas.run_ok(&format!("zpool get -Ho value,source {asked} vault")),
        "zol-0.7,grub2\tlocal\ndisabled\tlocal\ndisabled\tlocal\nenabled\tlocal\n"
    );
    let why = nas.run_failing("zpool set feature@edonr=enabled vault", 1);
    assert!(why.contains("kept to compatibility=zol-0.7,grub2") && why.contains("off"), "{why}");
    nas.run_ok("zpool set feature@hole_birth=enabled vault");
    nas.run_ok("zpool export vault");
    let drives = nas.0.join("drives");
    let back =
        format!("zpool import -d {} -R {} tank", path_arg(&drives), path_arg(&nas.altroot()));
    nas.run_ok(&back);
    assert_eq!(nas.run_ok("zpool list -Ho name"), "tank\n");
    nas.run_ok("zpool export tank");
    for (what, status, why) in [
        ("-o colour=red", 1, "invalid property"),
        ("-o noexec,wet", 1, "-o wet"),
        ("-c /dev/null", 2, "not a file with the names of pools"),
    ] {
        let said = nas.run_failing(&format!("zpool import {what} -R /nowhere tank"), status);
        assert!(said.contains(why), "{said}");
    }
    nas.run_ok(&format!("{back} -o comment=lent -o ro,noexec -o compatibility=openzfs-2.2"));
    let told = nas.run_ok("zpool get -Ho value comment,compatibility tank");
    assert_eq!(told, "lent\nopenzfs-2.2\n");
    let mounted = nas.run_ok("zfs get -Ho value,source readonly,exec tank");
    assert_eq!(mounted, "on\ttemporary\noff\ttemporary\n");
    nas.run_ok("zfs unmount tank");
    let at = nas.altroot().join("tank");
    assert!(nas.run_ok("zfs mount -v tank").contains(path_arg(&at)));
    nas.run_ok("zpool set compatibility=off tank");
    nas.run_ok("zpool set feature@edonr=enabled tank");
    assert_eq!(
        nas.run_ok(&format!("zpool get -Ho value {asked} tank")).lines().next(),
        Some("off")
    );
    assert_eq!(nas.run_ok("zpool get -Ho value feature@edonr tank"), "enabled\n");
}

#[test]
fn commands_are_written_down_and_errors_are_cleared() {
    let nas = TestNas::new("history", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create -o atime=off tank/child");
    nas.run_ok("zfs snapshot tank/child@one");
    nas.run_failing("zfs create tank/child", 1);
    nas.run_ok("zpool clear tank");
    let state = nas.state_dir();
    let drives = nas.0.join("drives");
    // a path is of where the command is given, not of where the daemon is
    for (drive, status) in [("d0.img", 0), ("./d0.img", 0), ("d1.img", 1)] {
        let words = ["zpool", "clear", "tank", drive, "--state", path_arg(&state)];
        let cleared = run_in(&drives, &words);
        assert_eq!(cleared.status, status, "{drive}: {}", cleared.stderr);
    }
    assert_eq!(nas.run_ok("zpool list -Ho name,health"), "tank\tONLINE\n");
    let told = nas.run_ok("zpool history tank");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "History for 'tank':");
    assert!(lines[1].contains(" zpool create -R") && !told.contains("[txg:"), "{told}");
    let told = nas.run_ok("zpool history -i");
    assert!(
        told.contains("] create tank/child (") && told.contains("] set tank/child ("),
        "{told}"
    );
    assert!(nas.run_ok("zpool history -l tank").contains("[user "));
    nas.run_ok("serve --stop");
    assert!(nas.run_ok("zpool history -i tank").contains("] open pool version 5000; software"));
    nas.run_ok("zpool export tank");
    nas.run_ok(&format!(
        "zpool import -R {} -d {} tank",
        path_arg(&nas.altroot()),
        path_arg(&drives)
    ));
    let told = nas.run_ok("zpool history -i tank");
    assert!(told.contains("] import pool version 5000") && told.contains(" zpool import -R"));
    nas.run_ok("zpool export tank");
    let told = run(&["inspect", "history", "-d", path_arg(&drives), "tank"]).stdout;
    for wanted in [
        "zpool create -R",
        "zfs create -o atime=off tank/child",
        "zfs snapshot tank/child@one",
        "zpool clear tank",
        "zpool export tank",
    ] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    assert!(!told.contains("zfs create tank/child"), "refused commands: {told}");
}

#[test]
fn pool_without_two_drives_is_imported() {
    let nas = TestNas::new("degraded", 6);
    nas.create_pool("tank raidz2", 6);
    nas.run_ok("zfs create tank/a");
    nas.run_ok("serve --stop");
    for drive in nas.drive_paths(2) {
        std::fs::remove_file(drive).unwrap();
    }
    assert_eq!(nas.run_ok("zpool list -Ho health tank"), "DEGRADED\n");
    // the unhealthy vdevs, by their numbers, and again
    let unwell = nas.run_ok("zpool status -e tank");
    let count = |text: &str, word: &str| text.matches(word).count();
    assert_eq!((count(&unwell, ".img"), count(&unwell, "UNAVAIL")), (2, 2), "{unwell}");
    let numbers = nas.run_ok("zpool status -g tank");
    assert_eq!((count(&numbers, ".img"), count(&numbers, "UNAVAIL")), (0, 2), "{numbers}");
    assert_eq!(nas.run_ok("zpool list -Ho name -T u tank 0.1 3").lines().count(), 6);
    assert_eq!(count(&nas.run_ok("zpool list tank 0.1 2"), "NAME"), 1);
    nas.run_failing("zpool status tank 0", 2);
    let status: Value = serde_json::from_str(&nas.run_ok("zpool status --json")).unwrap();
    let vdev = &status["pools"]["tank"]["vdevs"]["tank"]["vdevs"];
    let vdev = vdev.as_object().unwrap().values().next().unwrap();
    let states = vdev["vdevs"].as_object().unwrap().values().map(|drive| &drive["state"]);
    assert_eq!(states.filter(|state| *state == "UNAVAIL").count(), 2, "{status}");
    nas.run_ok("zfs create tank/b");
    nas.run_ok("serve --stop");
    assert_eq!(nas.run_ok("zfs list -Ho name"), "tank\ntank/a\ntank/b\n");
}

#[test]
fn what_cannot_be_is_refused_in_sentences() {
    let nas = TestNas::new("refused", 2);
    let drives = nas.drive_paths(2);
    let (a, b) = (path_arg(&drives[0]), path_arg(&drives[1]));
    for (words, status, why) in [
        (format!("zpool create -m none tank mirror {a}"), 1, "mirror requires at least 2 devices"),
        (format!("zpool create -m none mirror {a}"), 1, "reserved"),
        (format!("zpool create -m none tank {a} {a}"), 1, "named twice"),
        (format!("zpool create -m none tank mirror {a} {b} /no/such"), 1, "/no/such"),
        (format!("zpool create -m none -o ashift=7 tank {a}"), 2, "9 to 16"),
        (format!("zpool create -m none -O colour=red tank {a}"), 1, "colour"),
        ("zfs create tank/a".to_owned(), 1, "dataset does not exist"),
        ("zpool export tank".to_owned(), 1, "'tank': no such pool"),
    ] {
        let err = nas.run_failing(&words, status);
        assert!(err.contains(why), "{words}: {err}");
    }
    let (long, foreign) = (nas.0.join("drives/long"), nas.0.join("drives/foreign"));
    File::create(&long).unwrap().set_len(1 << 30).unwrap();
    let mut bytes = vec![0; 128 << 20];
    bytes[..4].copy_from_slice(b"XFSB");
    std::fs::write(&foreign, bytes).unwrap();
    for (vdevs, status, why) in [
        (format!("mirror {a} {}", path_arg(&long)), 1, "unlike sizes"),
        (path_arg(&foreign).to_owned(), 1, "holds an xfs file system"),
    ] {
        let err = nas.run_failing(&format!("zpool create -m none tank {vdevs}"), status);
        assert!(err.contains(why) && err.contains("use -f"), "{err}");
    }
    nas.create_pool("tank mirror", 2);
    let taken = nas.run_failing(&format!("zpool create -m none other {a}"), 1);
    assert!(taken.contains(a), "{taken}");
    nas.run_ok("zfs create tank/a");
    for (words, status, why) in [
        ("zfs create tank/a", 1, "exist"),
        ("zfs create tank/no/such", 1, "tank/no"),
        ("zfs create -o recordsize=3 tank/b", 1, "recordsize"),
        ("zfs set used=1 tank/a", 255, "is readonly"),
        ("zfs destroy tank/none", 1, "tank/none"),
        ("zfs destroy tank", 1, "zpool destroy"),
        ("zfs rollback tank/a@none", 1, "tank/a@none"),
        ("zfs promote tank/a", 1, "clone"),
    ] {
        let err = nas.run_failing(words, status);
        assert!(err.contains(why), "{words}: {err}");
    }
    assert_eq!(nas.run_ok("zfs list -Ho name"), "tank\ntank/a\n", "nothing is half made");
}
