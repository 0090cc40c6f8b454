//! Copies of an image: an import uses the drive whose path is in the label.

use std::fs;
use std::path::{Path, PathBuf};

use engine::Event;
use engine::pool::{ImportOptions, NewVdev, Pool, VdevLayout, VdevRole};

use crate::test_pool::{TempDir, check_pool, environment, new_pool, read_file, write_file};

/// Imports the pool that is found at `paths`.
fn import(paths: &[PathBuf]) -> Pool {
    engine::pool::import(paths, "tank", false, &environment()).expect("an import")
}

/// The paths of the reported duplicates.
fn reported_duplicates(pool: &Pool) -> Vec<PathBuf> {
    let events = pool.take_events().into_iter();
    let paths = events.filter_map(|event| match event {
        Event::DuplicateDevice { path, .. } => Some(PathBuf::from(path)),
        _ => None,
    });
    paths.collect()
}

/// Exports the pool and closes its drives.
fn export_pool(held: Pool) {
    held.export().unwrap();
    drop(held);
}

fn copy_image(from: &Path, name: &str) -> PathBuf {
    let to = from.with_file_name(name);
    fs::copy(from, &to).unwrap();
    to
}

#[test]
fn image_of_the_label_path_is_used() {
    for (shape, count) in
        [(VdevLayout::Single, 1), (VdevLayout::Mirror, 2), (VdevLayout::Raidz(1), 3)]
    {
        let folder = TempDir::new(&format!("copies-{count}"), count, 128 << 20);
        let held = engine::pool::create(&new_pool(&folder, shape, count), &environment()).unwrap();
        write_file(&held, "tank", "f", b"before");
        export_pool(held);
        let image = folder.path().join("d0.img");
        // names that a search meets before and after the image
        let copies = ["a-copy", "d0.img.bak", "zz"].map(|name| copy_image(&image, name));
        let before = copies.clone().map(|copy| fs::read(copy).unwrap());
        let mut by_name = folder.drives(count);
        by_name.extend(copies.clone());
        for paths in [vec![folder.path().to_owned()], by_name.clone(), {
            by_name.reverse();
            by_name
        }] {
            let held = import(&paths);
            let mut drives = held.drives().list();
            drives.sort();
            assert_eq!(drives, folder.drives(count));
            let mut duplicates = reported_duplicates(&held);
            duplicates.sort();
            assert_eq!(duplicates, copies);
            write_file(&held, "tank", &format!("f{}", held.txg()), b"after");
            export_pool(held);
        }
        let after = copies.clone().map(|copy| fs::read(copy).unwrap());
        assert!(before == after, "a copy was written to");
        for copy in &copies {
            fs::remove_file(copy).unwrap();
        }
        assert_eq!(check_pool(&folder, "tank"), [""; 0]);
    }
}

#[test]
fn moved_copies_are_chosen_by_name() {
    let folder = TempDir::new("copies-moved", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    export_pool(held);
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for name in ["a", "d0.img", "e"] {
        fs::copy(folder.path().join("d0.img"), elsewhere.join(name)).unwrap();
    }
    let held = import(std::slice::from_ref(&elsewhere));
    assert_eq!(held.drives().list(), [elsewhere.join("d0.img")]);
    export_pool(held);
}

#[test]
fn newest_copy_is_used_despite_its_path() {
    let folder = TempDir::new("copies-older", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    export_pool(held);
    let image = folder.path().join("d0.img");
    let old = copy_image(&image, "old");
    let held = import(std::slice::from_ref(&image));
    write_file(&held, "tank", "f", b"newer");
    export_pool(held);
    let newer = folder.path().join("newer");
    fs::rename(&image, &newer).unwrap();
    fs::rename(&old, &image).unwrap();
    let held = import(&[folder.path().to_owned()]);
    assert_eq!(held.drives().list(), [newer]);
    assert_eq!(read_file(&held, "tank", "f"), b"newer");
    assert_eq!(reported_duplicates(&held), [image]);
    export_pool(held);
}

#[test]
fn copies_of_spares_and_caches_are_unused() {
    let folder = TempDir::new("copies-spare", 3, 128 << 20);
    let mut new = new_pool(&folder, VdevLayout::Single, 1);
    for (drive, purpose) in [("d1.img", VdevRole::Spare), ("d2.img", VdevRole::Cache)] {
        let drives = vec![folder.path().join(drive)];
        new.vdevs.push(NewVdev { layout: VdevLayout::Single, drives, role: purpose });
    }
    engine::pool::create(&new, &environment()).unwrap().export().unwrap();
    let [one, two] = ["d1.img", "d2.img"].map(|name| folder.path().join(name));
    let copies = [
        copy_image(&one, "a1"),
        copy_image(&two, "a2"),
        copy_image(&one, "d1.img.bak"),
        copy_image(&two, "z2"),
    ];
    let held = import(&[folder.path().to_owned()]);
    let drives = held.drives().list();
    assert!(drives.contains(&one) && drives.contains(&two), "{drives:?}");
    let mut duplicates = reported_duplicates(&held);
    duplicates.sort();
    assert_eq!(duplicates, copies);
    export_pool(held);
}

#[test]
fn pool_name_that_overflows_snapshot_names_is_refused() {
    let folder = TempDir::new("pool-names", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    let dataset = format!("tank/{}", "d".repeat(200));
    held.datasets()
        .create_filesystem(&engine::pool::NewDataset { name: dataset.clone(), properties: vec![] })
        .unwrap();
    held.snapshots().create(&[format!("{dataset}@{}", "s".repeat(20))]).unwrap();
    export_pool(held);
    let import = |name: String, temporary| {
        let options = ImportOptions { new_name: Some(name), temporary, ..ImportOptions::default() };
        let paths = [folder.path().to_owned()];
        engine::pool::import_with(&paths, "tank", &options, &environment())
    };
    let image = fs::read(folder.path().join("d0.img")).unwrap();
    // 33 + 1 + 200 + 1 + 20 is 255
    for temporary in [true, false] {
        let error = import("n".repeat(34), temporary).expect_err("a name that is too long");
        assert!(error.to_string().contains("255 is the most"), "{error}");
    }
    assert!(image == fs::read(folder.path().join("d0.img")).unwrap(), "nothing was written");
    for temporary in [true, false] {
        import("n".repeat(33), temporary).expect("a name that fits").export().unwrap();
    }
    assert_eq!(check_pool(&folder, &"n".repeat(33)), [""; 0]);
}

#[test]
fn busy_image_is_not_replaced_by_a_copy() {
    let folder = TempDir::new("copies-busy", 1, 128 << 20);
    export_pool(
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap(),
    );
    copy_image(&folder.path().join("d0.img"), "a-copy");
    let held = import(&[folder.path().to_owned()]);
    let again = engine::pool::import(&[folder.path().to_owned()], "tank", false, &environment());
    let error = again.expect_err("the image is in use");
    assert!(error.to_string().contains("d0.img' is in use"), "{error}");
    export_pool(held);
}

#[test]
fn destroyed_pool_imports_beside_user_of_its_drives() {
    let folder = TempDir::new("copies-destroyed", 3, 128 << 20);
    let new = new_pool(&folder, VdevLayout::Mirror, 3);
    let first = engine::pool::create(&new, &environment()).unwrap();
    write_file(&first, "tank", "f", b"still there");
    first.destroy_pool().unwrap();
    drop(first);
    let drives = vec![folder.drives(3).remove(0)];
    let vdev = NewVdev { layout: VdevLayout::Single, role: VdevRole::Data, drives };
    let new =
        engine::pool::NewPool { name: "other".to_owned(), vdevs: vec![vdev], force: true, ..new };
    let other = engine::pool::create(&new, &environment()).unwrap();
    let options = ImportOptions { force: true, destroyed: true, ..ImportOptions::default() };
    let import = |options: &ImportOptions| {
        engine::pool::import_with(&[folder.path().to_owned()], "tank", options, &environment())
    };
    // the drive could be one of the destroyed pool that another program has open
    assert!(matches!(import(&options).unwrap_err(), engine::Error::InUse { .. }));
    let options = ImportOptions { foreign_drives: other.drives().list(), ..options };
    let found = import(&options).unwrap();
    assert_eq!(read_file(&found, "tank", "f"), b"still there");
    assert_eq!(found.drives().list(), folder.drives(3)[1..]);
    export_pool(found);
    export_pool(other);
}
