//! The conformance checks of file systems on a mount, run by a process of its own.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::client::{arguments, run_test};

use crate::mount_client::MountClient;
use crate::mounted_fixture::can_mount;
use crate::mounted_pool::MountedPool;

#[path = "../../../vfs/tests/it/conformance/mod.rs"]
mod conformance;

/// The checks take a second or two.
const LIMIT: Duration = Duration::from_mins(2);

#[test]
#[ignore = "the test below runs it as a client"]
fn checks_of_a_mount() {
    let Some(words) = arguments() else { return };
    // the client holds a descriptor of each inode
    let many = Some(1 << 14);
    setrlimit(Resource::Nofile, Rlimit { current: many, maximum: many }).unwrap();
    conformance::run_all(&MountClient::open(Path::new(&words[0]), words[1] == "posix"));
}

/// Runs the checks on a mounted pool with that property.
fn check_mount(name: &str, acltype: &str) {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = MountedPool::create_with(name, &[("acltype", acltype)]);
    let mountpoint = place.mountpoint().to_str().unwrap().to_owned();
    let words = [&mountpoint[..], acltype];
    run_test("conforms::checks_of_a_mount", &words, LIMIT, &place.output());
    let output = std::fs::read_to_string(place.output()).unwrap();
    assert!(output.contains("conformance: directory cookies"), "the checks ran:\n{output}");
    place.export_and_verify();
}

#[test]
fn mount_conforms() {
    check_mount("conformance", "posix");
}

/// The kernel checks no permissions then.
#[test]
fn mount_with_nfs4_acls_conforms() {
    check_mount("conformance-nfs4", "nfsv4");
}

/// The checks pass on the kernel's own file systems.
#[test]
fn kernel_file_system_conforms() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = fixtures::scratch_dir("conformance-native");
    let (tested, output) = (folder.join("tested"), folder.join("output"));
    std::fs::create_dir(&tested).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&tested, "user.known", b"value", flags).is_err() {
        return;
    }
    let words = [tested.to_str().unwrap(), "posix"];
    run_test("conforms::checks_of_a_mount", &words, LIMIT, &output);
}
