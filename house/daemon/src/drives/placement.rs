//! Which drive is which leaf vdev: device nodes, partitions and mappings lead to the drive below them.

use std::collections::BTreeMap;
use std::path::Path;

use api::{DrivePlace, PoolReport};
use engine::pool::VdevStatus;
use health::{BlockDevice, Host};

/// The places of drives in pools, by the kernel's name of the drive.
pub(super) fn places(
    pools: &[PoolReport],
    drives: &[BlockDevice],
    host: &Host,
) -> BTreeMap<String, DrivePlace> {
    let mut places = BTreeMap::new();
    for pool in pools {
        let status = &pool.status;
        let groups = [
            (&status.vdevs, None),
            (&status.caches, Some("cache")),
            (&status.spares, Some("spare")),
        ];
        for (vdevs, role) in groups {
            for top in vdevs {
                let vdev = role.or(top.class.as_deref().filter(|_| top.children.is_empty()));
                let vdev = vdev.unwrap_or(&top.name);
                add_leaves(top, &status.name, vdev, &mut |leaf, place| {
                    if let Some(drive) = drive_of(Path::new(leaf), drives, host) {
                        places.insert(drive, place);
                    }
                });
            }
        }
    }
    places
}

fn add_leaves(vdev: &VdevStatus, pool: &str, top: &str, add: &mut dyn FnMut(&str, DrivePlace)) {
    if vdev.children.is_empty() {
        let place = DrivePlace {
            pool: pool.to_owned(),
            vdev: top.to_owned(),
            device: vdev.name.clone(),
            state: vdev.state.clone(),
            read_errors: vdev.read_errors,
            write_errors: vdev.write_errors,
            checksum_errors: vdev.checksum_errors,
        };
        add(&vdev.name, place);
    }
    for child in &vdev.children {
        add_leaves(child, pool, top, add);
    }
}

/// The drive of a leaf vdev. A drive that the user named is found by its path.
fn drive_of(leaf: &Path, drives: &[BlockDevice], host: &Host) -> Option<String> {
    let named = drives.iter().find(|drive| drive.path == leaf).map(|drive| drive.name.clone());
    named.or_else(|| host.drive_of(leaf))
}
