//! Shares of a running daemon: the configuration, the properties, and volumes by NBD.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::path_arg;
use crate::test_nas::{TestNas, random_bytes};

/// A client that runs longer than this hangs.
const LIMIT: Duration = Duration::from_mins(1);

/// A port that nothing listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Whether a program is missing; prints so.
pub(crate) fn lacks(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let is_here = dirs.any(|dir| dir.join(program).is_file());
    if !is_here {
        eprintln!("not checked: {program} is not installed");
    }
    !is_here
}

/// Runs a client to its end. Returns whether it succeeded, and its output.
pub(crate) fn run_client(words: &[&str]) -> (bool, String) {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let last = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > last {
            child.kill().unwrap();
            panic!("{words:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

pub(crate) fn run_client_ok(words: &[&str]) -> String {
    let (is_ok, said) = run_client(words);
    assert!(is_ok, "{words:?}: {said}");
    said
}

/// The shares of `share status --json`.
pub(crate) fn shares(nas: &TestNas) -> Vec<Value> {
    let run = nas.run("share status --json");
    let status: Value = serde_json::from_str(&run.stdout).expect(&run.stderr);
    status["shares"].as_array().unwrap().clone()
}

/// A process that is killed in the end.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn volumes_are_copied_over_nbd() {
    if lacks("nbdcopy") || lacks("nbdinfo") || lacks("qemu-img") {
        return;
    }
    let nas = TestNas::new("nbd", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 16M tank/disk");
    let port = free_port();
    nas.run_ok("share add nbd tank/disk -o name=disk");
    let closed = nas.run_ok("share status");
    assert!(closed.contains("problem: NBD listens nowhere: `poolhouse config set"), "{closed}");
    nas.run_ok(&format!("config set nbd.listen {port}"));

    let [share] = &shares(&nas)[..] else { panic!("one share") };
    assert_eq!((&share["target"], &share["dataset"]), (&"disk".into(), &"tank/disk".into()));
    assert_eq!((&share["address"], &share["port"]), (&"127.0.0.1".into(), &port.into()));
    let uri = format!("nbd://127.0.0.1:{port}/disk");
    let info = run_client_ok(&["nbdinfo", &uri]);
    assert!(info.contains("export-size: 16777216"), "{info}");

    let (image, back) = (nas.0.join("image"), nas.0.join("back"));
    let (image, back) = (path_arg(&image), path_arg(&back));
    std::fs::write(image, random_bytes(16 << 20)).unwrap();
    run_client_ok(&["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, &uri]);
    run_client_ok(&["qemu-img", "compare", "-f", "raw", "-F", "raw", image, &uri]);
    nas.run_ok("zfs snapshot tank/disk@one");
    nas.run_ok("share add nbd tank/disk@one -o name=one");
    let snapshot = format!("nbd://127.0.0.1:{port}/one");
    run_client_ok(&["nbdcopy", &snapshot, back]);
    assert!(std::fs::read(image).unwrap() == std::fs::read(back).unwrap());
    assert!(!run_client(&["nbdcopy", image, &snapshot]).0, "a snapshot is read-only");
}

#[test]
fn nbd_requires_tls_when_configured() {
    if lacks("nbdcopy") || lacks("nbdinfo") {
        return;
    }
    let nas = TestNas::new("nbdtls", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 16M tank/disk");
    nas.run_ok("share add nbd tank/disk -o name=disk");
    nas.run_ok("config set nbd.tls require");
    let port = free_port();
    nas.run_ok(&format!("config set nbd.listen {port}"));
    let (is_served, said) = run_client(&["nbdinfo", &format!("nbd://127.0.0.1:{port}/disk")]);
    assert!(!is_served, "{said}");
    let folder = nas.0.join("trusted");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("ca-cert.pem"), nas.run_ok("web certificate")).unwrap();
    let uri = format!("nbds://127.0.0.1:{port}/disk?tls-certificates={}", path_arg(&folder));
    let info = run_client_ok(&["nbdinfo", "--json", &uri]);
    assert!(info.contains("\"TLS\": true"), "{info}");
    let (image, back) = (nas.0.join("image"), nas.0.join("back"));
    let (image, back) = (path_arg(&image), path_arg(&back));
    std::fs::write(image, random_bytes(16 << 20)).unwrap();
    run_client_ok(&["nbdcopy", "--flush", image, &uri]);
    run_client_ok(&["nbdcopy", &uri, back]);
    assert!(std::fs::read(image).unwrap() == std::fs::read(back).unwrap());
    // there is none of NVMe/TCP, and the entry does not look as if there was
    let refused = nas.run_failing("config set nvme.tls require", 2);
    assert!(refused.contains("NVMe/TCP has no TLS here"), "{refused}");
}

#[test]
fn nbd_shares_follow_their_volumes() {
    if lacks("nbdcopy") || lacks("nbdinfo") {
        return;
    }
    let nas = TestNas::new("nbdfollow", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 64M tank/disk");
    let port = free_port();
    let uri = |name: &str| format!("nbd://127.0.0.1:{port}/{name}");
    let file = nas.state_dir().join("config.toml");
    let text = format!(
        "[nbd]\nlisten = {port}\n\n# for the hypervisor\n[[share]]\nprotocol = \"nbd\"\n\
         dataset = \"tank/disk\" # 64M\n"
    );
    std::fs::write(&file, &text).unwrap();
    nas.wait_until(|| run_client(&["nbdinfo", &uri("tank/disk")]).0);

    // a client that reads nothing stays connected
    let mut client = Command::new("nbdcopy");
    client.args([&uri("tank/disk"), "-"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let client = Running(client.stderr(Stdio::null()).spawn().unwrap());
    let count = || shares(&nas)[0]["clients"].as_array().unwrap().len();
    nas.wait_until(|| count() > 0);
    let why = nas.run_failing("zfs destroy tank/disk", 1);
    assert!(why.contains("'tank/disk' is in use: NBD connections: "), "{why}");
    let why = nas.run_failing("zpool export tank", 1);
    assert!(why.contains("in use"), "{why}");
    nas.run_ok("zfs rename tank/disk tank/vm");
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(written, text.replace("tank/disk", "tank/vm"));
    drop(client);
    run_client_ok(&["nbdinfo", &uri("tank/vm")]);

    nas.run_ok("zpool export tank");
    let share = &shares(&nas)[0];
    assert!(share["problem"].as_str().unwrap().contains("its pool is not imported"), "{share}");
    assert!(!run_client(&["nbdinfo", &uri("tank/vm")]).0);
    nas.run_ok(&format!("zpool import -d {} tank", path_arg(&nas.0.join("drives"))));
    run_client_ok(&["nbdinfo", &uri("tank/vm")]);

    // the daemon starts again with its shares
    nas.run_ok("serve --stop");
    assert_eq!(shares(&nas)[0]["problem"], Value::Null);
    run_client_ok(&["nbdinfo", &uri("tank/vm")]);
    nas.wait_until(|| count() == 0);
    nas.run_ok("zfs destroy tank/vm");
    assert!(!run_client(&["nbdinfo", &uri("tank/vm")]).0);
    nas.run_ok("share remove nbd tank/vm");
    assert_eq!(shares(&nas), [] as [Value; 0]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("[nbd]\nlisten = {port}\n"));
}

#[test]
fn mistakes_in_shares_are_named() {
    let nas = TestNas::new("badshare", 0);
    let file = nas.0.join("c.toml");
    let entry = |fields: &str| format!("# nas\n[[share]]\nprotocol = \"nbd\"\n{fields}");
    for (text, why) in [
        (entry(""), "line 2: [[share]] needs the field dataset"),
        (entry("dataset = \"a\"\nnetworks = \"lan\"\n"), "line 5: \"lan\" is not a network"),
        (entry("dataset = \"a\"\ncolour = 1\n"), "line 5: unknown field `colour`"),
        (entry("dataset = 7\n"), "line 4: dataset is a text"),
        (
            entry("dataset = \"a\"\nname = \"x\"\n").repeat(2),
            "line 7: there are two NBD shares with the name 'x'",
        ),
        (
            "[[share]]\nprotocol = \"ftp\"\n".to_owned(),
            "line 2: \"ftp\" is not a protocol of this version",
        ),
    ] {
        std::fs::write(&file, &text).unwrap();
        let found = nas.run_failing(&format!("config check {}", path_arg(&file)), 1);
        assert!(found.contains(why), "{text}: {found}");
    }
    let why = nas.run_failing("share add nbd tank/disk -o networks=lan", 2);
    assert!(why.contains("\"lan\" is not a network"), "{why}");
    let why = nas.run_failing("share remove nbd tank/disk", 14);
    assert!(why.contains("there is no NBD share 'tank/disk'"), "{why}");
}

#[test]
fn share_properties_are_checked_and_listed() {
    let nas = TestNas::new("shareprop", 1);
    nas.create_pool("tank", 1);
    let why = nas.run_failing("zfs set sharenfs=rw,colour=red tank", 255);
    let words = "cannot set property for 'tank': 'sharenfs' cannot be set to invalid options";
    assert!(why.contains(words) && why.contains("there is no option 'colour'"), "{why}");
    let why = nas.run_failing("zfs create -o sharesmb=guestok=true tank/a", 1);
    assert!(why.contains("'sharesmb' cannot be set to invalid options"), "{why}");
    nas.run_ok("zfs create tank/a");
    nas.run_ok("zfs set sharenfs=rw=@10.0.0.0/24:10.1.0.7,root_squash tank");
    let listed = nas.run_ok("share list");
    assert!(listed.contains("sharenfs local"), "{listed}");
    assert!(listed.contains("sharenfs inherited from tank"), "{listed}");
    nas.run_ok("zfs unshare tank/a");
    assert!(!nas.run_ok("share list").contains("tank/a"));
    let why = nas.run_failing("zfs unshare tank/a", 1);
    assert!(why.contains("cannot unshare 'tank/a': not currently shared"), "{why}");
    nas.run_ok("zfs unshare -a");
    assert_eq!(shares(&nas), [] as [Value; 0]);
    nas.run_ok("zfs share tank/a");
    let why = nas.run_failing("zfs share tank/a", 1);
    assert!(why.contains("cannot share 'tank/a': filesystem already shared"), "{why}");
    nas.run_ok("zfs share -a");
    assert_eq!(shares(&nas).len(), 2);
    nas.run_ok("zfs set sharenfs=off tank");
    assert_eq!(shares(&nas), [] as [Value; 0]);
    let why = nas.run_failing("zfs share tank/a", 1);
    assert!(why.contains("legacy share"), "{why}");
}
