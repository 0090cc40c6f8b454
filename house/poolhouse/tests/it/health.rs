//! Drives and alerts: a program that stands for smartctl prints recordings, and a server takes the alerts.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::command::{path_arg, run_with_input};
use crate::test_nas::TestNas;

/// The recordings of the crate `health`.
fn recording(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../health/tests/data/scrutiny");
    fs::read_to_string(dir.join(name)).unwrap()
}

/// Gives the drive files of a NAS recorded SMART reports, and writes its configuration.
pub(crate) fn watch_drives(nas: &TestNas, reports: &[&str], config: &str) {
    let dir = nas.0.join("reports");
    fs::create_dir_all(&dir).unwrap();
    let mut drives = String::new();
    for (path, report) in nas.drive_paths(reports.len()).iter().zip(reports) {
        set_report(nas, path, &recording(report));
        drives.push_str(&format!("[[health.drives]]\npath = \"{}\"\n", path.display()));
    }
    let program = dir.join("smartctl");
    // the report of a file is beside the program; other drives have none
    let script = "for last; do :; done\nfile=${0%/*}/${last##*/}.json\n\
                  [ -e \"$file\" ] || { echo '{}'; exit 2; }\ncat \"$file\"\n";
    fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(nas.state_dir()).unwrap();
    let program = program.display();
    let text = format!("[health]\nsmartctl = \"{program}\"\n{drives}{config}");
    fs::write(nas.state_dir().join("config.toml"), text).unwrap();
}

/// Replaces the report of a drive file.
fn set_report(nas: &TestNas, drive: &Path, report: &str) {
    let name = format!("{}.json", drive.file_name().unwrap().to_str().unwrap());
    fs::write(nas.0.join("reports").join(name), report).unwrap();
}

#[test]
fn drives_show_verdict_pool_and_bay() {
    let nas = TestNas::new("drives", 2);
    let bays = "[bays]\nrows = [[\"S24ZN902000L\", \"\"], [\"Absent\", \"CVSSERIAL\"]]\n";
    watch_drives(&nas, &["smart-ata2.json", "smart-fail2.json"], bays);
    nas.create_pool("-m none tank mirror", 2);
    nas.wait_until(|| nas.run("drives list --now").stdout.contains("tank/mirror-0"));
    let failing = nas.drive_paths(2).remove(1);
    let list = nas.run("drives list");
    assert_eq!(list.status, 1, "{}{}", list.stdout, list.stderr);
    let line = |name: &str| list.stdout.lines().find(|line| line.contains(name)).unwrap();
    assert!(line("d0.img").starts_with("1-1  d0.img"), "{}", list.stdout);
    assert!(line("d0.img").ends_with("tank/mirror-0  ok"), "{}", list.stdout);
    assert!(line("d1.img").ends_with("tank/mirror-0  failing"), "{}", list.stdout);
    let command = format!("poolhouse zpool replace tank {} NEW", path_arg(&failing));
    assert!(list.stdout.contains("Reallocated_Sector_Ct (5) is 1"), "{}", list.stdout);
    assert!(list.stdout.contains(&command), "{}", list.stdout);
    let map = nas.run("drives map temp").stdout;
    assert!(map.contains("| 32 °C ") && map.contains("| absent "), "{map}");
    let show = nas.run_ok("drives show d1.img");
    assert!(show.contains("FAILING NOW") && show.contains("pending_sectors=8"), "{show}");
    let json: Value = serde_json::from_str(&nas.run_ok("drives show --json d0.img")).unwrap();
    assert_eq!(json["drive"]["place"]["vdev"], "mirror-0");
    assert_eq!(json["samples"].as_array().map(Vec::len), Some(1));
    assert!(nas.run_failing("drives show sdzzz", 14).contains("poolhouse drives list"));
    // a finding that the owner noted does not count
    assert!(nas.run_ok("drives note d1.img").contains("2 are noted"), "{show}");
    assert_eq!(nas.run("drives list").status, 0);
    nas.run_ok("drives note --forget d1.img");
    assert_eq!(nas.run("drives list").status, 1);
}

/// A server that takes alerts and keeps their bodies.
struct AlertSink {
    url: String,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl AlertSink {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bodies);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                take_request(stream, &sink);
            }
        });
        Self { url, bodies }
    }

    fn titles_with(&self, text: &str) -> Vec<String> {
        let bodies = self.bodies.lock().unwrap();
        let titles = bodies.iter().filter_map(|body| body["title"].as_str());
        titles.filter(|title| title.contains(text)).map(str::to_owned).collect()
    }
}

fn take_request(mut stream: std::net::TcpStream, bodies: &Mutex<Vec<Value>>) {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        let body = text.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body));
        if let Some(Ok(body)) = body {
            bodies.lock().unwrap().push(body);
            break;
        }
        if count == 0 {
            return;
        }
    }
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

#[test]
fn alerts_come_once_and_when_worse() {
    let nas = TestNas::new("alerts", 1);
    let sink = AlertSink::new();
    let config = format!("[alerts]\nwebhook = \"{}\"\n", sink.url);
    watch_drives(&nas, &["smart-nvme-failed.json"], &config);
    nas.run("drives list --now");
    nas.wait_until(|| sink.titles_with("d0.img").len() == 1);
    let list = nas.run("alerts list");
    assert_eq!(list.status, 1, "{}", list.stderr);
    assert!(list.stdout.contains("needs attention"), "{}", list.stdout);
    assert!(nas.run_ok("events").contains("alert_changed"));
    // a restarted daemon repeats no alert; a drive that gets worse raises it again
    nas.run_ok("serve --stop");
    let worse =
        recording("smart-nvme-failed.json").replace("\"media_errors\": 7", "\"media_errors\": 19");
    set_report(&nas, &nas.drive_paths(1)[0], &worse);
    nas.run("drives list --now");
    nas.wait_until(|| sink.titles_with("d0.img").len() == 2);
    assert!(sink.titles_with("d0.img")[1].ends_with("is failing"));
    assert!(nas.run_ok("alerts test").contains("webhook: sent"));
    assert_eq!(sink.titles_with("Test of").len(), 1);
    // an address without a server
    nas.run_ok("config set alerts.webhook http://127.0.0.1:1/secret");
    let why = nas.run_failing("alerts test", 1);
    assert!(why.contains("127.0.0.1:1 cannot be reached") && !why.contains("secret"), "{why}");
    assert!(!nas.read_log().contains("secret"), "{}", nas.read_log());
}

#[test]
fn missing_smartctl_is_reported() {
    let nas = TestNas::new("no-smartctl", 1);
    watch_drives(&nas, &["smart-ata2.json"], "");
    let program: PathBuf = nas.0.join("reports/smartctl");
    fs::remove_file(program).unwrap();
    let list = nas.run("drives list --now");
    assert_eq!(list.status, 0, "{}", list.stderr);
    assert!(list.stdout.contains("d0.img"), "{}", list.stdout);
    assert!(list.stdout.contains("Its health is not known"), "{}", list.stdout);
    assert!(list.stdout.contains("correct health.smartctl"), "{}", list.stdout);
}

#[test]
fn blinking_drives_draw_the_map() {
    let nas = TestNas::new("learn", 2);
    watch_drives(&nas, &["smart-ata2.json", "smart-fail2.json"], "");
    nas.run("drives list --now");
    let located = nas.run_ok("drives locate --seconds 1 d0.img");
    assert!(located.contains("activity light blinks"), "{located}");
    assert!(nas.run_ok("drives locate --off d0.img").contains("off"));
    nas.run_failing("drives locate sdzzz", 14);
    let state = nas.state_dir();
    let args = ["drives", "learn", "2x2", "--state", path_arg(&state)];
    // the first drive goes to a bay that exists, the second to one that is free
    let asked = run_with_input(&args, "3-1\n2-1\n2-1\n1-2\n");
    assert_eq!(asked.matches("blinks. ROW-COLUMN").count(), 4, "{asked}");
    let list = nas.run("drives list").stdout;
    assert!(list.contains("1-2") && list.contains("2-1"), "{list}");
    assert!(run_with_input(&args, "").contains("every drive has its bay"));
}

#[test]
fn schedule_starts_self_tests() {
    let nas = TestNas::new("self-tests", 2);
    watch_drives(&nas, &["smart-ata2.json", "smart-fail2.json"], "");
    nas.run("drives list --now");
    nas.run_ok("config set health.short_test_days 7");
    let started = || nas.read_log().matches("short self-test of the schedule begins").count();
    nas.wait_until(|| started() == 1);
    nas.run("drives list --now");
    nas.wait_until(|| started() == 2);
    // both were tested: the next look starts none
    nas.run("drives list --now");
    nas.run("drives list --now");
    assert_eq!(started(), 2);
}

#[test]
fn pings_come_without_their_secret_in_the_log() {
    let nas = TestNas::new("ping", 0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (sender, requests) = std::sync::mpsc::channel();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 18];
        stream.read_exact(&mut head).unwrap();
        sender.send(String::from_utf8_lossy(&head).into_owned()).unwrap();
        let _ = stream.write_all(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n");
    });
    fs::create_dir_all(nas.state_dir()).unwrap();
    nas.run_ok(&format!("config set alerts.ping http://{address}/secret-uuid"));
    let head = requests.recv_timeout(std::time::Duration::from_mins(1)).unwrap();
    assert_eq!(head, "POST /secret-uuid ");
    nas.wait_until(|| nas.read_log().contains("alerts.ping: "));
    assert!(!nas.read_log().contains("secret-uuid"), "{}", nas.read_log());
}
