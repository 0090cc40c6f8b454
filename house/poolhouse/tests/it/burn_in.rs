//! Burn-ins of drive files by the daemon: verdicts, refusals, interruptions and restarts.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::command::{path_arg, run_with_input};
use crate::health::watch_drives;
use crate::test_nas::TestNas;

const MIB: u64 = 1 << 20;
/// The serial number in the report of the first drive.
const SERIAL: &str = "S24ZN902000L";

fn nas_with_drives(name: &str) -> TestNas {
    let nas = TestNas::new(name, 2);
    watch_drives(&nas, &["smart-ata2.json", "smart-fail2.json"], "");
    nas.run("drives list --now");
    nas
}

fn report(nas: &TestNas) -> Value {
    let output = nas.run("drives burn-in --report --json d0.img");
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{}", output.stderr))
}

#[test]
fn burn_in_of_sound_drive_passes() {
    let nas = nas_with_drives("burn-ok");
    assert!(nas.run_failing("drives burn-in --report d0.img", 14).contains("had no burn-in yet"));
    let text = nas.run_ok("drives burn-in --yes --wait d0.img");
    assert!(text.contains("verdict:  ok"), "{text}");
    assert!(text.contains("No SMART counter of errors grew"), "{text}");
    let report = report(&nas);
    assert_eq!(report["drive"], SERIAL);
    assert_eq!(report["results"]["write"]["bytes"], 256 * MIB);
    assert_eq!(report["results"]["read"]["zones"].as_array().map(Vec::len), Some(20));
    // each sector of the file has its place in it
    let file = fs::File::open(&nas.drive_paths(1)[0]).unwrap();
    let mut place = [0; 8];
    file.read_exact_at(&mut place, 200 * MIB + 8).unwrap();
    assert_eq!(u64::from_le_bytes(place), 200 * MIB);
    assert!(nas.run_ok("jobs").contains("burn-in"));
    assert!(nas.run_ok("drives show d0.img").contains("The whole drive was written"));
    // the drive that the monitor knows as failing does not pass
    let failing = nas.run("drives burn-in --yes --wait d1.img");
    assert_eq!(failing.status, 1, "{}", failing.stderr);
    assert!(failing.stdout.contains("SMART report says that it fails"), "{}", failing.stdout);
    assert!(nas.run_ok("jobs").contains("failed"));
}

#[test]
fn burn_in_refuses_used_drives() {
    let nas = nas_with_drives("burn-used");
    let state = nas.state_dir();
    let args = ["drives", "burn-in", "d0.img", "--state", path_arg(&state)];
    let refused = std::panic::catch_unwind(|| run_with_input(&args, "S-OTHER\n"));
    assert!(refused.is_err(), "another serial number");
    nas.create_pool("-m none tank mirror", 2);
    nas.wait_until(|| nas.run("drives list").stdout.contains("tank/mirror-0"));
    let why = nas.run_failing("drives burn-in --yes d0.img", 14);
    assert!(why.contains("is in pool 'tank'; nothing was written"), "{why}");
    // the labels of an exported pool are data, too
    nas.run_ok("zpool export tank");
    nas.wait_until(|| !nas.run("drives list").stdout.contains("tank/mirror-0"));
    let why = nas.run_failing("drives burn-in --yes d0.img", 11);
    assert!(why.contains("tank"), "{why}");
    let drives = nas.0.join("drives");
    nas.run_ok(&format!("zpool import -d {} tank", path_arg(&drives)));
    nas.run_ok("zpool destroy tank");
    nas.wait_until(|| !nas.run("drives list").stdout.contains("tank/mirror-0"));
    // a typed serial number starts it
    let text = run_with_input(&args, &format!("{SERIAL}\n"));
    assert!(
        text.contains("All data on drive d0.img") && text.contains("burn-in of drive"),
        "{text}"
    );
    let list: Value = serde_json::from_str(&nas.run("drives list --json").stdout).unwrap();
    let found = list["drives"].as_array().unwrap().iter().find(|it| it["serial"] == SERIAL);
    let is_running = report(&nas)["state"] == "running";
    assert!(found.unwrap()["is_in_burn_in"] == true || !is_running, "{list}");
}

/// Starts burn-ins until one is stopped by `stop` in its write pass.
fn stop_in_write_pass(nas: &TestNas, stop: &dyn Fn(&Value)) {
    for _ in 0..20 {
        nas.run_ok("drives burn-in --yes d0.img");
        let is_under_way = || report(nas)["results"]["write"]["bytes"].as_u64() > Some(16 * MIB);
        nas.wait_until(is_under_way);
        stop(&report(nas));
        let files = fs::read_dir(nas.state_dir().join("burn-in")).unwrap();
        let saved = fs::read(files.flatten().next().unwrap().path()).unwrap();
        let saved: Value = serde_json::from_slice(&saved).unwrap();
        if saved["results"]["phase"] == "write" && saved["state"] != "done" {
            return;
        }
        nas.wait_until(|| report(nas)["state"] != "running");
    }
    panic!("the burn-in always ended first");
}

#[test]
fn restarted_daemon_finds_damaged_data() {
    let nas = nas_with_drives("burn-cut");
    stop_in_write_pass(&nas, &|_| drop(nas.run_ok("serve --stop")));
    // the drive loses a bit that was written
    let drive = OpenOptions::new().read(true).write(true).open(&nas.drive_paths(1)[0]).unwrap();
    let mut byte = [0];
    drive.read_exact_at(&mut byte, 5 * MIB).unwrap();
    drive.write_all_at(&[byte[0] ^ 4], 5 * MIB).unwrap();
    nas.wait_until(|| report(&nas)["state"] == "done");
    let text = nas.run("drives burn-in --report d0.img");
    assert_eq!(text.status, 1, "{}", text.stdout);
    let sentence = "The drive returned 512 damaged bytes at byte 5242880, without an error.";
    assert!(text.stdout.contains(sentence), "{}", text.stdout);
    assert_eq!(report(&nas)["results"]["write"]["bytes"], 256 * MIB, "nothing was written twice");
}

#[test]
fn cancelled_burn_in_continues_by_command() {
    let nas = nas_with_drives("burn-stop");
    stop_in_write_pass(&nas, &|report| {
        nas.run(&format!("jobs cancel {}", report["job"]));
        nas.wait_until(|| self::report(&nas)["state"] != "running");
    });
    let text = nas.run_ok("drives burn-in --report d0.img");
    assert!(text.contains("A user cancelled it"), "{text}");
    let text = nas.run_ok("drives burn-in --continue --wait d0.img");
    assert!(text.contains("verdict:  ok"), "{text}");
    assert!(
        nas.run_failing("drives burn-in --continue d0.img", 14).contains("nothing to continue")
    );
}
