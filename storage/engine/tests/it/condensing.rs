//! The mapping of a removed vdev is condensed: what is freed leaves it, and no power cut loses anything.

use std::path::PathBuf;
use std::sync::Arc;

use engine::pool::{CondenseLimits, Drive, NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use job::Job;
use sim::DiskArray;
use units::ObjectId;

use crate::raidz_expand::save_images;
use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{TempDir, credentials, environment, read_file, verify_pool, write_file};

const FILES: u32 = 45;
const FILE_SIZE: u32 = 200_000;
const LIMITS: CondenseLimits = CondenseLimits {
    min_mapping_bytes: 0,
    min_obsolete_percent: 5,
    max_obsolete_map_bytes: 1 << 30,
};

/// A pool on three drives, of which one is removed. Files that were deleted before left gaps in its mapping.
fn pool_with_removed_drive() -> (DiskArray, Pool) {
    let storm = DiskArray::new(&[64 << 20; 3]);
    let vdevs = (0..3).map(|index| NewVdev {
        layout: VdevLayout::Single,
        drives: vec![PathBuf::from(format!("/disk{index}"))],
        role: VdevRole::Data,
    });
    let properties = vec![("compression".to_owned(), "off".to_owned())];
    let (name, vdevs) = ("tank".to_owned(), vdevs.collect());
    let new = NewPool { name, vdevs, ashift: Some(12), properties, force: true };
    let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap();
    for number in 0..FILES {
        write_file(&pool, "tank", &format!("file{number}"), &noise_bytes(number, FILE_SIZE));
        pool.sync().unwrap();
    }
    delete_files(&pool, 0);
    pool.vdevs().remove(&["/disk1".to_owned()]).unwrap();
    let status = pool.activities().continue_removal(&Job::default()).unwrap().unwrap();
    assert_eq!(status.state, "finished");
    (storm, pool)
}

/// Deletes every third file, from one on.
fn delete_files(pool: &Pool, first: u32) {
    let files = pool.datasets().filesystem("tank").unwrap();
    let root = ObjectId::new(files.reader().root().unwrap().ino());
    for number in (first..FILES).step_by(3) {
        files.unlink(&credentials(), root, format!("file{number}").as_bytes()).unwrap();
    }
    drop(files);
    for _ in 0..4 {
        pool.sync().unwrap();
    }
}

fn compare_files(pool: &Pool, first: u32, when: &str) {
    for number in (first..FILES).step_by(3) {
        let found = read_file(pool, "tank", &format!("file{number}"));
        assert!(found == noise_bytes(number, FILE_SIZE), "{when}: file {number}");
    }
}

fn condense(pool: &Pool) -> bool {
    pool.activities().condense_mapping(&LIMITS, &Job::default()).unwrap()
}

fn mapping_memory(pool: &Pool) -> u64 {
    pool.activities().removal_status().unwrap().mapping_memory
}

/// The pool after a power cut, as zdb and the examiner see it.
fn pool_after_cut(storm: &DiskArray, at: usize) -> (Vec<Drive>, Pool) {
    let found = storm.journal().cut_power(at, at as u64);
    let devices: Vec<_> = found.into_iter().map(|disk| Arc::new(disk) as Drive).collect();
    let wrong = verify_pool(&engine::search_devices(&devices), "tank");
    assert_eq!(wrong, Vec::<String>::new(), "cut at {at}");
    let pool = engine::pool::import_devices(&devices, "tank", &environment())
        .unwrap_or_else(|why| panic!("cut at {at}: {why}"));
    (devices, pool)
}

fn zdb_finds_no_leak(devices: &[Drive], when: &str) {
    let folder = TempDir::new("condense-zdb", 0, 0);
    save_images(&folder, devices);
    let said = run_zdb(folder.path(), &["-bcc"]);
    assert!(said.is_empty() || said.contains("No leaks (block sum matches"), "{when}: {said}");
}

#[test]
fn condensed_mapping_has_only_what_is_used() {
    let (storm, pool) = pool_with_removed_drive();
    assert!(!condense(&pool), "nothing is obsolete yet");
    let before = mapping_memory(&pool);
    delete_files(&pool, 1);
    let none = CondenseLimits::default();
    assert!(
        !pool.activities().condense_mapping(&none, &Job::default()).unwrap(),
        "the mapping is short"
    );
    assert!(condense(&pool));
    assert!(!condense(&pool), "it is condensed");
    let after = mapping_memory(&pool);
    assert!(after > 0 && after < before * 3 / 4, "{before} bytes, then {after}");
    compare_files(&pool, 2, "after condensing");
    let scrubbed = pool.scans().scrub(&engine::pool::ScanProgress::new()).unwrap();
    assert!(scrubbed.complete && scrubbed.errors == 0, "{scrubbed:?}");
    // the space of what is left is found by the new mapping
    delete_files(&pool, 2);
    assert!(condense(&pool));
    pool.export().unwrap();
    drop(pool);
    assert_eq!(
        verify_pool(&engine::search_devices(&storm.devices()), "tank"),
        Vec::<String>::new()
    );
    zdb_finds_no_leak(&storm.devices(), "after the export");
}

#[test]
fn condensing_goes_on_after_power_cuts() {
    let (storm, pool) = pool_with_removed_drive();
    delete_files(&pool, 1);
    let start = storm.journal().len();
    assert!(condense(&pool));
    let end = storm.journal().len();
    drop(pool);
    let (mut resumed, step) = (0, ((end - start) / 12).max(1));
    for at in (start..=end).step_by(step) {
        let (devices, pool) = pool_after_cut(&storm, at);
        let is_condensing = pool.activities().is_condensing();
        if is_condensing && resumed == 0 {
            // a pool between two steps
            zdb_finds_no_leak(&devices, &format!("cut at {at}"));
        }
        let when = format!("cut at {at}");
        compare_files(&pool, 2, &when);
        write_file(&pool, "tank", "after", &noise_bytes(99, FILE_SIZE));
        delete_files(&pool, 5);
        if is_condensing {
            assert!(condense(&pool), "{when}");
            resumed += 1;
        }
        assert!(read_file(&pool, "tank", "file2") == noise_bytes(2, FILE_SIZE), "{when}");
        pool.export().unwrap();
        drop(pool);
        let wrong = verify_pool(&engine::search_devices(&devices), "tank");
        assert_eq!(wrong, Vec::<String>::new(), "{when}");
    }
    assert!(resumed >= 2, "{resumed} cuts fell between two steps");
}
