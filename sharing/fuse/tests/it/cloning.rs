//! Programs of the system copy files by a mount: blocks are shared where the kernel passes the request on.

use std::fs;
use std::process::Command;

use crate::mounted_fixture::can_mount;
use crate::mounted_pool::{MountedPool, Random};

const SIZE: usize = 8 << 20;

#[test]
fn cp_shares_blocks_within_a_mount() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("cp-snapshot");
    let root = place.mountpoint();
    // cp copies a file that compression made small by read and write, as it takes it for sparse
    let mut random = Random(7);
    let mut byte = || u8::try_from(random.next_below(256)).unwrap();
    let bytes: Vec<u8> = std::iter::repeat_with(&mut byte).take(SIZE).collect();
    fs::write(root.join("file"), &bytes).unwrap();
    place.pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    place.pool.sync().unwrap();
    for (source, copy) in [(".zfs/snapshot/one/file", "restored"), ("file", "copy")] {
        let done = Command::new("cp").args([root.join(source), root.join(copy)]).status();
        assert!(done.unwrap().success(), "{source}");
    }
    place.pool.sync().unwrap();
    let properties = place.pool.properties().of_pool().unwrap();
    let saved = properties.iter().find(|it| it.name == "bclonesaved").unwrap();
    // the copy in the file system, but for sectors that compression saved; where root mounts a snapshot by itself, the
    // kernel copies from it by reading
    let shared: usize = saved.value.parse().unwrap();
    assert!(shared >= SIZE - (64 << 10), "saved: {shared}");
    place.pool.datasets().destroy("tank@one").unwrap();
    for copy in ["restored", "copy", "file"] {
        assert!(fs::read(root.join(copy)).unwrap() == bytes, "{copy}");
    }
    place.export_and_verify();
}
