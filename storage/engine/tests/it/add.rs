//! Adding vdevs to a pool in use: of every layout and class, with existing data.

use std::path::PathBuf;
use std::sync::Arc;

use engine::pool::{AddOptions, DraidLayout, Drive, NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use sim::DiskArray;

use crate::resilver::import;
use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{TempDir, check_pool, environment, read_file, write_file};

const DRIVE_SIZE: u64 = 128 << 20;
const FORCE: AddOptions = AddOptions {
    force: true,
    allow_in_use: false,
    allow_replication_mismatch: false,
    allow_ashift_mismatch: false,
    ashift: None,
    dry_run: false,
};

fn vdev(layout: VdevLayout, drives: &[PathBuf], role: VdevRole) -> NewVdev {
    NewVdev { layout, drives: drives.to_vec(), role }
}

fn new_pool(vdevs: Vec<NewVdev>, ashift: Option<u64>) -> NewPool {
    let properties = vec![("special_small_blocks".to_owned(), "4K".to_owned())];
    NewPool { name: "tank".to_owned(), vdevs, ashift, properties, force: false }
}

fn create(folder: &TempDir, layout: VdevLayout, drives: usize) -> Pool {
    let vdevs = vec![vdev(layout, &folder.drives(drives), VdevRole::Data)];
    engine::pool::create(&new_pool(vdevs, None), &environment()).unwrap()
}

/// The allocated bytes of each top-level vdev, with its class.
fn allocated(pool: &Pool) -> Vec<(String, u64)> {
    let vdevs = pool.status().vdevs.into_iter();
    vdevs.map(|vdev| (vdev.class.unwrap_or_default(), vdev.allocated)).collect()
}

#[test]
fn vdevs_of_every_layout_take_new_blocks() {
    for (name, layout, count) in [
        ("single", VdevLayout::Single, 1),
        ("mirror", VdevLayout::Mirror, 2),
        ("raidz2", VdevLayout::Raidz(2), 4),
        ("draid", VdevLayout::Draid(DraidLayout { parity: 1, data: 2, spares: 1 }), 5),
    ] {
        let folder = TempDir::new(&format!("add-{name}"), 2 * count, DRIVE_SIZE);
        let drives = folder.drives(2 * count);
        let pool = create(&folder, layout, count);
        write_file(&pool, "tank", "before", &noise_bytes(1, 6 << 20));
        pool.sync().unwrap();
        let size = pool.status().size;
        let available = pool.datasets().space("tank").available;
        let new = [vdev(layout, &drives[count..], VdevRole::Data)];
        pool.vdevs().add(&new, AddOptions { dry_run: true, ..AddOptions::default() }).unwrap();
        assert_eq!(pool.status().vdevs.len(), 1, "{name}: a dry run");
        pool.vdevs().add(&new, AddOptions::default()).unwrap();
        assert_eq!(pool.status().size, 2 * size, "{name}");
        assert!(pool.datasets().space("tank").available > available * 19 / 10, "{name}");
        write_file(&pool, "tank", "after", &noise_bytes(2, 12 << 20));
        pool.sync().unwrap();
        let used = allocated(&pool);
        assert!(used.len() == 2 && used[1].1 > 4 << 20, "{name}: {used:?}");
        if name == "draid" {
            assert_eq!(pool.status().spares.len(), 2, "each dRAID has its spares");
        }
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
        let pool = import(&[folder.path().into()]);
        for (file, seed, size) in [("before", 1, 6), ("after", 2, 12)] {
            assert!(read_file(&pool, "tank", file) == noise_bytes(seed, size << 20), "{name}");
        }
        pool.export().unwrap();
    }
}

#[test]
fn log_and_special_vdevs_are_used_after_add() {
    let folder = TempDir::new("add-classes", 7, DRIVE_SIZE);
    let drives = folder.drives(7);
    let pool = create(&folder, VdevLayout::Mirror, 2);
    let new = [
        vdev(VdevLayout::Single, &drives[2..3], VdevRole::Log),
        vdev(VdevLayout::Mirror, &drives[3..5], VdevRole::Special),
        vdev(VdevLayout::Mirror, &drives[5..7], VdevRole::Dedup),
    ];
    pool.vdevs().add(&new, AddOptions::default()).unwrap();
    for number in 0..40 {
        write_file(&pool, "tank", &format!("small{number}"), &noise_bytes(number, 3000));
        pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    }
    pool.sync().unwrap();
    let used = allocated(&pool);
    let of = |class: &str| used.iter().find(|(name, _)| name == class).unwrap().1;
    assert!(of("log") > 0 && of("special") > 100_000, "{used:?}");
    pool.close().unwrap();
    drop(pool);
    let said = run_zdb(folder.path(), &["-bb"]);
    assert!(said.is_empty() || said.contains("Special class"), "{said}");
    let pool = import(&[folder.path().into()]);
    assert!(read_file(&pool, "tank", "small7") == noise_bytes(7, 3000));
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn larger_sectors_are_added_only_by_force() {
    let folder = TempDir::new("add-ashift", 2, DRIVE_SIZE);
    let drives = folder.drives(2);
    let vdevs = vec![vdev(VdevLayout::Single, &drives[..1], VdevRole::Data)];
    let pool = engine::pool::create(&new_pool(vdevs, Some(9)), &environment()).unwrap();
    let new = [vdev(VdevLayout::Single, &drives[1..], VdevRole::Data)];
    let options = AddOptions { ashift: Some(12), ..AddOptions::default() };
    let why = pool.vdevs().add(&new, options).unwrap_err().to_string();
    assert!(why.contains("ashift=9") && why.contains("ashift=12"), "{why}");
    let why = pool.vdevs().add(&new, AddOptions { ashift: Some(20), ..FORCE }).unwrap_err();
    assert!(why.to_string().contains("9 to 16"), "{why}");
    pool.vdevs().add(&new, AddOptions { force: true, ..options }).unwrap();
    for number in 0..300 {
        write_file(&pool, "tank", &format!("small{number}"), &noise_bytes(number, 1500));
    }
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn nothing_is_touched_when_add_is_refused() {
    let folder = TempDir::new("add-refused", 5, DRIVE_SIZE);
    let drives = folder.drives(5);
    let pool = create(&folder, VdevLayout::Raidz(1), 3);
    let small = folder.path().join("small.img");
    std::fs::File::create(&small).unwrap().set_len(32 << 20).unwrap();
    let data = |drives: &[PathBuf]| [vdev(VdevLayout::Single, drives, VdevRole::Data)];
    let refused =
        |new: &[NewVdev], options| pool.vdevs().add(new, options).unwrap_err().to_string();
    let why = refused(&data(&drives[3..4]), AddOptions::default());
    assert!(why.contains("mismatched replication level: pool uses raidz"), "{why}");
    let why = refused(&data(&drives[..1]), FORCE);
    assert!(why.contains("pool 'tank'"), "{why}");
    let why = refused(&data(std::slice::from_ref(&small)), FORCE);
    assert!(why.contains("too small"), "{why}");
    let twice = [drives[3].clone(), drives[3].clone()];
    let why = refused(&[vdev(VdevLayout::Mirror, &twice, VdevRole::Data)], FORCE);
    assert!(why.contains("named twice"), "{why}");
    // one that is fit comes before one that is not
    let both = [data(&drives[3..4])[0].clone(), data(std::slice::from_ref(&small))[0].clone()];
    refused(&both, FORCE);
    assert_eq!(pool.status().vdevs.len(), 1);
    let untouched = std::fs::read(&drives[3]).unwrap();
    assert!(untouched.iter().all(|byte| *byte == 0));
    pool.export().unwrap();
}

#[test]
fn power_cut_leaves_vdev_added_or_not() {
    let storm = DiskArray::new(&[64 << 20; 4]);
    let drives: Vec<PathBuf> = (0..4).map(|index| format!("/disk{index}").into()).collect();
    let vdevs = vec![vdev(VdevLayout::Mirror, &drives[..2], VdevRole::Data)];
    let devices = storm.devices();
    let pool =
        engine::pool::create_on_devices(&new_pool(vdevs, None), &devices[..2], &environment())
            .unwrap();
    write_file(&pool, "tank", "before", &noise_bytes(1, 3 << 20));
    pool.sync().unwrap();
    let start = storm.journal().len();
    let new = [vdev(VdevLayout::Mirror, &drives[2..], VdevRole::Data)];
    pool.vdevs().add_opened(&new, &devices[2..], AddOptions::default()).unwrap();
    let added = storm.journal().len();
    write_file(&pool, "tank", "after", &noise_bytes(2, 3 << 20));
    pool.sync().unwrap();
    let end = storm.journal().len();
    drop(pool);
    let step = ((end - added) / 6).max(1);
    for at in (start..added).step_by(2).chain((added..=end).step_by(step)).chain([end]) {
        let pool = import_after_cut(&storm, at);
        let vdevs = pool.status().vdevs.len();
        assert!(vdevs == 2 || at < added && vdevs == 1, "cut at {at}: {vdevs}");
        assert!(read_file(&pool, "tank", "before") == noise_bytes(1, 3 << 20), "cut at {at}");
        if at == end {
            assert!(read_file(&pool, "tank", "after") == noise_bytes(2, 3 << 20));
        }
        write_file(&pool, "tank", "more", &noise_bytes(3, 1 << 20));
        pool.export().unwrap();
    }
}

/// Imports the pool as drives hold it when the power fails after a request.
fn import_after_cut(storm: &DiskArray, at: usize) -> Pool {
    let found = storm.journal().cut_power(at, at as u64);
    let devices: Vec<_> = found.into_iter().map(|disk| Arc::new(disk) as Drive).collect();
    engine::pool::import_devices(&devices, "tank", &environment())
        .unwrap_or_else(|why| panic!("cut at {at}: {why}"))
}

#[test]
fn power_cut_leaves_log_added_or_not() {
    let storm = DiskArray::new(&[64 << 20; 2]);
    let new = [
        vdev(VdevLayout::Single, &["/disk0".into()], VdevRole::Data),
        vdev(VdevLayout::Single, &["/disk1".into()], VdevRole::Log),
    ];
    let new = new_pool(new.to_vec(), None);
    let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap();
    for number in 0..4 {
        write_file(&pool, "tank", &format!("file{number}"), &noise_bytes(number, 40_000));
        pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    }
    let start = storm.journal().len();
    pool.vdevs().remove(&["/disk1".to_owned()]).unwrap();
    let end = storm.journal().len();
    drop(pool);
    let step = ((end - start) / 16).max(1);
    for at in (start..=end).step_by(step).chain([end]) {
        let pool = import_after_cut(&storm, at);
        for number in 0..4 {
            let found = read_file(&pool, "tank", &format!("file{number}"));
            assert!(found == noise_bytes(number, 40_000), "cut at {at}");
        }
        assert!(at < end || pool.status().vdevs.len() == 1);
        write_file(&pool, "tank", "more", &noise_bytes(9, 40_000));
        pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
        pool.export().unwrap();
    }
}

#[test]
fn power_cut_leaves_vdev_expanded_or_not() {
    let storm = DiskArray::new(&[64 << 20, 160 << 20]);
    let new = [vdev(VdevLayout::Single, &["/disk0".into()], VdevRole::Data)];
    let devices = storm.devices();
    let new = new_pool(new.to_vec(), None);
    let pool = engine::pool::create_on_devices(&new, &devices[..1], &environment()).unwrap();
    write_file(&pool, "tank", "before", &noise_bytes(1, 3 << 20));
    pool.vdevs().replace_with("/disk0", "/disk1".as_ref(), &devices[1]).unwrap();
    crate::offline::resilver(&pool);
    let (start, size) = (storm.journal().len(), pool.status().size);
    assert!(pool.drives().expand("/disk1").unwrap());
    let grown = storm.journal().len();
    write_file(&pool, "tank", "after", &noise_bytes(2, 50 << 20));
    pool.sync().unwrap();
    let end = storm.journal().len();
    drop(pool);
    let step = ((end - grown) / 4).max(1);
    for at in (start..grown).step_by(3).chain((grown..=end).step_by(step)).chain([end]) {
        let pool = import_after_cut(&storm, at);
        assert!(read_file(&pool, "tank", "before") == noise_bytes(1, 3 << 20), "cut at {at}");
        let is_grown = pool.status().size > size;
        assert!(is_grown || at < grown, "cut at {at}");
        if at == end {
            assert!(read_file(&pool, "tank", "after") == noise_bytes(2, 50 << 20));
        }
        pool.export().unwrap();
    }
}

#[test]
fn removed_logs_leave_holes() {
    let folder = TempDir::new("remove-log", 5, DRIVE_SIZE);
    let drives = folder.drives(5);
    let pool = create(&folder, VdevLayout::Single, 1);
    let new = [
        vdev(VdevLayout::Mirror, &drives[1..3], VdevRole::Log),
        vdev(VdevLayout::Single, &drives[3..4], VdevRole::Log),
    ];
    pool.vdevs().add(&new, AddOptions::default()).unwrap();
    let write_committed = |name: &str, seed| {
        write_file(&pool, "tank", name, &noise_bytes(seed, 50_000));
        pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    };
    for number in 0..20 {
        write_committed(&format!("before{number}"), number);
    }
    let remove = |name: &str| pool.vdevs().remove(&[name.to_owned()]);
    let why = remove("d0.img").unwrap_err().to_string();
    assert!(why.contains("it is the only vdev for data"), "{why}");
    let why = remove("d1.img").unwrap_err().to_string();
    assert!(why.contains("zpool detach"), "{why}");
    remove("mirror-1").unwrap();
    write_committed("between", 30);
    remove("d3.img").unwrap();
    write_committed("after", 31);
    assert_eq!(pool.status().vdevs.len(), 1);
    // both places stay empty
    let new = [vdev(VdevLayout::Single, &drives[4..], VdevRole::Data)];
    pool.vdevs().add(&new, AddOptions::default()).unwrap();
    pool.close().unwrap();
    drop(pool);
    let said = run_zdb(folder.path(), &["-C"]);
    assert!(said.is_empty() || said.matches("type: 'hole'").count() == 2, "{said}");
    // the drives are free
    for drive in &drives[1..4] {
        std::fs::remove_file(drive).unwrap();
    }
    let pool = import(&[folder.path().into()]);
    for (name, seed) in [("before7", 7), ("between", 30), ("after", 31)] {
        assert!(read_file(&pool, "tank", name) == noise_bytes(seed, 50_000), "{name}");
    }
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn larger_drives_are_used_after_expand() {
    for (name, layout, count) in
        [("mirror", VdevLayout::Mirror, 2), ("raidz1", VdevLayout::Raidz(1), 3)]
    {
        let folder = TempDir::new(&format!("expand-{name}"), count, DRIVE_SIZE);
        let pool = create(&folder, layout, count);
        write_file(&pool, "tank", "before", &noise_bytes(1, 3 << 20));
        let size = pool.status().size;
        for old in 0..count {
            let new = folder.path().join(format!("new{old}.img"));
            std::fs::File::create(&new).unwrap().set_len(3 * DRIVE_SIZE).unwrap();
            pool.vdevs().replace(&format!("d{old}.img"), Some(&new), false).unwrap();
            assert!(!pool.drives().expand("new0.img").unwrap(), "not all are larger");
            crate::offline::resilver(&pool);
            std::fs::remove_file(folder.path().join(format!("d{old}.img"))).unwrap();
        }
        assert_eq!(pool.status().size, size, "{name}");
        assert!(pool.drives().expand("new0.img").unwrap());
        assert!(!pool.drives().expand("new0.img").unwrap());
        assert!(pool.status().size > size * 5 / 2, "{name}");
        let large = noise_bytes(2, 100 << 20);
        write_file(&pool, "tank", "after", &large);
        write_file(&pool, "tank", "more", &large);
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
        let pool = import(&[folder.path().into()]);
        assert!(read_file(&pool, "tank", "before") == noise_bytes(1, 3 << 20));
        assert!(read_file(&pool, "tank", "more") == large);
        pool.export().unwrap();
    }
}

#[test]
fn labels_are_cleared_only_off_unused_devices() {
    let folder = TempDir::new("labelclear", 2, DRIVE_SIZE);
    let drives = folder.drives(2);
    let pool = create(&folder, VdevLayout::Mirror, 2);
    let refused = |force| engine::clear_labels(&drives[0], force).unwrap_err().to_string();
    refused(true);
    pool.export().unwrap();
    drop(pool);
    let why = refused(false);
    assert!(why.contains("member of exported pool \"tank\"") && why.contains("'-f'"), "{why}");
    engine::clear_labels(&drives[0], true).unwrap();
    let why = refused(true);
    assert!(why.contains("failed to read label"), "{why}");
    let pool = import(&drives);
    pool.destroy_pool().unwrap();
    drop(pool);
    engine::clear_labels(&drives[1], false).unwrap();
    assert_eq!(engine::search(&drives).unlabelled().len(), 2);
}
