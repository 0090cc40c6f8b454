//! A pool of mirrors is split in two, and no power cut loses anything.

use std::path::PathBuf;
use std::sync::Arc;

use engine::pool::{
    Drive, ImportOptions, NewPool, NewVdev, Pool, ScanProgress, SplitOptions, VdevLayout, VdevRole,
};
use sim::DiskArray;

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{TempDir, check_pool, environment, read_file, verify_pool, write_file};

const DRIVE_SIZE: u64 = 128 << 20;

fn vdev(layout: VdevLayout, drives: &[PathBuf], role: VdevRole) -> NewVdev {
    NewVdev { layout, drives: drives.to_vec(), role }
}

fn new_pool(vdevs: Vec<NewVdev>) -> NewPool {
    NewPool { name: "tank".to_owned(), vdevs, ashift: None, properties: Vec::new(), force: true }
}

fn fill_pool(pool: &Pool) {
    write_file(pool, "tank", "one", &noise_bytes(1, 3 << 20));
    pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    write_file(pool, "tank", "two", &noise_bytes(2, 5 << 20));
}

fn compare_files(pool: &Pool, name: &str, when: &str) {
    assert!(read_file(pool, name, "one") == noise_bytes(1, 3 << 20), "{when}");
    assert!(read_file(pool, name, "two") == noise_bytes(2, 5 << 20), "{when}");
}

fn import(drives: &[PathBuf], name: &str) -> Pool {
    engine::pool::import(drives, name, false, &environment()).unwrap()
}

#[test]
fn split_gives_two_whole_pools() {
    let folder = TempDir::new("split", 7, DRIVE_SIZE);
    let drives = folder.drives(7);
    let new = new_pool(vec![
        vdev(VdevLayout::Mirror, &drives[..3], VdevRole::Data),
        vdev(VdevLayout::Mirror, &drives[3..5], VdevRole::Special),
        vdev(VdevLayout::Single, &drives[5..6], VdevRole::Log),
        vdev(VdevLayout::Single, &drives[6..], VdevRole::Cache),
    ]);
    let pool = engine::pool::create(&new, &environment()).unwrap();
    fill_pool(&pool);
    let name = |index: usize| drives[index].display().to_string();
    let named = SplitOptions { devices: vec![name(1)], ..SplitOptions::default() };
    let planned =
        pool.vdevs().split("half", &SplitOptions { dry_run: true, ..named.clone() }).unwrap();
    let paths: Vec<&str> = planned.iter().map(|device| device.path.as_str()).collect();
    assert_eq!(paths, [name(1), name(4)]);
    for wrong in [vec![name(5)], vec![name(0), name(1)], vec!["/nowhere".to_owned()]] {
        let options = SplitOptions { devices: wrong, ..SplitOptions::default() };
        assert!(pool.vdevs().split("half", &options).is_err(), "{options:?}");
    }
    assert!(pool.vdevs().split("9half", &named).is_err());
    let comment = ("comment".to_owned(), "the other half".to_owned());
    pool.vdevs()
        .split("half", &SplitOptions { properties: vec![comment], ..named.clone() })
        .unwrap();
    let why = pool.vdevs().split("third", &SplitOptions::default()).unwrap_err().to_string();
    assert!(why.contains("composed only of mirrors"), "{why}");
    compare_files(&pool, "tank", "split");
    write_file(&pool, "tank", "three", &noise_bytes(3, 4 << 20));
    let scrubbed = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(scrubbed.complete && scrubbed.errors == 0 && scrubbed.written == 0, "{scrubbed:?}");
    let half = import(&[drives[1].clone(), drives[4].clone()], "half");
    compare_files(&half, "half", "the new pool");
    assert_ne!(half.guid(), pool.guid());
    let status = half.status();
    assert!(status.state == "ONLINE" && status.vdevs.len() == 2 && status.caches.is_empty());
    write_file(&half, "half", "other", &noise_bytes(4, 4 << 20));
    let scrubbed = half.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(scrubbed.complete && scrubbed.errors == 0 && scrubbed.written == 0, "{scrubbed:?}");
    half.export().unwrap();
    drop(half);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    assert_eq!(check_pool(&folder, "half"), Vec::<String>::new());
    let pool = import(&drives, "tank");
    compare_files(&pool, "tank", "imported");
    pool.export().unwrap();
}

#[test]
fn split_is_refused_while_a_device_lacks_data() {
    let storm = DiskArray::new(&[64 << 20; 2]);
    let folder = TempDir::new("split-missing", 2, 1);
    let new = new_pool(vec![vdev(VdevLayout::Mirror, &folder.drives(2), VdevRole::Data)]);
    let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap();
    for failed in 0..2 {
        storm.disks()[failed].add_fault(sim::Fault::Removed);
        fill_missing(&pool, failed);
        assert!(pool.vdevs().split("half", &SplitOptions::default()).is_err(), "{failed}");
        storm.disks()[failed].clear_faults();
        pool.clear_errors(None).unwrap();
        pool.scans().resilver(&ScanProgress::new()).unwrap();
    }
    pool.vdevs().split("half", &SplitOptions::default()).unwrap();
}

fn fill_missing(pool: &Pool, number: usize) {
    write_file(pool, "tank", &format!("missing{number}"), &noise_bytes(9, 1 << 20));
    pool.sync().unwrap();
}

/// After a cut the pool is whole, and the new one, where there is one.
fn check_after_cut(storm: &DiskArray, at: usize) -> bool {
    let when = format!("cut at {at}");
    let found = storm.journal().cut_power(at, at as u64);
    let devices: Vec<_> = found.into_iter().map(|disk| Arc::new(disk) as Drive).collect();
    let old = [Arc::clone(&devices[0]), Arc::clone(&devices[2])];
    let wrong = verify_pool(&engine::search_devices(&old), "tank");
    assert_eq!(wrong, Vec::<String>::new(), "{when}");
    let import = |devices: &[Drive], name: &str| {
        let options = ImportOptions::default();
        engine::pool::import_devices_with(devices, name, &options, &environment())
    };
    let pool = import(&old, "tank").unwrap_or_else(|why| panic!("{when}: {why}"));
    compare_files(&pool, "tank", &when);
    pool.export().unwrap();
    drop(pool);
    let new = [Arc::clone(&devices[1]), Arc::clone(&devices[3])];
    let Ok(half) = import(&new, "half") else { return false };
    compare_files(&half, "half", &when);
    half.export().unwrap();
    drop(half);
    let wrong = verify_pool(&engine::search_devices(&new), "half");
    assert_eq!(wrong, Vec::<String>::new(), "{when}");
    true
}

#[test]
fn power_cuts_during_split_lose_nothing() {
    let storm = DiskArray::new(&[64 << 20; 4]);
    let folder = TempDir::new("split-storm", 4, 1);
    let drives = folder.drives(4);
    let mirrors = drives.chunks(2).map(|d| vdev(VdevLayout::Mirror, d, VdevRole::Data));
    let pool = engine::pool::create_on_devices(
        &new_pool(mirrors.collect()),
        &storm.devices(),
        &environment(),
    )
    .unwrap();
    fill_pool(&pool);
    pool.sync().unwrap();
    let start = storm.journal().len();
    pool.vdevs().split("half", &SplitOptions::default()).unwrap();
    let end = storm.journal().len();
    drop(pool);
    let made: Vec<bool> = (start..end)
        .step_by(((end - start) / 20).max(1))
        .chain([end])
        .map(|at| check_after_cut(&storm, at))
        .collect();
    assert!(!made[0] && made[made.len() - 1], "{made:?}");
}
