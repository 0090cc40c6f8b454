//! Fans in a folder that stands for /sys/class/hwmon: controlled, and at full speed after every fault.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::test_nas::{TestNas, kill_daemon};

/// A chip with one fan, and the sensor of one drive.
struct Case {
    fan: PathBuf,
    drive: PathBuf,
}

impl Case {
    /// Makes the files, and configures the fan.
    fn new(nas: &TestNas) -> Self {
        let hwmon = nas.0.join("hwmon");
        let (fan, drive) = (hwmon.join("hwmon3"), hwmon.join("hwmon5"));
        fs::create_dir_all(&fan).unwrap();
        fs::create_dir_all(&drive).unwrap();
        for (name, text) in
            [("name", "nct6798"), ("pwm2", "0"), ("pwm2_enable", "5"), ("fan2_input", "900")]
        {
            fs::write(fan.join(name), text).unwrap();
        }
        fs::write(drive.join("name"), "drivetemp").unwrap();
        let case = Self { fan, drive };
        case.set_celsius("30");
        fs::create_dir_all(nas.state_dir()).unwrap();
        let text = format!(
            "[fans]\nhwmon = \"{}\"\ninterval = 1\n[[fans.fan]]\nname = \"front\"\n\
             chip = \"nct6798\"\npwm = 2\nmin = 20\n",
            hwmon.display()
        );
        fs::write(nas.state_dir().join("config.toml"), text).unwrap();
        case
    }

    fn set_celsius(&self, celsius: &str) {
        fs::write(self.drive.join("temp1_input"), format!("{celsius}000\n")).unwrap();
    }

    fn duty(&self) -> u64 {
        read_number(&self.fan.join("pwm2"))
    }
}

/// A number in a file; 0 while the file is being written.
fn read_number(path: &Path) -> u64 {
    fs::read_to_string(path).unwrap().trim().parse().unwrap_or(0)
}

#[test]
fn fans_follow_drives_and_fail_to_full_speed() {
    let nas = TestNas::new("fans", 0);
    let case = Case::new(&nas);
    nas.run("fans status");
    // a cool drive lets the fan slow down
    nas.wait_until(|| (1..250).contains(&case.duty()));
    assert_eq!(fs::read_to_string(case.fan.join("pwm2_enable")).unwrap(), "1");
    let status: Value = serde_json::from_str(&nas.run_ok("fans status --json")).unwrap();
    assert_eq!((&status["fans"][0]["rpm"], &status["drive"]), (&900.into(), &30.0.into()));
    assert_eq!(status["has_watchdog"], true);
    case.set_celsius("52");
    nas.wait_until(|| case.duty() == 255);
    let shown = nas.run("fans status");
    assert!(shown.status == 1 && shown.stdout.contains("its limit is 50 °C"), "{}", shown.stdout);
    nas.wait_until(|| nas.run("alerts list").stdout.contains("All fans turn at full speed"));
    case.set_celsius("30");
    nas.wait_until(|| (1..250).contains(&case.duty()));
    // the watchdog outlives a daemon that is killed
    kill_daemon(&nas.state_dir());
    nas.wait_until(|| case.duty() == 255);
}

#[test]
fn end_of_daemon_and_command_set_full_speed() {
    let nas = TestNas::new("fans-end", 0);
    let case = Case::new(&nas);
    nas.run("fans status");
    nas.wait_until(|| (1..250).contains(&case.duty()));
    nas.run_ok("serve --stop");
    assert_eq!(case.duty(), 255);
    fs::write(case.fan.join("pwm2"), "60").unwrap();
    nas.run_ok("fans full");
    assert_eq!(case.duty(), 255);
    fs::remove_file(case.fan.join("pwm2")).unwrap();
    let shown = nas.run("fans status");
    nas.wait_until(|| nas.run("fans status").stdout.contains("there is no pwm2 on a chip nct6798"));
    assert_ne!(shown.status, 14, "{}", shown.stderr);
    let why = nas.run_failing("fans calibrate back", 14);
    assert!(why.contains("configured are: front"), "{why}");
}
