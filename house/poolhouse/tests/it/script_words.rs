//! Interfaces of scripts: other names of values and columns, times in the user's zone, `-n`,
//! histories, bookmarks.

use std::process::{Command, Stdio};

use crate::command::path_arg;
use crate::test_nas::{TestNas, cannot_mount};

/// A pool without mounts on the first of some drives.
fn create_unmounted(name: &str, drives: usize) -> TestNas {
    let nas = TestNas::new(name, drives);
    nas.create_pool("-O canmount=off tank", 1);
    nas
}

/// Runs a command in a time zone.
fn run_in_zone(nas: &TestNas, zone: &str, words: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(words.split_whitespace()).arg("--state").arg(nas.state_dir());
    let done = command.env("TZ", zone).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn older_words_for_values_are_taken() {
    let nas = create_unmounted("old-words", 1);
    for (word, shown) in [
        ("acltype=posixacl", "posix"),
        ("acltype=noacl", "off"),
        ("acltype=posix", "posix"),
        ("acltype=disabled", "off"),
        ("aclinherit=secure", "restricted"),
    ] {
        nas.run_ok(&format!("zfs set {word} tank"));
        let property = word.split('=').next().unwrap();
        let told = nas.run_ok(&format!("zfs get -H -o value {property} tank"));
        assert_eq!(told.trim_end(), shown, "{word}");
    }
}

#[test]
fn columns_have_the_names_of_openzfs() {
    let nas = create_unmounted("columns", 1);
    let names = "case,redund_md,dnsize,encroot,fscount,fslimit,refratio,resumetok,rsnaps,sscount,sslimit,volblock";
    let told = nas.run_ok(&format!("zfs list -o name,{names} tank"));
    let heads: Vec<&str> = told.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heads.join(","), format!("NAME,{}", names.to_uppercase()));
    let told = nas.run_ok("zpool list -H -o bclone_used,bclone_ratio,rdonly,replace,expand tank");
    assert_eq!(told, "0\t1.00x\toff\toff\toff\n");
    nas.run_ok("zpool set replace=on tank");
    assert_eq!(nas.run_ok("zpool get -H -o value autoreplace tank"), "on\n");
}

#[test]
fn received_values_have_a_column() {
    let nas = create_unmounted("received", 1);
    nas.run_ok("zfs create -o canmount=off -o compression=gzip tank/a");
    nas.run_ok("zfs snapshot tank/a@s");
    let state = nas.state_dir();
    let (program, state) = (env!("CARGO_BIN_EXE_poolhouse"), path_arg(&state));
    let pipe = format!(
        "{program} zfs send -p tank/a@s --state {state} | {program} zfs receive -u tank/b --state {state}"
    );
    assert!(Command::new("sh").args(["-c", &pipe]).status().unwrap().success());
    nas.run_ok("zfs set compression=off tank/b");
    let told = nas.run_ok("zfs get -H -o all compression tank/b");
    assert_eq!(told, "tank/b\tcompression\toff\tgzip\tlocal\n");
    assert_eq!(
        nas.run_ok("zfs get -H -o value,received used tank/a").split('\t').nth(1),
        Some("-\n")
    );
}

#[test]
fn times_are_in_the_zone_of_the_user() {
    let nas = create_unmounted("zones", 1);
    nas.run_ok("zfs snapshot tank@s");
    let seconds = nas.run_ok("zfs get -Hp -o value creation tank@s");
    let seconds: i64 = seconds.trim().parse().unwrap();
    // 5 hours and 30 minutes before UTC, without a table of zones
    let shown = |zone: &str| {
        let told = run_in_zone(&nas, zone, "zfs get -H -o value creation tank@s");
        let time = told.split_whitespace().nth(3).unwrap().to_owned();
        let (hours, minutes) = time.split_once(':').unwrap();
        hours.parse::<i64>().unwrap() * 60 + minutes.parse::<i64>().unwrap()
    };
    let minute_of_day = |offset: i64| ((seconds + offset) / 60) % (24 * 60);
    assert_eq!(shown("UTC"), minute_of_day(0));
    assert_eq!(shown("XYZ-5:30"), minute_of_day(330 * 60));
    if std::path::Path::new("/usr/share/zoneinfo/Asia/Kolkata").exists() {
        assert_eq!(shown("Asia/Kolkata"), minute_of_day(330 * 60));
    }
}

#[test]
fn dry_runs_check_what_real_runs_check() {
    let nas = create_unmounted("dry", 2);
    let drives = nas.drive_paths(2);
    let [used, free] = [path_arg(&drives[0]), path_arg(&drives[1])];
    let root = nas.altroot();
    let root = path_arg(&root);
    for (words, why) in [
        (format!("zpool create -n -R {root} other {used}"), "active pool"),
        (format!("zpool create -n -R {root} other /no/such/drive"), "cannot be used"),
        (format!("zpool create -n -R {root} mirror {free}"), "reserved"),
        (format!("zpool create -n -R {root} tank {free}"), "already"),
        (format!("zpool create -n -R {root} -O quota=many other {free}"), "bad numeric value"),
        ("zfs create -n tank".to_owned(), "already exists"),
        ("zfs create -n tank/no/child".to_owned(), "does not exist"),
    ] {
        let run = nas.run(&words);
        assert!(run.status != 0 && run.stderr.contains(why), "{words}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{words}");
    }
    let told = nas.run_ok(&format!("zpool create -n -R {root} other {free}"));
    assert!(told.contains("would create 'other'"), "{told}");
    nas.run_ok("zfs create -n -p tank/no/child");
    // as with OpenZFS, the space is checked when the volume is made
    nas.run_ok("zfs create -n -V 100G tank/volume");
    assert_eq!(nas.run_ok("zfs list -H -o name"), "tank\n");
    assert_eq!(nas.run_ok("zpool list -H -o name"), "tank\n");
}

#[test]
fn users_properties_keep_tabs_and_line_ends() {
    let nas = create_unmounted("tabs", 1);
    let set = Command::new(env!("CARGO_BIN_EXE_poolhouse"))
        .args(["zfs", "set", "my:text=a\tb\nc\u{1b}[1m", "tank", "--state"])
        .arg(nas.state_dir())
        .status();
    assert!(set.unwrap().success());
    assert_eq!(nas.run_ok("zfs get -H -o value my:text tank"), "a\tb\nc\\u{1b}[1m\n");
    assert_eq!(nas.run_ok("zfs list -H -o my:text tank"), "a\tb\nc\\u{1b}[1m\n");
}

#[test]
fn pools_have_properties_of_users() {
    let nas = create_unmounted("pool-props", 1);
    assert_eq!(nas.run_ok("zpool get -H my:owner tank"), "tank\tmy:owner\t-\tdefault\n");
    nas.run_ok("zpool set my:owner=anna tank");
    assert_eq!(nas.run_ok("zpool get -H my:owner tank"), "tank\tmy:owner\tanna\tlocal\n");
    assert_eq!(nas.run_ok("zpool list -H -o name,my:owner"), "tank\tanna\n");
    assert!(nas.run_ok("zpool get all tank").contains("my:owner"));
    nas.run_failing("zpool set my:Owner=anna tank", 1);
    nas.run_ok("zpool set my:owner= tank");
    assert!(!nas.run_ok("zpool get all tank").contains("my:owner"));
}

#[test]
fn bookmarks_are_copied() {
    let nas = create_unmounted("bookmarks", 1);
    nas.run_ok("zfs create -o canmount=off tank/a");
    nas.run_ok("zfs snapshot tank/a@s");
    nas.run_ok("zfs bookmark tank/a@s #one");
    nas.run_ok("zfs clone -o canmount=off tank/a@s tank/clone");
    nas.run_ok("zfs bookmark tank/a#one tank/a#two");
    nas.run_ok("zfs bookmark #one tank/a#three");
    nas.run_ok("zfs bookmark tank/a#one tank/clone#four");
    nas.run_failing("zfs bookmark tank/a#one tank#five", 1);
    nas.run_failing("zfs bookmark tank/a#no tank/a#six", 1);
    nas.run_ok("zfs destroy tank/a#one");
    let guids =
        nas.run_ok("zfs get -Hp -o value guid tank/a@s tank/a#two tank/a#three tank/clone#four");
    let guids: std::collections::BTreeSet<&str> = guids.lines().collect();
    assert_eq!(guids.len(), 1, "{guids:?}");
}

#[test]
fn wasteful_volume_blocks_are_named() {
    let nas = TestNas::new("wasteful", 4);
    nas.create_pool("-O canmount=off tank raidz2", 4);
    let run = nas.run("zfs create -s -V 16M -b 4K tank/small");
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("a volblocksize of 16384 is recommended"), "{}", run.stderr);
    assert_eq!(nas.run("zfs create -s -V 16M tank/usual").stderr, "");
}

#[test]
fn commands_side_by_side_leave_their_entries() {
    let nas = create_unmounted("entries", 1);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let nas = &nas;
            scope.spawn(move || {
                for number in 0..5 {
                    nas.run_ok(&format!("zfs set my:n{thread}{number}=1 tank"));
                }
            });
        }
    });
    let told = nas.run_ok("zpool history tank");
    assert_eq!(told.lines().filter(|line| line.contains(" zfs set my:n")).count(), 20, "{told}");
    assert!(
        told.trim_end().lines().next_back().is_some_and(|line| line.contains(" zfs set my:n")),
        "{told}"
    );
    let told = nas.run_ok("zpool history -i tank");
    let events = told.lines().filter(|line| line.contains("[txg:") && line.contains(" my:n"));
    assert_eq!(events.count(), 20, "{told}");
}

#[test]
fn the_daemon_makes_its_socket_again() {
    let nas = create_unmounted("socket", 1);
    std::fs::remove_file(nas.state_dir().join("socket")).unwrap();
    assert_eq!(nas.run_ok("zpool list -H -o name"), "tank\n");
    assert!(nas.read_log().contains("the file of the socket was removed"), "{}", nas.read_log());
}

/// Runs a shell command on a mount with a time limit.
fn run_shell(script: &str) -> String {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "20", "sh", "-c", script]).stdin(Stdio::null());
    let done = command.output().unwrap();
    String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
}

#[test]
fn properties_take_effect_on_files_in_use() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("at-once", 1);
    nas.create_pool("tank", 1);
    let dir = nas.altroot().join("tank");
    let dir = path_arg(&dir);
    let _in_use = std::fs::File::create(format!("{dir}/file")).unwrap();
    let acl =
        "setfacl -m u:7:r file >/dev/null 2>&1 && getfacl -n file 2>/dev/null | grep -c user:7:";
    let has_acls = || run_shell(&format!("cd {dir} && command -v setfacl >/dev/null && {acl}"));
    if run_shell("command -v setfacl setfattr").lines().count() == 2 {
        assert_eq!(has_acls(), "");
        nas.run_ok("zfs set acltype=posix tank");
        assert_eq!(has_acls(), "1");
        nas.run_ok("zfs set acltype=off tank");
        assert_eq!(has_acls(), "");
        assert_eq!(run_shell(&format!("cd {dir} && getfacl -n file | grep -c user:7:")), "0");
        let set = format!("cd {dir} && setfattr -n user.a -v 1 file 2>/dev/null; echo $?");
        assert_eq!(run_shell(&set), "0");
        nas.run_ok("zfs set xattr=off tank");
        assert_eq!(run_shell(&set), "1");
        nas.run_ok("zfs set xattr=sa tank");
        assert_eq!(run_shell(&set), "0");
    }
    let links = || run_shell(&format!("stat -c %h {dir}"));
    let before: u32 = links().parse().unwrap();
    nas.run_ok("zfs set snapdir=visible tank");
    assert_eq!(links().parse(), Ok(before + 1));
    nas.run_ok("zfs set snapdir=hidden tank");
    assert_eq!(links().parse(), Ok(before));
    nas.run_ok("zfs snapshot tank@s");
    let changed = nas.run_ok("zfs get -Hp -o value snapshots_changed tank");
    assert_eq!(run_shell(&format!("stat -c %Y {dir}/.zfs/snapshot")), changed.trim_end());
}

#[test]
fn reads_of_directories_and_empty_files_set_atime() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("atime", 1);
    nas.create_pool("-O atime=on -O relatime=off tank", 1);
    let dir = nas.altroot().join("tank");
    let dir = path_arg(&dir);
    let old = "touch -a -d 2001-01-01 sub empty";
    let told = run_shell(&format!(
        "cd {dir} && mkdir sub && : > empty && {old} && ls sub && cat empty && stat -c %X sub empty"
    ));
    let times: Vec<u64> = told.lines().map(|line| line.parse().unwrap()).collect();
    assert!(times.len() == 2 && times.iter().all(|time| *time > 1_700_000_000), "{told}");
}
