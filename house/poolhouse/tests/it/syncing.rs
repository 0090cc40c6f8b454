//! sync(2) while pools are mounted whose drives are files: on the machine's own file system, and in another pool
//! of the same daemon.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::path_arg;
use crate::test_nas::{TestNas, cannot_mount, mount_source, random_bytes};

const LIMIT: Duration = Duration::from_mins(2);

fn ends(child: &mut Child, limit: Duration) -> bool {
    let last = Instant::now() + limit;
    while Instant::now() < last {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Runs sync(1), which cannot be killed while it waits: it ends when the daemon does.
fn sync(nas: &TestNas, words: &[&str]) {
    let mut command = Command::new("sync");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    if !ends(&mut child, LIMIT) {
        let log = nas.read_log();
        let pid = log.lines().filter_map(|line| line.split(" as process ").nth(1)).next_back();
        let _ = Command::new("kill").args(["-9", pid.unwrap_or_default()]).status();
        panic!("sync {words:?} did not end: {log}");
    }
}

#[test]
fn sync_ends_with_pools_inside_pools() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("sync", 1);
    nas.create_pool("outer", 1);
    let (outer, inner) = (nas.altroot().join("outer"), nas.altroot().join("inner"));
    let drive = outer.join("drive.img");
    File::create(&drive).unwrap().set_len(128 << 20).unwrap();
    nas.run_ok(&format!("zpool create -R {} inner {}", path_arg(&nas.altroot()), path_arg(&drive)));
    assert_eq!(mount_source(&inner).as_deref(), Some("inner"));
    nas.run_ok("zfs create inner/below");
    for round in 0..4 {
        for dir in [&outer, &inner, &inner.join("below")] {
            fs::write(dir.join(format!("file{round}")), random_bytes(300_000)).unwrap();
        }
        sync(&nas, &["-f", path_arg(&inner), path_arg(&outer)]);
    }
    fs::write(inner.join("last"), random_bytes(300_000)).unwrap();
    // of the whole machine
    sync(&nas, &[]);
    nas.run_ok("zpool export inner");
    nas.run_ok("zpool export outer");
    assert_eq!((mount_source(&inner), mount_source(&outer)), (None, None));
}
