//! A top-level vdev with data is removed while the pool is in use. OpenZFS could take the pool over at any
//! moment, and no power cut loses anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::pool::{
    AddOptions, Drive, NewPool, NewVdev, Pool, RemovalStatus, ScanProgress, VdevLayout, VdevRole,
};
use job::Job;
use sim::{DiskArray, Fault};

use crate::raidz_expand::{Load, save_images};
use crate::resilver::import;
use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{
    TempDir, check_pool, credentials, environment, read_file, verify_pool, write_file,
};

const DRIVE_SIZE: u64 = 192 << 20;

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
    let pool =
        create(drives.chunks(1).map(|d| vdev(VdevLayout::Single, d, VdevRole::Data)).collect());
    fill_pool(&pool);
    pool
}

fn fill_pool(pool: &Pool) {
    write_file(pool, "tank", "one", &noise_bytes(1, 9 << 20));
    pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
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
    pool.vdevs().remove(&[vdev.to_owned()])
}

/// Copies until the removal ends or pauses.
fn finish_removal(pool: &Pool) -> RemovalStatus {
    pool.activities().continue_removal(&Job::default()).unwrap().unwrap()
}

fn path_name(path: &Path) -> String {
    path.display().to_string()
}

fn scrub_is_clean(pool: &Pool, when: &str) {
    let scrubbed = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(
        scrubbed.complete && scrubbed.errors == 0 && scrubbed.written == 0,
        "{when}: {scrubbed:?}"
    );
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
    assert!(
        engine::search(&[drives[1].clone()]).summaries(&engine::OpenOptions::default()).is_empty(),
        "its labels are cleared"
    );
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    std::fs::remove_file(&drives[1]).unwrap();
    let pool = import(&[folder.path().into()]);
    compare_files(&pool, "after an import");
    assert!(read_file(&pool, "tank", "after") == noise_bytes(9, 5 << 20));
    pool.export().unwrap();
}

/// Copies one batch of the vdev that is being removed.
fn copy_one_batch(pool: &Pool) -> RemovalStatus {
    let job = Arc::new(Job::default());
    let watching = Arc::clone(&job);
    let watcher = std::thread::spawn(move || {
        while watching.progress.bytes_done() == 0 && !watching.cancel.is_cancelled() {
            std::thread::yield_now();
        }
        watching.cancel.cancel();
    });
    let status = pool.activities().continue_removal(&job).unwrap().unwrap();
    job.cancel.cancel();
    watcher.join().unwrap();
    status
}

/// A pool of two mirrors with more on each than a batch copies.
fn create_mirrors(folder: &TempDir) -> Pool {
    let drives = folder.drives(4);
    let pool =
        create(drives.chunks(2).map(|d| vdev(VdevLayout::Mirror, d, VdevRole::Data)).collect());
    fill_pool(&pool);
    for file in 0..12 {
        write_file(&pool, "tank", &format!("much{file}"), &noise_bytes(100 + file, 6 << 20));
        // what is deleted leaves gaps
        write_file(&pool, "tank", &format!("gap{file}"), &noise_bytes(200 + file, 20_000));
        pool.sync().unwrap();
    }
    for file in 0..12 {
        unlink(&pool, &format!("gap{file}"));
    }
    pool.sync().unwrap();
    pool
}

fn unlink(pool: &Pool, name: &str) {
    let files = pool.datasets().filesystem("tank").unwrap();
    let root = units::ObjectId::new(files.reader().root().unwrap().ino());
    files.unlink(&credentials(), root, name.as_bytes()).unwrap();
}

fn compare_much(pool: &Pool, first: u32, when: &str) {
    compare_files(pool, when);
    for file in first..12 {
        let name = format!("much{file}");
        assert!(
            read_file(pool, "tank", &name) == noise_bytes(100 + file, 6 << 20),
            "{when}: {name}"
        );
    }
}

#[test]
fn half_removed_mirror_is_sound_and_goes_on() {
    let folder = TempDir::new("remove-half", 4, 256 << 20);
    let pool = create_mirrors(&folder);
    remove(&pool, "mirror-0").unwrap();
    let status = copy_one_batch(&pool);
    assert_eq!(status.state, "evacuating");
    assert!(status.copied > 3 << 20 && status.copied < status.total, "{status:?}");
    // some of it is copied, some is not
    for file in 0..6 {
        unlink(&pool, &format!("much{file}"));
    }
    write_file(&pool, "tank", "meanwhile", &noise_bytes(7, 3 << 20));
    pool.sync().unwrap();
    compare_much(&pool, 6, "half removed");
    scrub_is_clean(&pool, "half removed");
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "half removed");
    let pool = import(&[folder.path().into()]);
    let status = pool.activities().removal_status().unwrap();
    assert_eq!((status.state.as_str(), status.vdev.as_str()), ("evacuating", "mirror-0"));
    unlink(&pool, "much6");
    let status = finish_removal(&pool);
    assert_eq!(status.state, "finished");
    assert_eq!(status.copied, status.total);
    compare_much(&pool, 7, "removed");
    assert!(read_file(&pool, "tank", "meanwhile") == noise_bytes(7, 3 << 20));
    unlink(&pool, "much7");
    pool.datasets().destroy("tank@one").unwrap();
    pool.sync().unwrap();
    scrub_is_clean(&pool, "removed");
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "removed");
}

#[test]
fn cancelled_removal_leaves_the_vdev_in_use() {
    let folder = TempDir::new("remove-cancel", 4, 256 << 20);
    let pool = create_mirrors(&folder);
    let before = (pool.datasets().space("tank").available, pool.status().allocated);
    remove(&pool, "mirror-0").unwrap();
    assert!(pool.datasets().space("tank").available < before.0 / 2);
    copy_one_batch(&pool);
    unlink(&pool, "much0");
    unlink(&pool, "much11");
    pool.sync().unwrap();
    pool.activities().cancel_removal().unwrap();
    assert_eq!(pool.activities().removal_status().unwrap().state, "canceled");
    assert!(
        pool.activities()
            .cancel_removal()
            .unwrap_err()
            .to_string()
            .contains("no removal is in progress")
    );
    (0..4).for_each(|_| pool.sync().unwrap());
    assert!(pool.datasets().space("tank").available > before.0);
    assert!(pool.status().allocated < before.1);
    write_file(&pool, "tank", "much0", &noise_bytes(100, 6 << 20));
    pool.sync().unwrap();
    scrub_is_clean(&pool, "cancelled");
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "cancelled");
    let pool = import(&[folder.path().into()]);
    remove(&pool, "mirror-0").unwrap();
    assert_eq!(finish_removal(&pool).state, "finished");
    assert!(read_file(&pool, "tank", "much5") == noise_bytes(105, 6 << 20));
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "removed");
}

#[test]
fn vdevs_are_removed_one_after_another_under_load() {
    let folder = TempDir::new("remove-twice", 4, DRIVE_SIZE);
    let drives = folder.drives(4);
    let pool = create_stripe(&folder, 3);
    for removed in &drives[..2] {
        remove(&pool, &path_name(removed)).unwrap();
        let load = Load::start(&pool, 60);
        assert_eq!(finish_removal(&pool).state, "finished");
        for file in 0..load.stop() {
            unlink(&pool, &format!("load{file}"));
        }
        pool.sync().unwrap();
        compare_files(&pool, "removed");
    }
    // what is left goes to a new drive, and blocks of the first drive with it
    let add = [vdev(VdevLayout::Single, &drives[3..], VdevRole::Data)];
    pool.vdevs().add(&add, AddOptions::default()).unwrap();
    remove(&pool, &path_name(&drives[2])).unwrap();
    assert_eq!(finish_removal(&pool).state, "finished");
    unlink(&pool, "one");
    unlink(&pool, "small7");
    pool.sync().unwrap();
    scrub_is_clean(&pool, "three removed");
    pool.export().unwrap();
    drop(pool);
    drives[..3].iter().for_each(|drive| std::fs::remove_file(drive).unwrap());
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let pool = import(&[folder.path().into()]);
    assert!(read_file(&pool, "tank", "two") == noise_bytes(2, 20 << 20));
    pool.datasets().destroy("tank@one").unwrap();
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "snapshot destroyed");
}

#[test]
fn special_and_dedup_vdevs_are_removed() {
    let folder = TempDir::new("remove-special", 3, DRIVE_SIZE);
    let drives = folder.drives(3);
    let mut new = new_pool(vec![
        vdev(VdevLayout::Single, &drives[..1], VdevRole::Data),
        vdev(VdevLayout::Single, &drives[1..2], VdevRole::Special),
        vdev(VdevLayout::Single, &drives[2..], VdevRole::Dedup),
    ]);
    new.properties.push(("special_small_blocks".to_owned(), "4K".to_owned()));
    new.properties.push(("dedup".to_owned(), "on".to_owned()));
    let pool = engine::pool::create(&new, &environment()).unwrap();
    fill_pool(&pool);
    write_file(&pool, "tank", "again", &noise_bytes(2, 20 << 20));
    pool.sync().unwrap();
    for removed in &drives[1..] {
        remove(&pool, &path_name(removed)).unwrap();
        let status = finish_removal(&pool);
        assert!(status.state == "finished" && status.copied > 0, "{status:?}");
    }
    unlink(&pool, "two");
    write_file(&pool, "tank", "third", &noise_bytes(1, 9 << 20));
    pool.sync().unwrap();
    assert!(read_file(&pool, "tank", "again") == noise_bytes(2, 20 << 20));
    scrub_is_clean(&pool, "removed");
    pool.export().unwrap();
    drop(pool);
    drives[1..].iter().for_each(|drive| std::fs::remove_file(drive).unwrap());
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn removal_is_refused_where_it_cannot_be() {
    let folder = TempDir::new("remove-refused", 8, DRIVE_SIZE);
    let drives = folder.drives(8);
    let refused = |pool: &Pool, vdev: &str, word: &str| {
        let why = remove(pool, vdev).unwrap_err().to_string();
        assert!(why.contains(word), "{why}");
    };
    let pool = create(vec![
        vdev(VdevLayout::Single, &drives[..1], VdevRole::Data),
        vdev(VdevLayout::Raidz(1), &drives[1..4], VdevRole::Data),
    ]);
    refused(&pool, &path_name(&drives[0]), "same sector size and not be raidz");
    refused(&pool, "raidz1-1", "same sector size and not be raidz");
    refused(&pool, &path_name(&drives[1]), "part of a vdev");
    pool.export().unwrap();
    drop(pool);
    let pool = create(vec![vdev(VdevLayout::Single, &drives[..1], VdevRole::Data)]);
    refused(&pool, &path_name(&drives[0]), "only vdev");
    let force = AddOptions { force: true, ..AddOptions::default() };
    pool.vdevs().add(&[vdev(VdevLayout::Single, &drives[1..2], VdevRole::Data)], force).unwrap();
    write_file(&pool, "tank", "much", &noise_bytes(1, 120 << 20));
    pool.sync().unwrap();
    refused(&pool, &path_name(&drives[0]), "out of space");
    unlink(&pool, "much");
    (0..4).for_each(|_| pool.sync().unwrap());
    pool.activities().create_checkpoint().unwrap();
    refused(&pool, &path_name(&drives[0]), "checkpoint");
    pool.activities().discard_checkpoint().unwrap();
    while pool.activities().continue_discard().unwrap() {}
    (0..4).for_each(|_| pool.sync().unwrap());
    remove(&pool, &path_name(&drives[0])).unwrap();
    refused(&pool, &path_name(&drives[0]), "already in progress");
    refused(&pool, &path_name(&drives[1]), "removal may already be in progress");
    let in_progress = |why: engine::Error| {
        let why = why.to_string();
        assert!(why.contains("device removal in progress"), "{why}");
    };
    in_progress(pool.activities().create_checkpoint().unwrap_err());
    in_progress(pool.vdevs().attach(&path_name(&drives[1]), &drives[2], true).unwrap_err());
    let raidz = [vdev(VdevLayout::Raidz(1), &drives[5..8], VdevRole::Data)];
    let why = pool.vdevs().add(&raidz, force).unwrap_err().to_string();
    assert!(why.contains("removing/removed vdevs"), "{why}");
    assert_eq!(finish_removal(&pool).state, "finished");
    refused(&pool, "indirect-0", "removed already");
    pool.vdevs().attach(&path_name(&drives[1]), &drives[2], true).unwrap();
    pool.export().unwrap();
}

/// Three single drives on simulated disks, of which the second is to be removed.
fn storm_pool() -> (DiskArray, Pool) {
    let storm = DiskArray::new(&[96 << 20; 3]);
    let folder = TempDir::new("remove-storm", 3, 1);
    let drives = folder.drives(3);
    let new =
        new_pool(drives.chunks(1).map(|d| vdev(VdevLayout::Single, d, VdevRole::Data)).collect());
    let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap();
    fill_pool(&pool);
    (storm, pool)
}

fn import_devices(devices: &[Drive], when: &str) -> Pool {
    engine::pool::import_devices(devices, "tank", &environment())
        .unwrap_or_else(|why| panic!("{when}: {why}"))
}

/// The name of the second drive in a pool.
fn second_drive(pool: &Pool) -> String {
    pool.status().vdevs[1].name.clone()
}

/// After a cut the pool is sound as it is, and able to go on with the removal, or to cancel it.
fn check_after_cut(storm: &DiskArray, at: usize) {
    let when = format!("cut at {at}");
    let found = storm.journal().cut_power(at, at as u64);
    let devices: Vec<_> = found.into_iter().map(|disk| Arc::new(disk) as Drive).collect();
    let wrong = verify_pool(&engine::search_devices(&devices), "tank");
    assert_eq!(wrong, Vec::<String>::new(), "{when}");
    let pool = import_devices(&devices, &when);
    compare_files(&pool, &when);
    write_file(&pool, "tank", "after the cut", &noise_bytes(8, 1 << 20));
    unlink(&pool, "small1");
    pool.sync().unwrap();
    let is_removing =
        pool.activities().removal_status().is_some_and(|status| status.state == "evacuating");
    if is_removing && at.is_multiple_of(3) {
        pool.activities().cancel_removal().unwrap();
    } else if is_removing {
        assert_eq!(finish_removal(&pool).state, "finished", "{when}");
    }
    unlink(&pool, "small2");
    compare_files(&pool, &when);
    scrub_is_clean(&pool, &when);
    assert!(read_file(&pool, "tank", "after the cut") == noise_bytes(8, 1 << 20), "{when}");
    pool.export().unwrap();
    drop(pool);
    let wrong = verify_pool(&engine::search_devices(&devices), "tank");
    assert_eq!(wrong, Vec::<String>::new(), "{when}, ended");
}

/// The requests at which a removal begins, and at which it is complete.
fn run_storm(storm: &DiskArray, pool: &Pool) -> [usize; 2] {
    let start = storm.journal().len();
    let load = Load::start(pool, 40);
    remove(pool, &second_drive(pool)).unwrap();
    assert_eq!(finish_removal(pool).state, "finished");
    load.stop();
    pool.sync().unwrap();
    [start, storm.journal().len()]
}

#[test]
fn power_cuts_during_removal_lose_nothing() {
    let (storm, pool) = storm_pool();
    let [start, end] = run_storm(&storm, &pool);
    drop(pool);
    (start..end).step_by((end - start) / 24).for_each(|at| check_after_cut(&storm, at));
}

#[test]
#[ignore = "takes minutes: a cut at every request"]
fn power_cut_at_every_request_of_a_removal() {
    let (storm, pool) = storm_pool();
    let [start, end] = run_storm(&storm, &pool);
    drop(pool);
    (start..=end).for_each(|at| check_after_cut(&storm, at));
}

#[test]
fn zdb_reads_pools_cut_during_removal() {
    let (storm, pool) = storm_pool();
    let [start, end] = run_storm(&storm, &pool);
    drop(pool);
    for at in (start..end).step_by((end - start) / 4) {
        let found = storm.journal().cut_power(at, 1);
        let devices: Vec<_> = found.into_iter().map(|disk| Arc::new(disk) as Drive).collect();
        let folder = TempDir::new(&format!("remove-zdb{at}"), 0, 0);
        save_images(&folder, &devices);
        let said = run_zdb(folder.path(), &["-bcc", "-C"]);
        assert!(said.is_empty() || said.contains("No leaks (block sum matches"), "{at}: {said}");
    }
}

#[test]
fn removal_pauses_for_a_failed_drive() {
    let (storm, pool) = storm_pool();
    remove(&pool, &second_drive(&pool)).unwrap();
    for fault in [Fault::Write(6 << 20..90 << 20), Fault::Read(6 << 20..90 << 20)] {
        let is_read = matches!(fault, Fault::Read(_));
        let disk = if is_read { 1 } else { 2 };
        storm.disks()[disk].add_fault(fault);
        let status = finish_removal(&pool);
        assert!(status.state == "paused" && status.pause.is_some(), "{status:?}");
        storm.disks()[disk].clear_faults();
        pool.clear_errors(None).unwrap();
        if pool.scans().needs_resilver() {
            pool.scans().resilver(&ScanProgress::new()).unwrap();
        }
        compare_files(&pool, "paused");
    }
    assert_eq!(finish_removal(&pool).state, "finished");
    compare_files(&pool, "removed");
    scrub_is_clean(&pool, "removed");
    pool.export().unwrap();
    drop(pool);
    let wrong = verify_pool(&engine::search_devices(&storm.devices()), "tank");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn removal_that_openzfs_began_is_finished() {
    if !fixtures::exists("removing") {
        return;
    }
    let below = TempDir::new("remove-foreign", 0, 0);
    let fixture = fixtures::unpack("removing", below.path()).unwrap();
    let here = std::slice::from_ref(&fixture.dir);
    let pool = engine::pool::import(here, fixture.pool_name(), true, &environment()).unwrap();
    let before = pool.activities().removal_status().unwrap();
    assert!(before.state == "evacuating" && before.copied < before.total, "{before:?}");
    write_file(&pool, "tank", "here", &noise_bytes(3, 3 << 20));
    unlink(&pool, "long");
    pool.sync().unwrap();
    let status = finish_removal(&pool);
    assert_eq!((status.state.as_str(), status.copied), ("finished", status.total));
    scrub_is_clean(&pool, "finished");
    assert!(read_file(&pool, "tank", "here") == noise_bytes(3, 3 << 20));
    pool.export().unwrap();
    drop(pool);
    let said = run_zdb(&fixture.dir, &["-bcc"]);
    assert!(said.is_empty() || said.contains("No leaks (block sum matches"), "{said}");
}
