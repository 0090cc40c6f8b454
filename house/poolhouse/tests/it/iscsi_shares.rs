//! Volumes shared by iSCSI from a running daemon: copies, CHAP, and changes under a session.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::command::path_arg;
use crate::shares::{free_port, lacks, run_client, run_client_ok, shares};
use crate::test_nas::{TestNas, random_bytes};

/// The name of the target.
const TARGET: &str = "iqn.2026-11.org.example:disk";

/// A client that stays connected until it is dropped.
struct Session(Child);

impl Session {
    fn open(url: &str) -> Self {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw", url]).stdin(Stdio::piped());
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a program is missing, or QEMU does not know iSCSI.
fn lacks_clients() -> bool {
    lacks("iscsi-ls")
        || lacks("iscsi-readcapacity16")
        || lacks("qemu-img")
        || lacks("qemu-io")
        || !run_client_ok(&["qemu-img", "--help"]).contains(" iscsi")
}

fn problem(nas: &TestNas) -> String {
    shares(nas)[0]["problem"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn volumes_are_copied_over_iscsi() {
    if lacks_clients() {
        return;
    }
    let nas = TestNas::new("iscsi", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 16M tank/disk");
    nas.run_ok(&format!("share add iscsi tank/disk -o target={TARGET}"));
    let closed = nas.run_ok("share status");
    assert!(
        closed.contains("iSCSI listens nowhere: `poolhouse config set iscsi.listen"),
        "{closed}"
    );
    let port = free_port();
    nas.run_ok(&format!("config set iscsi.listen {port}"));
    let url = format!("iscsi://127.0.0.1:{port}/{TARGET}/0");
    let image = nas.0.join("image");
    let image = path_arg(&image);
    std::fs::write(image, random_bytes(16 << 20)).unwrap();
    run_client_ok(&["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, &url]);
    // a snapshot is another unit of the same target, and read-only
    nas.run_ok("zfs snapshot tank/disk@one");
    nas.run_ok(&format!("share add iscsi tank/disk@one -o target={TARGET} -o lun=1"));
    let snapshot = format!("iscsi://127.0.0.1:{port}/{TARGET}/1");
    run_client_ok(&["qemu-img", "compare", "-f", "raw", "-F", "raw", image, &snapshot]);
    let (is_written, said) = run_client(&["qemu-io", "-f", "raw", "-c", "write 0 512", &snapshot]);
    assert!(!is_written, "a snapshot is read-only: {said}");
    let listed = run_client_ok(&["iscsi-ls", "-s", &format!("iscsi://127.0.0.1:{port}/")]);
    assert!(listed.contains(TARGET) && listed.contains("Lun:1 "), "{listed}");
    // the same disk is there after a restart of the daemon
    let id = run_client_ok(&["iscsi-inq", "-e", "1", "-c", "128", &url]);
    nas.run_ok("serve --stop");
    assert_eq!(shares(&nas)[0]["problem"], Value::Null);
    assert_eq!(run_client_ok(&["iscsi-inq", "-e", "1", "-c", "128", &url]), id);
    run_client_ok(&["qemu-img", "compare", "-f", "raw", "-F", "raw", image, &url]);
}

#[test]
fn sessions_outlast_reloads_and_hold_volumes() {
    if lacks_clients() {
        return;
    }
    let nas = TestNas::new("iscsilive", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 16M tank/disk");
    let port = free_port();
    nas.run_ok(&format!("config set iscsi.listen {port}"));
    nas.run_ok(&format!("share add iscsi tank/disk -o target={TARGET}"));
    let url = format!("iscsi://127.0.0.1:{port}/{TARGET}/0");
    let session = Session::open(&url);
    let clients = || shares(&nas)[0]["clients"].as_array().unwrap().clone();
    nas.wait_until(|| clients().len() == 1);
    let first = clients()[0]["address"].clone();
    let why = nas.run_failing("zfs destroy tank/disk", 1);
    assert!(
        why.contains("'tank/disk' is in use: iSCSI sessions: 1; log the initiators out"),
        "{why}"
    );
    // another share, a new size, and a new name leave the session as it is
    nas.run_ok("zfs create -V 16M tank/other");
    nas.run_ok(&format!("share add iscsi tank/other -o target={TARGET} -o lun=1"));
    nas.run_ok("zfs set volsize=32M tank/disk");
    nas.run_ok("zfs rename tank/disk tank/vm");
    let kept = clients();
    assert_eq!((kept.len(), &kept[0]["address"]), (1, &first));
    let said = run_client_ok(&["iscsi-readcapacity16", &url]);
    assert!(said.contains("Total size:33554432"), "{said}");
    drop(session);
    nas.wait_until(|| clients().is_empty());
    nas.run_ok("zpool export tank");
    assert!(!run_client(&["iscsi-readcapacity16", &url]).0);
}

#[test]
fn chap_secrets_are_kept_in_private_files() {
    if lacks_clients() {
        return;
    }
    let nas = TestNas::new("chap", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 16M tank/disk");
    let port = free_port();
    nas.run_ok(&format!("config set iscsi.listen {port}"));
    let secret = nas.0.join("secret");
    let set = |text: &str, mode: u32| {
        std::fs::write(&secret, text).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
        // any change of the configuration has the secrets read again
        nas.run_ok("share add nbd tank/disk");
        nas.run_ok("share remove nbd tank/disk");
    };
    let options = format!("-o chap_user=anna -o chap_secret_file={}", path_arg(&secret));
    nas.run_ok(&format!("share add iscsi tank/disk -o target={TARGET} {options}"));
    assert!(problem(&nas).contains("cannot be used: No such file"), "{}", problem(&nas));
    set("a-secret-of-anna\n", 0o644);
    assert!(problem(&nas).contains("type `chmod 600"), "{}", problem(&nas));
    set("elevenchars\n", 0o600);
    assert!(problem(&nas).contains("has 11 bytes: iSCSI needs at least 12"), "{}", problem(&nas));
    let url = |user: &str| format!("iscsi://{user}127.0.0.1:{port}/{TARGET}/0");
    assert!(
        !run_client(&["iscsi-readcapacity16", &url("")]).0,
        "without its secret a target is closed"
    );
    set("a-secret-of-anna\n", 0o600);
    assert_eq!(problem(&nas), "");
    run_client_ok(&["iscsi-readcapacity16", &url("anna%a-secret-of-anna@")]);
    for user in ["", "anna%another-secret@", "ben%a-secret-of-anna@"] {
        let (is_in, said) = run_client(&["iscsi-readcapacity16", &url(user)]);
        assert!(!is_in && said.contains("Authentication failure"), "{user}: {said}");
    }
    let log = nas.read_log();
    assert!(!log.contains("a-secret-of-anna"), "{log}");
    let refused = log.matches(&format!("did not prove itself to {TARGET} (CHAP)")).count();
    assert!(refused >= 3, "{log}");
}

#[test]
fn discovery_asks_for_chap() {
    if lacks_clients() {
        return;
    }
    let nas = TestNas::new("discovery", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 16M tank/disk");
    nas.run_ok(&format!("share add iscsi tank/disk -o target={TARGET}"));
    let (port, secret) = (free_port(), nas.0.join("secret"));
    nas.run_ok(&format!("config set iscsi.listen {port}"));
    nas.run_ok(&format!("config set iscsi.discovery_chap_secret_file {}", path_arg(&secret)));
    nas.run_ok("config set iscsi.discovery_chap_user anna");
    let list = |user: &str| run_client(&["iscsi-ls", &format!("iscsi://{user}127.0.0.1:{port}/")]);
    let proof = "anna%a-secret-of-anna@";
    // without the secret nobody discovers targets, and the target is served
    assert!(!list(proof).0 && !list("").0);
    let status = nas.run_ok("share status");
    assert!(status.contains("no initiator can discover targets"), "{status}");
    run_client_ok(&["iscsi-readcapacity16", &format!("iscsi://127.0.0.1:{port}/{TARGET}/0")]);
    std::fs::write(&secret, "a-secret-of-anna\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    nas.run_ok("share add nbd tank/disk");
    let (is_listed, said) = list(proof);
    assert!(is_listed && said.contains(TARGET), "{said}");
    for user in ["", "anna%another-secret@"] {
        let (is_listed, said) = list(user);
        assert!(!is_listed && !said.contains(TARGET), "{user}: {said}");
    }
    assert!(nas.read_log().contains("did not prove itself to discovery (CHAP)"));
}

#[test]
fn imported_targets_ask_for_their_passwords() {
    if lacks_clients() {
        return;
    }
    let nas = TestNas::new("chapimport", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 16M tank/disk");
    let port = free_port();
    nas.run_ok(&format!("config set iscsi.listen {port}"));
    let (file, secret) = (nas.0.join("targets.conf"), "secret-of-anna");
    let target = format!(
        "<target {TARGET}>\n backing-store /dev/zvol/tank/disk\n incominguser anna {secret}\n</target>\n"
    );
    std::fs::write(&file, target).unwrap();
    let import = |option: &str| nas.run_ok(&format!("share import {option} {}", path_arg(&file)));
    let folder = nas.0.join("state/chap");
    let shown = import("-n");
    assert!(shown.contains("chap_user = \"anna\"") && !shown.contains(secret), "{shown}");
    assert!(!folder.exists(), "a dry run writes nothing");
    import("");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&files[0].path())), (0o700, 0o600));
    assert_eq!(problem(&nas), "");
    let url = |user: &str| format!("iscsi://{user}127.0.0.1:{port}/{TARGET}/1");
    assert!(!run_client(&["iscsi-readcapacity16", &url("")]).0, "without a password");
    assert!(!run_client(&["iscsi-readcapacity16", &url("anna%wrong-password-1@")]).0);
    run_client_ok(&["iscsi-readcapacity16", &url(&format!("anna%{secret}@"))]);
}
