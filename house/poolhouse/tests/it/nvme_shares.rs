//! Volumes shared by NVMe/TCP from a running daemon: a host's connection over changes, and secrets.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::command::path_arg;
use crate::shares::{free_port, shares};
use crate::test_nas::TestNas;

#[path = "../../../../sharing/nvmet/tests/it/host.rs"]
#[allow(dead_code)]
mod host;

use host::{Connect, Host, Queue, SUBSYSTEM};

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn clients(nas: &TestNas) -> Vec<Value> {
    shares(nas)[0]["clients"].as_array().unwrap().clone()
}

fn problem(nas: &TestNas) -> String {
    shares(nas)[0]["problem"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn hosts_outlast_reloads_and_hold_volumes() {
    let nas = TestNas::new("nvme", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 16M tank/disk");
    nas.run_ok(&format!("share add nvme tank/disk -o nqn={SUBSYSTEM}"));
    let closed = nas.run_ok("share status");
    assert!(
        closed.contains("NVMe/TCP listens nowhere: `poolhouse config set nvme.listen"),
        "{closed}"
    );
    let port = free_port();
    nas.run_ok(&format!("config set nvme.listen {port}"));
    let mut host = Host::connect(address(port), 1);
    assert_eq!(host.io.write(8, &[7; 4096]).status, 0);
    let first = clients(&nas)[0].clone();
    assert_eq!(first["user"], host::host_name(1).as_str());
    assert_eq!(first["written_bytes"], 4096);
    assert_eq!(first["open"], 0, "no command is being carried out");
    assert_eq!(shares(&nas)[0]["log_waits"], 0);
    let status = nas.run_ok("share status");
    assert!(status.contains("WRITTEN/S"), "{status}");
    assert_eq!(host.io.write(16, &[7; 4096]).status, 0);
    // two looks a second apart
    nas.wait_until(|| clients(&nas)[0]["write_rate"].as_u64().is_some_and(|rate| rate > 0));
    let why = nas.run_failing("zfs destroy tank/disk", 1);
    assert!(
        why.contains(&format!("NVMe/TCP hosts: 1; type `nvme disconnect -n {SUBSYSTEM}`")),
        "{why}"
    );
    // another namespace, a new size, and a new name leave the connection as it is
    nas.run_ok("zfs create -V 16M tank/other");
    nas.run_ok(&format!("share add nvme tank/other -o nqn={SUBSYSTEM} -o namespace=2"));
    nas.run_ok("zfs set volsize=32M tank/disk");
    nas.run_ok("zfs rename tank/disk tank/vm");
    assert_eq!(host.io.read(8, 8).data, [7; 4096]);
    assert_eq!(host.identify(0, 1).data[..8], (65536_u64).to_le_bytes());
    assert_eq!(host.identify(2, 0).data[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let names = host.identify(3, 1).data;
    // after a restart of the daemon the same disk is there again
    assert_eq!(host.io.run(host::Entry::new(host::FLUSH, 1)).status, 0);
    nas.run_ok("serve --stop");
    assert_eq!(problem(&nas), "");
    let mut host = Host::connect(address(port), 1);
    assert_eq!(host.io.read(8, 8).data, [7; 4096]);
    assert_eq!(host.identify(3, 1).data, names);
    drop(host);
    nas.wait_until(|| clients(&nas).is_empty());
    nas.run_ok("zpool export tank");
    let mut admin = Queue::open(address(port), 0);
    assert_eq!(Connect::default().run(&mut admin).status, 0x182);
}

#[test]
fn secrets_of_hosts_are_kept_in_private_files() {
    let nas = TestNas::new("dhchap", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 16M tank/disk");
    let port = free_port();
    nas.run_ok(&format!("config set nvme.listen {port}"));
    let file = nas.0.join("secret");
    let set = |text: &str, mode: u32| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        // any change of the configuration has the secrets read again
        nas.run_ok("share add nbd tank/disk");
        nas.run_ok("share remove nbd tank/disk");
    };
    let secret = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let option = format!("-o dhchap_secret_file={}", path_arg(&file));
    nas.run_ok(&format!("share add nvme tank/disk -o nqn={SUBSYSTEM} {option}"));
    assert!(problem(&nas).contains("cannot be used: No such file"), "{}", problem(&nas));
    set(secret, 0o644);
    assert!(problem(&nas).contains("type `chmod 600"), "{}", problem(&nas));
    set("DHHC-1:00:AAAA:", 0o600);
    assert!(problem(&nas).contains("nvme gen-dhchap-key"), "{}", problem(&nas));
    set(&format!("# of one host\n{} {secret}\n", host::host_name(2)), 0o600);
    assert_eq!(problem(&nas), "");
    for (number, status) in [(1, 0x184), (2, 0)] {
        let mut admin = Queue::open(address(port), 0);
        let connected = Connect { host: number, ..Connect::default() }.run(&mut admin);
        assert_eq!(connected.status, status);
        if status == 0 {
            assert_eq!(connected.result >> 16, 2, "a proof is wanted");
            assert_eq!(admin.read_property(0, true).status, 0x191);
        }
    }
    let log = nas.read_log();
    assert!(!log.contains("AAECAwQF"), "{log}");
    let why = nas.run_failing("share add nvme tank/disk -o nqn=disk", 2);
    assert!(why.contains("is not an NVMe qualified name"), "{why}");
}
