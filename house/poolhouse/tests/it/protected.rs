//! Drives that take no writes: a pool on them is imported to be read, never for writing. Takes root and
//! loop devices.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::nas::Nas;
use crate::poolhouse::arg;

/// A loop device, detached in the end.
struct Loop(String);

impl Loop {
    /// Attaches an image, write-protected; none where that is not possible.
    fn protected(image: &Path) -> Option<Self> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--read-only"]).arg(image).stdin(Stdio::null());
        let attached = command.output().ok().filter(|output| output.status.success())?;
        Some(Self(String::from_utf8(attached.stdout).ok()?.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detach = Command::new("losetup").args(["--detach", &self.0]).status();
        assert!(detach.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn a_write_protected_drive_is_imported_to_be_read_only() {
    let nas = Nas::new("protected", 1);
    let image = &nas.drives(1)[0];
    nas.create("-O canmount=off tank", 1);
    nas.good("zfs create -V 8M tank/volume");
    nas.good("zpool export tank");
    let before = std::fs::read(image).unwrap();
    let Some(device) = Loop::protected(image) else {
        eprintln!("no write-protected drive is tried: losetup takes root and loop devices");
        return;
    };
    let err = nas.refused(&format!("zpool import -d {} tank", device.0), 1);
    assert!(err.contains(&format!("'{}' is write-protected", device.0)), "{err}");
    assert!(err.contains("readonly=on"), "{err}");
    assert_eq!(nas.good("zpool list -H -o name"), "");
    nas.refused(&format!("zpool create -f other {}", device.0), 1);
    nas.good(&format!("zpool import -o readonly=on -d {} tank", device.0));
    assert!(nas.good("zfs list -H -o name").contains("tank/volume"));
    nas.good("zpool export tank");
    assert!(before == std::fs::read(arg(image)).unwrap(), "something was written");
}
