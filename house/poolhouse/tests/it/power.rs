//! Spin-down: the disks of an idle pool sleep, and the first request wakes all of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::health::watch_drives;
use crate::test_nas::TestNas;

/// Has the program in place of smartctl record its arguments.
fn record_calls(nas: &TestNas) {
    let program = nas.0.join("reports/smartctl");
    let script = fs::read_to_string(&program).unwrap();
    let script = script.replace("#!/bin/sh\n", "#!/bin/sh\necho \"$*\" >> \"${0%/*}/calls\"\n");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

fn standby_calls(nas: &TestNas) -> usize {
    let calls = fs::read_to_string(nas.0.join("reports/calls")).unwrap_or_default();
    calls.lines().filter(|line| line.contains("standby,now")).count()
}

fn asleep(nas: &TestNas) -> u64 {
    let list: Value = serde_json::from_str(&nas.run("drives list --json").stdout).unwrap();
    list["power"]["asleep"].as_u64().unwrap()
}

#[test]
fn idle_disks_sleep_and_wake_together() {
    let nas = TestNas::new("power", 2);
    watch_drives(&nas, &["smart-fail2.json", "smart-fail2.json"], "");
    record_calls(&nas);
    nas.run("drives list --now");
    nas.create_pool("-m none -O canmount=off tank mirror", 2);
    nas.wait_until(|| nas.run("drives list").stdout.contains("tank/mirror-0"));
    assert_eq!((standby_calls(&nas), asleep(&nas)), (0, 0));
    let state = nas.state_dir().join("config.toml");
    let mut config = fs::read_to_string(&state).unwrap();
    config.push_str("[[power]]\npool = \"tank\"\nidle_minutes = 0.1\n");
    fs::write(&state, config).unwrap();
    nas.run_ok("config set health.kilowatt_hour 0.3");
    // longer than the time of a txg: an idle pool writes nothing
    nas.wait_until(|| asleep(&nas) == 2);
    assert_eq!(standby_calls(&nas), 2);
    let list = nas.run("drives list").stdout;
    assert!(list.contains("failing (asleep)") && list.contains("; 2 sleep (estimated)"), "{list}");
    nas.run_ok("zfs create tank/new");
    nas.wait_until(|| nas.read_log().contains("2 of its disks were woken"));
    assert!(!nas.read_log().contains("does not wake"), "{}", nas.read_log());
}
