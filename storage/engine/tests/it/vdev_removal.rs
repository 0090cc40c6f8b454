//! A top-level vdev with data is removed while the pool is in use. OpenZFS could take the pool over at any
//! moment, and no power cut loses anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::pool::{
    AddOptions, Drive, NewPool, NewVdev, Pool, RemovalStatus, ScanProgress, VdevLayout, VdevRole,
};
use job::Job;

use crate::resilver::import;
use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{TempDir, check_pool, environment, read_file, verify_pool, write_file};

const DRIVE_SIZE: u64 = 128 << 20;

fn vdev(layout: VdevLayout, drives: &[PathBuf], role: VdevRole) -> NewVdev {
    NewVdev { layout, drives: drives.to_vec(), role }
}

fn new_pool(vdevs: Vec<NewVdev>) -> NewPool {
    let properties = vec![("compression".to_owned(), "off".to_owned())];
    NewPool { name: "tank".to_owned(), vdevs, ashift: Some(12), properties, force: true }
}

fn create(vdevs: Vec<NewVdev>) -> Pool {
    engine::pool::create(&new_pool(vdevs), &environment()).unwrap()
}

/// A pool on single drives, filled.
fn create_stripe(folder: &TempDir, count: usize) -> Pool {
    let drives = folder.drives(count);
    let pool = create(drives.chunks(1).map(|d| vdev(VdevLayout::Single, d, VdevRole::Data)).collect());
    fill_pool(&pool);
    pool
}

fn fill_pool(pool: &Pool) {
    write_file(pool, "tank", "one", &noise_bytes(1, 9 << 20));
    pool.create_snapshots(&["tank@one".to_owned()]).unwrap();
    for number in 0..60 {
        write_file(pool, "tank", &format!("small{number}"), &noise_bytes(number, 2900));
    }
    write_file(pool, "tank", "two", &noise_bytes(2, 20 << 20));
    pool.sync().unwrap();
}

fn compare_files(pool: &Pool, when: &str) {
    assert!(read_file(pool, "tank", "one") == noise_bytes(1, 9 << 20), "{when}");
    assert!(read_file(pool, "tank", "two") == noise_bytes(2, 20 << 20), "{when}");
    for number in [0, 33, 59] {
        let name = format!("small{number}");
        assert!(read_file(pool, "tank", &name) == noise_bytes(number, 2900), "{when}: {name}");
    }
}

fn remove(pool: &Pool, vdev: &str) -> engine::Result<()> {
    pool.remove_drives(&[vdev.to_owned()])
}

/// Copies until the removal ends or pauses.
fn finish_removal(pool: &Pool) -> RemovalStatus {
    pool.continue_removal(&Job::default()).unwrap().unwrap()
}

fn path_name(path: &Path) -> String {
    path.display().to_string()
}

fn scrub_is_clean(pool: &Pool, when: &str) {
    let scrubbed = pool.scrub(&ScanProgress::new()).unwrap();
    assert!(scrubbed.complete && scrubbed.errors == 0 && scrubbed.written == 0, "{when}: {scrubbed:?}");
}

#[test]
fn single_drive_is_removed() {
    let folder = TempDir::new("remove-single", 3, DRIVE_SIZE);
    let drives = folder.drives(3);
    let pool = create_stripe(&folder, 3);
    let before = pool.status();
    remove(&pool, &path_name(&drives[1])).unwrap();
    let status = finish_removal(&pool);
    assert_eq!(status.state, "finished");
    assert!(status.copied == status.total && status.copied > 5 << 20, "{status:?}");
    assert!(status.mapping_memory > 0);
    compare_files(&pool, "after the removal");
    assert!(pool.status().size < before.size * 7 / 10);
    write_file(&pool, "tank", "after", &noise_bytes(9, 5 << 20));
    scrub_is_clean(&pool, "after the removal");
    pool.export().unwrap();
    drop(pool);
    assert!(engine::search(&[drives[1].clone()]).summaries(&engine::OpenOptions::default()).is_empty(), "its labels are cleared");
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    std::fs::remove_file(&drives[1]).unwrap();
    let pool = import(&[folder.path().into()]);
    compare_files(&pool, "after an import");
    assert!(read_file(&pool, "tank", "after") == noise_bytes(9, 5 << 20));
    pool.export().unwrap();
}
