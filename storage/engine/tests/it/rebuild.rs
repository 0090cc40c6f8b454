//! Sequential rebuilds of mirrors and dRAIDs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::pool::{DraidLayout, Pool, ScanKind, ScanProgress, VdevLayout};
use sim::{DiskArray, Fault};

use crate::offline::leaf_states;
use crate::resilver::{churn_files, import};
use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::spares::{DRIVE_SIZE, assert_files, create_image, cut_power, new_pool, spare_states};
use crate::test_pool::{TempDir, check_pool, environment, write_file};

const DRAID: VdevLayout = VdevLayout::Draid(DraidLayout { parity: 1, data: 3, spares: 1 });

fn pool_with_files(folder: &TempDir, layout: VdevLayout, drives: usize) -> Pool {
    let new = new_pool(layout, &folder.drives(drives), &[]);
    let pool = engine::pool::create(&new, &environment()).unwrap();
    write_file(&pool, "tank", "before", &noise_bytes(1, 5 << 20));
    write_file(&pool, "tank", "while", &noise_bytes(2, 3 << 20));
    let child = engine::pool::NewDataset { name: "tank/child".to_owned(), properties: vec![] };
    pool.datasets().create_filesystem(&child).unwrap();
    pool.sync().unwrap();
    pool
}

/// Rebuilds, while files are written and removed, and scrubs after that.
fn rebuild(pool: &Pool) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| churn_files(pool, &stop));
        let done = pool.scans().resilver(&ScanProgress::new());
        stop.store(true, Ordering::Release);
        let done = done.unwrap();
        assert!(done.complete && done.errors == 0, "{done:?}");
    });
    assert!(!pool.scans().needs_resilver());
    let scan = pool.scans().status().unwrap();
    assert_eq!((scan.scan, scan.is_scanning()), (ScanKind::Scrub, true), "{scan:?}");
    let scrub = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(scrub.complete && scrub.errors == 0 && scrub.written == 0, "{scrub:?}");
}

fn replace_in(name: &str, layout: VdevLayout, drives: usize) {
    let folder = TempDir::new(name, drives, DRIVE_SIZE);
    let pool = pool_with_files(&folder, layout, drives);
    let new = create_image(&folder, "new.img", DRIVE_SIZE);
    pool.vdevs().rebuild("d1.img", Some(&new), false).unwrap();
    let scan = pool.scans().status().unwrap();
    assert!(scan.scan == ScanKind::Resilver && scan.rebuild.is_some(), "{scan:?}");
    let other = create_image(&folder, "other.img", DRIVE_SIZE);
    let why = pool.vdevs().replace("d0.img", Some(&other), false).unwrap_err().to_string();
    assert!(why.contains("currently sequentially resilvering"), "{why}");
    rebuild(&pool);
    assert_eq!(leaf_states(&pool), vec!["ONLINE"; drives]);
    assert_files(&pool);
    pool.export().unwrap();
    drop(pool);
    std::fs::remove_file(&folder.drives(drives)[1]).unwrap();
    std::fs::remove_file(other).unwrap();
    run_zdb(folder.path(), &["-bcc"]);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn mirror_is_rebuilt_sequentially() {
    replace_in("rebuild-mirror", VdevLayout::Mirror, 2);
}

#[test]
fn draid_is_rebuilt_sequentially() {
    replace_in("rebuild-draid", DRAID, 7);
}

#[test]
fn single_drive_is_rebuilt_sequentially() {
    let folder = TempDir::new("rebuild-single", 1, DRIVE_SIZE);
    let pool = pool_with_files(&folder, VdevLayout::Single, 1);
    let new = create_image(&folder, "new.img", DRIVE_SIZE);
    pool.vdevs().rebuild("d0.img", Some(&new), false).unwrap();
    rebuild(&pool);
    let side = create_image(&folder, "side.img", DRIVE_SIZE);
    pool.vdevs().attach_by_rebuild("new.img", &side, false).unwrap();
    rebuild(&pool);
    pool.export().unwrap();
    drop(pool);
    let pool = import(std::slice::from_ref(&side));
    assert_files(&pool);
    pool.export().unwrap();
}

#[test]
fn detached_drive_ends_its_rebuild() {
    let folder = TempDir::new("rebuild-detach", 2, DRIVE_SIZE);
    let pool = pool_with_files(&folder, VdevLayout::Mirror, 2);
    let new = create_image(&folder, "new.img", DRIVE_SIZE);
    pool.vdevs().rebuild("d1.img", Some(&new), false).unwrap();
    pool.vdevs().detach("new.img").unwrap();
    let rebuild = pool.status().rebuild.unwrap();
    assert_eq!(rebuild.state, "canceled");
    assert!(!pool.scans().needs_resilver());
    pool.export().unwrap();
    drop(pool);
    run_zdb(folder.path(), &["-bcc"]);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn raidz_is_not_rebuilt_sequentially() {
    let folder = TempDir::new("rebuild-raidz", 3, DRIVE_SIZE);
    let pool = pool_with_files(&folder, VdevLayout::Raidz(1), 3);
    let new = create_image(&folder, "new.img", DRIVE_SIZE);
    let why = pool.vdevs().rebuild("d1.img", Some(&new), false).unwrap_err().to_string();
    assert!(why.contains("only mirrors and dRAIDs"), "{why}");
    pool.vdevs().replace("d1.img", Some(&new), false).unwrap();
    pool.export().unwrap();
}

#[test]
fn interrupted_rebuild_goes_on_after_import() {
    for (name, layout, drives) in
        [("rebuild-resume-mirror", VdevLayout::Mirror, 2), ("rebuild-resume-draid", DRAID, 7)]
    {
        let folder = TempDir::new(name, drives, DRIVE_SIZE);
        let pool = pool_with_files(&folder, layout, drives);
        let new = create_image(&folder, "new.img", DRIVE_SIZE);
        pool.vdevs().rebuild("d1.img", Some(&new), false).unwrap();
        let watch = ScanProgress::new();
        watch.job().cancel.cancel();
        assert!(!pool.scans().resilver(&watch).unwrap().complete);
        pool.export().unwrap();
        drop(pool);
        let said = run_zdb(folder.path(), &["-C"]);
        assert!(said.is_empty() || said.contains("rebuild_txg"), "{said}");
        let pool = import(&[folder.path().into()]);
        assert!(pool.scans().status().unwrap().rebuild.is_some());
        rebuild(&pool);
        assert_eq!(leaf_states(&pool), vec!["ONLINE"; drives]);
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    }
}

#[test]
fn distributed_spare_is_rebuilt_sequentially() {
    let folder = TempDir::new("rebuild-dspare", 7, DRIVE_SIZE);
    let pool = pool_with_files(&folder, DRAID, 7);
    pool.export().unwrap();
    drop(pool);
    std::fs::remove_file(&folder.drives(7)[2]).unwrap();
    let pool = import(&[folder.path().into()]);
    assert_eq!(pool.drives().activate_spares(&pool.drives().failed()).unwrap().len(), 1);
    assert!(pool.scans().status().unwrap().rebuild.is_some());
    rebuild(&pool);
    assert_eq!(spare_states(&pool), ["INUSE"]);
    pool.export().unwrap();
    drop(pool);
    run_zdb(folder.path(), &["-bcc"]);
    let left = [0, 1, 3, 4, 6].map(|index| folder.drives(7)[index].clone());
    let pool = import(&left);
    assert_files(&pool);
    pool.export().unwrap();
}

#[test]
fn rebuild_survives_power_cuts() {
    for (layout, drives) in [(VdevLayout::Mirror, 2), (DRAID, 7)] {
        let storm = DiskArray::new(&vec![64 << 20; drives + 1]);
        let paths: Vec<PathBuf> =
            (0..=drives).map(|index| format!("/disk{index}").into()).collect();
        let new = new_pool(layout, &paths[..drives], &[]);
        let devices = storm.devices();
        let environment = environment();
        let pool = engine::pool::create_on_devices(&new, &devices[..drives], &environment).unwrap();
        write_file(&pool, "tank", "before", &noise_bytes(1, 5 << 20));
        pool.sync().unwrap();
        let start = storm.journal().len();
        storm.disks()[1].add_fault(Fault::Removed);
        write_file(&pool, "tank", "while", &noise_bytes(2, 3 << 20));
        pool.sync().unwrap();
        let in_use = storm.journal().len();
        let spare = &devices[drives];
        pool.vdevs().rebuild_with("/disk1", &paths[drives], spare).unwrap();
        let done = pool.scans().resilver(&ScanProgress::new()).unwrap();
        assert!(done.complete && done.errors == 0, "{done:?}");
        assert_files(&pool);
        let end = storm.journal().len();
        drop(pool);
        cut_power(&storm, (start, in_use, end));
    }
}
