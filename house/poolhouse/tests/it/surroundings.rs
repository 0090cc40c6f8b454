//! The daemon where the system lacks something: locked memory, a folder for temporary files, open files, /dev/fuse.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::path_arg;
use crate::test_nas::{TestNas, cannot_mount};

const START_TIMEOUT: Duration = Duration::from_mins(1);

/// A daemon that a shell starts after some lines. It ends with its [`TestNas`].
struct LimitedDaemon {
    nas: TestNas,
    child: Child,
}

impl LimitedDaemon {
    /// None: the shell cannot do what `lines` say, which takes root.
    fn start(name: &str, lines: &str) -> Option<Self> {
        let nas = TestNas::new(name, 1);
        let script = format!("{lines} && exec \"$0\" serve --state \"$1\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_poolhouse"), path_arg(&nas.state_dir())]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut daemon = Self { child: command.spawn().unwrap(), nas };
        let socket = daemon.nas.state_dir().join("socket");
        let last = Instant::now() + START_TIMEOUT;
        while !socket.exists() {
            assert!(Instant::now() < last, "{}", daemon.nas.read_log());
            if daemon.child.try_wait().unwrap().is_some() {
                eprintln!("not tested: `{lines}` cannot be done here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(daemon)
    }
}

impl Drop for LimitedDaemon {
    fn drop(&mut self) {
        self.nas.run("zpool export -f -a");
        self.nas.run("serve --stop");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn daemon_needs_no_locked_memory_nor_temporary_files() {
    let lines = "ulimit -l 0 && export TMPDIR=/proc/none";
    let Some(daemon) = LimitedDaemon::start("memlock", lines) else { return };
    let nas = &daemon.nas;
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create tank/a");
    nas.run_ok("zfs create -V 16M tank/v");
    nas.run_ok("zfs snapshot -r tank@s");
    nas.run_ok("zpool scrub -w tank");
    nas.run_ok("zpool export tank");
}

#[test]
fn failed_mounts_name_the_limit_of_open_files() {
    if cannot_mount() {
        return;
    }
    let Some(daemon) = LimitedDaemon::start("nofile", "ulimit -n 48") else { return };
    let nas = &daemon.nas;
    nas.create_pool("tank", 1);
    let mut runs = (0..48).map(|number| nas.run(&format!("zfs create tank/n{number}")));
    let failed = runs.find(|run| run.status != 0).expect("48 mounts take more than 48 files");
    assert!(failed.stderr.contains("the limit of open files is reached"), "{}", failed.stderr);
    // what has no room stays unmounted, and the pool can be used and exported
    nas.run_ok("zfs snapshot -r tank@s");
    nas.run_ok("zpool export tank");
}

#[test]
fn pools_work_without_the_fuse_device() {
    if cannot_mount() {
        return;
    }
    // in a mount namespace of its own, which takes root
    let lines = "unshare -m true && exec unshare -m sh -c \
        'mount --bind /dev/null /dev/fuse && exec \"$0\" \"$@\"' \"$0\" serve --state \"$1\"";
    let Some(daemon) = LimitedDaemon::start("nofuse", lines) else { return };
    let nas = &daemon.nas;
    let root = nas.altroot();
    let drive = nas.drive_paths(1);
    let create = format!("zpool create -R {} tank {}", path_arg(&root), path_arg(&drive[0]));
    let said = nas.run_failing(&create, 1);
    assert!(said.contains("are /dev/fuse and fusermount3 (package fuse3) there?"), "{said}");
    assert!(said.contains("the pool was created, but its file system is not mounted"), "{said}");
    nas.run_ok("zfs snapshot tank@s");
    nas.run_ok("zpool scrub -w tank");
    assert!(!root.join("tank").exists(), "a program would write to a plain directory");
    nas.run_ok("zpool export tank");
}
