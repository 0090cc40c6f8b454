//! Volumes as block devices: files, file systems and snapshots on them, and changes under them. Needs root and loop
//! devices.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::path_arg;
use crate::test_nas::{TestNas, random_bytes};

const SIZE: u64 = 16 << 20;

/// A daemon with devices in a directory of its own; none where this machine cannot have them.
fn start(name: &str) -> Option<(TestNas, PathBuf)> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || OpenOptions::new().read(true).write(true).open("/dev/loop-control").is_err() {
        eprintln!("not run: this takes root and /dev/loop-control");
        return None;
    }
    let nas = TestNas::new(name, 1);
    let links = nas.0.join("zvol");
    nas.run_ok(&format!("config set zvol.devices {}", links.display()));
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -V 16M tank/vol");
    Some((nas, links.join("tank/vol")))
}

fn read(device: &Path) -> Vec<u8> {
    fs::read(device).unwrap()
}

/// Writes at the start of a device, and closes it.
fn write(device: &Path, bytes: &[u8]) {
    OpenOptions::new().write(true).open(device).unwrap().write_all_at(bytes, 0).unwrap();
}

/// Whether the kernel refuses to open a device for writing, or to write to it.
fn refuses_writes(device: &Path) -> bool {
    let open = OpenOptions::new().write(true).open(device);
    open.and_then(|open| open.write_at(&[0; 512], 0)).is_err()
}

/// The bytes of a device, as the kernel knows them.
fn size(device: &Path) -> u64 {
    let out = Command::new("blockdev").arg("--getsize64").arg(device).output().unwrap();
    String::from_utf8_lossy(&out.stdout).trim().parse().unwrap()
}

#[test]
fn a_volume_keeps_what_its_device_got() {
    let Some((nas, device)) = start("zvol") else { return };
    let content = random_bytes(1 << 20);
    nas.run_ok("zfs snapshot tank/vol@zero");
    write(&device, &content);
    // the last close brings the pages to the volume, so a snapshot has them
    nas.run_ok("zfs snapshot tank/vol@one");
    write(&device, &vec![0; 1 << 20]);
    assert!(!PathBuf::from(format!("{}@one", device.display())).exists(), "snapdev=hidden");
    nas.run_ok("zfs set snapdev=visible tank/vol");
    let snapshot = PathBuf::from(format!("{}@one", device.display()));
    assert!(read(&snapshot).starts_with(&content));
    nas.run_ok("zfs destroy tank/vol@one");
    nas.run_ok("zfs rollback tank/vol@zero");
    assert!(!snapshot.exists());
    write(&device, &content);
    nas.run_ok("zfs snapshot tank/vol@one");
    assert!(read(&snapshot).starts_with(&content), "a snapshot that is created later");
    write(&device, &vec![0; 1 << 20]);
    assert!(read(&device).iter().all(|byte| *byte == 0));
    assert!(refuses_writes(&snapshot));
    // a rollback and an import show the same
    nas.run_ok("zfs rollback tank/vol@one");
    assert!(read(&device).starts_with(&content));
    nas.run_ok("zpool export tank");
    assert!(!device.is_symlink() && !snapshot.is_symlink());
    nas.run_ok(&format!("zpool import -d {} tank", nas.0.join("drives").display()));
    assert!(read(&device).starts_with(&content));
}

#[test]
fn a_device_follows_its_volume() {
    let Some((nas, device)) = start("zvol-follow") else { return };
    assert_eq!(size(&device), SIZE);
    nas.run_ok("zfs set volsize=32M tank/vol");
    assert_eq!(size(&device), 2 * SIZE);
    nas.run_ok("zfs set readonly=on tank/vol");
    assert!(refuses_writes(&device));
    nas.run_ok("zfs set readonly=off tank/vol");
    write(&device, b"here");
    nas.run_ok("zfs create -o mountpoint=none tank/in");
    nas.run_ok("zfs rename tank/vol tank/in/new");
    let renamed = device.with_file_name("in").join("new");
    assert!(!device.is_symlink() && read(&renamed).starts_with(b"here"));
    nas.run_ok("zfs set volmode=none tank/in");
    assert!(!renamed.is_symlink());
    nas.run_ok("zfs inherit volmode tank/in");
    nas.run_ok("zfs destroy -r tank/in");
    assert!(!renamed.is_symlink());
}

#[test]
fn rollback_destroys_clones_with_devices() {
    let Some((nas, device)) = start("zvol-clones") else { return };
    nas.run_ok("zfs snapshot tank/vol@one");
    nas.run_ok("zfs snapshot tank/vol@two");
    nas.run_ok("zfs clone tank/vol@two tank/clone");
    let clone = device.with_file_name("clone");
    assert_eq!(size(&clone), SIZE);
    nas.run_ok("zfs rollback -R tank/vol@one");
    assert!(!clone.is_symlink() && size(&device) == SIZE);
}

#[test]
fn an_open_device_keeps_its_volume() {
    let Some((nas, device)) = start("zvol-busy") else { return };
    let open = File::open(&device).unwrap();
    for words in ["zfs destroy tank/vol", "zpool export tank"] {
        let said = nas.run_failing(words, 1);
        assert!(said.contains("dataset is busy") && said.contains(path_arg(&device)), "{said}");
    }
    assert_eq!(size(&device), SIZE);
    drop(open);
    nas.run_ok("zfs destroy tank/vol");
}

#[test]
fn no_pool_lies_on_its_own_volume() {
    let Some((nas, device)) = start("zvol-own") else { return };
    let said = nas.run_failing(&format!("zpool create inner {}", device.display()), 1);
    assert!(said.contains("it is the volume 'tank/vol' of an imported pool"), "{said}");
}

#[test]
fn a_killed_daemon_leaves_no_devices_behind() {
    let Some((nas, device)) = start("zvol-kill") else { return };
    write(&device, b"kept");
    nas.run_ok("zpool sync tank");
    let target = fs::read_link(&device).unwrap();
    let started = nas.read_log();
    let pid =
        started.split("starts as process ").last().and_then(|rest| rest.split_whitespace().next());
    let pid = pid.and_then(|pid| pid.parse().ok()).and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL).unwrap();
    nas.wait_until(|| File::open(&target).and_then(|open| open.read_at(&mut [0; 512], 0)).is_err());
    // the next command starts a daemon
    nas.wait_until(|| nas.run("zfs list tank").status == 0);
    assert!(read(&device).starts_with(b"kept"));
    nas.run_ok("zpool export tank");
    assert!(!device.is_symlink());
}
