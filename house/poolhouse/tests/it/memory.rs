//! The daemon's memory: what pools took is given back when they are exported.

use std::fs;

use crate::test_nas::{TestNas, cannot_mount, random_bytes};

/// KiB of memory that the daemon has.
fn resident(nas: &TestNas) -> u64 {
    let log = nas.read_log();
    let pid = log.lines().filter_map(|line| line.split(" as process ").nth(1)).next_back().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn exported_pools_give_memory_back() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("memory", 1);
    nas.create_pool("tank", 1);
    let before = resident(&nas);
    for number in 0..6 {
        nas.run_ok(&format!("zfs create tank/n{number}"));
        let file = nas.altroot().join(format!("tank/n{number}/file"));
        fs::write(file, random_bytes(10 << 20)).unwrap();
    }
    nas.run_ok("zpool sync");
    let most = resident(&nas);
    assert!(most > before + (30 << 10), "{before} KiB, then {most} KiB");
    nas.run_ok("zpool export tank");
    nas.wait_until(|| resident(&nas) < before + (20 << 10));
}
