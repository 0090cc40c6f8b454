//! Drives that fail past redundancy while a pool is in use: it stands still, what can be read is
//! read, who wants to write is told, and when the drives are back and the pool is cleared it goes
//! on with nothing lost, not even what nobody had asked to be kept.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Device, Memory};
use engine::files::Reason;
use engine::held::{Held, NewDataset, NewPool, NewVdev, Position, Purpose, Shape, TakeOver};
use sim::{Fault, Storm};
use units::ObjectId;

use crate::held::{Folder, caller, faults, read_file, world, write_file};
use crate::shared::noise;

const DRIVE: u64 = 96 << 20;

fn create(storm: &Storm, shape: Shape) -> Held {
    let vdevs = vec![NewVdev { shape, drives: drives(storm), purpose: Purpose::Data }];
    create_of(storm, vdevs)
}

fn drives(storm: &Storm) -> Vec<PathBuf> {
    (0..storm.disks().len()).map(|index| PathBuf::from(format!("/disk{index}"))).collect()
}

fn create_of(storm: &Storm, vdevs: Vec<NewVdev>) -> Held {
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: false };
    engine::held::create_on(&new, &storm.devices(), &world()).unwrap()
}

/// Does something while a thread writes the pool's groups, as a daemon has it.
fn served(held: &Held, work: impl FnOnce()) {
    struct Ends<'a>(&'a AtomicBool, &'a Held);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
            // one that stands still would never end
            let _ = self.1.release();
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| held.run(Duration::from_millis(50), &stop));
        let _ends = Ends(&stop, held);
        while !held.is_served() {
            std::thread::yield_now();
        }
        work();
    });
}

/// What drives hold, as files.
fn dump(name: &str, drives: &[Memory]) -> Folder {
    let folder = Folder::new(name, drives.len(), DRIVE);
    for (path, drive) in folder.drives(drives.len()).into_iter().zip(drives) {
        let mut bytes = vec![0; usize::try_from(DRIVE).unwrap()];
        drive.read_at(0, &mut bytes).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder
}

fn stopped(held: &Held) {
    let live = held.files("tank").unwrap();
    let file = ObjectId::new(live.files().find(b"kept").unwrap().unwrap().id());
    let refused = live.write(&caller(), file, Position::End, b"more");
    assert_eq!(refused.unwrap_err().reason(), Reason::Stopped);
    assert_eq!(live.fsync(None).unwrap_err().reason(), Reason::Stopped);
    let snapshot = held.snapshot(&["tank@now".to_owned()]);
    assert!(matches!(snapshot, Err(engine::Error::Suspended { .. })), "{snapshot:?}");
}

/// Breaks a pool in use, and mends it again.
fn bad_day(name: &str, shape: Shape, drives: usize, fault: &Fault) {
    let name = format!("{name}-{fault:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let storm = Storm::new(&vec![DRIVE; drives]);
    let held = create(&storm, shape);
    served(&held, || {
        write_file(&held, "tank", "kept", &noise(1, 3 << 20));
        held.sync().unwrap();
        write_file(&held, "tank", "fsynced", &noise(2, 100_000));
        held.files("tank").unwrap().fsync(None).unwrap();
        write_file(&held, "tank", "fsynced-too", &noise(3, 100_000));
        held.files("tank").unwrap().fsync(None).unwrap();
        for disk in storm.disks() {
            disk.add_fault(fault.clone());
        }
        // the thread that writes groups may have seen it already
        let live = held.files("tank").unwrap();
        let root = ObjectId::new(live.files().root_id());
        let waits = live.make(&caller(), root, b"waits", &engine::held::New::default());
        let waits = waits.ok().map(|file| ObjectId::new(file.id()));
        let written = waits.is_some_and(|file| {
            live.write(&caller(), file, Position::At(0), &noise(4, 500_000)).is_ok()
        });
        let failed = held.sync();
        assert!(matches!(failed, Err(engine::Error::Suspended { .. })), "{name}: {failed:?}");
        assert_eq!(held.status().state, "SUSPENDED");
        assert!(held.status().vdevs.iter().any(|vdev| {
            vdev.write_errors > 0 || vdev.children.iter().any(|child| child.write_errors > 0)
        }));
        stopped(&held);
        if written {
            assert!(read_file(&held, "tank", "waits") == noise(4, 500_000), "{name}");
        }
        if !matches!(fault, Fault::Gone) {
            assert!(read_file(&held, "tank", "kept") == noise(1, 3 << 20), "{name}");
        }
        // the power is cut now: what was promised is there
        for seed in 0..3 {
            after_cut(&name, &storm.journal().cut(storm.journal().len(), seed));
        }
        // cleared too early, it stands still again
        assert!(matches!(held.clear(None), Err(engine::Error::Suspended { .. })));
        stopped(&held);
        for disk in storm.disks() {
            disk.mend();
        }
        held.clear(None).unwrap();
        assert_eq!(held.status().state, "ONLINE");
        assert!(held.status().vdevs.iter().all(|vdev| vdev.write_errors == 0));
        write_file(&held, "tank", "after", &noise(5, 1 << 20));
        held.snapshot(&["tank@after".to_owned()]).unwrap();
        compare(&held, &name);
        // what was refused while it stood still was not done when it went on
        held.snapshot(&["tank@now".to_owned()]).unwrap();
        if written {
            assert!(read_file(&held, "tank", "waits") == noise(4, 500_000), "{name}");
        }
    });
    drop(held);
    let memories: Vec<Memory> = storm.disks().iter().map(|disk| disk.memory()).collect();
    let folder = dump(&name, &memories);
    let held = engine::held::hold(&[folder.path().into()], "tank", false, &world()).unwrap();
    compare(&held, &name);
    assert!(read_file(&held, "tank", "after") == noise(5, 1 << 20), "{name}");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new(), "{name}");
}

fn compare(held: &Held, name: &str) {
    assert!(read_file(held, "tank", "kept") == noise(1, 3 << 20), "{name}");
    assert!(read_file(held, "tank", "fsynced") == noise(2, 100_000), "{name}");
    assert!(read_file(held, "tank", "fsynced-too") == noise(3, 100_000), "{name}");
}

fn after_cut(name: &str, drives: &[Memory]) {
    let devices: Vec<Arc<dyn Device>> =
        drives.iter().map(|drive| Arc::new(drive.clone()) as Arc<dyn Device>).collect();
    let held = engine::held::hold_on(&devices, "tank", &world()).unwrap();
    compare(&held, name);
}

#[test]
fn a_pool_whose_drives_vanish_goes_on_when_they_are_back() {
    for (name, shape, drives) in
        [("single", Shape::Single, 1), ("mirror", Shape::Mirror, 2), ("raidz", Shape::Raidz(1), 3)]
    {
        bad_day(name, shape, drives, &Fault::Gone);
    }
}

#[test]
fn a_pool_whose_drives_cannot_be_written_goes_on_when_they_can() {
    for (name, shape, drives) in
        [("single", Shape::Single, 1), ("mirror", Shape::Mirror, 2), ("raidz", Shape::Raidz(1), 3)]
    {
        bad_day(name, shape, drives, &Fault::Write(0..DRIVE));
        // only labels, which come last
        bad_day(name, shape, drives, &Fault::Write(0..4 << 20));
    }
}

#[test]
fn what_drives_did_not_keep_is_not_said_to_be_there() {
    let storm = Storm::new(&[DRIVE]);
    let held = create(&storm, Shape::Single);
    served(&held, || {
        write_file(&held, "tank", "kept", &noise(1, 3 << 20));
        held.sync().unwrap();
        let child = NewDataset { name: "tank/child".to_owned(), properties: Vec::new() };
        held.create_filesystem(&child).unwrap();
        storm.disks()[0].add_fault(Fault::Flush);
        write_file(&held, "tank/child", "lost", &noise(2, 100_000));
        assert!(held.sync().is_err());
        storm.disks()[0].mend();
        let refused = held.clear(None);
        assert!(matches!(refused, Err(engine::Error::Suspended { .. })), "{refused:?}");
    });
    drop(held);
    let folder = dump("unkept", &[storm.disks()[0].memory()]);
    let held = engine::held::hold(&[folder.path().into()], "tank", false, &world()).unwrap();
    assert!(read_file(&held, "tank", "kept") == noise(1, 3 << 20));
    assert!(held.files("tank/child").unwrap().files().find(b"lost").unwrap().is_none());
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn a_log_device_that_dies_takes_nothing_with_it() {
    for fault in [Fault::Flush, Fault::Write(0..DRIVE), Fault::Gone] {
        let name = format!("log-{fault:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "");
        let storm = Storm::new(&[DRIVE; 2]);
        let [data, log] = &drives(&storm)[..] else { panic!("two drives") };
        let vdev = |drive: &PathBuf, purpose| NewVdev {
            shape: Shape::Single,
            drives: vec![drive.clone()],
            purpose,
        };
        let vdevs = vec![vdev(data, Purpose::Data), vdev(log, Purpose::Log)];
        let held = create_of(&storm, vdevs);
        served(&held, || {
            let keep = |file: &str, seed, length| {
                write_file(&held, "tank", file, &noise(seed, length));
                held.files("tank").unwrap().fsync(None).unwrap();
            };
            keep("kept", 1, 3 << 20);
            keep("fsynced", 2, 100_000);
            storm.disks()[1].add_fault(fault.clone());
            // what was promised before is in the group that is written instead of the next promise
            keep("fsynced-too", 3, 100_000);
            for round in 0..3 {
                keep(&format!("more-{round}"), 4, 10_000);
                held.sync().unwrap();
            }
            assert_ne!(held.status().state, "SUSPENDED", "{name}");
            compare(&held, &name);
            for seed in 0..3 {
                let mut drives = storm.journal().cut(storm.journal().len(), seed);
                after_cut(&name, &drives);
                // nor is it needed any more
                drives.truncate(1);
                let devices = drives.into_iter().map(|drive| Arc::new(drive) as Arc<dyn Device>);
                let how = TakeOver { without_logs: true, ..TakeOver::default() };
                let devices: Vec<_> = devices.collect();
                let again = engine::held::hold_on_as(&devices, "tank", &how, &world()).unwrap();
                compare(&again, &name);
            }
            storm.disks()[1].mend();
        });
    }
}

/// A flush of somebody who promises something takes along what a group wrote. If it fails, that group
/// is not said to be there, although its own flush finds nothing to do.
#[test]
fn what_another_flush_did_not_keep_is_not_said_to_be_there() {
    let storm = Storm::new(&[DRIVE]);
    let held = create(&storm, Shape::Single);
    served(&held, || {
        write_file(&held, "tank", "kept", &noise(1, 3 << 20));
        held.files("tank").unwrap().fsync(None).unwrap();
        held.files("tank").unwrap().fsync(None).unwrap();
        write_file(&held, "tank", "lost", &noise(2, 100_000));
        storm.disks()[0].add_fault(Fault::Flush);
        // it fails, and so does the group that it waits for then
        assert!(held.files("tank").unwrap().fsync(None).is_err());
        storm.disks()[0].mend();
        assert!(held.files("tank").unwrap().fsync(None).is_err());
        assert!(held.sync().is_err());
    });
}

#[test]
fn what_is_done_but_not_kept_is_told_as_such_and_kept_when_the_pool_goes_on() {
    let storm = Storm::new(&[DRIVE]);
    let held = create(&storm, Shape::Single);
    held.set("tank", "sync", "always").unwrap();
    served(&held, || {
        let live = held.files("tank").unwrap();
        let (root, new) = (ObjectId::new(live.files().root_id()), engine::held::New::default());
        held.sync().unwrap();
        storm.disks()[0].add_fault(Fault::Write(0..DRIVE));
        let made = live.make(&caller(), root, b"made", &new).map(drop);
        assert_eq!(made.unwrap_err().reason(), Reason::Unkept);
        assert_eq!(live.settle().unwrap_err().reason(), Reason::Unkept);
        let refused = live.make(&caller(), root, b"refused", &new).map(drop);
        assert_eq!(refused.unwrap_err().reason(), Reason::Stopped);
        storm.disks()[0].mend();
        held.clear(None).unwrap();
        live.settle().unwrap();
        let again = live.make(&caller(), root, b"made", &new).map(drop);
        assert_eq!(again.unwrap_err().reason(), Reason::Exists);
        assert!(live.files().find(b"refused").unwrap().is_none());
    });
}
