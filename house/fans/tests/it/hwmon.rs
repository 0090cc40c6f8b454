//! Chips in a folder that stands for /sys/class/hwmon.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use fans::{FanConfig, Follows, Hwmon, HwmonError, SensorKind, set_full_speed};

/// A folder that goes with its test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ph-hwmon-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// Adds a chip at a device, with files.
    fn add(&self, number: u32, chip: &str, device: &str, files: &[(&str, &str)]) -> PathBuf {
        let (dir, device) =
            (self.0.join(format!("class/hwmon{number}")), self.0.join("devices").join(device));
        fs::create_dir_all(&dir).unwrap();
        fs::create_dir_all(&device).unwrap();
        symlink(device, dir.join("device")).unwrap();
        fs::write(dir.join("name"), format!("{chip}\n")).unwrap();
        for (name, text) in files {
            fs::write(dir.join(name), text).unwrap();
        }
        dir
    }

    fn hwmon(&self) -> Hwmon {
        Hwmon::new(&self.0.join("class"))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fan(chip: &str, device: Option<&str>, pwm: u32) -> FanConfig {
    FanConfig {
        name: "front".to_owned(),
        chip: chip.to_owned(),
        device: device.map(str::to_owned),
        pwm,
        min: 20,
        start: 40,
        follows: Follows::Drives,
    }
}

const FAN: &[(&str, &str)] = &[("pwm2", "102\n"), ("pwm2_enable", "5\n"), ("fan2_input", "1203\n")];

fn text(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

#[test]
fn fans_are_found_under_any_number() {
    let tree = Tree::new("find");
    let dir = tree.add(7, "nct6798", "nct6775.656", FAN);
    let port = tree.hwmon().find(&fan("nct6798", None, 2)).unwrap();
    assert_eq!(port.rpm(), Some(1203));
    port.set_percent(50).unwrap();
    assert_eq!((text(&dir, "pwm2"), text(&dir, "pwm2_enable")), ("127".to_owned(), "1".to_owned()));
    // the firmware takes the fan back
    fs::write(dir.join("pwm2_enable"), "2").unwrap();
    port.set_percent(100).unwrap();
    assert_eq!((text(&dir, "pwm2"), text(&dir, "pwm2_enable")), ("255".to_owned(), "1".to_owned()));
    let other = tree.add(1, "nct6798", "nct6775.672", FAN);
    let why = tree.hwmon().find(&fan("nct6798", None, 2)).unwrap_err();
    assert!(matches!(why, HwmonError::Ambiguous { count: 2, .. }), "{why}");
    let port = tree.hwmon().find(&fan("nct6798", Some("nct6775.672"), 2)).unwrap();
    assert_eq!(port.pwm(), other.join("pwm2"));
    let why = tree.hwmon().find(&fan("nct6798", Some("nct6775.672"), 3)).unwrap_err().to_string();
    assert!(why.contains("pwm3") && why.contains("nct6798 (nct6775.656) pwm2"), "{why}");
}

#[test]
fn sensors_of_drives_and_processor_are_read() {
    let tree = Tree::new("sensors");
    tree.add(0, "drivetemp", "2:0:0:0", &[("temp1_input", "38000\n")]);
    tree.add(1, "nvme", "nvme0", &[("temp1_input", "-9100\n")]);
    tree.add(2, "coretemp", "coretemp.0", &[("temp1_input", "51500\n")]);
    tree.add(3, "acpitz", "thermal", &[("temp1_input", "27800\n")]);
    let broken = tree.add(4, "drivetemp", "3:0:0:0", &[("temp1_input", "38000\n")]);
    let sensors = tree.hwmon().sensors();
    let found: Vec<_> = sensors.iter().map(|it| (it.kind, it.read().unwrap())).collect();
    let expected = [
        (SensorKind::Cpu, 51.5),
        (SensorKind::Drive, 38.0),
        (SensorKind::Drive, 38.0),
        (SensorKind::Drive, -9.1),
    ];
    assert_eq!(found, expected);
    for value in ["", "hot", "255000", "-128000", "99999999999999999999"] {
        fs::write(broken.join("temp1_input"), value).unwrap();
        assert!(sensors.iter().any(|sensor| sensor.read().is_err()), "{value}");
    }
    assert!(Hwmon::new(Path::new("/nonexistent")).sensors().is_empty());
}

#[test]
fn full_speed_is_set_on_all_controllable_fans() {
    let tree = Tree::new("full");
    let dir = tree.add(0, "nct6798", "nct6775.656", FAN);
    let absent = tree.0.join("absent/pwm1");
    let why = set_full_speed(&[absent.clone(), dir.join("pwm2")]);
    assert_eq!((why.len(), text(&dir, "pwm2")), (1, "255".to_owned()));
    assert!(why[0].to_string().contains("absent/pwm1") && !absent.exists());
}
