//! Events and jobs of the daemon, as commands show them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::command::path_arg;
use crate::test_nas::{TestNas, cannot_mount, kill_daemon};

/// The kinds of the kept events, without those of mounts and of this machine's drives.
fn event_kinds(nas: &TestNas) -> Vec<String> {
    let lines = nas.run_ok("events --json");
    let kind = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["kind"].as_str().unwrap().to_owned()
    };
    let kinds = lines.lines().map(kind);
    kinds.filter(|kind| !matches!(&**kind, "mounted" | "unmounted" | "alert_changed")).collect()
}

#[test]
fn changes_of_datasets_are_events() {
    let nas = TestNas::new("events", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -p tank/a/b");
    nas.run_ok("zfs snapshot -r tank/a@one");
    nas.run_ok("zfs set atime=off compression=zstd tank/a");
    nas.run_ok("zfs inherit atime tank/a");
    nas.run_ok("zfs rename tank/a tank/c");
    nas.run_ok("zfs rollback tank/c/b@one");
    nas.run_failing("zfs create tank/c", 1);
    nas.run_ok("zfs destroy -r tank/c");
    nas.run_ok("zpool export tank");
    let expected = [
        "pool_created",
        "dataset_created",
        "dataset_created",
        "snapshot_created",
        "snapshot_created",
        "property_set",
        "property_set",
        "property_set",
        "dataset_renamed",
        "dataset_rolled_back",
        "snapshot_destroyed",
        "snapshot_destroyed",
        "dataset_destroyed",
        "dataset_destroyed",
        "pool_exported",
    ];
    assert_eq!(event_kinds(&nas), expected);
    let shown = nas.run_ok("zpool events tank");
    assert!(shown.contains("dataset_renamed  from=tank/a  to=tank/c"), "{shown}");
    assert_eq!(nas.run_ok("zpool events other"), "");
}

#[test]
fn mounts_are_events() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("mount-events", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs unmount tank");
    let shown = nas.run_ok("events");
    let dir = nas.altroot().join("tank");
    for kind in ["mounted", "unmounted"] {
        let line = format!("  {kind}  dataset=tank  directory={}", path_arg(&dir));
        assert!(shown.contains(&line), "{shown}");
    }
}

/// A command that is killed when the test ends.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn followers_see_new_events() {
    let nas = TestNas::new("follow", 1);
    nas.create_pool("-m none tank", 1);
    let state = nas.state_dir();
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(["events", "--follow", "--json", "--state", path_arg(&state)]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut follower = Follower(command.spawn().unwrap());
    let stdout = follower.0.stdout.take().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stdout).lines();
        lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let next = || loop {
        let line: String = receiver.recv_timeout(std::time::Duration::from_mins(1)).unwrap();
        // a drive of this machine may raise an alert meanwhile
        if !line.contains("alert_changed") {
            return line;
        }
    };
    assert!(next().contains("pool_created"));
    nas.run_ok("zfs create tank/a");
    assert!(next().contains("tank/a"));
}

#[test]
fn long_destructions_are_jobs() {
    let nas = TestNas::new("jobs", 1);
    nas.create_pool("-m none tank", 1);
    assert_eq!(nas.run_ok("jobs --json"), "[]\n");
    for number in 0..15 {
        nas.run_ok(&format!("zfs create tank/{number}"));
    }
    // more than fit into one batch
    for number in 0..20 {
        nas.run_ok(&format!("zfs snapshot -r tank@{number}"));
    }
    nas.run_ok("zfs destroy -r tank@%");
    let check = || {
        let jobs: Value = serde_json::from_str(&nas.run_ok("jobs --json")).unwrap();
        let job = &jobs[0];
        assert_eq!(job["kind"], "destroy");
        assert_eq!(job["subject"], "tank@%");
        assert_eq!(job["state"], "finished");
        assert_eq!(job["progress"]["done"], 320);
        assert_eq!(job["id"], 1);
    };
    check();
    kill_daemon(&nas.state_dir());
    check();
    assert!(nas.run_failing("jobs cancel 1", 14).contains("it is finished"));
    assert!(nas.run_failing("jobs cancel 2", 14).contains("no job 2"));
}
