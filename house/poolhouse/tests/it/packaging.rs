//! The files of the package: the unit of systemd, and the example of a configuration.

use std::process::Command;

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/poolhouse.service");

/// The value of a key of the unit.
fn unit_value(key: &str) -> String {
    let unit = std::fs::read_to_string(UNIT).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
    line.unwrap_or_else(|| panic!("the unit has no {key}")).to_owned()
}

#[test]
fn unit_starts_a_command_that_exists() {
    let words = unit_value("ExecStart");
    let words: Vec<&str> = words.split(' ').collect();
    assert_eq!(words[0], "/usr/bin/poolhouse");
    let help = crate::command::run_ok(&[words[1], "--help"]);
    assert!(help.contains("--stop"), "{help}");
}

#[test]
fn example_of_a_configuration_is_right() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/config.toml.example");
    let example = std::fs::read_to_string(example).unwrap();
    // each line that is commented out without a space is one of the configuration
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with([' ', '\n']) => setting.to_owned(),
        _ => line.to_owned(),
    };
    let written: Vec<_> = example.lines().map(uncomment).collect();
    assert!(written.iter().filter(|line| line.starts_with('[')).count() > 10);
    let dir = fixtures::scratch_dir("config-example");
    for (name, text) in [("as-it-is.toml", example), ("in-effect.toml", written.join("\n"))] {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        crate::command::run_ok(&["config", "check", crate::command::path_arg(&path)]);
    }
}

#[test]
fn systemd_understands_the_unit() {
    let dir = fixtures::scratch_dir("systemd-unit");
    let unit = std::fs::read_to_string(UNIT).unwrap();
    let unit = unit.replace("/usr/bin/poolhouse", env!("CARGO_BIN_EXE_poolhouse"));
    let path = dir.join("poolhouse.service");
    std::fs::write(&path, unit).unwrap();
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(&path).output() else {
        eprintln!("not checked: systemd is not installed");
        return;
    };
    let told = String::from_utf8_lossy(&output.stderr);
    let ours: Vec<&str> = told.lines().filter(|line| line.contains("poolhouse")).collect();
    assert!(ours.iter().all(|line| line.contains("man ")), "{told}");
}
