//! Drives that were missing at the import, and come back while the pool is in use.

use std::path::Path;
use std::sync::Arc;

use device::{Device, File};
use engine::pool::{Pool, ScanProgress, VdevLayout};

use crate::resilver::import;
use crate::shared_blocks::noise_bytes;
use crate::test_pool::{TempDir, check_pool, environment, new_pool, read_file, write_file};

const DRIVE_SIZE: u64 = 128 << 20;

fn open_device(path: &Path) -> Arc<dyn Device> {
    Arc::new(File::open_exclusive(path).unwrap())
}

fn resilver(pool: &Pool) {
    let mended = pool.scans().resilver(&ScanProgress::new()).unwrap();
    assert!(mended.complete && mended.errors == 0, "{mended:?}");
    assert!(!pool.scans().needs_resilver());
}

/// Imports a pool without one drive, writes, reopens the drive, writes, resilvers, and reads all
/// without the others.
#[test]
fn returned_drive_is_resilvered() {
    for (name, shape, count, spare) in [
        ("mirror", VdevLayout::Mirror, 2, 1),
        ("raidz1", VdevLayout::Raidz(1), 3, 1),
        ("raidz2", VdevLayout::Raidz(2), 4, 2),
    ] {
        let folder = TempDir::new(&format!("back-{name}"), count, DRIVE_SIZE);
        let held = engine::pool::create(&new_pool(&folder, shape, count), &environment()).unwrap();
        write_file(&held, "tank", "before", &noise_bytes(1, 3 << 20));
        held.export().unwrap();
        drop(held);
        let drives = folder.drives(count);
        let held = import(&drives[1..]);
        write_file(&held, "tank", "while", &noise_bytes(2, 3 << 20));
        held.sync().unwrap();
        let missing = held.drives().missing();
        assert_eq!(missing.len(), 1, "{name}");
        held.drives().reopen_with(missing[0].0, &open_device(&drives[0])).unwrap();
        assert!(held.drives().missing().is_empty() && held.scans().needs_resilver(), "{name}");
        write_file(&held, "tank", "after", &noise_bytes(3, 3 << 20));
        held.sync().unwrap();
        resilver(&held);
        held.export().unwrap();
        drop(held);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
        // as many others as may be missing are
        let held = import(&[&drives[..1], &drives[1 + spare..]].concat());
        for (file, seed) in [("before", 1), ("while", 2), ("after", 3)] {
            assert!(read_file(&held, "tank", file) == noise_bytes(seed, 3 << 20), "{name}: {file}");
        }
        held.export().unwrap();
    }
}

/// A drive with an older DTL comes back, too: it took part until it was missing.
#[test]
fn returned_drive_with_an_older_dtl_is_resilvered() {
    let folder = TempDir::new("back-older", 2, DRIVE_SIZE);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Mirror, 2), &environment()).unwrap();
    held.export().unwrap();
    drop(held);
    let drives = folder.drives(2);
    let write = |held: &Pool, name: &str, seed| {
        write_file(held, "tank", name, &noise_bytes(seed, 1 << 20));
        held.sync().unwrap();
    };
    let held = import(&drives[1..]);
    write(&held, "old", 1);
    held.export().unwrap();
    drop(held);
    // both are there, and no resilver runs
    let held = import(&drives);
    assert!(held.scans().needs_resilver());
    for seed in 2..6 {
        write(&held, &format!("with-both-{seed}"), seed);
    }
    held.export().unwrap();
    drop(held);
    let held = import(&drives[1..]);
    write(&held, "while", 7);
    let guid = held.drives().missing()[0].0;
    held.drives().reopen_with(guid, &open_device(&drives[0])).unwrap();
    resilver(&held);
    held.export().unwrap();
    drop(held);
    let held = import(&drives[..1]);
    for (name, seed) in [("old", 1), ("with-both-5", 5), ("while", 7)] {
        assert!(read_file(&held, "tank", name) == noise_bytes(seed, 1 << 20), "{name}");
    }
    held.export().unwrap();
}

/// Two halves of a mirror that were each written alone are not one any more.
#[test]
fn drive_used_elsewhere_is_not_reopened() {
    let folder = TempDir::new("back-elsewhere", 2, DRIVE_SIZE);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Mirror, 2), &environment()).unwrap();
    held.export().unwrap();
    drop(held);
    let drives = folder.drives(2);
    let one = import(&drives[..1]);
    for round in 0..5 {
        write_file(&one, "tank", &format!("one{round}"), &noise_bytes(round, 1 << 20));
        one.sync().unwrap();
    }
    one.export().unwrap();
    drop(one);
    let other = import(&drives[1..]);
    write_file(&other, "tank", "other", &noise_bytes(9, 1 << 20));
    other.sync().unwrap();
    let guid = other.drives().missing()[0].0;
    let why = other.drives().reopen_with(guid, &open_device(&drives[0])).unwrap_err().to_string();
    assert!(why.contains("written elsewhere"), "{why}");
    assert_eq!(other.drives().missing().len(), 1);
    // nor is another drive
    let stranger = folder.path().join("stranger.img");
    std::fs::File::create(&stranger).unwrap().set_len(DRIVE_SIZE).unwrap();
    assert!(other.drives().reopen_with(guid, &open_device(&stranger)).is_err());
    other.export().unwrap();
    drop(other);
    assert!(read_file(&import(&drives[1..]), "tank", "other") == noise_bytes(9, 1 << 20));
}

/// The configured path of the drive that is not among `drives`.
fn path_of_missing(drives: &[std::path::PathBuf]) -> std::path::PathBuf {
    let held = import(drives);
    let place = held.drives().missing()[0].1.clone();
    held.export().unwrap();
    place
}

#[test]
fn renamed_drive_is_found() {
    let folder = TempDir::new("back-renamed", 3, DRIVE_SIZE);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Raidz(1), 3), &environment()).unwrap();
    held.export().unwrap();
    drop(held);
    let drives = folder.drives(3);
    let (away, copy) = (folder.path().join("away"), folder.path().join("copy.img"));
    std::fs::create_dir(&away).unwrap();
    let (away, other) = (away.join("d0.img"), folder.path().join("other.img"));
    std::fs::rename(&drives[0], &away).unwrap();
    let held = import(&drives[1..]);
    write_file(&held, "tank", "while", &noise_bytes(2, 3 << 20));
    held.sync().unwrap();
    assert!(held.drives().reopen().is_empty());
    // the right one of two is unknown
    std::fs::copy(&away, &copy).unwrap();
    std::fs::rename(&away, &other).unwrap();
    assert!(held.drives().reopen().is_empty());
    std::fs::remove_file(copy).unwrap();
    assert_eq!(held.drives().reopen(), [other.display().to_string()]);
    resilver(&held);
    assert!(held.drives().known().contains(&other));
    held.export().unwrap();
    drop(held);
    assert_eq!(path_of_missing(&drives[1..]), other);
    // the import records its place, too
    let third = folder.path().join("third.img");
    std::fs::rename(&other, &third).unwrap();
    let held = import(&[third.clone(), drives[1].clone(), drives[2].clone()]);
    held.export().unwrap();
    drop(held);
    assert_eq!(path_of_missing(&drives[1..]), third);
}

#[test]
fn path_to_the_same_drive_stays() {
    let folder = TempDir::new("back-links", 2, DRIVE_SIZE);
    let links = folder.path().join("by-id");
    std::fs::create_dir(&links).unwrap();
    let drives = folder.drives(2);
    let link = |index: usize| {
        let link = links.join(format!("disk-{index}"));
        std::os::unix::fs::symlink(&drives[index], &link).unwrap();
        link
    };
    let mut new = new_pool(&folder, VdevLayout::Mirror, 2);
    new.vdevs[0].drives = vec![link(0), link(1)];
    let held = engine::pool::create(&new, &environment()).unwrap();
    held.export().unwrap();
    drop(held);
    import(&drives).export().unwrap();
    assert_eq!(path_of_missing(&drives[1..]), links.join("disk-0"));
    // and a place that has another drive by now is not recorded
    let held = import(&drives);
    let now = folder.path().join("sdf.img");
    std::fs::rename(&drives[0], &now).unwrap();
    std::fs::remove_file(links.join("disk-0")).unwrap();
    std::os::unix::fs::symlink(&now, links.join("disk-0")).unwrap();
    std::fs::write(&drives[0], "another").unwrap();
    held.clear_errors(None).unwrap();
    held.export().unwrap();
    drop(held);
    assert_eq!(path_of_missing(&drives[1..]), links.join("disk-0"));
}

/// An old copy was put in the place of a drive.
#[test]
fn old_copy_of_a_drive_is_resilvered() {
    let folder = TempDir::new("back-copy", 2, DRIVE_SIZE);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Mirror, 2), &environment()).unwrap();
    let drives = folder.drives(2);
    let copy = folder.path().join("copy.img");
    write_file(&held, "tank", "before", &noise_bytes(1, 3 << 20));
    held.sync().unwrap();
    std::fs::copy(&drives[0], &copy).unwrap();
    write_file(&held, "tank", "after", &noise_bytes(2, 3 << 20));
    held.sync().unwrap();
    // a scrub that is set up already: its txg would write the labels of the drive that fails
    let stopped = ScanProgress::new();
    stopped.job().cancel.cancel();
    assert!(!held.scans().scrub(&stopped).unwrap().complete);
    let away = folder.path().join("away.img");
    std::fs::rename(&drives[0], &away).unwrap();
    std::fs::rename(&copy, &drives[0]).unwrap();
    // it fails
    std::fs::OpenOptions::new().write(true).open(&away).unwrap().set_len(0).unwrap();
    let scrubbed = held.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(scrubbed.complete && !held.scans().needs_resilver());
    let leaf = &held.status().vdevs[0].children[0];
    assert!(leaf.read_errors > 0);
    held.clear_errors(None).unwrap();
    assert!(held.scans().needs_resilver());
    resilver(&held);
    held.export().unwrap();
    drop(held);
    std::fs::remove_file(away).unwrap();
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let held = import(&drives[..1]);
    for (file, seed) in [("before", 1), ("after", 2)] {
        assert!(read_file(&held, "tank", file) == noise_bytes(seed, 3 << 20), "{file}");
    }
    held.export().unwrap();
}

/// Another host had it meanwhile, and wrote to it.
#[test]
fn drive_changed_elsewhere_is_not_used() {
    let folder = TempDir::new("back-others", 2, DRIVE_SIZE);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Mirror, 2), &environment()).unwrap();
    let drives = folder.drives(2);
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let (away, other) = (elsewhere.join("away.img"), elsewhere.join("d0.img"));
    write_file(&held, "tank", "before", &noise_bytes(1, 3 << 20));
    held.sync().unwrap();
    std::fs::copy(&drives[0], &other).unwrap();
    let others =
        engine::pool::import(std::slice::from_ref(&other), "tank", true, &environment()).unwrap();
    write_file(&others, "tank", "theirs", &noise_bytes(3, 3 << 20));
    others.export().unwrap();
    drop(others);
    std::fs::rename(&drives[0], &away).unwrap();
    std::fs::rename(&other, &drives[0]).unwrap();
    std::fs::OpenOptions::new().write(true).open(&away).unwrap().set_len(0).unwrap();
    held.scans().scrub(&ScanProgress::new()).unwrap();
    held.clear_errors(None).unwrap();
    write_file(&held, "tank", "later", &noise_bytes(4, 3 << 20));
    held.export().unwrap();
    drop(held);
    // it is as they left it
    let theirs = import(&drives[..1]);
    assert!(read_file(&theirs, "tank", "theirs") == noise_bytes(3, 3 << 20));
    theirs.export().unwrap();
}
