//! Spin-down: the disks of an idle pool sleep, and the first request wakes all of them. The machine sleeps outside its
//! hours.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

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

/// A program that records its arguments.
fn make_recorder(path: &Path) {
    fs::write(path, "#!/bin/sh\necho \"$*\" >> \"$0.calls\"\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A local time some hours from now, by a format of date(1).
fn time_in(hours: u64, format: &str) -> String {
    let mut date = Command::new("date");
    let out = date.args(["-d", &format!("+{hours} hours"), format]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn machine_sleeps_outside_its_hours() {
    let nas = TestNas::new("hours", 1);
    nas.create_pool("-m none tank", 1);
    for name in ["sleep", "ethtool"] {
        make_recorder(&nas.0.join(name));
    }
    let folder = nas.0.display();
    let calls =
        |name: &str| fs::read_to_string(nas.0.join(format!("{name}.calls"))).unwrap_or_default();
    let section = |from: u64, to: u64| {
        let (from, to) = (time_in(from, "+%H:%M"), time_in(to, "+%H:%M"));
        format!(
            "[hours]\nawake = \"{from}-{to}\"\nidle_minutes = 0.05\nwake_on_lan = [\"nic0\"]\n\
             sleep_command = [\"{folder}/sleep\", \"--time\", \"{{wake}}\"]\nethtool = \"{folder}/ethtool\"\n"
        )
    };
    let file = nas.state_dir().join("config.toml");
    // these are its hours
    fs::write(&file, section(23, 5)).unwrap();
    nas.wait_until(|| calls("ethtool").starts_with("-s nic0 wol g\n"));
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(calls("sleep"), "");
    let earliest: u64 = time_in(6, "+%s").parse().unwrap();
    fs::write(&file, section(6, 8)).unwrap();
    nas.wait_until(|| !calls("sleep").is_empty());
    let call = calls("sleep");
    let wake: u64 = call.lines().next().unwrap().strip_prefix("--time ").unwrap().parse().unwrap();
    assert!((earliest - 60..=earliest + 60).contains(&wake), "{wake} {earliest}");
    let events = nas.run_ok("events");
    assert!(events.contains("machine_sleeps") && events.contains("machine_woke"), "{events}");
    // the card is set up again after the sleep
    nas.wait_until(|| calls("ethtool").lines().count() >= 2);
}
