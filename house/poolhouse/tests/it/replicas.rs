//! `poolhouse policy` and `poolhouse replicate`: to another pool, and to another host by ssh.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::command::path_arg;
use crate::test_nas::TestNas;

/// A daemon with the pools `tank`, with files, and `backup`.
fn two_pools(name: &str) -> TestNas {
    let nas = TestNas::new(name, 1);
    let fixture = fixtures::load("sent");
    fs::create_dir_all(nas.0.join("sent")).unwrap();
    fs::copy(&fixture.images()[0], nas.0.join("sent/d0.img")).unwrap();
    nas.run_ok(&format!("zpool import -N -d {} tank", path_arg(&nas.0.join("sent"))));
    nas.run_ok(&format!(
        "zpool create -O mountpoint=none backup {}",
        path_arg(&nas.drive_paths(1)[0])
    ));
    nas
}

fn write_config(nas: &TestNas, text: &str) {
    fs::create_dir_all(nas.state_dir()).unwrap();
    fs::write(nas.state_dir().join("config.toml"), text).unwrap();
    let check =
        nas.run(&format!("config check {}", path_arg(&nas.state_dir().join("config.toml"))));
    assert_eq!(check.status, 0, "{}", check.stderr);
}

fn guids(nas: &TestNas, dataset: &str) -> Vec<String> {
    let all = nas.run_ok(&format!("zfs list -Hpd1 -o guid -t snapshot {dataset}"));
    all.lines().map(str::to_owned).collect()
}

#[test]
fn replicas_follow_their_source() {
    let nas = two_pools("follow");
    nas.run_ok("replicate tank/from backup/from");
    assert_eq!(guids(&nas, "backup/from"), guids(&nas, "tank/from"));
    assert_eq!(nas.run_ok("zfs get -Ho value readonly backup/from"), "on\n");
    nas.run_ok("zfs snapshot tank/from@three");
    nas.run_ok("zfs bookmark tank/from@two #two");
    nas.run_ok("replicate tank/from backup/from");
    assert_eq!(guids(&nas, "backup/from"), guids(&nas, "tank/from"));
    // the source destroyed the common snapshots: a bookmark replaces one
    nas.run_ok("zfs bookmark tank/from@three #three");
    nas.run_ok("zfs destroy tank/from@two%three");
    nas.run_ok("zfs snapshot tank/from@four");
    nas.run_ok("replicate tank/from backup/from");
    assert_eq!(guids(&nas, "backup/from").last(), guids(&nas, "tank/from").last());
    let jobs = nas.run_ok("jobs");
    assert!(jobs.contains("replicate"), "{jobs}");
    // the copy has more than the source: nothing is discarded
    nas.run_ok("zfs snapshot backup/from@own");
    nas.run_ok("zfs snapshot tank/from@five");
    let said = nas.run_failing("replicate tank/from backup/from", 14);
    assert!(said.contains("`zfs rollback -r backup/from@four`"), "{said}");
    nas.run_failing("replicate tank tank/within", 2);
    nas.run_failing("replicate tank/from", 2);
}

#[test]
fn snapshots_missing_on_a_replica_are_kept() {
    let nas = two_pools("config");
    write_config(
        &nas,
        "[[policy]]\ndataset = \"tank/from\"\nhourly = 1\n\n\
         [[replica]]\nname = \"second\"\nsource = \"tank/from\"\ntarget = \"backup/from\"\n\
         every = \"monthly\"\n",
    );
    nas.wait_until(|| nas.run_ok("config show").contains("second"));
    nas.run_ok("policy run");
    nas.run_ok("replicate run second");
    let status = nas.run_ok("replicate status");
    let line = status.lines().find(|line| line.contains("tank/from")).unwrap().to_owned();
    assert!(line.starts_with("second") && line.ends_with('0'), "{status}");
    let marks = nas.run_ok("zfs list -Ho name -t bookmark tank/from");
    assert!(marks.contains("tank/from#replica_second"), "{marks}");
    assert_eq!(guids(&nas, "backup/from"), guids(&nas, "tank/from"));
    nas.run_ok("zfs snapshot tank/from@new");
    let json = nas.run_ok("replicate status --json");
    assert!(json.contains("\"missing\": 1"), "{json}");
    let policy = nas.run_ok("policy status");
    assert!(policy.contains("hourly"), "{policy}");
    nas.run_failing("replicate run other", 14);
}

#[test]
fn replica_that_is_away_keeps_no_snapshots() {
    let nas = two_pools("away");
    write_config(
        &nas,
        "[[policy]]\ndataset = \"tank/from\"\nhourly = 1\nautosnap = false\n\n\
         [[replica]]\nname = \"second\"\nsource = \"tank/from\"\ntarget = \"backup/from\"\n\
         every = \"monthly\"\naway = \"1d\"\nwindow = \"00:00-00:01\"\n",
    );
    nas.wait_until(|| nas.run_ok("config show").contains("second"));
    let automatic = |day: u32| format!("tank/from@autosnap_2026-01-0{day}_00:00:00_hourly");
    nas.run_ok(&format!("zfs snapshot {}", automatic(1)));
    nas.run_ok("replicate run second");
    nas.run_ok(&format!("zfs snapshot {}", automatic(2)));
    nas.run_ok(&format!("zfs snapshot {}", automatic(3)));
    let done = nas.run_ok("policy run");
    assert!(done.contains(&format!("kept {}", automatic(2))), "{done}");
    // the last success was long ago
    nas.run_ok("serve --stop");
    let file = nas.state_dir().join("replicas.json");
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    state["second"]["succeeded"] = 1.into();
    fs::write(&file, state.to_string()).unwrap();
    let done = nas.run_ok("policy run");
    assert_eq!(done, format!("destroyed {}\n", automatic(2)));
    // the bookmark is the base of the next increment
    nas.run_ok("replicate run second");
    assert_eq!(guids(&nas, "backup/from").last(), guids(&nas, "tank/from").last());
}

/// A program that stands for ssh: it runs the command with another daemon of this machine.
fn ssh_to(nas: &TestNas, remote: &TestNas) -> PathBuf {
    let program = nas.0.join("ssh");
    let text = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\n[ \"$2\" = me@nas ] || exit 9\n\
         eval \"set -- $3\"\n[ \"$1\" = zfs ] || exit 9\nexec {} \"$@\" --state {}\n",
        env!("CARGO_BIN_EXE_poolhouse"),
        path_arg(&remote.state_dir())
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn another_host_is_replicated_to_by_ssh() {
    let (nas, remote) = (two_pools("here"), TestNas::new("there", 1));
    let drive = remote.drive_paths(1).remove(0);
    remote.run_ok(&format!("zpool create -O mountpoint=none far {}", path_arg(&drive)));
    let ssh = ssh_to(&nas, &remote);
    write_config(
        &nas,
        &format!(
            "[[replica]]\nname = \"far\"\nsource = \"tank/from\"\n\
             target = \"ssh://me@nas/far/from\"\nevery = \"monthly\"\nssh = [\"{}\"]\n",
            path_arg(&ssh)
        ),
    );
    nas.wait_until(|| nas.run_ok("config show").contains("far"));
    // an interrupted receive resumes
    let whole = fs::read(fixtures::load("sent").dir.join("full.zstream")).unwrap();
    let cut = nas.0.join("cut.zstream");
    fs::write(&cut, &whole[..300_000]).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(["zfs", "receive", "-su", "far/from", "--state", path_arg(&remote.state_dir())]);
    let done = command.stdin(File::open(&cut).unwrap()).output().unwrap();
    assert!(!done.status.success());
    nas.run_ok("replicate run far");
    assert_eq!(guids(&remote, "far/from"), guids(&nas, "tank/from"));
    nas.run_ok("zfs snapshot tank/from@three");
    nas.run_ok("replicate run");
    assert_eq!(guids(&remote, "far/from"), guids(&nas, "tank/from"));
    // the other host has nothing of this one yet
    remote.run_ok("zfs destroy -r far/from");
    nas.run_ok("replicate run far");
    assert_eq!(guids(&remote, "far/from"), guids(&nas, "tank/from"));
    remote.run_ok("zfs snapshot far/from@own");
    nas.run_ok("zfs snapshot tank/from@four");
    let said = nas.run_failing("replicate run", 14);
    assert!(said.contains("rollback"), "{said}");
    let status = nas.run("replicate status");
    assert!(status.status != 0 && status.stderr.contains("rollback"), "{}", status.stderr);
}

#[test]
fn another_host_is_pulled_from_by_ssh() {
    let (remote, nas) = (two_pools("origin"), TestNas::new("puller", 1));
    let drive = nas.drive_paths(1).remove(0);
    nas.run_ok(&format!("zpool create -O mountpoint=none copies {}", path_arg(&drive)));
    let ssh = ssh_to(&nas, &remote);
    write_config(
        &nas,
        &format!(
            "[[replica]]\nname = \"pull\"\nsource = \"ssh://me@nas/tank/from\"\n\
             target = \"copies/from\"\nevery = \"monthly\"\nrecursive = false\nssh = [\"{}\"]\n\
             wake = \"00:11:22:33:44:55\"\n",
            path_arg(&ssh)
        ),
    );
    nas.wait_until(|| nas.run_ok("config show").contains("pull"));
    // an interrupted receive resumes
    let whole = fs::read(fixtures::load("sent").dir.join("full.zstream")).unwrap();
    let cut = nas.0.join("cut.zstream");
    fs::write(&cut, &whole[..300_000]).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(["zfs", "receive", "-su", "copies/from", "--state", path_arg(&nas.state_dir())]);
    assert!(!command.stdin(File::open(&cut).unwrap()).output().unwrap().status.success());
    nas.run_ok("replicate run pull");
    assert_eq!(guids(&nas, "copies/from"), guids(&remote, "tank/from"));
    // a new copy is read-only
    nas.run_ok("zfs destroy -r copies/from");
    nas.run_ok("replicate run pull");
    assert_eq!(nas.run_ok("zfs get -Ho value readonly copies/from"), "on\n");
    remote.run_ok("zfs snapshot tank/from@three");
    let done = nas.run_ok("replicate run");
    assert_eq!(done, "copies/from has ssh://me@nas/tank/from@three\n");
    assert_eq!(guids(&nas, "copies/from"), guids(&remote, "tank/from"));
    // one bookmark is the fixture's own; the other follows the newest snapshot of the copy
    let guid = guids(&nas, "copies/from").pop().unwrap();
    let marks = format!("tank/from#one\ntank/from#replica_pull_{guid}\n");
    assert_eq!(remote.run_ok("zfs list -Ho name -t bookmark -s createtxg tank/from"), marks);
    // so the source may destroy that snapshot
    remote.run_ok("zfs destroy tank/from@three");
    remote.run_ok("zfs snapshot tank/from@again");
    nas.run_ok("replicate run pull");
    assert_eq!(guids(&nas, "copies/from").last(), guids(&remote, "tank/from").last());
    let status = nas.run_ok("replicate status --json");
    assert!(status.contains("\"snapshot\": \"again\"") && status.contains("\"missing\": null"));
    // the copy has more than the source: nothing is discarded
    nas.run_ok("zfs snapshot copies/from@own");
    remote.run_ok("zfs snapshot tank/from@four");
    let said = nas.run_failing("replicate run", 14);
    assert!(said.contains("`zfs rollback -r copies/from@again`"), "{said}");
    let said = nas.run_failing("replicate ssh://me@nas/tank/from ssh://me@nas/tank/b", 2);
    assert!(said.contains("must be in a pool of this host"), "{said}");
}

#[test]
fn woken_host_is_sent_to_sleep_again() {
    let (nas, remote) = (two_pools("waker"), TestNas::new("sleeper", 1));
    let drive = remote.drive_paths(1).remove(0);
    remote.run_ok(&format!("zpool create -O mountpoint=none far {}", path_arg(&drive)));
    let asleep = nas.0.join("asleep");
    let real = ssh_to(&nas, &remote);
    // the host does not reply while the file exists, and `doze now` creates it
    let program = nas.0.join("ssh-asleep");
    let text = format!(
        "#!/bin/sh\nfor last; do :; done\n[ \"$last\" = \"'doze' 'now'\" ] && exec touch {asleep}\n\
         [ -e {asleep} ] && exit 255\nexec {real} \"$@\"\n",
        asleep = path_arg(&asleep),
        real = path_arg(&real)
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    write_config(
        &nas,
        &format!(
            "[[replica]]\nname = \"far\"\nsource = \"tank/from\"\nrecursive = false\n\
             target = \"ssh://me@nas/far/from\"\nevery = \"monthly\"\nssh = [\"{}\"]\n\
             wake = \"00:11:22:33:44:55\"\nwake-address = \"{}\"\nsleep = [\"doze\", \"now\"]\n",
            path_arg(&program),
            socket.local_addr().unwrap()
        ),
    );
    nas.wait_until(|| nas.run_ok("config show").contains("far"));
    // a host that is awake stays so
    nas.run_ok("replicate run far");
    assert!(!asleep.exists());
    fs::write(&asleep, "").unwrap();
    let there = asleep.clone();
    let network_card = std::thread::spawn(move || {
        let mut packet = [0; 200];
        let length = socket.recv(&mut packet).unwrap();
        fs::remove_file(there).unwrap();
        packet[..length].ends_with(&[0, 0x11, 0x22, 0x33, 0x44, 0x55])
    });
    nas.run_ok("zfs snapshot tank/from@three");
    nas.run_ok("replicate run far");
    assert!(network_card.join().unwrap());
    assert!(asleep.exists(), "it sleeps again");
    fs::remove_file(&asleep).unwrap();
    assert_eq!(guids(&remote, "far/from"), guids(&nas, "tank/from"));
}

#[test]
fn test_restore_finds_a_copy_that_differs() {
    let nas = two_pools("tested");
    // a copy without checksums, so that wrong content can be read
    let full = fixtures::load("sent").dir.join("full.zstream");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(["zfs", "receive", "-u", "-o", "checksum=off", "-o", "compression=off"]);
    command.args(["backup/from", "--state", path_arg(&nas.state_dir())]);
    assert!(command.stdin(File::open(full).unwrap()).output().unwrap().status.success());
    write_config(
        &nas,
        "[[replica]]\nname = \"second\"\nsource = \"tank/from\"\ntarget = \"backup/from\"\n\
         every = \"monthly\"\nrecursive = false\ntest = \"weekly\"\n",
    );
    nas.wait_until(|| nas.run_ok("config show").contains("second"));
    nas.run_ok("replicate run second");
    let done = nas.run_ok("replicate test second");
    assert!(done.starts_with("backup/from@two equals tank/from: "), "{done}");
    assert!(nas.run_ok("replicate status").contains("second: copies read back and found equal"));
    nas.run_ok("serve --stop");
    let drive = nas.drive_paths(1).remove(0);
    let mut bytes = fs::read(&drive).unwrap();
    let lines = b"\n59990\n59991\n";
    let places: Vec<_> =
        (0..bytes.len() - lines.len()).filter(|at| bytes[*at..].starts_with(lines)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 2] = b'8';
    }
    fs::write(&drive, bytes).unwrap();
    let said = nas.run_failing("replicate test", 14);
    assert!(said.contains("the copy 'backup/from@two' differs from its source"), "{said}");
    let status = nas.run("replicate status");
    assert!(status.status != 0 && status.stderr.contains("differs from its source"));
    nas.wait_until(|| {
        nas.run("alerts list").stdout.contains("Replica second differs from its source")
    });
    nas.run_failing("replicate test other", 14);
}
