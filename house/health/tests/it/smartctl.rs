//! Running smartctl: a program that stands for it prints recordings.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use health::{BlockDevice, Reading, SelfTestKind, Smartctl, SmartctlError};

struct Program(PathBuf);

impl Program {
    /// A shell script that stands for smartctl.
    fn new(name: &str, script: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("smartctl-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let program = dir.join("smartctl");
        let text = format!("#!/bin/sh\necho \"$@\" > {}/arguments\n{script}\n", dir.display());
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self(dir)
    }

    fn smartctl(&self) -> Smartctl {
        let time_limit = Duration::from_secs(30);
        Smartctl { program: self.0.join("smartctl"), time_limit, ..Smartctl::default() }
    }

    fn read(&self) -> Result<Reading, SmartctlError> {
        self.smartctl().read(&drive())
    }

    fn arguments(&self) -> String {
        fs::read_to_string(self.0.join("arguments")).unwrap().trim().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn drive() -> BlockDevice {
    let smartctl_type = Some("sat".to_owned());
    BlockDevice { path: "/dev/sdx".into(), smartctl_type, ..BlockDevice::default() }
}

fn recording(name: &str) -> String {
    format!("cat {}/tests/data/scrutiny/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn reports_are_read_without_waking() {
    let program = Program::new("report", &format!("{}; exit 216", recording("smart-fail2")));
    let Reading::Report(report) = program.read().unwrap() else { panic!("a report") };
    assert_eq!(report.passed, Some(false));
    assert_eq!(program.arguments(), "--json -x -n standby,3 -d sat -- /dev/sdx");
}

#[test]
fn sleeping_drives_are_left_asleep() {
    let program = Program::new("asleep", "echo '{\"smartctl\": {\"exit_status\": 3}}'; exit 3");
    assert_eq!(program.read().unwrap(), Reading::Asleep);
}

#[test]
fn hanging_smartctl_costs_a_time_limit_only() {
    let program = Program::new("hangs", "exec sleep 1000");
    let smartctl = Smartctl { time_limit: Duration::from_millis(200), ..program.smartctl() };
    assert_eq!(smartctl.read(&drive()), Err(SmartctlError::TimedOut { seconds: 0 }));
}

#[test]
fn failures_name_the_next_step() {
    let program = Program::new("fails", &format!("{}; exit 2", recording("smart-fail")));
    let why = program.read().unwrap_err().to_string();
    assert!(why.contains("Open failed, Error=5"), "{why}");
    let denied =
        r#"echo '{"smartctl":{"messages":[{"string":"/dev/sda: Permission denied"}]}}'; exit 2"#;
    let program = Program::new("denied", denied);
    assert_eq!(program.read(), Err(SmartctlError::NotPermitted {}));
    let program = Program::new("old", "echo 'smartctl 6.6'");
    assert!(matches!(program.read(), Err(SmartctlError::Malformed { .. })));
    let absent = Smartctl { program: "/absent/smartctl".into(), ..Smartctl::default() };
    assert!(matches!(absent.read(&drive()), Err(SmartctlError::NotRunnable { .. })));
}

#[test]
fn self_tests_are_started_or_refused() {
    let program = Program::new("test", "echo '{}'");
    program.smartctl().start_self_test(&drive(), SelfTestKind::Long).unwrap();
    assert_eq!(program.arguments(), "--json -t long -d sat -- /dev/sdx");
    let program = Program::new("refused", "echo '{}'; exit 4");
    assert!(program.smartctl().start_self_test(&drive(), SelfTestKind::Short).is_err());
}
