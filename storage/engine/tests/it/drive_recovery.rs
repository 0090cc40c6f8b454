//! Drives that change while they are in use: they grow, and they fail for a while.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::pool::{Environment, OfflineOptions, Pool, VdevLayout};
use sim::{DiskArray, Fault};

use crate::offline::{leaf_states, resilver};
use crate::resilver::import;
use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::spares::new_pool as plan_pool;
use crate::test_pool::{TempDir, check_pool, environment, new_pool, read_file, write_file};

const DRIVE_SIZE: u64 = 128 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

fn grow(drives: &[PathBuf], size: u64) {
    for drive in drives {
        std::fs::File::options().write(true).open(drive).unwrap().set_len(size).unwrap();
    }
}

fn expandable(pool: &Pool) -> u64 {
    pool.status().vdevs.iter().map(|vdev| vdev.expandable).sum()
}

#[test]
fn grown_drives_are_used_without_export() {
    for (name, layout, count) in
        [("mirror", VdevLayout::Mirror, 2), ("raidz1", VdevLayout::Raidz(1), 3)]
    {
        let folder = TempDir::new(&format!("grown-{name}"), count, DRIVE_SIZE);
        let drives = folder.drives(count);
        let pool = engine::pool::create(&new_pool(&folder, layout, count), &environment()).unwrap();
        write_file(&pool, "tank", "before", &noise_bytes(1, 3 << 20));
        let size = pool.status().size;
        grow(&drives[1..], 3 * DRIVE_SIZE);
        assert_eq!(expandable(&pool), 0, "{name}: a drive is small still");
        grow(&drives, 3 * DRIVE_SIZE);
        let more = expandable(&pool);
        assert!(more >= size * 3 / 2 && pool.status().size == size, "{name}: {more}");
        assert_eq!(pool.drives().expand_grown().unwrap(), 0, "autoexpand is off");
        if name == "mirror" {
            assert!(pool.drives().expand("d0.img").unwrap());
        } else {
            pool.properties().set_pool("autoexpand", "on").unwrap();
            assert_eq!(pool.drives().expand_grown().unwrap(), 1);
        }
        assert_eq!((expandable(&pool), pool.status().size), (0, size + more), "{name}");
        let large = noise_bytes(2, 100 << 20);
        write_file(&pool, "tank", "after", &large);
        write_file(&pool, "tank", "more", &large);
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
        // the labels at the new end are read
        let pool = import(&drives);
        assert!(read_file(&pool, "tank", "before") == noise_bytes(1, 3 << 20), "{name}");
        assert!(read_file(&pool, "tank", "more") == large, "{name}");
        pool.export().unwrap();
    }
}

/// An environment whose clock goes as the test says.
fn clocked() -> (Environment, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(1_700_000_000));
    let now = Arc::clone(&clock);
    let now = Arc::new(move || (now.load(Ordering::Acquire), 0));
    (Environment { now, ..environment() }, clock)
}

#[test]
fn drive_that_failed_for_a_while_is_resilvered() {
    let storm = DiskArray::new(&[64 << 20; 3]);
    let drives: Vec<PathBuf> = (0..3).map(|index| format!("/disk{index}").into()).collect();
    let (environment, clock) = clocked();
    let new = plan_pool(VdevLayout::Raidz(1), &drives, &[]);
    let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment).unwrap();
    write_file(&pool, "tank", "before", &noise_bytes(1, 3 << 20));
    pool.sync().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| pool.background().run_activities(&stop));
        storm.disks()[1].add_fault(Fault::Flush);
        write_file(&pool, "tank", "while", &noise_bytes(2, 3 << 20));
        pool.sync().unwrap();
        let failed = leaf_states(&pool);
        storm.disks()[1].clear_faults();
        // nobody writes, and the drive answers again
        let begun = Instant::now();
        while leaf_states(&pool) != ["ONLINE"; 3] || pool.scans().needs_resilver() {
            clock.fetch_add(11, Ordering::AcqRel);
            std::thread::sleep(Duration::from_millis(20));
            if begun.elapsed() > TIMEOUT {
                break;
            }
        }
        stop.store(true, Ordering::Release);
        assert_eq!(failed, ["ONLINE", "FAULTED", "ONLINE"]);
    });
    assert_eq!(leaf_states(&pool), ["ONLINE"; 3]);
    assert!(!pool.scans().needs_resilver(), "it has what it missed");
    // another drive may fail now
    storm.disks()[0].add_fault(Fault::Removed);
    for (name, seed) in [("before", 1), ("while", 2)] {
        assert!(read_file(&pool, "tank", name) == noise_bytes(seed, 3 << 20), "{name}");
    }
}

#[test]
fn last_replica_is_degraded_by_forced_offline() {
    let folder = TempDir::new("offline-last", 2, DRIVE_SIZE);
    let drives = folder.drives(2);
    let pool = engine::pool::create(&new_pool(&folder, VdevLayout::Mirror, 2), &environment());
    let pool = pool.unwrap();
    let fault = OfflineOptions { temporary: false, fault: true };
    pool.drives().offline("d0.img", fault).unwrap();
    pool.drives().offline("d1.img", fault).unwrap();
    assert_eq!(leaf_states(&pool), ["FAULTED", "DEGRADED"]);
    write_file(&pool, "tank", "while", &noise_bytes(1, 3 << 20));
    pool.export().unwrap();
    drop(pool);
    let said = run_zdb(folder.path(), &["-C"]);
    // with the reason "external" OpenZFS would fault the last replica at its import
    let marks = ["degraded: 1", "faulted: 1", "aux_state: 'err_exceeded'"];
    assert!(said.is_empty() || marks.iter().all(|mark| said.contains(mark)), "{said}");
    let pool = import(&drives);
    assert_eq!(leaf_states(&pool), ["FAULTED", "DEGRADED"]);
    pool.clear_errors(None).unwrap();
    resilver(&pool);
    assert_eq!(leaf_states(&pool), ["ONLINE", "ONLINE"]);
    // until the export only
    pool.drives().offline("d0.img", OfflineOptions { temporary: true, fault: false }).unwrap();
    pool.drives().offline("d1.img", OfflineOptions { temporary: true, fault: true }).unwrap();
    assert_eq!(leaf_states(&pool), ["OFFLINE", "DEGRADED"]);
    pool.export().unwrap();
    drop(pool);
    let pool = import(&drives);
    resilver(&pool);
    assert_eq!(leaf_states(&pool), ["ONLINE", "ONLINE"]);
    assert!(read_file(&pool, "tank", "while") == noise_bytes(1, 3 << 20));
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}
