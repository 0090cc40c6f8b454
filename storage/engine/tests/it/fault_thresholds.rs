//! How many errors of a drive are too many: the thresholds that are set on vdevs.

use std::path::PathBuf;

use engine::pool::{Pool, VdevLayout};
use sim::{DiskArray, Fault};

use crate::shared_blocks::noise_bytes;
use crate::spares::new_pool;
use crate::test_pool::{environment, write_file};

/// A mirror that was imported anew, so that its file has to be read from the drives.
fn mirror_with_file() -> (DiskArray, Pool) {
    let storm = DiskArray::new(&[64 << 20; 2]);
    let drives: Vec<PathBuf> = (0..2).map(|index| format!("/disk{index}").into()).collect();
    let new = new_pool(VdevLayout::Mirror, &drives, &[]);
    let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap();
    write_file(&pool, "tank", "file", &noise_bytes(1, 8 << 20));
    pool.close().unwrap();
    drop(pool);
    let pool = engine::pool::import_devices(&storm.devices(), "tank", &environment()).unwrap();
    (storm, pool)
}

fn read_blocks(pool: &Pool, blocks: std::ops::Range<u64>) {
    let files = pool.datasets().filesystem("tank").unwrap();
    let file = files.reader().find(b"file").unwrap().unwrap();
    for block in blocks {
        file.content().read(block << 17, &mut [0; 512]).unwrap();
    }
}

fn states(pool: &Pool) -> Vec<&'static str> {
    pool.drives().diagnose().into_iter().map(|drive| drive.state).collect()
}

#[test]
fn nearest_threshold_of_io_errors_counts() {
    let (storm, pool) = mirror_with_file();
    let set = |vdev: &str, name: &str, value: &str| {
        pool.properties().set_vdev(vdev, name, value).unwrap();
    };
    // without any, ten errors are too many
    set("mirror-0", "io_n", "1000");
    storm.disks()[0].add_fault(Fault::Read(4 << 20..60 << 20));
    read_blocks(&pool, 0..60);
    assert_eq!(states(&pool), Vec::<&str>::new());
    set("disk0", "io_n", "1");
    assert_eq!(states(&pool), ["FAULTED"]);
    pool.export().unwrap();
}

#[test]
fn checksum_threshold_of_a_vdev_counts() {
    let (storm, pool) = mirror_with_file();
    pool.properties().set_vdev("mirror-0", "checksum_n", "2").unwrap();
    storm.disks()[0].flip_bits(5 << 20..60 << 20, 60_000, &mut sim::Random::new(1));
    read_blocks(&pool, 0..8);
    assert_eq!(states(&pool), ["DEGRADED"]);
    pool.export().unwrap();
}
