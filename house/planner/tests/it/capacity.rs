//! Capacities of pools of OpenZFS 2.3.2, and published ones.

use planner::{Capacity, CapacityOptions, PoolLayout, RecordMix, SpaceRules, parse_drives};
use serde_json::Value;
use units::Ashift;

/// One pool a line: drives and layout, and the output of `zpool list`, `zfs get` and `zdb -C` for
/// the empty pool. Made by OpenZFS 2.3.2 of random layouts on sparse files of full size.
const REAL_POOLS: &str = include_str!("../golden/capacity.jsonl");

fn plan_capacity(
    words: &str,
    drives: &[u64],
    ashift: u64,
    rules: SpaceRules,
    whole_disks: bool,
) -> Capacity {
    let words = PoolLayout::parse(words, drives.len()).unwrap();
    let taking = CapacityOptions { ashift: Ashift::new(ashift).unwrap(), whole_disks, rules };
    Capacity::new(&words, drives, taking, &RecordMix::default()).unwrap()
}

fn as_number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn plan_matches_real_pools() {
    let mut pools = 0;
    for line in REAL_POOLS.lines() {
        let real: Value = serde_json::from_str(line).unwrap();
        let drives: Vec<u64> = real["drives"].as_array().unwrap().iter().map(as_number).collect();
        let layout = real["layout"].as_str().unwrap();
        let planned =
            plan_capacity(layout, &drives, as_number(&real["ashift"]), SpaceRules::Since2_1, false);
        let vdevs: Vec<(u64, u64)> =
            (planned.vdevs.iter()).map(|vdev| (vdev.asize, vdev.metaslab_shift.into())).collect();
        let told: Vec<(u64, u64)> = (real["vdevs"].as_array().unwrap().iter())
            .map(|vdev| (as_number(&vdev["asize"]), as_number(&vdev["metaslab_shift"])))
            .collect();
        assert_eq!(vdevs, told, "{line}");
        assert_eq!(planned.size_bytes, as_number(&real["size"]), "{line}");
        let usable = as_number(&real["used"]) + as_number(&real["available"]);
        assert_eq!(planned.account.usable_bytes, usable, "{line}");
        pools += 1;
    }
    assert!(pools >= 40, "{pools}");
}

#[test]
fn plan_matches_real_pool_of_whole_disks() {
    let disks = [4_000_787_030_016, 1_000_204_886_016, 3_000_000_000_512];
    let planned = plan_capacity("raidz1 3", &disks, 12, SpaceRules::Since2_1, true);
    assert_eq!(planned.vdevs[0].asize, 3_000_569_954_304);
    assert_eq!(planned.size_bytes, 2_989_297_238_016);
    assert_eq!(planned.account.usable_bytes, 133_672 + 1_929_059_890_648);
}

#[test]
fn plan_matches_published_cases() {
    let drives = |text: &str| parse_drives(text).unwrap();
    let short = |capacity: &Capacity| units::human_bytes(capacity.account.usable_bytes);
    let four = drives("24x4000787030016");
    let of_2014 =
        |words, ashift| plan_capacity(words, &four, ashift, SpaceRules::Before0_6_4, false);
    assert_eq!(short(&of_2014("raidz3 24", 12)), "68.4T");
    assert_eq!(short(&of_2014("raidz3 24", 9)), "73.9T");
    assert_eq!(of_2014("raidz2 18 raidz2 6", 9).account.usable_bytes >> 40, 71);
    assert_eq!(of_2014("raidz2 18 raidz2 6", 12).account.usable_bytes >> 40, 71);
    for (size, single, double) in [("3TB", 9, 6), ("4TB", 12, 8), ("6TB", 18, 12), ("8TB", 24, 16)]
    {
        let net = |words| {
            plan_capacity(words, &drives(&format!("4x{size}")), 12, SpaceRules::Since2_1, false)
        };
        assert_eq!(net("raidz 4").net_bytes, single * 1_000_000_000_000);
        assert_eq!(net("raidz2 4").net_bytes, double * 1_000_000_000_000);
    }
    let draid = plan_capacity("draid2:6d:24c", &drives("24x1TB"), 12, SpaceRules::Since2_1, false);
    assert_eq!(draid.account.usable_bytes, 15_835_678_638_080);
}

#[test]
fn every_byte_is_accounted_for() {
    for line in REAL_POOLS.lines() {
        let real: Value = serde_json::from_str(line).unwrap();
        let drives: Vec<u64> = real["drives"].as_array().unwrap().iter().map(as_number).collect();
        let layout = real["layout"].as_str().unwrap();
        for (rules, whole) in [
            (SpaceRules::Before0_6_4, true),
            (SpaceRules::Since0_8, false),
            (SpaceRules::Since2_1, true),
        ] {
            let planned = plan_capacity(layout, &drives, as_number(&real["ashift"]), rules, whole);
            let raw = drives.iter().sum::<u64>();
            assert_eq!(planned.account.raw_bytes(), raw, "{line} {rules:?} {:?}", planned.account);
        }
    }
}
