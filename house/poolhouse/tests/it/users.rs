//! Other users of the machine beside root's daemon: they may look, and change what `zfs allow` opens to them.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::command::{CommandOutput, path_arg};
use crate::test_nas::TestNas;

/// A user id that owns nothing.
const NOBODY: u32 = 65534;

/// A copy of the program where every user can run it: folders above the build may be closed to others.
fn program_for_all(nas: &TestNas) -> PathBuf {
    let program = nas.0.join("poolhouse");
    if !program.exists() {
        // by a process of its own: a child that another test forks meanwhile would keep this file open for
        // writing, and it could not be run
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_poolhouse")).arg(&program);
        assert!(copy.status().unwrap().success());
    }
    program
}

/// Runs `poolhouse` as a user without rights, with the daemon of the test.
fn run_as_nobody(nas: &TestNas, words: &str) -> CommandOutput {
    let state = nas.state_dir();
    let mut command = Command::new(program_for_all(nas));
    command.args(words.split_whitespace()).args(["--state", path_arg(&state)]);
    command.uid(NOBODY).gid(NOBODY).current_dir("/").stdin(Stdio::null());
    let output = command.output().unwrap();
    CommandOutput {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Only root can become another user.
fn cannot_switch_user() -> bool {
    let cannot = !rustix::process::geteuid().is_root();
    if cannot {
        eprintln!("not checked: only root can run a command as another user");
    }
    cannot
}

#[test]
fn ordinary_users_can_read_and_not_change() {
    if cannot_switch_user() {
        return;
    }
    let nas = TestNas::new("users", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create tank/a");
    nas.run_ok("zfs snapshot tank/a@one");
    for words in [
        "zfs list -Ho name -t all",
        "zfs get -Ho value used tank/a",
        "zfs mount",
        "zpool list -Ho name",
        "zpool status tank",
        "zpool get -Ho value comment tank",
    ] {
        let run = run_as_nobody(&nas, words);
        assert_eq!(run.status, 0, "{words}: {}", run.stderr);
        assert_eq!(run.stdout, nas.run_ok(words), "{words}");
    }
    for (words, why) in [
        ("zfs create tank/b", "cannot create 'tank/b': permission denied"),
        ("zfs set atime=off tank/a", "cannot set property for 'tank/a': permission denied"),
        ("zfs snapshot tank/a@two", "cannot create snapshot 'tank/a@two': permission denied"),
        ("zfs destroy -r tank/a", "cannot destroy 'tank/a': permission denied"),
        ("zpool export tank", "cannot export 'tank': permission denied"),
        ("zpool scrub tank", "cannot scrub 'tank': permission denied"),
        ("zpool history tank", "cannot get history for 'tank': permission denied"),
        ("serve --stop", "cannot stop the daemon: permission denied"),
    ] {
        let run = run_as_nobody(&nas, words);
        assert!([1, 255].contains(&run.status), "{words}: {}", run.stdout);
        assert!(run.stderr.contains(why), "{words}: {}", run.stderr);
    }
    assert_eq!(nas.run_ok("zfs list -Ho name -t all"), "tank\ntank/a\ntank/a@one\n");
    assert!(!nas.run_ok("zpool history tank").contains("tank/b"));
}

#[test]
fn state_files_are_closed_to_other_users() {
    if cannot_switch_user() {
        return;
    }
    let nas = TestNas::new("closed", 1);
    nas.create_pool("-m none tank", 1);
    let files = ["log", "pools.json", "lock"].map(|name| nas.state_dir().join(name));
    for file in files {
        let mut command = Command::new("cat");
        command.arg(&file).uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(file.exists() && !output.status.success(), "{}", file.display());
    }
    // another user's command starts no daemon in a folder of root
    nas.run_ok("serve --stop");
    let run = run_as_nobody(&nas, "zfs list tank");
    assert_eq!(run.status, 1, "{}", run.stdout);
    assert!(run.stderr.contains("no daemon runs"), "{}", run.stderr);
}

#[test]
fn without_a_daemon_other_users_see_no_pools() {
    if cannot_switch_user() {
        return;
    }
    let nas = TestNas::new("users-alone", 1);
    nas.run_ok("zpool list");
    crate::test_nas::kill_daemon(&nas.state_dir());
    let listed = run_as_nobody(&nas, "zfs list");
    assert_eq!((listed.status, listed.stdout.as_str()), (0, "no datasets available\n"));
    assert_eq!(run_as_nobody(&nas, "zpool status").stdout, "no pools available\n");
    let named = run_as_nobody(&nas, "zpool list tank");
    assert!(named.status == 1 && named.stderr.contains("no daemon runs"), "{}", named.stderr);
}

/// Runs a command as a user without rights. It must succeed.
fn nobody_ok(nas: &TestNas, words: &str) {
    let run = run_as_nobody(nas, words);
    assert_eq!(run.status, 0, "{words}: {}", run.stderr);
}

/// Runs a command as a user without rights. It must be denied.
fn nobody_denied(nas: &TestNas, words: &str) {
    let run = run_as_nobody(nas, words);
    let is_refused = run.status == 1 || run.status == 255;
    assert!(is_refused && run.stderr.contains("permission denied"), "{words}: {}", run.stderr);
}

#[test]
fn delegated_permissions_open_commands() {
    if cannot_switch_user() {
        return;
    }
    let nas = TestNas::new("allow", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create tank/a");
    nas.run_ok("zfs create tank/a/in");
    nas.run_ok("zfs allow nobody create,mount,snapshot,compression tank/a");
    nas.run_ok("zfs allow -s @more rollback,hold tank");
    nas.run_ok("zfs allow -l everyone @more tank/a");
    nas.run_ok("zfs allow -c destroy,userprop tank");
    for words in [
        "zfs snapshot -r tank/a@one",
        "zfs set compression=lz4 tank/a",
        "zfs hold keep tank/a@one",
        "zfs rollback tank/a@one",
        "zfs create -o org.example:by=nobody tank/a/new",
        "zfs set org.example:by=me tank/a/new",
        "zfs destroy tank/a/new",
    ] {
        nobody_ok(&nas, words);
    }
    for words in [
        "zfs create -o atime=off tank/a/new",
        "zfs snapshot tank@one",
        "zfs set atime=off tank/a",
        "zfs hold keep tank/a/in@one",
        "zfs destroy tank/a/in",
        "zfs allow nobody destroy tank/a",
    ] {
        nobody_denied(&nas, words);
    }
    // the daemon fetches the command's descriptor, which is offered where the user may write
    nobody_denied(&nas, "zfs send tank/a@one");
    nas.run_ok("zfs allow -l nobody send tank/a");
    let sent = run_as_nobody(&nas, "zfs send tank/a@one");
    assert!(sent.status == 0 && sent.stdout.len() > 312, "{}", sent.stderr);
    nas.run_ok("zfs unallow -l nobody send tank/a");
    // promoting takes the permission on the clone and on the file system of its origin
    nas.run_ok("zfs clone tank/a@one tank/a/clone");
    nas.run_ok("zfs allow nobody promote tank/a/clone");
    nobody_denied(&nas, "zfs promote tank/a/clone");
    nas.run_ok("zfs allow -l nobody promote tank/a");
    nobody_ok(&nas, "zfs promote tank/a/clone");
    nas.run_ok("zfs promote tank/a");
    nas.run_ok("zfs destroy tank/a/clone");
    nas.run_ok("zfs unallow -l nobody promote tank/a");
    // a volume with a reservation needs that permission, too
    nobody_denied(&nas, "zfs create -V 8M tank/a/volume");
    nobody_ok(&nas, "zfs create -s -V 8M tank/a/volume");
    let shown = nas.run_ok("zfs allow tank/a");
    let wanted = "Local permissions:\n\teveryone @more\n\
        Local+Descendent permissions:\n\tuser nobody compression,create,mount,snapshot\n\
        ---- Permissions on tank ";
    assert!(shown.contains(wanted), "{shown}");
    // the permissions are in the pool
    nas.run_ok("zpool export tank");
    nas.run_ok(&format!("zpool import -N -d {} tank", nas.0.join("drives").display()));
    nobody_ok(&nas, "zfs snapshot tank/a@two");
    nas.run_ok("zfs unallow -r nobody snapshot tank/a");
    nobody_denied(&nas, "zfs snapshot tank/a@three");
    nas.run_ok("zpool set delegation=off tank");
    nobody_denied(&nas, "zfs set compression=off tank/a");
}
