//! Distributed spares of dRAIDs: one stands in for a failed drive, and goes back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::pool::{DraidLayout, ImportOptions, OfflineOptions, Pool, ScanStatus, VdevLayout};
use sim::{DiskArray, Fault};

use crate::offline::{leaf_states, resilver};
use crate::resilver::import;
use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::spares::{
    DRIVE_SIZE, activate, assert_files, create_image, create_without_first, cut_power,
    export_and_check, new_pool, resilver_with_failed, spare_states,
};
use crate::test_pool::{TempDir, environment, write_file};

const DRIVES: usize = 7;
const SPARE: &str = "draid1-0-0";

fn layout() -> VdevLayout {
    VdevLayout::Draid(DraidLayout { parity: 1, data: 3, spares: 1 })
}

/// A dRAID with a distributed spare, of which the first drive is in another folder.
fn draid_without_first(name: &str) -> (TempDir, Pool, TempDir) {
    let folder = TempDir::new(name, DRIVES, DRIVE_SIZE);
    let new = new_pool(layout(), &folder.drives(DRIVES), &[]);
    let (pool, away) = create_without_first(&folder, name, &new);
    (folder, pool, away)
}

#[test]
fn distributed_spare_restores_redundancy() {
    let (folder, pool, away) = draid_without_first("dspare-back");
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    assert_eq!(activate(&pool), 1);
    assert_eq!(activate(&pool), 0, "the drive has a spare already");
    assert_eq!(spare_states(&pool), ["INUSE"]);
    assert!(pool.vdevs().detach(SPARE).is_ok(), "the others still have all");
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    pool.vdevs().replace("d0.img", Some(SPARE.as_ref()), false).unwrap();
    resilver(&pool);
    let vdev = &pool.status().vdevs[0].children[0];
    assert_eq!((vdev.name.as_str(), vdev.state.as_str()), ("spare-0", "DEGRADED"));
    pool.export().unwrap();
    drop(pool);
    let said = run_zdb(folder.path(), &["-bcc", "-C"]);
    assert!(said.is_empty() || said.contains("type: 'dspare'"), "{said}");

    // the spare makes up for the drive: another may go
    for gone in [1, 4, 6] {
        let left = (1..DRIVES).filter(|index| *index != gone);
        let left: Vec<PathBuf> = left.map(|index| folder.drives(DRIVES)[index].clone()).collect();
        let options = ImportOptions { read_only: true, ..ImportOptions::default() };
        let pool = engine::pool::import_with(&left, "tank", &options, &environment()).unwrap();
        assert_files(&pool);
    }
    std::fs::rename(away.path().join("d0.img"), &folder.drives(DRIVES)[0]).unwrap();
    let pool = import(&[folder.path().into()]);
    resilver(&pool);
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    assert_eq!(leaf_states(&pool), ["ONLINE"; DRIVES]);
    export_and_check(&folder, pool);
}

#[test]
fn replaced_drive_frees_the_distributed_spare() {
    let (folder, pool, _) = draid_without_first("dspare-replace");
    assert_eq!(activate(&pool), 1);
    resilver(&pool);
    let new = create_image(&folder, "new.img", DRIVE_SIZE);
    pool.vdevs().replace("d0.img", Some(&new), false).unwrap();
    resilver(&pool);
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    assert_eq!(leaf_states(&pool), ["ONLINE"; DRIVES]);
    assert_files(&pool);
    export_and_check(&folder, pool);
}

#[test]
fn detached_drive_leaves_the_distributed_spare() {
    let (folder, pool, _) = draid_without_first("dspare-stays");
    assert_eq!(activate(&pool), 1);
    resilver(&pool);
    pool.vdevs().detach("d0.img").unwrap();
    assert_eq!(spare_states(&pool), ["INUSE"]);
    pool.export().unwrap();
    drop(pool);
    run_zdb(folder.path(), &["-bcc"]);
    let pool = import(&[folder.path().into()]);
    assert_files(&pool);
    let new = create_image(&folder, "new.img", DRIVE_SIZE);
    pool.vdevs().replace(SPARE, Some(&new), false).unwrap();
    resilver(&pool);
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    assert_files(&pool);
    export_and_check(&folder, pool);
}

#[test]
fn distributed_spare_survives_power_cuts() {
    let storm = DiskArray::new(&[64 << 20; DRIVES]);
    let drives: Vec<PathBuf> = (0..DRIVES).map(|index| format!("/disk{index}").into()).collect();
    let new = new_pool(layout(), &drives, &[]);
    let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap();
    write_file(&pool, "tank", "before", &noise_bytes(1, 5 << 20));
    pool.sync().unwrap();
    let start = storm.journal().len();
    storm.disks()[1].add_fault(Fault::Removed);
    write_file(&pool, "tank", "while", &noise_bytes(2, 3 << 20));
    pool.sync().unwrap();
    assert_eq!(activate(&pool), 1);
    resilver_with_failed(&pool);
    assert_files(&pool);
    let in_use = storm.journal().len();
    pool.vdevs().detach(SPARE).unwrap();
    let end = storm.journal().len();
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    drop(pool);
    cut_power(&storm, (start, in_use, end));
}

#[test]
fn distributed_spare_serves_its_own_draid_only() {
    let folder = TempDir::new("dspare-other", DRIVES + 2, DRIVE_SIZE);
    let drives = folder.drives(DRIVES + 2);
    let mut new = new_pool(layout(), &drives[..DRIVES], &[]);
    new.vdevs.extend(new_pool(VdevLayout::Mirror, &drives[DRIVES..], &[]).vdevs);
    new.force = true;
    let pool = engine::pool::create(&new, &environment()).unwrap();
    let why = pool.vdevs().replace("d7.img", Some(SPARE.as_ref()), false).unwrap_err().to_string();
    assert!(why.contains("only drives of its own dRAID"), "{why}");
    pool.export().unwrap();
}

const TIMEOUT: Duration = Duration::from_mins(1);

/// Waits without a pause, so that what follows happens as early as it can.
fn wait_until(pool: &Pool, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "{:?}", pool.status());
        std::thread::yield_now();
    }
}

fn is_idle(pool: &Pool) -> bool {
    !pool.scans().needs_resilver()
        && !pool.scans().status().is_some_and(|scan| ScanStatus::is_scanning(&scan))
}

/// The spare goes back from one drive, and is put beside another in the same moment.
fn use_spare_twice(pool: &Pool) {
    let fault = OfflineOptions { temporary: false, fault: true };
    pool.drives().offline("d1.img", fault).unwrap();
    assert_eq!(activate(pool), 1);
    pool.scans().start_resilver();
    wait_until(pool, || is_idle(pool));
    pool.clear_errors(None).unwrap();
    pool.scans().start_resilver();
    wait_until(pool, || spare_states(pool) == ["AVAIL"]);
    pool.vdevs().rebuild("d2.img", Some(SPARE.as_ref()), false).unwrap();
    pool.scans().start_resilver();
    wait_until(pool, || is_idle(pool));
    assert_eq!(spare_states(pool), ["INUSE"]);
    assert_eq!(pool.status().vdevs[0].children[2].name, "spare-2");
    pool.vdevs().detach(SPARE).unwrap();
    assert_eq!(spare_states(pool), ["AVAIL"]);
}

#[test]
fn freed_spare_is_used_again_at_once() {
    let folder = TempDir::new("dspare-again", DRIVES, DRIVE_SIZE);
    let new = new_pool(layout(), &folder.drives(DRIVES), &[]);
    let pool = engine::pool::create(&new, &environment()).unwrap();
    write_file(&pool, "tank", "before", &noise_bytes(1, 5 << 20));
    write_file(&pool, "tank", "while", &noise_bytes(2, 3 << 20));
    pool.sync().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| pool.background().run_activities(&stop));
        scope.spawn(|| pool.background().run_txg_sync(Duration::from_millis(20), &stop));
        let done = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..4 {
                use_spare_twice(&pool);
            }
        }));
        stop.store(true, Ordering::Release);
        done.unwrap();
    });
    assert_files(&pool);
    export_and_check(&folder, pool);
}
