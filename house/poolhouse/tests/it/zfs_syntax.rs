//! The syntax of zfs(8) and zpool(8): the same arguments are accepted and refused as by OpenZFS
//! 2.3.2.

use crate::command::path_arg;
use crate::test_nas::{TestNas, cannot_mount};

/// A pool without mounts on the first drive.
fn create_unmounted(name: &str, drives: usize) -> TestNas {
    let nas = TestNas::new(name, drives);
    nas.create_pool("-O canmount=off tank", 1);
    nas
}

#[test]
fn nothing_lies_below_a_volume() {
    let nas = create_unmounted("below", 1);
    nas.run_ok("zfs create -V 8M tank/volume");
    nas.run_ok("zfs create -o canmount=off tank/fs");
    nas.run_ok("zfs snapshot tank/fs@one tank/volume@one");
    for words in [
        "zfs create tank/volume/x",
        "zfs create -V 8M tank/volume/x",
        "zfs clone tank/fs@one tank/volume/x",
        "zfs rename tank/fs tank/volume/x",
    ] {
        let why = nas.run_failing(words, 1);
        assert!(why.contains("'tank/volume' is a volume"), "{words}: {why}");
    }
    // a clone of a volume has what volumes have
    nas.run_ok("zfs clone -o refreservation=none tank/volume@one tank/clone");
    nas.run_failing("zfs clone -o recordsize=32K tank/volume@one tank/other", 1);
    nas.run_failing("zfs clone tank/volume tank/other", 1);
    nas.run_ok("zfs clone -o volsize=16M -o refreserv=auto tank/volume@one tank/larger");
    let told = nas.run_ok("zfs get -Hp -o value volsize,refreservation tank/larger");
    let told: Vec<u64> = told.lines().map(|line| line.parse().unwrap()).collect();
    assert!(told[0] == 16 << 20 && told[1] >= 16 << 20, "{told:?}");
    nas.run_ok("zfs destroy tank/larger");
    nas.run_failing("zfs clone -o volsize=1000 tank/volume@one tank/other", 1);
    let names = nas.run_ok("zfs list -H -o name -r tank");
    assert_eq!(names, "tank\ntank/clone\ntank/fs\ntank/volume\n");
}

#[test]
fn rename_accepts_full_or_short_snapshot_names() {
    let nas = create_unmounted("renamed", 1);
    nas.run_ok("zfs create -o canmount=off tank/fs");
    nas.run_ok("zfs snapshot -r tank@a");
    nas.run_ok("zfs rename tank/fs@a tank/fs@b");
    nas.run_ok("zfs rename tank/fs@b @c");
    nas.run_ok("zfs rename tank/fs@c a");
    nas.run_ok("zfs rename -r tank@a tank@monday");
    nas.run_failing("zfs rename tank@monday tank/fs@tuesday", 1);
    nas.run_ok("zfs snapshot tank/fs@below");
    nas.run_failing("zfs rename -r tank@below tank@other", 1);
    nas.run_ok("zfs destroy tank/fs@below");
    let names = nas.run_ok("zfs list -H -o name -t snapshot");
    assert_eq!(names, "tank@monday\ntank/fs@monday\n");
    // one that cannot have a property is not made
    nas.run_failing("zfs snapshot -o compression=lz4 tank@no", 1);
    nas.run_failing("zfs set readonly=on tank@monday", 255);
    nas.run_ok("zfs snapshot -o org.house:why=move tank@yes");
    assert_eq!(nas.run_ok("zfs get -H -o value org.house:why tank@yes"), "move\n");
    let names = nas.run_ok("zfs list -H -o name -t snapshot tank");
    assert_eq!(names, "tank@monday\ntank@yes\n");
}

#[test]
fn properties_that_there_are_not_are_refused() {
    let nas = create_unmounted("unknown", 1);
    nas.run_failing("zfs list -o name,colour", 2);
    nas.run_failing("zfs list -s colour", 2);
    nas.run_failing("zfs get colour tank", 2);
    nas.run_failing("zpool get colour tank", 2);
    assert_eq!(nas.run_ok("zfs get -H -o value org.house:colour tank"), "-\n");
    nas.run_failing("zfs set version=4 tank", 255);
    nas.run_failing("zfs set mlslabel=secret tank", 255);
    nas.run_failing("zfs set mountpoint=photos tank", 255);
    nas.run_ok("zfs set mountpoint=legacy tank");
    nas.run_ok("zfs set quota=64M tank");
    nas.run_failing("zfs inherit quota tank", 1);
    nas.run_ok("zfs inherit -S quota tank");
    assert_eq!(nas.run_ok("zfs get -H -o value,source quota tank"), "none\tdefault\n");
}

#[test]
fn owners_go_by_name_and_number() {
    let nas = create_unmounted("owners", 1);
    nas.run_ok("zfs set userquota@root=1G groupobjquota@0=10 projectquota@7=1M tank");
    nas.run_failing("zfs set userquota@no-such-user=1G tank", 2);
    nas.run_failing("zfs set userused@0=1G tank", 255);
    let names = "userquota@root,userquota@0,groupobjquota@root,projectquota@7,userquota@4711";
    let told = nas.run_ok(&format!("zfs get -H -o property,value {names} tank"));
    let wanted = "userquota@root\t1G\nuserquota@0\t1G\ngroupobjquota@root\t10\nprojectquota@7\t1M\n\
                  userquota@4711\tnone\n";
    assert_eq!(told, wanted);
    // the topmost directory belongs to a user
    let used = nas.run_ok("zfs get -Hp -o value userused@root,userobjused@root tank");
    let used: Vec<u64> = used.lines().map(|line| line.parse().unwrap()).collect();
    assert!(used[0] > 0 && used[1] > 0, "{used:?}");
    let column = nas.run_ok("zfs list -H -o userquota@root tank");
    assert_eq!(column, "1G\n");
    // no user has that name, so no dataset has the property
    for property in ["userquota@no-such-user", "groupused@"] {
        assert_eq!(nas.run_ok(&format!("zfs get -H -o value {property} tank")), "-\n");
    }
    nas.run_ok("zfs create -o canmount=off -o userquota@root=5M tank/fs");
    assert_eq!(nas.run_ok("zfs get -H -o value userquota@0 tank/fs"), "5M\n");
    nas.run_failing("zfs create -o userquota@no-such-user=5M tank/other", 2);
}

#[test]
fn space_is_listed_for_each_owner() {
    let nas = create_unmounted("owner-space", 1);
    nas.run_ok("zfs set userquota@4711=1G groupobjquota@0=10 projectquota@7=1M tank");
    nas.run_ok("zpool sync tank");
    let told = nas.run_ok("zfs userspace -H -o type,name,quota,objquota tank");
    assert_eq!(told, "POSIX User\t4711\t1G\tnone\nPOSIX User\troot\tnone\tnone\n");
    let used = nas.run_ok("zfs userspace -Hpn -S used -o name,used,objused tank");
    let fields: Vec<&str> = used.lines().next().unwrap().split('\t').collect();
    assert!(
        fields[0] == "0" && fields[1].parse::<u64>().unwrap() > 0 && fields[2] != "-",
        "{used}"
    );
    let told = nas.run_ok("zfs groupspace tank");
    assert!(told.starts_with("TYPE") && told.contains("POSIX Group  root"), "{told}");
    assert_eq!(nas.run_ok("zfs projectspace -H -o name,quota tank"), "0\tnone\n7\t1M\n");
    nas.run_ok("zfs snapshot tank@one");
    nas.run_ok("zfs userspace -t all tank@one");
    nas.run_ok("zfs create -V 8M tank/volume");
    nas.run_failing("zfs userspace tank/volume", 1);
    nas.run_failing("zfs userspace -o size tank", 2);
    nas.run_failing("zfs userspace -t nobody tank", 2);
}

#[test]
fn pool_keeps_its_ashift() {
    let nas = TestNas::new("ashift", 2);
    nas.create_pool("-o ashift=13 -O canmount=off tank", 1);
    assert_eq!(nas.run_ok("zpool get -H -o value,source ashift tank"), "13\tlocal\n");
    nas.run_ok("zpool set ashift=12 tank");
    nas.run_failing("zpool set ashift=17 tank", 1);
    assert_eq!(
        nas.run_ok("zpool get -Hp -o property,value cap,ashift tank"),
        "capacity\t0\nashift\t12\n"
    );
}

#[test]
fn devices_in_use_are_refused() {
    let nas = create_unmounted("busy", 2);
    let [mine, free] = &nas.drive_paths(2)[..] else { panic!("two drives") };
    let why = nas.run_failing(&format!("zpool create other {}", path_arg(mine)), 1);
    assert!(why.contains("part of active pool 'tank'"), "{why}");
    let why =
        nas.run_failing(&format!("zpool replace tank {} {}", path_arg(mine), path_arg(mine)), 1);
    assert!(why.contains("part of active pool 'tank'"), "{why}");
    let why =
        nas.run_failing(&format!("zpool import -d {} other", path_arg(&nas.0.join("drives"))), 1);
    assert!(why.contains("there is no pool 'other'"), "{why}");
    nas.run_ok(&format!("zpool create -O canmount=off other {}", path_arg(free)));
}

#[test]
fn all_that_can_be_unmounted_is() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("unmount-all", 1);
    nas.create_pool("tank", 1);
    for name in ["tank/a", "tank/b", "tank/a/c"] {
        nas.run_ok(&format!("zfs create {name}"));
    }
    let open = std::fs::File::create(nas.altroot().join("tank/a/open")).unwrap();
    let why = nas.run_failing("zfs unmount -a", 1);
    assert!(why.contains("of 'tank/a' open"), "{why}");
    let mounted = nas.run_ok("zfs get -H -o value mounted tank tank/a tank/a/c tank/b");
    assert_eq!(mounted, "yes\nyes\nno\nno\n");
    drop(open);
    nas.run_ok("zfs unmount -a");
    assert_eq!(nas.run_ok("zfs mount"), "");
}

#[test]
fn snapdir_controls_the_snapshot_folder() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("snapdir", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs snapshot tank@one");
    let root = nas.altroot().join("tank");
    std::fs::write(root.join("letter"), "x").unwrap();
    let listed = || {
        let entries = std::fs::read_dir(&root).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(listed(), ["letter"]);
    assert!(root.join(".zfs/snapshot/one").is_dir());
    nas.run_ok("zfs set snapdir=visible tank");
    assert_eq!(listed(), [".zfs", "letter"]);
    nas.run_ok("zfs set snapdir=disabled tank");
    assert_eq!(listed(), ["letter"]);
    // the kernel keeps it for a second
    nas.wait_until(|| !root.join(".zfs/snapshot/one").exists());
    nas.run_ok("zfs inherit snapdir tank");
    assert!(root.join(".zfs/snapshot/one").is_dir());
}

#[test]
fn statuses_and_columns_equal_those_of_openzfs() {
    let nas = create_unmounted("scripts", 1);
    for (words, status) in [
        ("zfs get name tank", 0),
        ("zfs get name tank/none", 1),
        ("zpool get name tank", 0),
        ("zpool get name none", 1),
        ("zfs frobnicate", 2),
        ("zfs set compression tank", 2),
    ] {
        assert_eq!(nas.run(words).status, status, "{words}");
    }
    let told = nas.run_ok("zfs get -H clones,name,type tank");
    assert_eq!(told, "tank\tclones\t-\t-\ntank\tname\ttank\t-\ntank\ttype\tfilesystem\t-\n");
    assert_eq!(
        nas.run_ok("zpool get -Hp name,leaked tank"),
        "tank\tname\ttank\t-\ntank\tleaked\t0\t-\n"
    );
    assert_eq!(nas.run_ok("zpool list -Hp -o name,freeing,failmode tank"), "tank\t0\twait\n");
    nas.run_failing("zpool list -o colour", 2);
}

#[test]
fn several_are_shown_though_one_is_not_there() {
    let nas = create_unmounted("several", 1);
    nas.run_ok("zfs create -o canmount=off -o compress=zstd-3 tank/a");
    nas.run_ok("zfs snapshot tank/a@one");
    nas.run_ok("zfs bookmark tank/a@one #one");
    nas.run_failing("zfs bookmark tank/a@one #one", 1);
    nas.run_failing("zfs bookmark tank/a@none tank/a#two", 1);
    nas.run_ok("zfs snapshot tank/a@before");
    nas.run_ok("zfs snapshot tank/a@after");
    let run = nas.run("zfs list -Ho name tank/a@before tank/a@after tank/a tank/none tank tank/a");
    let wanted = "tank\ntank/a\ntank/a@before\ntank/a@after\n";
    assert_eq!((run.status, run.stdout.as_str()), (1, wanted), "{}", run.stderr);
    assert!(run.stderr.contains("tank/none"), "{}", run.stderr);
    let told = nas.run_ok("zfs get -HHp -o value,name written@one,compression tank/a");
    assert!(told.starts_with("0\ttank/a\n"), "{told}");
    let none = nas.run_ok("zfs get -Ho value written@two,written@tank@one tank/a tank/a#one");
    assert_eq!(none, "-\n-\n-\n-\n");
    assert!(nas.run_ok("zfs list -t bookmark -Ho name -r tank").contains("tank/a#one"));
}

#[test]
fn sizes_are_binary_however_they_are_written() {
    let nas = create_unmounted("sizes", 1);
    for size in ["96M", "96MB", "96mb", "0.09375GB", "100663296"] {
        nas.run_ok(&format!("zfs set quota={size} tank"));
        assert_eq!(nas.run_ok("zfs get -Hp -o value quota tank"), "100663296\n", "{size}");
    }
    nas.run_ok("zfs create -s -V 10MB tank/volume");
    assert_eq!(nas.run_ok("zfs get -Hp -o value volsize tank/volume"), "10485760\n");
    nas.run_failing("zfs set quota=0 tank", 255);
    nas.run_failing("zfs create -o canmount=off -o refquota=0 tank/none", 1);
    nas.run_ok("zfs set quota=none reservation=0 tank");
}

#[test]
fn create_checks_before_it_changes() {
    let nas = create_unmounted("looked-at", 1);
    let silent = ["-n tank/a", "-n -V 10M tank/a", "-np tank/a/b", "-n -o encryption=on tank/a"];
    for words in silent {
        assert_eq!(nas.run_ok(&format!("zfs create {words}")), "", "{words}");
    }
    nas.run_failing("zfs create -n -o colour=red tank/a", 1);
    nas.run_failing("zfs create -n -b 1234 -V 10M tank/a", 1);
    nas.run_failing("zfs create -u -V 10M tank/a", 2);
    nas.run_failing("zfs create -o atime=on -o atime=on tank/a", 2);
    nas.run_failing("zfs create -o compress=on -o compression=on tank/a", 2);
    nas.run_failing("zfs set keylocation=file:///key tank", 255);
    let told = nas.run_ok("zfs create -Pn -o compression=on tank/a");
    assert_eq!(told, "create\ttank/a\nproperty\tcompression\ton\n");
    let told = nas.run_ok("zfs create -p -Pn -s -b 4K -V 10M tank/a/b");
    let wanted = "create_ancestors\ttank/a/b\ncreate\ttank/a/b\n\
                  property\tvolsize\t10485760\nproperty\tvolblocksize\t4096\n";
    assert_eq!(told, wanted);
    assert_eq!(nas.run_ok("zfs list -Ho name"), "tank\n");
    // with -p an existing dataset counts as created
    nas.run_ok("zfs create -p -s -V 10M tank/volume");
    nas.run_ok("zfs create -p -s -V 10M tank/volume");
    nas.run_ok("zfs snapshot tank/volume@one");
    nas.run_ok("zfs clone -p -o refreservation=none tank/volume@one tank/clone");
    nas.run_ok("zfs clone -p tank/volume@one tank/clone");
    nas.run_failing("zfs clone tank/volume@one tank/clone", 1);
    nas.run_failing("zfs create -p -s -V 10M tank", 1);
    nas.run_failing("zfs create -p tank/volume", 1);
    nas.run_failing("zfs set recSize=32K tank", 255);
    // short names are names, and not all that is below has all that file systems have
    nas.run_ok("zfs set recsize=32K tank");
    nas.run_ok("zfs inherit -r recsize tank");
    nas.run_failing("zfs inherit -r colour tank", 2);
    nas.run_failing("zfs inherit -r colour tank/volume@one", 2);
}

#[test]
fn vdev_words_are_checked_before_creation() {
    let nas = TestNas::new("vdev-words", 5);
    let drives = nas.drive_paths(5);
    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|at| path_arg(&drives[at]));
    nas.run_failing(&format!("zpool create tank {a} log {b} log {c}"), 2);
    nas.run_failing(&format!("zpool create tank {a} spare {b} mirror {c} {d} spare {e}"), 2);
    nas.run_failing(&format!("zpool create -n -O colour=red tank {a}"), 1);
    nas.run_failing(&format!("zpool create -n -o failmode=never tank {a}"), 1);
    nas.run_failing(&format!("zpool create -O atime=on -O atime=on tank {a}"), 2);
    let full = nas.0.join("full");
    std::fs::create_dir_all(full.join("of")).unwrap();
    let why = nas.run_failing(&format!("zpool create -f -m {} tank {a}", path_arg(&full)), 1);
    assert!(why.contains("not empty") && why.contains(path_arg(&full)), "{why}");
    assert_eq!(nas.run_ok("zpool list -H"), "");
    // after spares come data vdevs again
    let words = format!("mirror {a} {b} spare {e} mirror {c} {d}");
    nas.run_ok(&format!("zpool create -O canmount=off -O compress=lz4 tank {words}"));
    let status = nas.run_ok("zpool status tank");
    assert!(status.contains("mirror-1") && status.contains("AVAIL"), "{status}");
}

#[test]
fn links_named_zpool_and_zfs_are_the_commands() {
    let nas = create_unmounted("links", 1);
    for (link, words, expected) in
        [("zpool", "list -H -o name", "tank\n"), ("zfs", "list -H -o name -r tank", "tank\n")]
    {
        let path = nas.0.join(link);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_poolhouse"), &path).unwrap();
        let mut command = std::process::Command::new(&path);
        command.args(words.split(' ')).env("POOLHOUSE_STATE", nas.state_dir());
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    }
}
