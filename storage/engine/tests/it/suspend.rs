//! Drives that fail past redundancy while a pool is in use: it is suspended, cached data is
//! read, writers get errors. When the drives are back and the pool is cleared, it
//! resumes with nothing lost, not even uncommitted changes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Device, MemoryDevice};
use engine::files::Reason;
use engine::pool::{ImportOptions, NewDataset, NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use posix::WriteOffset;
use sim::{DiskArray, Fault};
use units::ObjectId;

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{TempDir, check_pool, credentials, environment, read_file, write_file};

const DRIVE_SIZE: u64 = 96 << 20;

fn create_pool(storm: &DiskArray, shape: VdevLayout) -> Pool {
    let vdevs = vec![NewVdev { layout: shape, drives: drive_paths(storm), role: VdevRole::Data }];
    create_with_vdevs(storm, vdevs)
}

fn drive_paths(storm: &DiskArray) -> Vec<PathBuf> {
    (0..storm.disks().len()).map(|index| PathBuf::from(format!("/disk{index}"))).collect()
}

fn create_with_vdevs(storm: &DiskArray, vdevs: Vec<NewVdev>) -> Pool {
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: false };
    engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap()
}

/// Runs an operation while a thread syncs the pool's txgs, as in a daemon.
fn with_sync_thread(held: &Pool, work: impl FnOnce()) {
    struct StopOnDrop<'a>(&'a AtomicBool, &'a Pool);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
            // a suspended one would never end
            let _ = self.1.close();
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| held.background().run_txg_sync(Duration::from_millis(50), &stop));
        let _ends = StopOnDrop(&stop, held);
        while !held.background().has_sync_thread() {
            std::thread::yield_now();
        }
        work();
    });
}

/// The content of the drives, as files.
fn write_images(name: &str, drives: &[MemoryDevice]) -> TempDir {
    let folder = TempDir::new(name, drives.len(), DRIVE_SIZE);
    for (path, drive) in folder.drives(drives.len()).into_iter().zip(drives) {
        let mut bytes = vec![0; usize::try_from(DRIVE_SIZE).unwrap()];
        drive.read_at(0, &mut bytes).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder
}

fn check_suspended(pool: &Pool) {
    let fs = pool.datasets().filesystem("tank").unwrap();
    let file = ObjectId::new(fs.reader().find(b"kept").unwrap().unwrap().ino());
    let refused = fs.write(&credentials(), file, WriteOffset::End, b"more");
    assert_eq!(refused.unwrap_err().reason(), Reason::Suspended);
    assert_eq!(fs.fsync(None).unwrap_err().reason(), Reason::Suspended);
    let snapshot = pool.snapshots().create(&["tank@now".to_owned()]);
    assert!(matches!(snapshot, Err(engine::Error::Suspended { .. })), "{snapshot:?}");
}

/// Breaks a pool in use, and clears it again.
fn suspend_and_clear(name: &str, shape: VdevLayout, drives: usize, fault: &Fault) {
    let name = format!("{name}-{fault:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let storm = DiskArray::new(&vec![DRIVE_SIZE; drives]);
    let held = create_pool(&storm, shape);
    with_sync_thread(&held, || {
        write_file(&held, "tank", "kept", &noise_bytes(1, 3 << 20));
        held.sync().unwrap();
        write_file(&held, "tank", "fsynced", &noise_bytes(2, 100_000));
        held.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
        write_file(&held, "tank", "fsynced-too", &noise_bytes(3, 100_000));
        held.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
        for disk in storm.disks() {
            disk.add_fault(fault.clone());
        }
        // the thread that writes groups may have seen it already
        let fs = held.datasets().filesystem("tank").unwrap();
        let root = ObjectId::new(fs.reader().root_object());
        let waits = fs.create(&credentials(), root, b"waits", &posix::NewInode::default());
        let waits = waits.ok().map(|file| ObjectId::new(file.ino()));
        let written = waits.is_some_and(|file| {
            fs.write(&credentials(), file, WriteOffset::At(0), &noise_bytes(4, 500_000)).is_ok()
        });
        let failed = held.sync();
        assert!(matches!(failed, Err(engine::Error::Suspended { .. })), "{name}: {failed:?}");
        assert_eq!(held.status().state, "SUSPENDED");
        assert!(held.status().vdevs.iter().any(|vdev| {
            vdev.write_errors > 0 || vdev.children.iter().any(|child| child.write_errors > 0)
        }));
        check_suspended(&held);
        if written {
            assert!(read_file(&held, "tank", "waits") == noise_bytes(4, 500_000), "{name}");
        }
        if !matches!(fault, Fault::Removed) {
            assert!(read_file(&held, "tank", "kept") == noise_bytes(1, 3 << 20), "{name}");
        }
        // the power is cut now: committed changes are there
        for seed in 0..3 {
            compare_after_cut(&name, &storm.journal().cut_power(storm.journal().len(), seed));
        }
        // cleared too early, it is suspended again
        assert!(matches!(held.clear_errors(None), Err(engine::Error::Suspended { .. })));
        check_suspended(&held);
        for disk in storm.disks() {
            disk.clear_faults();
        }
        held.clear_errors(None).unwrap();
        assert_eq!(held.status().state, "ONLINE");
        assert!(held.status().vdevs.iter().all(|vdev| vdev.write_errors == 0));
        write_file(&held, "tank", "after", &noise_bytes(5, 1 << 20));
        held.snapshots().create(&["tank@after".to_owned()]).unwrap();
        compare_files(&held, &name);
        // refused changes were not done when it resumed
        held.snapshots().create(&["tank@now".to_owned()]).unwrap();
        if written {
            assert!(read_file(&held, "tank", "waits") == noise_bytes(4, 500_000), "{name}");
        }
    });
    drop(held);
    let memories: Vec<MemoryDevice> = storm.disks().iter().map(|disk| disk.memory()).collect();
    let folder = write_images(&name, &memories);
    let held =
        engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    compare_files(&held, &name);
    assert!(read_file(&held, "tank", "after") == noise_bytes(5, 1 << 20), "{name}");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
}

fn compare_files(pool: &Pool, name: &str) {
    assert!(read_file(pool, "tank", "kept") == noise_bytes(1, 3 << 20), "{name}");
    assert!(read_file(pool, "tank", "fsynced") == noise_bytes(2, 100_000), "{name}");
    assert!(read_file(pool, "tank", "fsynced-too") == noise_bytes(3, 100_000), "{name}");
}

fn compare_after_cut(name: &str, drives: &[MemoryDevice]) {
    let devices: Vec<Arc<dyn Device>> =
        drives.iter().map(|drive| Arc::new(drive.clone()) as Arc<dyn Device>).collect();
    let held = engine::pool::import_devices(&devices, "tank", &environment()).unwrap();
    compare_files(&held, name);
}

#[test]
fn pool_resumes_when_vanished_drives_return() {
    for (name, shape, drives) in [
        ("single", VdevLayout::Single, 1),
        ("mirror", VdevLayout::Mirror, 2),
        ("raidz", VdevLayout::Raidz(1), 3),
    ] {
        suspend_and_clear(name, shape, drives, &Fault::Removed);
    }
}

#[test]
fn pool_resumes_when_drives_are_writable_again() {
    for (name, shape, drives) in [
        ("single", VdevLayout::Single, 1),
        ("mirror", VdevLayout::Mirror, 2),
        ("raidz", VdevLayout::Raidz(1), 3),
    ] {
        suspend_and_clear(name, shape, drives, &Fault::Write(0..DRIVE_SIZE));
        // only labels, which come last
        suspend_and_clear(name, shape, drives, &Fault::Write(0..4 << 20));
    }
}

#[test]
fn lost_drive_cache_is_never_reported_durable() {
    let storm = DiskArray::new(&[DRIVE_SIZE]);
    let held = create_pool(&storm, VdevLayout::Single);
    with_sync_thread(&held, || {
        write_file(&held, "tank", "kept", &noise_bytes(1, 3 << 20));
        held.sync().unwrap();
        let child = NewDataset { name: "tank/child".to_owned(), properties: Vec::new() };
        held.datasets().create_filesystem(&child).unwrap();
        storm.disks()[0].add_fault(Fault::Flush);
        write_file(&held, "tank/child", "lost", &noise_bytes(2, 100_000));
        assert!(held.sync().is_err());
        storm.disks()[0].clear_faults();
        let refused = held.clear_errors(None);
        assert!(matches!(refused, Err(engine::Error::Suspended { .. })), "{refused:?}");
    });
    drop(held);
    let folder = write_images("unkept", &[storm.disks()[0].memory()]);
    let held =
        engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    assert!(read_file(&held, "tank", "kept") == noise_bytes(1, 3 << 20));
    assert!(
        held.datasets().filesystem("tank/child").unwrap().reader().find(b"lost").unwrap().is_none()
    );
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn dead_log_device_loses_nothing() {
    for fault in [Fault::Flush, Fault::Write(0..DRIVE_SIZE), Fault::Removed] {
        let name = format!("log-{fault:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "");
        let storm = DiskArray::new(&[DRIVE_SIZE; 2]);
        let [data, log] = &drive_paths(&storm)[..] else { panic!("two drives") };
        let vdev = |drive: &PathBuf, purpose| NewVdev {
            layout: VdevLayout::Single,
            drives: vec![drive.clone()],
            role: purpose,
        };
        let vdevs = vec![vdev(data, VdevRole::Data), vdev(log, VdevRole::Log)];
        let held = create_with_vdevs(&storm, vdevs);
        with_sync_thread(&held, || {
            let keep = |file: &str, seed, length| {
                write_file(&held, "tank", file, &noise_bytes(seed, length));
                held.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
            };
            keep("kept", 1, 3 << 20);
            keep("fsynced", 2, 100_000);
            storm.disks()[1].add_fault(fault.clone());
            // the next commit waits for the txg with the committed records
            keep("fsynced-too", 3, 100_000);
            for round in 0..3 {
                keep(&format!("more-{round}"), 4, 10_000);
                held.sync().unwrap();
            }
            assert_ne!(held.status().state, "SUSPENDED", "{name}");
            compare_files(&held, &name);
            for seed in 0..3 {
                let mut drives = storm.journal().cut_power(storm.journal().len(), seed);
                compare_after_cut(&name, &drives);
                // and they are no longer needed
                drives.truncate(1);
                let devices = drives.into_iter().map(|drive| Arc::new(drive) as Arc<dyn Device>);
                let options =
                    ImportOptions { allow_missing_logs: true, ..ImportOptions::default() };
                let devices: Vec<_> = devices.collect();
                let again =
                    engine::pool::import_devices_with(&devices, "tank", &options, &environment())
                        .unwrap();
                compare_files(&again, &name);
            }
            storm.disks()[1].clear_faults();
        });
    }
}

/// The flush of a commit includes the writes of a txg. If it fails, that txg is not durable,
/// although its own flush finds nothing to do.
#[test]
fn failed_foreign_flush_fails_the_txg() {
    let storm = DiskArray::new(&[DRIVE_SIZE]);
    let pool = create_pool(&storm, VdevLayout::Single);
    with_sync_thread(&pool, || {
        write_file(&pool, "tank", "kept", &noise_bytes(1, 3 << 20));
        pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
        pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
        write_file(&pool, "tank", "lost", &noise_bytes(2, 100_000));
        storm.disks()[0].add_fault(Fault::Flush);
        // it fails, and so does the group that it waits for then
        assert!(pool.datasets().filesystem("tank").unwrap().fsync(None).is_err());
        storm.disks()[0].clear_faults();
        assert!(pool.datasets().filesystem("tank").unwrap().fsync(None).is_err());
        assert!(pool.sync().is_err());
    });
}

#[test]
fn uncommitted_change_is_reported_and_survives_resume() {
    let storm = DiskArray::new(&[DRIVE_SIZE]);
    let held = create_pool(&storm, VdevLayout::Single);
    held.properties().set("tank", "sync", "always").unwrap();
    with_sync_thread(&held, || {
        let fs = held.datasets().filesystem("tank").unwrap();
        let (root, new) = (ObjectId::new(fs.reader().root_object()), posix::NewInode::default());
        held.sync().unwrap();
        storm.disks()[0].add_fault(Fault::Write(0..DRIVE_SIZE));
        let made = fs.create(&credentials(), root, b"made", &new).map(drop);
        assert_eq!(made.unwrap_err().reason(), Reason::NotCommitted);
        assert_eq!(fs.commit_if_sync_always().unwrap_err().reason(), Reason::NotCommitted);
        let refused = fs.create(&credentials(), root, b"refused", &new).map(drop);
        assert_eq!(refused.unwrap_err().reason(), Reason::Suspended);
        storm.disks()[0].clear_faults();
        held.clear_errors(None).unwrap();
        fs.commit_if_sync_always().unwrap();
        let again = fs.create(&credentials(), root, b"made", &new).map(drop);
        assert_eq!(again.unwrap_err().reason(), Reason::Exists);
        assert!(fs.reader().find(b"refused").unwrap().is_none());
    });
}
