//! Scans that the pool keeps: they go on after an export, follow snapshots and destructions, and leave an
//! error log.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::pool::{
    CreateOptions, Environment, GatedWork, NewDataset, Pool, ScanKind, ScanProgress, ScanResult,
    ScrubRange, VdevLayout,
};
use units::ObjectId;

use crate::resilver::{corrupt_sectors, import};
use crate::shared_blocks::noise_bytes;
use crate::test_pool::{TempDir, check_pool, credentials, environment, new_pool, write_file};

const DRIVE_SIZE: u64 = 128 << 20;
const TIMEOUT: Duration = Duration::from_mins(1);
const SECTOR_SIZE: usize = 4096;

fn new_dataset(name: &str) -> NewDataset {
    NewDataset { name: name.to_owned(), properties: vec![] }
}

/// A mirror with files of small blocks in several file systems, and snapshots and a clone.
fn create_pool(folder: &TempDir) {
    let mut new = new_pool(folder, VdevLayout::Mirror, 2);
    let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    new.properties = vec![property("compression", "off"), property("recordsize", "4096")];
    let pool = engine::pool::create(&new, &environment()).unwrap();
    write_file(&pool, "tank", "first", &noise_bytes(1, 8 << 20));
    for (name, seed) in [("tank/a", 2), ("tank/b", 3)] {
        pool.datasets().create_filesystem(&new_dataset(name)).unwrap();
        write_file(&pool, name, "old", &noise_bytes(seed, 2 << 20));
        pool.snapshots().create(&[format!("{name}@one")]).unwrap();
        write_file(&pool, name, "middle", &noise_bytes(seed + 10, 2 << 20));
        pool.snapshots().create(&[format!("{name}@two")]).unwrap();
        write_file(&pool, name, "new", &noise_bytes(seed + 20, 2 << 20));
    }
    pool.snapshots().clone_snapshot("tank/a@one", &new_dataset("tank/clone")).unwrap();
    write_file(&pool, "tank/clone", "own", &noise_bytes(9, 2 << 20));
    pool.export().unwrap();
}

/// Scrubs until so many blocks were found.
fn scrub_some(drives: &[PathBuf], blocks: u64) -> (Pool, ScanResult) {
    stop_after(drives, blocks, |pool, watch| pool.scans().scrub(watch))
}

/// Resilvers until so many blocks were found.
fn resilver_some(drives: &[PathBuf], blocks: u64) -> (Pool, ScanResult) {
    stop_after(drives, blocks, |pool, watch| pool.scans().resilver(watch))
}

/// Imports a pool and scans it with one thread, which stops after so many blocks: the scan asks for the time
/// with each batch.
fn stop_after(
    drives: &[PathBuf],
    blocks: u64,
    scan: impl Fn(&Pool, &ScanProgress) -> engine::Result<ScanResult>,
) -> (Pool, ScanResult) {
    let watch = ScanProgress::new();
    let watched = Arc::clone(&watch);
    let now = move || {
        if watched.job().progress.items_done() >= blocks {
            watched.job().cancel.cancel();
        }
        (1_700_000_000, 0)
    };
    let environment = Environment { now: Arc::new(now), workers: 1, ..environment() };
    let pool = engine::pool::import(drives, "tank", false, &environment).unwrap();
    // few blocks are sorted together, so that the position moves often
    pool.scans().set_memory(0);
    let result = scan(&pool, &watch).unwrap();
    (pool, result)
}

fn check_clean(folder: &TempDir) {
    assert_eq!(check_pool(folder, "tank"), Vec::<String>::new());
}

#[test]
fn scrub_goes_on_after_export() {
    let folder = TempDir::new("scan-state", 2, DRIVE_SIZE);
    create_pool(&folder);
    let drives = folder.drives(2);
    let (pool, part) = scrub_some(&drives, 2800);
    assert!(!part.complete, "{part:?}");
    let before = pool.scans().status().unwrap();
    assert!(before.issued > 4 << 20 && before.issued < before.total, "{before:?}");
    pool.export().unwrap();
    drop(pool);
    // zdb and the examiner know every object of a pool in the middle of a scan
    check_clean(&folder);

    let pool = import(&drives);
    let status = pool.scans().status().unwrap();
    assert_eq!((status.scan, status.state.as_str()), (ScanKind::Scrub, "scanning"));
    assert_eq!((status.issued, status.started), (before.issued, before.started));
    let rest = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(rest.complete && rest.errors == 0, "{rest:?}");
    let status = pool.scans().status().unwrap();
    assert_eq!(status.state, "finished");
    // each block was read once, but for those around the bookmark
    assert!(status.issued >= status.total / 10 * 9, "{status:?}");
    let read_twice = part.read + rest.read - pool.scans().scrub(&ScanProgress::new()).unwrap().read;
    assert!(read_twice < 8 << 20, "{read_twice} bytes were read twice");
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder);
}

#[test]
fn resilver_resumes_only_if_it_covers_all_leaves() {
    let folder = TempDir::new("scan-resilver", 3, DRIVE_SIZE);
    let drives = folder.drives(3);
    let mut new = new_pool(&folder, VdevLayout::Mirror, 3);
    let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    new.properties = vec![property("compression", "off"), property("recordsize", "4096")];
    engine::pool::create(&new, &environment()).unwrap().export().unwrap();
    let pool = import(&drives[..1]);
    write_file(&pool, "tank", "while", &noise_bytes(5, 16 << 20));
    pool.export().unwrap();
    drop(pool);

    // one leaf comes back, and then the other, which lacks what is before the bookmark
    let (pool, part) = resilver_some(&drives[..2], 2500);
    assert!(!part.complete && part.written > 2 << 20, "{part:?}");
    pool.export().unwrap();
    drop(pool);
    let (pool, all) = resilver_some(&drives, 2500);
    assert!(!all.complete, "{all:?}");
    pool.export().unwrap();
    drop(pool);
    let pool = import(&drives);
    let all = pool.scans().resilver(&ScanProgress::new()).unwrap();
    assert!(all.complete && all.errors == 0 && !pool.scans().needs_resilver(), "{all:?}");
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder);

    let pool = import(&drives[..2]);
    write_file(&pool, "tank", "later", &noise_bytes(6, 8 << 20));
    pool.export().unwrap();
    drop(pool);
    let (pool, part) = resilver_some(&drives, 1900);
    assert!(!part.complete, "{part:?}");
    let before = pool.scans().status().unwrap();
    assert!(before.issued > 1 << 20, "{before:?}");
    pool.export().unwrap();
    drop(pool);
    let pool = import(&drives);
    let rest = pool.scans().resilver(&ScanProgress::new()).unwrap();
    assert!(rest.complete && !pool.scans().needs_resilver(), "{rest:?}");
    assert!(rest.written < 8 << 20, "only the rest is written: {rest:?}");
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder);
    let pool = import(&drives[2..]);
    let found = crate::test_pool::read_file(&pool, "tank", "later");
    assert!(found == noise_bytes(6, 8 << 20));
    pool.close().unwrap();
}

#[test]
fn interrupted_scrub_follows_changes_of_datasets() {
    let folder = TempDir::new("scan-changes", 2, DRIVE_SIZE);
    create_pool(&folder);
    let drives = folder.drives(2);
    // in the first file system; the others wait in the queue
    let (pool, part) = scrub_some(&drives, 1800);
    assert!(!part.complete, "{part:?}");
    let issued = pool.scans().status().unwrap().issued;
    pool.export().unwrap();
    drop(pool);
    corrupt_sectors(&drives[0]);
    let pool = import(&drives);
    // the blocks of each move to another dataset
    pool.snapshots().create(&["tank@now".to_owned(), "tank/clone@now".to_owned()]).unwrap();
    pool.datasets().destroy("tank/a@two").unwrap();
    pool.datasets().destroy("tank/b@one").unwrap();
    pool.datasets().destroy("tank/b@two").unwrap();
    pool.datasets().promote("tank/clone").unwrap();
    pool.export().unwrap();
    drop(pool);
    let pool = import(&drives);
    let rest = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(rest.complete && rest.errors == 0, "{rest:?}");
    // a second scrub has to repair only what was scanned before the damage
    let again = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(again.complete && again.errors == 0, "{again:?}");
    assert!(again.written <= issued, "{again:?} after {rest:?}, {issued}");
    assert!(rest.written > 1 << 20, "{rest:?}");
    assert_eq!(pool.scans().scrub(&ScanProgress::new()).unwrap().written, 0);
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder);
}

fn run_until(pool: &Pool, state: &str) {
    let begun = Instant::now();
    while pool.scans().status().is_none_or(|scan| scan.state != state) {
        assert!(begun.elapsed() < TIMEOUT, "{:?}", pool.scans().status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Does something while a thread runs scans.
fn with_scan_thread(pool: &Pool, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| pool.background().run_activities(&stop));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Release);
        done.unwrap();
    });
}

#[test]
fn paused_scrub_stays_paused_after_import() {
    let folder = TempDir::new("scan-pause", 2, DRIVE_SIZE);
    create_pool(&folder);
    let drives = folder.drives(2);
    let (pool, part) = scrub_some(&drives, 1800);
    assert!(!part.complete, "{part:?}");
    pool.scans().pause_scrub().unwrap();
    for range in [ScrubRange::Errors, ScrubRange::SinceLastScrub] {
        let paused = pool.scans().start_scrub(range).unwrap_err().to_string();
        assert!(paused.contains("scrub is paused; use 'zpool scrub' to resume"), "{paused}");
    }
    let again = pool.scans().pause_scrub().unwrap_err().to_string();
    assert!(again.contains("scrub is paused; use 'zpool scrub' to resume scrub"), "{again}");
    pool.export().unwrap();
    drop(pool);
    let pool = import(&drives);
    with_scan_thread(&pool, || {
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(pool.scans().status().unwrap().state, "paused");
        pool.scans().start_scrub(ScrubRange::All).unwrap();
        run_until(&pool, "finished");
        let none = pool.scans().stop_scrub().unwrap_err().to_string();
        assert!(none.contains("there is no active scrub"), "{none}");
    });
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder);
}

#[test]
fn stopped_scrub_is_canceled_in_the_pool() {
    let folder = TempDir::new("scan-stop", 2, DRIVE_SIZE);
    create_pool(&folder);
    let (pool, part) = scrub_some(&folder.drives(2), 1800);
    assert!(!part.complete, "{part:?}");
    let busy = pool.scans().start_scrub(ScrubRange::All).unwrap_err().to_string();
    assert!(busy.contains("currently scrubbing; use 'zpool scrub -s' to cancel scrub"), "{busy}");
    pool.scans().stop_scrub().unwrap();
    pool.export().unwrap();
    drop(pool);
    let pool = import(&folder.drives(2));
    assert_eq!(pool.scans().status().unwrap().state, "canceled");
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder);
}

/// Where a sector with those bytes is on a drive.
fn find_sector(drive: &std::path::Path, sector: &[u8]) -> u64 {
    let bytes = std::fs::read(drive).unwrap();
    let at = bytes.chunks_exact(SECTOR_SIZE).position(|found| found == sector).unwrap();
    (at * SECTOR_SIZE) as u64
}

fn overwrite(drive: &std::path::Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(drive).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn error_log_names_files_until_a_clean_scrub() {
    let folder = TempDir::new("scan-errors", 2, DRIVE_SIZE);
    create_pool(&folder);
    let drives = folder.drives(2);
    let content = noise_bytes(12, 2 << 20);
    let sector = &content[5 * SECTOR_SIZE..6 * SECTOR_SIZE];
    let at: Vec<u64> = drives.iter().map(|drive| find_sector(drive, sector)).collect();
    for (drive, at) in drives.iter().zip(&at) {
        overwrite(drive, *at, &[0x5a; SECTOR_SIZE]);
    }
    let pool = import(&drives);
    assert_eq!(pool.scans().data_errors(), Vec::<String>::new());
    let scrub = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(scrub.complete && scrub.errors == 1, "{scrub:?}");
    pool.export().unwrap();
    drop(pool);

    // the snapshot and the head share the block
    let pool = import(&drives);
    let bytes = "/middle: bytes 20480 to 24575";
    let lines = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("{name}:{bytes}")).collect()
    };
    let mut found = pool.scans().data_errors();
    found.sort();
    assert_eq!(found, lines(&["tank/a", "tank/a@two"]));
    assert_eq!(pool.status().data_errors.len(), 2);
    let files = pool.datasets().filesystem("tank/a").unwrap();
    let root = ObjectId::new(files.reader().root().unwrap().ino());
    files.unlink(&credentials(), root, b"middle").unwrap();
    drop(files);
    pool.export().unwrap();
    drop(pool);
    let pool = import(&drives);
    assert_eq!(pool.scans().data_errors(), lines(&["tank/a@two"]));

    // an error scrub finds the block damaged still, and then whole
    with_scan_thread(&pool, || {
        pool.scans().start_scrub(ScrubRange::Errors).unwrap();
        run_until(&pool, "finished");
        assert_eq!(pool.scans().status().unwrap().scan, ScanKind::ErrorScrub);
        assert_eq!(pool.scans().data_errors(), lines(&["tank/a@two"]));
        overwrite(&drives[1], at[1], sector);
        pool.scans().start_scrub(ScrubRange::Errors).unwrap();
        run_until(&pool, "finished");
    });
    assert_eq!(pool.scans().data_errors(), Vec::<String>::new());
    // nothing to do: no scan begins
    pool.scans().start_scrub(ScrubRange::Errors).unwrap();
    assert_eq!(pool.scans().status().unwrap().state, "finished");
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder);
}

#[test]
fn incremental_scrub_reads_only_new_blocks() {
    let folder = TempDir::new("scan-since", 2, DRIVE_SIZE);
    create_pool(&folder);
    let pool = import(&folder.drives(2));
    let all = pool.scans().scrub(&ScanProgress::new()).unwrap();
    write_file(&pool, "tank/b", "later", &noise_bytes(30, 1 << 20));
    with_scan_thread(&pool, || {
        pool.scans().start_scrub(ScrubRange::SinceLastScrub).unwrap();
        run_until(&pool, "finished");
    });
    let status = pool.scans().status().unwrap();
    assert!(status.scanned > 1 << 20 && status.scanned < all.read / 2, "{status:?} {all:?}");
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder);
}

#[test]
fn promoted_clone_keeps_errors_of_shared_blocks() {
    let folder = TempDir::new("scan-promote", 2, DRIVE_SIZE);
    create_pool(&folder);
    let drives = folder.drives(2);
    let content = noise_bytes(2, 2 << 20);
    let sector = &content[5 * SECTOR_SIZE..6 * SECTOR_SIZE];
    let (pool, at) = scrub_lost_sector(&drives, sector);
    pool.datasets().promote("tank/clone").unwrap();
    for name in ["tank/a@two", "tank/a"] {
        pool.datasets().destroy(name).unwrap();
    }
    pool.export().unwrap();
    drop(pool);
    let pool = import(&drives);
    let mut found = pool.scans().data_errors();
    found.sort();
    let bytes = "/old: bytes 20480 to 24575";
    assert_eq!(found, [format!("tank/clone:{bytes}"), format!("tank/clone@one:{bytes}")]);
    pool.export().unwrap();
    drop(pool);
    overwrite(&drives[0], at[0], sector);
    overwrite(&drives[1], at[1], sector);
    check_clean(&folder);
}

/// Damages the same sector of both drives of a mirror, and scrubs: one block is lost. Returns where the sector lies.
fn scrub_lost_sector(drives: &[PathBuf], sector: &[u8]) -> (Pool, Vec<u64>) {
    let at: Vec<u64> = drives.iter().map(|drive| find_sector(drive, sector)).collect();
    for (drive, at) in drives.iter().zip(&at) {
        overwrite(drive, *at, &[0x5a; SECTOR_SIZE]);
    }
    let pool = import(drives);
    let scrub = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(scrub.complete && scrub.errors == 1, "{scrub:?}");
    (pool, at)
}

#[test]
fn gate_holds_a_scan_back() {
    let folder = TempDir::new("scan-gate", 2, DRIVE_SIZE);
    create_pool(&folder);
    let pool = import(&folder.drives(2));
    let is_held = Arc::new(AtomicBool::new(true));
    let gate = Arc::clone(&is_held);
    pool.activities()
        .set_gates(Arc::new(move |work| work == GatedWork::Scan && gate.load(Ordering::SeqCst)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| pool.background().run_activities(&stop));
        let state = || pool.scans().status().unwrap().state;
        pool.scans().start_scrub(ScrubRange::All).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(state(), "scanning");
        pool.scans().pause_scrub().unwrap();
        assert_eq!(state(), "paused");
        pool.scans().start_scrub(ScrubRange::All).unwrap();
        pool.scans().stop_scrub().unwrap();
        assert_eq!(state(), "canceled");
        pool.scans().start_scrub(ScrubRange::All).unwrap();
        is_held.store(false, Ordering::SeqCst);
        let begun = Instant::now();
        while state() != "finished" && begun.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(state(), "finished");
        stop.store(true, Ordering::Release);
    });
    pool.export().unwrap();
}

#[test]
fn error_log_stays_when_head_errlog_comes() {
    let folder = TempDir::new("scan-head-errlog", 2, DRIVE_SIZE);
    let mut new = new_pool(&folder, VdevLayout::Mirror, 2);
    let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    new.properties = vec![property("compression", "off"), property("recordsize", "4096")];
    let options = [property("feature@head_errlog", "disabled")];
    let options = CreateOptions::parse(&options, false).unwrap();
    let pool = engine::pool::create_with_options(&new, options, &environment()).unwrap();
    let content = noise_bytes(1, 1 << 20);
    write_file(&pool, "tank", "first", &content);
    pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    pool.export().unwrap();
    drop(pool);
    let drives = folder.drives(2);
    let sector = &content[5 * SECTOR_SIZE..6 * SECTOR_SIZE];
    let (pool, at) = scrub_lost_sector(&drives, sector);
    pool.sync().unwrap();
    assert_eq!(pool.scans().data_errors().len(), 1);
    pool.properties().set_pool("feature@head_errlog", "enabled").unwrap();
    pool.export().unwrap();
    drop(pool);
    let pool = import(&drives);
    let mut found = pool.scans().data_errors();
    found.sort();
    // with the birth of the block known, all that share it are named
    let bytes = "/first: bytes 20480 to 24575";
    assert_eq!(found, [format!("tank:{bytes}"), format!("tank@one:{bytes}")]);
    pool.export().unwrap();
    drop(pool);
    overwrite(&drives[0], at[0], sector);
    overwrite(&drives[1], at[1], sector);
    check_clean(&folder);
}
