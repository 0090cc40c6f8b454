//! Drives are replaced, attached and detached while the pool is in use; OpenZFS could
//! import the pool at any moment.

use std::path::PathBuf;

use engine::pool::{DraidLayout, Pool, ScanProgress, VdevLayout};

use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{TempDir, check_pool, environment, new_pool, read_file, write_file};

const DRIVE_SIZE: u64 = 128 << 20;

fn import(drives: &[PathBuf]) -> Pool {
    engine::pool::import(drives, "tank", false, &environment()).unwrap()
}

fn create_image(folder: &TempDir, name: &str, size: u64) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    path
}

/// The content of the drives now, as after a power cut, checked by the examiner and by zdb.
fn zdb_after_cut(folder: &TempDir, name: &str) -> String {
    let copy = TempDir::new(&format!("{name}-cut"), 0, 0);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let from = entry.unwrap().path();
        let to = copy.path().join(from.file_name().unwrap());
        let mut copy = std::process::Command::new("cp");
        assert!(copy.arg("--sparse=always").args([&from, &to]).status().unwrap().success());
    }
    // the new drive's missing data is in its DTL, so that no other block lacks redundancy
    run_zdb(copy.path(), &["-bcc", "-C"])
}

fn fill_pool(pool: &Pool) {
    write_file(pool, "tank", "one", &noise_bytes(1, 7 << 20));
    pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    for number in 0..100 {
        write_file(pool, "tank", &format!("small{number}"), &noise_bytes(number, 900));
    }
    pool.sync().unwrap();
}

fn compare_files(pool: &Pool, name: &str) {
    assert!(read_file(pool, "tank", "one") == noise_bytes(1, 7 << 20), "{name}");
    assert!(read_file(pool, "tank", "small33") == noise_bytes(33, 900), "{name}");
}

fn resilver(pool: &Pool, name: &str) {
    assert!(pool.scans().needs_resilver(), "{name}");
    let mended = pool.scans().resilver(&ScanProgress::new()).unwrap();
    assert!(mended.complete && mended.errors == 0 && mended.written > 0, "{name}: {mended:?}");
    assert!(!pool.scans().needs_resilver(), "{name}");
}

fn leaf_count(held: &Pool) -> usize {
    fn count_leaves(vdev: &engine::pool::VdevStatus) -> usize {
        if vdev.children.is_empty() { 1 } else { vdev.children.iter().map(count_leaves).sum() }
    }
    held.status().vdevs.iter().map(count_leaves).sum()
}

fn replace_in(name: &str, shape: VdevLayout, count: usize, missing: bool) {
    let folder = TempDir::new(name, count, DRIVE_SIZE);
    let held = engine::pool::create(&new_pool(&folder, shape, count), &environment()).unwrap();
    fill_pool(&held);
    held.export().unwrap();
    drop(held);
    let mut drives = folder.drives(count);
    let old = drives.remove(0);
    if missing {
        std::fs::remove_file(&old).unwrap();
    } else {
        drives.insert(0, old.clone());
    }
    let held = import(&drives);
    let small = create_image(&folder, "small.img", 64 << 20);
    let name_of_old = old.to_str().unwrap();
    let refused = held.vdevs().replace(name_of_old, Some(&small), false).unwrap_err().to_string();
    assert!(refused.contains(&(64 << 20).to_string()), "{refused}");
    std::fs::remove_file(&small).unwrap();
    let new = create_image(&folder, "new.img", DRIVE_SIZE + (1 << 20));
    held.vdevs().replace(name_of_old, Some(&new), false).unwrap();
    assert!(held.vdevs().replace(name_of_old, Some(&new), true).is_err(), "it is in use now");
    assert_eq!(leaf_count(&held), count + 1);
    write_file(&held, "tank", "meanwhile", &noise_bytes(5, 1 << 20));
    held.sync().unwrap();
    let said = zdb_after_cut(&folder, name);
    assert!(
        said.is_empty() || said.contains("'replacing'") || said.contains("replacing"),
        "{said}"
    );
    resilver(&held, name);
    assert_eq!(leaf_count(&held), count);
    compare_files(&held, name);
    let said = zdb_after_cut(&folder, name);
    assert!(!said.contains("replacing"), "{said}");
    write_file(&held, "tank", "later", &noise_bytes(6, 1 << 20));
    held.export().unwrap();
    drop(held);
    if !missing {
        std::fs::remove_file(&old).unwrap();
    }
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
    let mut drives = folder.drives(count)[1..].to_vec();
    drives.insert(0, new);
    let held = import(&drives);
    compare_files(&held, name);
    assert!(read_file(&held, "tank", "later") == noise_bytes(6, 1 << 20));
    assert!(!held.scans().needs_resilver());
    held.export().unwrap();
}

#[test]
fn drives_of_every_vdev_type_are_replaced() {
    replace_in("replace-single", VdevLayout::Single, 1, false);
    replace_in("replace-mirror", VdevLayout::Mirror, 2, false);
    replace_in("replace-raidz1", VdevLayout::Raidz(1), 3, false);
    let groups = DraidLayout { parity: 1, data: 4, spares: 0 };
    replace_in("replace-draid", VdevLayout::Draid(groups), 5, false);
}

#[test]
fn drives_that_are_gone_are_replaced() {
    replace_in("replace-gone-mirror", VdevLayout::Mirror, 2, true);
    replace_in("replace-gone-raidz2", VdevLayout::Raidz(2), 4, true);
}

#[test]
fn interrupted_replacement_resumes() {
    let folder = TempDir::new("replace-cut", 3, DRIVE_SIZE);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Raidz(1), 3), &environment()).unwrap();
    fill_pool(&held);
    let new = create_image(&folder, "new.img", DRIVE_SIZE);
    held.vdevs().replace("d1.img", Some(&new), false).unwrap();
    held.close().unwrap();
    drop(held);
    let held = import(&[folder.path().into()]);
    assert_eq!(leaf_count(&held), 4);
    resilver(&held, "replace-cut");
    assert_eq!(leaf_count(&held), 3);
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn sides_come_and_go() {
    let folder = TempDir::new("attach", 1, DRIVE_SIZE);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    fill_pool(&held);
    assert!(held.vdevs().detach("d0.img").is_err(), "it has the only replica");
    let (a, b) =
        (create_image(&folder, "a.img", DRIVE_SIZE), create_image(&folder, "b.img", DRIVE_SIZE));
    held.vdevs().attach("d0.img", &a, false).unwrap();
    assert!(held.vdevs().detach("d0.img").is_err(), "the other lacks all");
    held.vdevs().attach("d0.img", &b, false).unwrap();
    assert_eq!(held.status().vdevs[0].children.len(), 3);
    zdb_after_cut(&folder, "attach");
    resilver(&held, "attach");
    held.vdevs().detach("d0.img").unwrap();
    zdb_after_cut(&folder, "attach");
    held.vdevs().detach("a.img").unwrap();
    assert_eq!(leaf_count(&held), 1);
    let said = zdb_after_cut(&folder, "attach");
    assert!(!said.contains("mirror"), "{said}");
    compare_files(&held, "attach");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    for gone in ["d0.img", "a.img"] {
        std::fs::remove_file(folder.path().join(gone)).unwrap();
    }
    let held = import(&[b]);
    compare_files(&held, "attach");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn drive_without_labels_replaces_itself() {
    let folder = TempDir::new("replace-itself", 3, DRIVE_SIZE);
    let new = new_pool(&folder, VdevLayout::Raidz(1), 3);
    let pool = engine::pool::create(&new, &environment()).unwrap();
    fill_pool(&pool);
    let drive = folder.drives(3).remove(1);
    let name = drive.to_str().unwrap();
    let refused = pool.vdevs().replace(name, Some(&drive), true).unwrap_err();
    assert!(matches!(refused, engine::Error::DeviceInPool { .. }), "it is well: {refused}");
    // another program writes zeros to all of it
    let file = std::fs::OpenOptions::new().write(true).open(&drive).unwrap();
    file.set_len(0).unwrap();
    file.set_len(DRIVE_SIZE).unwrap();
    let refused = pool.vdevs().replace(name, Some(&drive), false).unwrap_err();
    assert!(matches!(refused, engine::Error::DeviceInPool { .. }), "without -f: {refused}");
    pool.vdevs().replace(name, Some(&drive), true).unwrap();
    resilver(&pool, "itself");
    // it has labels again after a change of the configuration, and its errors tell
    file.set_len(0).unwrap();
    file.set_len(DRIVE_SIZE).unwrap();
    pool.scans().scrub(&ScanProgress::new()).unwrap();
    pool.properties().set_pool("comment", "a change of the configuration").unwrap();
    pool.sync().unwrap();
    pool.vdevs().replace(name, Some(&drive), true).unwrap();
    resilver(&pool, "itself with errors");
    // the file is deleted, and a new one is made
    std::fs::remove_file(&drive).unwrap();
    create_image(&folder, drive.file_name().unwrap().to_str().unwrap(), DRIVE_SIZE);
    pool.vdevs().replace(name, Some(&drive), true).unwrap();
    resilver(&pool, "itself anew");
    compare_files(&pool, "itself");
    assert_eq!(leaf_count(&pool), 3);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}
