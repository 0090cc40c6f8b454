//! Drives that were missing are resilvered: afterwards each has its part of everything, the
//! examiner and zdb find nothing, and others may be removed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::pool::{DraidLayout, NewDataset, Pool, ScanProgress, VdevLayout};
use posix::{RenameMode, RenameRequest, WriteOffset};
use units::ObjectId;

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{
    TempDir, check_pool, credentials, environment, new_pool, read_file, write_file,
};

const DRIVE_SIZE: u64 = 128 << 20;

pub(crate) fn import(drives: &[PathBuf]) -> Pool {
    engine::pool::import(drives, "tank", false, &environment()).unwrap()
}

fn new_dataset(name: &str) -> NewDataset {
    NewDataset { name: name.to_owned(), properties: vec![] }
}

/// A pool with all kinds of things in it, some of which its first drives do not know of.
pub(crate) fn create_with_outdated(folder: &TempDir, shape: VdevLayout, count: usize, away: usize) {
    let held = engine::pool::create(&new_pool(folder, shape, count), &environment()).unwrap();
    write_file(&held, "tank", "before", &noise_bytes(1, 6 << 20));
    held.datasets().create_filesystem(&new_dataset("tank/child")).unwrap();
    write_file(&held, "tank/child", "before", &noise_bytes(2, 1 << 20));
    held.snapshots().create(&["tank/child@one".to_owned()]).unwrap();
    held.export().unwrap();
    drop(held);

    let held = import(&folder.drives(count)[away..]);
    write_file(&held, "tank", "while", &noise_bytes(3, 9 << 20));
    write_file(&held, "tank/child", "gone", &noise_bytes(4, 2 << 20));
    held.snapshots().create(&["tank/child@two".to_owned()]).unwrap();
    held.snapshots().clone_snapshot("tank/child@one", &new_dataset("tank/clone")).unwrap();
    write_file(&held, "tank/clone", "while", &noise_bytes(5, 900_000));
    held.snapshots().rollback("tank/clone").unwrap_err();
    for number in 0..200 {
        write_file(&held, "tank/child", &format!("small{number}"), &noise_bytes(number, 700));
    }
    held.datasets().filesystem("tank/child").unwrap().fsync(None).unwrap();
    held.export().unwrap();
}

fn check_clean(folder: &TempDir, name: &str) {
    assert_eq!(check_pool(folder, "tank"), Vec::<String>::new(), "{name}");
}

fn compare_files(pool: &Pool, name: &str) {
    for (fs, file, bytes) in [
        ("tank", "before", noise_bytes(1, 6 << 20)),
        ("tank", "while", noise_bytes(3, 9 << 20)),
        ("tank/child", "small7", noise_bytes(7, 700)),
        ("tank/clone", "while", noise_bytes(5, 900_000)),
    ] {
        assert!(read_file(pool, fs, file) == bytes, "{name}: {fs} {file}");
    }
}

fn resilver_returned(name: &str, shape: VdevLayout, count: usize, away: usize) {
    let folder = TempDir::new(name, count, DRIVE_SIZE);
    create_with_outdated(&folder, shape, count, away);
    let pool = import(&folder.drives(count));
    assert!(pool.scans().needs_resilver(), "{name}");
    let watch = ScanProgress::new();
    let mended = pool.scans().resilver(&watch).unwrap();
    assert!(mended.complete && mended.damage.is_empty(), "{name}: {mended:?}");
    assert!(mended.written > 1 << 20 && mended.read > 1 << 20, "{name}: {mended:?}");
    assert!(!pool.scans().needs_resilver());
    compare_files(&pool, name);
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder, name);
    // as many others may go as there is redundancy for
    let drives = folder.drives(count);
    let pool = import(&drives[..count - away]);
    compare_files(&pool, name);
    pool.close().unwrap();
    drop(pool);
    let pool = import(&drives);
    let again = pool.scans().resilver(&ScanProgress::new()).unwrap();
    assert!(again.complete && again.errors == 0);
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder, name);
}

#[test]
fn mirror_children_are_resilvered() {
    resilver_returned("resilver-mirror", VdevLayout::Mirror, 3, 2);
}

#[test]
fn raidz_drives_are_resilvered() {
    resilver_returned("resilver-raidz1", VdevLayout::Raidz(1), 3, 1);
    resilver_returned("resilver-raidz2", VdevLayout::Raidz(2), 5, 2);
    resilver_returned("resilver-raidz3", VdevLayout::Raidz(3), 8, 3);
}

#[test]
fn draid_drives_are_resilvered() {
    let groups = DraidLayout { parity: 2, data: 3, spares: 1 };
    resilver_returned("resilver-draid", VdevLayout::Draid(groups), 7, 2);
}

/// Creates, rewrites, renames and deletes files, and snapshots, until stopped.
pub(crate) fn churn_files(held: &Pool, stop: &AtomicBool) {
    let fs = held.datasets().filesystem("tank/child").unwrap();
    let root = ObjectId::new(fs.reader().root().unwrap().ino());
    for round in 0_u32.. {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let name = format!("churn{}", round % 5);
        // near the end of the space some are refused
        let _ = fs.unlink(&credentials(), root, name.as_bytes());
        let new = posix::NewInode::default();
        if let Ok(made) = fs.create(&credentials(), root, name.as_bytes(), &new) {
            let id = ObjectId::new(made.ino());
            let _ = fs.write(&credentials(), id, WriteOffset::At(0), &noise_bytes(round, 3 << 20));
        }
        if round % 7 == 3 {
            let _ = held.snapshots().create(&[format!("tank/child@churn{round}")]);
            let _ =
                held.datasets().destroy(&format!("tank/child@churn{}", round.saturating_sub(7)));
        }
        if round % 5 == 1 {
            let small = format!("small{}", round % 200);
            let moved = RenameRequest {
                from_dir: root,
                from_name: small.as_bytes(),
                to_dir: root,
                to_name: b"moved",
                mode: RenameMode::Replace,
            };
            let _ = fs.rename(&credentials(), &moved);
        }
        held.sync().unwrap();
    }
}

/// Fills a pool until a few files more fit.
fn fill_pool(held: &Pool) {
    held.datasets().create_filesystem(&new_dataset("tank/ballast")).unwrap();
    let fs = held.datasets().filesystem("tank/ballast").unwrap();
    let root = ObjectId::new(fs.reader().root().unwrap().ino());
    let name = |number: u32| format!("ballast{number}").into_bytes();
    let bytes = noise_bytes(9, 2 << 20);
    let put = |number: u32| {
        let made =
            fs.create(&credentials(), root, &name(number), &posix::NewInode::default()).ok()?;
        fs.write(&credentials(), ObjectId::new(made.ino()), WriteOffset::At(0), &bytes).ok()
    };
    let full = (0..1000).find(|number| put(*number).is_none()).unwrap();
    for number in full.saturating_sub(8)..full {
        fs.unlink(&credentials(), root, &name(number)).unwrap();
    }
    held.sync().unwrap();
}

#[test]
fn resilver_runs_while_the_pool_is_written() {
    for (name, shape, count) in
        [("churn-raidz2", VdevLayout::Raidz(2), 4), ("churn-mirror", VdevLayout::Mirror, 2)]
    {
        let folder = TempDir::new(name, count, DRIVE_SIZE);
        create_with_outdated(&folder, shape, count, 1);
        let pool = import(&folder.drives(count));
        // little space is left, so that freed space is soon reused
        fill_pool(&pool);
        let stop = AtomicBool::new(false);
        let mended = std::thread::scope(|scope| {
            scope.spawn(|| churn_files(&pool, &stop));
            let mended = pool.scans().resilver(&ScanProgress::new());
            stop.store(true, Ordering::Release);
            mended.unwrap()
        });
        assert!(mended.complete && mended.damage.is_empty(), "{name}: {mended:?}");
        println!("{name}: {mended:?}");
        assert!(!pool.scans().needs_resilver());
        compare_kept(&pool, name);
        pool.export().unwrap();
        drop(pool);
        check_clean(&folder, name);
    }
}

fn compare_kept(pool: &Pool, name: &str) {
    assert!(read_file(pool, "tank", "before") == noise_bytes(1, 6 << 20), "{name}");
    assert!(read_file(pool, "tank", "while") == noise_bytes(3, 9 << 20), "{name}");
}

#[test]
fn lost_blocks_are_named_and_stay_missing() {
    let folder = TempDir::new("resilver-lost", 2, DRIVE_SIZE);
    let mut new = new_pool(&folder, VdevLayout::Mirror, 2);
    new.properties = vec![("compression".to_owned(), "off".to_owned())];
    let held = engine::pool::create(&new, &environment()).unwrap();
    held.export().unwrap();
    drop(held);
    let drives = folder.drives(2);
    let held = import(&drives[1..]);
    let wanted = noise_bytes(3, 3 << 20);
    write_file(&held, "tank", "while", &wanted);
    held.sync().unwrap();
    write_file(&held, "tank", "later", &noise_bytes(4, 1 << 20));
    held.export().unwrap();
    drop(held);
    // a block in its middle is damaged on the only drive that has it
    let mut image = std::fs::read(&drives[1]).unwrap();
    let part = &wanted[1 << 20..(1 << 20) + 512];
    let at = image.windows(512).step_by(512).position(|bytes| bytes == part).unwrap() * 512;
    image[at] ^= 1;
    std::fs::write(&drives[1], &image).unwrap();

    let held = import(&drives);
    let mended = held.scans().resilver(&ScanProgress::new()).unwrap();
    assert!(mended.complete, "{mended:?}");
    assert_eq!((mended.errors, mended.damage.len()), (1, 1), "{mended:?}");
    assert_eq!(mended.damage, ["tank:/while: bytes 1048576 to 1179647"]);
    assert!(held.scans().needs_resilver(), "the txg of that block is still missed");
    held.export().unwrap();
    drop(held);
    image[at] ^= 1;
    // its labels are newer now
    let mut now = std::fs::read(&drives[1]).unwrap();
    now[at] = image[at];
    std::fs::write(&drives[1], now).unwrap();
    let held = import(&drives);
    let mended = held.scans().resilver(&ScanProgress::new()).unwrap();
    assert!(mended.complete && mended.errors == 0 && !held.scans().needs_resilver(), "{mended:?}");
    held.export().unwrap();
    drop(held);
    check_clean(&folder, "resilver-lost");
    let held = import(&drives[..1]);
    assert!(read_file(&held, "tank", "while") == wanted);
    held.close().unwrap();
}

/// Damages some of a drive's content, but not its labels.
pub(crate) fn corrupt_sectors(drive: &std::path::Path) {
    let mut image = std::fs::read(drive).unwrap();
    let data = (5 << 20)..image.len() - (1 << 20);
    let mut broken = 0;
    for sector in image[data].chunks_exact_mut(4096).step_by(5) {
        if sector.iter().any(|byte| *byte != 0) {
            sector[..64].fill(0x5a);
            broken += 1;
        }
    }
    assert!(broken > 20);
    std::fs::write(drive, image).unwrap();
}

#[test]
fn scrub_repairs_while_the_pool_is_written() {
    for (name, shape, count) in [
        ("scrub-mirror", VdevLayout::Mirror, 2),
        ("scrub-raidz1", VdevLayout::Raidz(1), 3),
        ("scrub-raidz2", VdevLayout::Raidz(2), 5),
    ] {
        let folder = TempDir::new(name, count, DRIVE_SIZE);
        create_with_outdated(&folder, shape, count, 0);
        let drives = folder.drives(count);
        corrupt_sectors(&drives[1]);
        assert!(!check_pool(&folder, "tank").is_empty());
        let pool = import(&drives);
        let stop = AtomicBool::new(false);
        let mended = std::thread::scope(|scope| {
            scope.spawn(|| churn_files(&pool, &stop));
            let mended = pool.scans().scrub(&ScanProgress::new());
            stop.store(true, Ordering::Release);
            mended.unwrap()
        });
        assert!(mended.complete && mended.damage.is_empty(), "{name}: {mended:?}");
        assert!(mended.written > 0, "{name}: {mended:?}");
        let again = pool.scans().scrub(&ScanProgress::new()).unwrap();
        assert!(again.complete && again.written == 0, "{name}: {again:?}");
        compare_kept(&pool, name);
        pool.export().unwrap();
        drop(pool);
        check_clean(&folder, name);
    }
}

#[test]
fn stopped_resilver_starts_again() {
    let folder = TempDir::new("resilver-stopped", 2, DRIVE_SIZE);
    create_with_outdated(&folder, VdevLayout::Mirror, 2, 1);
    let pool = import(&folder.drives(2));
    let watch = ScanProgress::new();
    watch.job().cancel.cancel();
    let mended = pool.scans().resilver(&watch).unwrap();
    assert!(!mended.complete && pool.scans().needs_resilver(), "{mended:?}");
    // as after a power cut: the DTL is still there
    pool.close().unwrap();
    drop(pool);
    let pool = import(&folder.drives(2));
    assert!(pool.scans().needs_resilver());
    let mended = pool.scans().resilver(&ScanProgress::new()).unwrap();
    assert!(mended.complete && mended.errors == 0);
    pool.export().unwrap();
    drop(pool);
    check_clean(&folder, "resilver-stopped");
}
