//! Drives that take no writes: a pool on them is imported to be read, never for writing. Takes root and
//! loop devices.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::command::path_arg;
use crate::test_nas::TestNas;

/// A loop device, detached in the end.
struct LoopDevice(String);

impl LoopDevice {
    /// Attaches an image, write-protected; none where that is not possible.
    fn attach_read_only(image: &Path) -> Option<Self> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--read-only"]).arg(image).stdin(Stdio::null());
        let attached = command.output().ok().filter(|output| output.status.success())?;
        Some(Self(String::from_utf8(attached.stdout).ok()?.trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detach = Command::new("losetup").args(["--detach", &self.0]).status();
        assert!(detach.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn write_protected_pool_is_imported_readonly() {
    let nas = TestNas::new("protected", 1);
    let image = &nas.drive_paths(1)[0];
    nas.create_pool("-O canmount=off tank", 1);
    nas.run_ok("zfs create -V 8M tank/volume");
    nas.run_ok("zpool export tank");
    let before = std::fs::read(image).unwrap();
    let Some(device) = LoopDevice::attach_read_only(image) else {
        eprintln!("no write-protected drive is tried: losetup takes root and loop devices");
        return;
    };
    let err = nas.run_failing(&format!("zpool import -d {} tank", device.0), 1);
    assert!(err.contains(&format!("'{}' is write-protected", device.0)), "{err}");
    assert!(err.contains("readonly=on"), "{err}");
    let err = nas.run_failing(&format!("zpool import -F -n -d {} tank", device.0), 1);
    assert!(err.contains("is write-protected"), "{err}");
    nas.run_ok(&format!("zpool import -F -n -o readonly=on -d {} tank", device.0));
    assert_eq!(nas.run_ok("zpool list -H -o name"), "");
    nas.run_failing(&format!("zpool create -f other {}", device.0), 1);
    nas.run_ok(&format!("zpool import -o readonly=on -d {} tank", device.0));
    assert!(nas.run_ok("zfs list -H -o name").contains("tank/volume"));
    nas.run_ok("zpool export tank");
    assert!(before == std::fs::read(path_arg(image)).unwrap(), "something was written");
}
