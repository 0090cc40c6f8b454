//! Power failures, as NUT's simulated UPS plays them, from the first alert to the shutdown and back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::dummy_server::{DummyUps, PASSWORD};
use crate::test_nas::TestNas;

/// Configures a UPS whose shutdown command writes a file instead. Returns the path of that file.
fn watch_ups(nas: &TestNas, ups: &DummyUps, more: &str) -> PathBuf {
    fs::create_dir_all(nas.state_dir()).unwrap();
    let (password, program) = (nas.0.join("password"), nas.0.join("shutdown"));
    fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let done = nas.0.join("was-shut-down");
    fs::write(&program, "#!/bin/sh\necho \"$@\" >\"${0%/*}/was-shut-down\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let (port, password, program) = (ups.port, password.display(), program.display());
    let text = format!(
        "[ups]\nserver = \"nut://127.0.0.1:{port}/cellar\"\nuser = \"nas\"\n\
         password_file = \"{password}\"\ninterval = 1\nresume_after = 0\n\
         shutdown_command = [\"{program}\", \"now\"]\n{more}"
    );
    fs::write(nas.state_dir().join("config.toml"), text).unwrap();
    done
}

fn status(nas: &TestNas) -> Value {
    serde_json::from_str(&nas.run("ups status --json").stdout).unwrap()
}

fn wait_for_stage(nas: &TestNas, stage: &str) {
    nas.wait_until(|| status(nas)["stage"] == stage && status(nas)["error"].is_null());
}

#[test]
fn power_failure_closes_pools_and_power_reopens_them() {
    let Some(ups) = DummyUps::start("outage") else { return };
    let nas = TestNas::new("outage", 3);
    let flag = nas.0.join("killpower");
    let more =
        format!("quiet_after = 0\nrole = \"primary\"\npower_down_flag = \"{}\"\n", flag.display());
    let done = watch_ups(&nas, &ups, &more);
    nas.create_pool("tank raidz1", 3);
    nas.run_ok("zfs create tank/a");
    wait_for_stage(&nas, "normal");
    assert!(nas.run_ok("ups status").contains("House Dummy"));
    // line power fails, a minute later the battery is low
    let outage = "ups.status: OB DISCHRG\nbattery.charge: 90\nTIMER 6\nups.status: OB LB\n\
                  battery.charge: 5\nTIMER 300\n";
    ups.set_script(outage);
    nas.wait_until(|| nas.run("alerts list").stdout.contains("wait for line power"));
    assert_eq!(nas.run("ups status").status, 1);
    assert!(!done.exists() && nas.run("zfs list tank/a").status == 0);
    nas.wait_until(|| done.exists());
    assert_eq!(fs::read_to_string(&done).unwrap(), "now\n");
    assert_eq!(fs::read_to_string(&flag).unwrap(), "upsmon-shutdown-file");
    wait_for_stage(&nas, "shut-down");
    let why = nas.run_failing("zfs list tank/a", 1);
    assert!(why.contains("battery of the UPS is nearly empty"), "{why}");
    // the primary notified the others
    nas.wait_until(|| status(&nas)["reading"]["status"].as_str().unwrap().contains("FSD"));
    // a restarted upsd has forgotten that, and the power is back
    ups.set_status("OL CHRG", 30);
    drop(ups);
    let ups = DummyUps::start("back").unwrap();
    nas.run_ok(&format!("config set ups.server nut://127.0.0.1:{}/cellar", ups.port));
    wait_for_stage(&nas, "normal");
    nas.wait_until(|| nas.run("zfs list tank/a").status == 0);
    assert!(!flag.exists());
    assert_eq!(nas.run_ok("zpool list -Ho name,health"), "tank\tONLINE\n");
    assert!(!nas.read_log().contains(PASSWORD), "{}", nas.read_log());
}

#[test]
fn short_power_failure_only_pauses_background_work() {
    let Some(ups) = DummyUps::start("pause") else { return };
    let nas = TestNas::new("pause", 1);
    let done = watch_ups(&nas, &ups, "quiet_after = 0\n");
    nas.create_pool("tank", 1);
    wait_for_stage(&nas, "normal");
    ups.set_status("OB DISCHRG", 95);
    wait_for_stage(&nas, "quiet");
    ups.set_status("OL CHRG", 94);
    wait_for_stage(&nas, "normal");
    assert!(!done.exists());
    let events = nas.run_ok("events");
    assert!(events.contains("power_stage_changed"), "{events}");
}

#[test]
fn failing_shutdown_command_raises_an_alert() {
    let Some(ups) = DummyUps::start("stuck") else { return };
    let nas = TestNas::new("stuck", 1);
    watch_ups(&nas, &ups, "");
    fs::remove_file(nas.0.join("shutdown")).unwrap();
    nas.create_pool("tank", 1);
    wait_for_stage(&nas, "normal");
    ups.set_status("OB LB", 4);
    nas.wait_until(|| nas.run("alerts list").stdout.contains("could not be shut down"));
    assert!(nas.run("ups status").stdout.contains("closed until line power returns"));
}

#[test]
fn lost_contact_is_an_alert() {
    let nas = TestNas::new("no-ups", 0);
    fs::create_dir_all(nas.state_dir()).unwrap();
    assert!(nas.run_ok("ups status").contains("config set ups.server"));
    // an address at which nothing listens
    nas.run_ok("config set ups.server nut://127.0.0.1:1/cellar");
    nas.wait_until(|| nas.run("alerts list").stdout.contains("The UPS cannot be read"));
    assert!(nas.run("ups status").stdout.contains("127.0.0.1:1 cannot be reached"));
    assert_eq!(status(&nas)["stage"], "normal");
    let why = nas.run_failing("config set ups.server ftp://x", 2);
    assert!(why.contains("nut://HOST/UPS"), "{why}");
}
