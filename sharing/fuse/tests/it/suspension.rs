//! Drives that fail under a mounted pool: readers are served, writers wait until the pool is
//! cleared, or get errors, by failmode; a waiting writer can be killed. The tests need /dev/fuse.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::pool::{NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use fuse::{MountHandle, MountOptions};
use posix::Time;
use sim::{DiskArray, Fault};
use vfs::PoolFileSystem;

use crate::mounted_fixture::can_mount;
use crate::mounted_pool::environment;

/// More than the request threads.
const WRITERS: usize = 24;

struct FaultyMount {
    array: DiskArray,
    pool: Pool,
    dir: PathBuf,
    mount: MountHandle,
}

impl FaultyMount {
    fn create(name: &str) -> Self {
        let array = DiskArray::new(&[128 << 20]);
        let drives = vec![PathBuf::from("/disk")];
        let vdevs = vec![NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data }];
        let (name, properties) = (name.to_owned(), Vec::new());
        let new = NewPool { name: name.clone(), vdevs, ashift: None, properties, force: false };
        let pool = engine::pool::create_on_devices(&new, &array.devices(), &environment()).unwrap();
        let now = || Time { seconds: 1_700_000_000, nanoseconds: 7 };
        let live = PoolFileSystem::open(&pool, &name, now).unwrap();
        let dir = fixtures::scratch_dir(&format!("suspension-{name}"));
        let (mount, _) = fuse::mount_filesystem(
            &live,
            vfs::DoorId::new_unique(),
            &dir,
            &MountOptions::default(),
        )
        .unwrap();
        Self { array, pool, dir, mount }
    }
}

/// A process that writes a file, with fsync.
fn spawn_writer(dir: &Path, name: &str) -> Child {
    let output = format!("of={}", dir.join(name).display());
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "bs=4096", "count=1", "conv=fsync", "status=none", &output]);
    command.stderr(std::process::Stdio::null()).spawn().unwrap()
}

#[test]
fn suspended_pool_serves_readers_and_writers_wait() {
    if !can_mount() {
        return;
    }
    let FaultyMount { array: storm, pool: held, dir, mount: mut mounted } =
        FaultyMount::create("waits");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| held.background().run_txg_sync(Duration::from_millis(100), &stop));
        while !held.background().has_sync_thread() {
            std::thread::yield_now();
        }
        let work = std::panic::AssertUnwindSafe(|| {
            fs::write(dir.join("there"), vec![7; 300_000]).unwrap();
            // the kernel lets one process at a time create files in a folder, and the others cannot
            // be killed while they wait for that: so each has its own folder
            for number in 0..WRITERS {
                fs::create_dir(dir.join(format!("d{number}"))).unwrap();
            }
            held.sync().unwrap();
            storm.disks()[0].add_fault(Fault::Write(0..128 << 20));
            let mut writers: Vec<Child> =
                (0..WRITERS).map(|number| spawn_writer(&dir, &format!("d{number}/file"))).collect();
            while !held.is_suspended() {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(fs::read(dir.join("there")).unwrap(), vec![7; 300_000]);
            let mut killed = writers.pop().unwrap();
            killed.kill().unwrap();
            assert!(!killed.wait().unwrap().success());
            // no killed writer reported success
            for each in &mut writers {
                assert!(each.try_wait().unwrap().is_none());
            }
            storm.disks()[0].clear_faults();
            held.clear_errors(None).unwrap();
            for mut each in writers {
                assert!(each.wait().unwrap().success());
            }
            for number in 0..WRITERS - 1 {
                assert_eq!(fs::read(dir.join(format!("d{number}/file"))).unwrap(), [0; 4096]);
            }

            held.properties().set_pool("failmode", "continue").unwrap();
            storm.disks()[0].add_fault(Fault::Write(0..128 << 20));
            assert!(!spawn_writer(&dir, "told").wait().unwrap().success());
            assert_eq!(fs::read(dir.join("there")).unwrap(), vec![7; 300_000]);
            storm.disks()[0].clear_faults();
            held.clear_errors(None).unwrap();
            assert!(spawn_writer(&dir, "goes-on").wait().unwrap().success());
        });
        let result = std::panic::catch_unwind(work);
        stop.store(true, Ordering::Release);
        storm.disks()[0].clear_faults();
        let _ = held.clear_errors(None);
        mounted.unmount();
        mounted.wait_for_unmount(Duration::from_secs(20));
        let left = held.close();
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        left.unwrap();
    });
    drop(held);
    let devices: Vec<Arc<dyn device::Device>> =
        vec![Arc::new(storm.disks()[0].memory()) as Arc<dyn device::Device>];
    let held = engine::pool::import_devices(&devices, "waits", &environment()).unwrap();
    let live = held.datasets().filesystem("waits").unwrap();
    assert!(live.reader().find(b"goes-on").unwrap().is_some());
}

/// Changes that would fail if they were done twice.
type NonIdempotent = fn(&Path) -> std::io::Result<()>;

#[test]
fn change_before_the_failure_is_not_repeated() {
    if !can_mount() {
        return;
    }
    let all: [(&str, NonIdempotent); 8] = [
        ("mkdir", |dir| fs::create_dir(dir.join("new"))),
        ("create", |dir| fs::File::create_new(dir.join("new")).map(drop)),
        ("symlink", |dir| std::os::unix::fs::symlink("file", dir.join("new"))),
        ("link", |dir| fs::hard_link(dir.join("file"), dir.join("new"))),
        ("unlink", |dir| fs::remove_file(dir.join("file"))),
        ("rmdir", |dir| fs::remove_dir(dir.join("dir"))),
        ("rename", |dir| fs::rename(dir.join("file"), dir.join("new"))),
        ("xattr", |dir| {
            let flags = rustix::fs::XattrFlags::CREATE;
            Ok(rustix::fs::setxattr(dir.join("file"), "user.new", b"", flags)?)
        }),
    ];
    let FaultyMount { array: storm, pool: held, dir, mount: mut mounted } =
        FaultyMount::create("once");
    held.properties().set("once", "sync", "always").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| held.background().run_txg_sync(Duration::from_secs(5), &stop));
        while !held.background().has_sync_thread() {
            std::thread::yield_now();
        }
        let work = std::panic::AssertUnwindSafe(|| {
            let mut failed = Vec::new();
            for (name, once) in all {
                let dir = dir.join(name);
                fs::create_dir(&dir).unwrap();
                fs::create_dir(dir.join("dir")).unwrap();
                fs::write(dir.join("file"), name).unwrap();
                held.sync().unwrap();
                storm.disks()[0].add_fault(Fault::Write(0..128 << 20));
                let done = std::thread::spawn(move || once(&dir));
                while !held.is_suspended() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                storm.disks()[0].clear_faults();
                held.clear_errors(None).unwrap();
                failed.extend(done.join().unwrap().err().map(|why| (name, why.to_string())));
            }
            assert_eq!(failed, []);
        });
        let result = std::panic::catch_unwind(work);
        stop.store(true, Ordering::Release);
        storm.disks()[0].clear_faults();
        let _ = held.clear_errors(None);
        mounted.unmount();
        mounted.wait_for_unmount(Duration::from_secs(20));
        let left = held.close();
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        left.unwrap();
    });
}

#[test]
fn suspended_pool_can_be_unmounted_by_force() {
    if !can_mount() {
        return;
    }
    let FaultyMount { array: storm, pool: held, dir, mount: mut mounted } =
        FaultyMount::create("forced");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| held.background().run_txg_sync(Duration::from_millis(100), &stop));
        while !held.background().has_sync_thread() {
            std::thread::yield_now();
        }
        held.sync().unwrap();
        storm.disks()[0].add_fault(Fault::Write(0..128 << 20));
        let mut waits = spawn_writer(&dir, "waits");
        while !held.is_suspended() {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(waits.try_wait().unwrap().is_none());
        // every waiting request gets an error, and no thread keeps waiting
        let (sender, unmounted) = std::sync::mpsc::channel();
        let unmounts = scope.spawn(move || {
            let was_free = mounted.unmount();
            let _ = sender.send((was_free, mounted.wait_for_unmount(Duration::ZERO).is_some()));
        });
        let done = unmounted.recv_timeout(Duration::from_secs(20));
        let is_still = held.is_suspended();
        stop.store(true, Ordering::Release);
        storm.disks()[0].clear_faults();
        let _ = held.clear_errors(None);
        unmounts.join().unwrap();
        assert!(!waits.wait().unwrap().success());
        held.close().unwrap();
        assert_eq!((done, is_still), (Ok((false, true)), true));
    });
}
