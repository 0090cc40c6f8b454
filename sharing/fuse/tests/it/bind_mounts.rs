//! A mount that another folder shows as well, as a mount namespace of a container does.

use std::fs;
use std::process::Command;

use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::mounted_fixture::can_mount;
use crate::mounted_pool::MountedPool;

#[test]
fn unmounted_file_systems_end_everywhere() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut place = MountedPool::create("bind");
    let shown = place.model_dir();
    mount_bind(place.mountpoint(), &shown).unwrap();
    let is_served = || Command::new("ls").arg(&shown).output().unwrap().status.success();
    let is_served_before = is_served();
    let (mount, _) = place.mount.as_mut().unwrap();
    let (is_free, end) = (mount.try_unmount(), mount.wait_for_unmount(std::time::Duration::ZERO));
    let is_served_after = is_served();
    unmount(&shown, UnmountFlags::DETACH).unwrap();
    assert!(is_served_before && is_free && end.is_some() && !is_served_after);
    assert_eq!(fs::read_dir(&shown).unwrap().count(), 0);
    place.export_and_verify();
}
