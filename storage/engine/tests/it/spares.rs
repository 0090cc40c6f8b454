//! Hot spares: one stands in for a failed drive, and goes back or stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::pool::{Drive, NewPool, NewVdev, OfflineOptions, Pool, VdevLayout, VdevRole};
use sim::{DiskArray, Fault};

use crate::offline::{leaf_states, resilver};
use crate::resilver::import;
use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{TempDir, check_pool, environment, read_file, write_file};

pub(crate) const DRIVE_SIZE: u64 = 128 << 20;

pub(crate) fn new_pool(layout: VdevLayout, drives: &[PathBuf], spares: &[PathBuf]) -> NewPool {
    let mut vdevs = vec![NewVdev { layout, drives: drives.to_vec(), role: VdevRole::Data }];
    vdevs.extend(spares.iter().map(|spare| NewVdev {
        layout: VdevLayout::Single,
        drives: vec![spare.clone()],
        role: VdevRole::Spare,
    }));
    let (name, properties) = ("tank".to_owned(), Vec::new());
    NewPool { name, vdevs, ashift: None, properties, force: false }
}

pub(crate) fn create_image(folder: &TempDir, name: &str, size: u64) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    path
}

/// A raidz1 of three drives with a spare, of which the first drive is in another folder.
fn pool_without_first(name: &str) -> (TempDir, Pool, TempDir) {
    let folder = TempDir::new(name, 3, DRIVE_SIZE);
    let spare = create_image(&folder, "spare.img", DRIVE_SIZE);
    let new = new_pool(VdevLayout::Raidz(1), &folder.drives(3), &[spare]);
    let (pool, away) = create_without_first(&folder, name, &new);
    (folder, pool, away)
}

/// Creates a pool with a file, moves its first drive to another folder, and writes a file meanwhile.
pub(crate) fn create_without_first(folder: &TempDir, name: &str, new: &NewPool) -> (Pool, TempDir) {
    let pool = engine::pool::create(new, &environment()).unwrap();
    write_file(&pool, "tank", "before", &noise_bytes(1, 5 << 20));
    pool.export().unwrap();
    drop(pool);
    let away = TempDir::new(&format!("{name}-away"), 0, 0);
    std::fs::rename(&new.vdevs[0].drives[0], away.path().join("d0.img")).unwrap();
    let pool = import(&[folder.path().into()]);
    write_file(&pool, "tank", "while", &noise_bytes(2, 3 << 20));
    pool.sync().unwrap();
    (pool, away)
}

/// Exports a pool, and checks it.
pub(crate) fn export_and_check(folder: &TempDir, pool: Pool) {
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(folder, "tank"), Vec::<String>::new());
}

pub(crate) fn activate(pool: &Pool) -> usize {
    pool.drives().activate_spares(&pool.drives().failed()).unwrap().len()
}

pub(crate) fn spare_states(pool: &Pool) -> Vec<String> {
    pool.status().spares.iter().map(|spare| spare.state.clone()).collect()
}

pub(crate) fn assert_files(pool: &Pool) {
    assert!(read_file(pool, "tank", "before") == noise_bytes(1, 5 << 20));
    assert!(read_file(pool, "tank", "while") == noise_bytes(2, 3 << 20));
}

#[test]
fn spare_replaces_a_missing_drive_until_it_returns() {
    let (folder, pool, away) = pool_without_first("spare-back");
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    assert_eq!(activate(&pool), 1);
    assert_eq!(activate(&pool), 0, "it has a spare already");
    assert_eq!(spare_states(&pool), ["INUSE"]);
    resilver(&pool);
    assert_eq!(leaf_states(&pool), ["UNAVAIL", "ONLINE", "ONLINE", "ONLINE"]);
    let vdev = &pool.status().vdevs[0].children[0];
    assert_eq!((vdev.name.as_str(), vdev.state.as_str()), ("spare-0", "DEGRADED"));
    pool.export().unwrap();
    drop(pool);
    let said = run_zdb(folder.path(), &["-bcc", "-C"]);
    assert!(said.is_empty() || said.contains("type: 'spare'"), "{said}");
    // the spare makes up for the drive: another may go
    let others = [folder.path().join("spare.img"), folder.drives(3)[2].clone()];
    let pool = import(&others);
    assert_files(&pool);
    pool.close().unwrap();
    drop(pool);

    std::fs::rename(away.path().join("d0.img"), &folder.drives(3)[0]).unwrap();
    let pool = import(&[folder.path().into()]);
    resilver(&pool);
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    assert_eq!(leaf_states(&pool), ["ONLINE", "ONLINE", "ONLINE"]);
    export_and_check(&folder, pool);
    let pool = import(&[folder.path().into()]);
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    assert_files(&pool);
    pool.export().unwrap();
}

#[test]
fn returning_drive_sends_the_spare_back() {
    let (folder, pool, away) = pool_without_first("spare-return");
    assert_eq!(activate(&pool), 1);
    resilver(&pool);
    std::fs::rename(away.path().join("d0.img"), &folder.drives(3)[0]).unwrap();
    assert_eq!(pool.drives().reopen().len(), 1);
    resilver(&pool);
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    assert_eq!(leaf_states(&pool), ["ONLINE", "ONLINE", "ONLINE"]);
    assert_files(&pool);
    export_and_check(&folder, pool);
}

#[test]
fn replacement_of_the_failed_drive_frees_the_spare() {
    let (folder, pool, _) = pool_without_first("spare-replace");
    assert_eq!(activate(&pool), 1);
    resilver(&pool);
    let new = create_image(&folder, "new.img", DRIVE_SIZE);
    pool.vdevs().replace("d0.img", Some(&new), false).unwrap();
    let said = run_zdb_of_copy(&folder, &pool);
    assert!(said.is_empty() || said.contains("type: 'replacing'"), "{said}");
    resilver(&pool);
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    assert_eq!(leaf_states(&pool), ["ONLINE", "ONLINE", "ONLINE"]);
    assert_files(&pool);
    export_and_check(&folder, pool);
    let pool = import(&[folder.path().into()]);
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    pool.export().unwrap();
}

/// The configuration as zdb reads it while the pool is in use.
fn run_zdb_of_copy(folder: &TempDir, pool: &Pool) -> String {
    pool.sync().unwrap();
    let copy = TempDir::new("spare-copy", 0, 0);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let from = entry.unwrap().path();
        let mut command = std::process::Command::new("cp");
        command.arg("--sparse=always").arg(&from).arg(copy.path());
        assert!(command.status().unwrap().success());
    }
    run_zdb(copy.path(), &["-C"])
}

#[test]
fn empty_drive_replaces_a_missing_one_with_autoreplace() {
    let (folder, pool, _) = pool_without_first("autoreplace");
    let place = &folder.drives(3)[0];
    std::fs::File::create(place).unwrap().set_len(DRIVE_SIZE).unwrap();
    assert!(pool.drives().replace_missing().unwrap().is_empty(), "it is off");
    pool.properties().set_pool("autoreplace", "on").unwrap();
    assert_eq!(pool.drives().replace_missing().unwrap(), [name_of(place)]);
    resilver(&pool);
    assert_eq!(leaf_states(&pool), ["ONLINE", "ONLINE", "ONLINE"]);
    assert_files(&pool);
    export_and_check(&folder, pool);
}

#[test]
fn spare_stays_when_the_failed_drive_is_detached() {
    let (folder, pool, _) = pool_without_first("spare-stays");
    assert_eq!(activate(&pool), 1);
    resilver(&pool);
    pool.vdevs().detach("d0.img").unwrap();
    assert!(spare_states(&pool).is_empty());
    assert_eq!(leaf_states(&pool), ["ONLINE", "ONLINE", "ONLINE"]);
    export_and_check(&folder, pool);
    let said = run_zdb(folder.path(), &["-C"]);
    assert!(!said.contains("spare: 1") && !said.contains("type: 'spare'"), "{said}");
    let pool = import(&[folder.path().into()]);
    assert_files(&pool);
    pool.export().unwrap();
}

#[test]
fn spare_replaces_a_drive_that_fails() {
    for layout in [VdevLayout::Mirror, VdevLayout::Raidz(2)] {
        let storm = DiskArray::new(&[64 << 20; 5]);
        let drives: Vec<PathBuf> = (0..5).map(|index| format!("/disk{index}").into()).collect();
        let new = new_pool(layout, &drives[..4], &drives[4..]);
        let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap();
        write_file(&pool, "tank", "before", &noise_bytes(1, 5 << 20));
        pool.sync().unwrap();
        assert!(pool.drives().failed().is_empty());
        let start = storm.journal().len();
        storm.disks()[1].add_fault(Fault::Removed);
        write_file(&pool, "tank", "while", &noise_bytes(2, 3 << 20));
        pool.sync().unwrap();
        assert_eq!(pool.drives().failed().len(), 1);
        assert_eq!(activate(&pool), 1);
        resilver_with_failed(&pool);
        assert_files(&pool);
        let in_use = storm.journal().len();
        pool.vdevs().detach("/disk4").unwrap();
        let end = storm.journal().len();
        assert_eq!(spare_states(&pool), ["AVAIL"]);
        drop(pool);
        cut_power(&storm, (start, in_use, end));
    }
}

pub(crate) fn resilver_with_failed(pool: &Pool) {
    let done = pool.scans().resilver(&engine::pool::ScanProgress::new()).unwrap();
    assert!(done.complete && done.errors == 0, "{done:?}");
}

/// The pool has all synced data, wherever the power fails.
pub(crate) fn cut_power(storm: &DiskArray, (start, in_use, end): (usize, usize, usize)) {
    let step = ((end - start) / 8).max(1);
    let later = ((end - in_use) / 12).max(3);
    for at in (start..=end).step_by(step).chain((in_use..=end).step_by(later)).chain([end]) {
        let found = storm.journal().cut_power(at, at as u64);
        let devices: Vec<_> = found.into_iter().map(|disk| Arc::new(disk) as Drive).collect();
        let pool = engine::pool::import_devices(&devices, "tank", &environment())
            .unwrap_or_else(|why| panic!("cut at {at}: {why}"));
        assert!(read_file(&pool, "tank", "before") == noise_bytes(1, 5 << 20), "cut at {at}");
        if at >= in_use {
            assert_files(&pool);
        }
        pool.close().unwrap();
    }
}

#[test]
fn spares_leave_offline_and_larger_drives_alone() {
    let folder = TempDir::new("spare-refused", 2, DRIVE_SIZE);
    let small = create_image(&folder, "small.img", 64 << 20);
    let new = new_pool(VdevLayout::Mirror, &folder.drives(2), std::slice::from_ref(&small));
    let pool = engine::pool::create(&new, &environment()).unwrap();
    let offline = OfflineOptions::default();
    pool.drives().offline("d0.img", offline).unwrap();
    assert!(pool.drives().failed().is_empty(), "a command took it offline");
    pool.drives().online("d0.img").unwrap();
    resilver(&pool);
    let why = pool.drives().offline(name_of(&small), offline).unwrap_err().to_string();
    assert!(why.contains("reserved as a hot spare"), "{why}");
    let why = pool.vdevs().replace("d0.img", Some(&small), false).unwrap_err().to_string();
    assert!(why.contains("are needed"), "{why}");
    pool.drives().offline("d0.img", OfflineOptions { fault: true, ..offline }).unwrap();
    assert_eq!(pool.drives().failed().len(), 1);
    assert_eq!(activate(&pool), 0, "the spare is too small");
    assert_eq!(spare_states(&pool), ["AVAIL"]);
    export_and_check(&folder, pool);
}

fn name_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn spare_replaces_a_drive_with_many_errors() {
    let storm = DiskArray::new(&[64 << 20; 3]);
    let drives: Vec<PathBuf> = (0..3).map(|index| format!("/disk{index}").into()).collect();
    let new = new_pool(VdevLayout::Mirror, &drives[..2], &drives[2..]);
    let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap();
    write_file(&pool, "tank", "before", &noise_bytes(1, 5 << 20));
    write_file(&pool, "tank", "while", &noise_bytes(2, 3 << 20));
    pool.close().unwrap();
    drop(pool);
    let pool = engine::pool::import_devices(&storm.devices(), "tank", &environment()).unwrap();
    assert!(pool.drives().diagnose().is_empty());
    storm.disks()[0].add_fault(Fault::Read(4 << 20..60 << 20));
    assert_files(&pool);
    let found = pool.drives().diagnose();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].state, "FAULTED");
    assert_eq!(leaf_states(&pool), ["FAULTED", "ONLINE"]);
    assert_eq!(activate(&pool), 1);
    resilver_with_failed(&pool);
    assert_eq!(leaf_states(&pool), ["FAULTED", "ONLINE", "ONLINE"]);
    // the other drive fails as well, and is the only one for nothing
    storm.disks()[1].add_fault(Fault::Read(4 << 20..60 << 20));
    assert_files(&pool);
    pool.export().unwrap();
}

#[test]
fn last_replica_stays_in_service_with_errors() {
    let storm = DiskArray::new(&[64 << 20; 1]);
    let new = new_pool(VdevLayout::Single, &["/disk0".into()], &[]);
    let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap();
    write_file(&pool, "tank", "before", &noise_bytes(1, 5 << 20));
    pool.close().unwrap();
    drop(pool);
    let pool = engine::pool::import_devices(&storm.devices(), "tank", &environment()).unwrap();
    let file =
        pool.datasets().filesystem("tank").unwrap().reader().find(b"before").unwrap().unwrap();
    storm.disks()[0].flip_bits(5 << 20..60 << 20, 60_000, &mut sim::Random::new(1));
    for block in 0..40 {
        let _ = file.content().read(block << 17, &mut [0; 512]);
    }
    storm.disks()[0].add_fault(Fault::Read(5 << 20..60 << 20));
    for block in 0..40 {
        let _ = file.content().read(block << 17, &mut [0; 512]);
    }
    assert_eq!(pool.drives().diagnose().first().map(|drive| drive.state), Some("DEGRADED"));
    assert_eq!(leaf_states(&pool), ["DEGRADED"]);
    pool.clear_errors(None).unwrap();
    assert_eq!(leaf_states(&pool), ["ONLINE"]);
}
