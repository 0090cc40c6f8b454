//! The daemon's memory: what pools took is given back when they are exported.

use std::fs;

use crate::nas::{Nas, cannot_mount, noise};

/// KiB of memory that the daemon has.
fn resident(nas: &Nas) -> u64 {
    let log = nas.log();
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
    let nas = Nas::new("memory", 1);
    nas.create("tank", 1);
    let before = resident(&nas);
    for number in 0..6 {
        nas.good(&format!("zfs create tank/n{number}"));
        let file = nas.root().join(format!("tank/n{number}/file"));
        fs::write(file, noise(10 << 20)).unwrap();
    }
    nas.good("zpool sync");
    let most = resident(&nas);
    assert!(most > before + (30 << 10), "{before} KiB, then {most} KiB");
    nas.good("zpool export tank");
    nas.until(|| resident(&nas) < before + (20 << 10));
}
