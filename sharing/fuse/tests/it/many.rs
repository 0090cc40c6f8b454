//! Many mounts in one process: their threads and memory, and that none blocks another. The tests
//! need /dev/fuse.
//!
//! Each test runs in a process of its own, because it counts that process's threads and memory. The
//! process is killed if it takes too long, and its mounts are detached.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::pool::{NewDataset, NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use fuse::{MountHandle, MountOptions};
use heap::CountingAllocator;
use posix::Time;
use sim::{DiskArray, Fault};
use vfs::PoolFileSystem;

use crate::mounted_fixture::can_mount;
use crate::mounted_pool::environment;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Names the test that a process is to do.
const CHILD_VARIABLE: &str = "POOLHOUSE_TEST_CHILD";
/// How long a child may take.
const CHILD_TIMEOUT: Duration = Duration::from_secs(100);

/// Kills a child and detaches what is mounted below a folder.
struct Cleanup {
    child: Child,
    dir: PathBuf,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let dirs = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let mut dirs: Vec<&str> =
            dirs.filter(|dir| Path::new(dir).starts_with(&self.dir)).collect();
        dirs.sort_unstable();
        for dir in dirs.iter().rev() {
            let tool = if rustix::process::geteuid().is_root() { "umount" } else { "fusermount3" };
            let flags = if tool == "umount" { "-l" } else { "-uz" };
            let _ = Command::new(tool).args([flags, dir]).stderr(Stdio::null()).status();
        }
    }
}

/// Does `work` in a process of its own, which is given a folder.
fn run_in_child(test: &str, work: impl FnOnce(&Path)) {
    if !can_mount() {
        return;
    }
    if std::env::var(CHILD_VARIABLE).is_ok_and(|named| named == test) {
        return work(Path::new(&std::env::var("POOLHOUSE_TEST_DIR").unwrap()));
    }
    let dir = fixtures::scratch_dir(&format!("many-{test}"));
    let output = dir.join("output");
    let name = format!("many::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--include-ignored", "--nocapture"]);
    command.env(CHILD_VARIABLE, test).env("POOLHOUSE_TEST_DIR", &dir).stdin(Stdio::null());
    let file = File::create(&output).unwrap();
    command.stdout(file.try_clone().unwrap()).stderr(file);
    let mut cleanup = Cleanup { child: command.spawn().unwrap(), dir };
    let started = Instant::now();
    let ended = loop {
        match cleanup.child.try_wait().unwrap() {
            None if started.elapsed() < CHILD_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(50));
            }
            ended => break ended,
        }
    };
    let said = fs::read_to_string(&output).unwrap_or_default();
    assert!(ended.is_some_and(|ended| ended.success()), "{ended:?}\n{said}");
}

/// A pool with a sync thread, and its mounts.
struct MountedPool {
    pool: Pool,
    stop: Arc<AtomicBool>,
    txg_thread: Option<std::thread::JoinHandle<()>>,
    mounts: Vec<MountHandle>,
}

impl MountedPool {
    fn new(name: &str, storm: &DiskArray) -> Self {
        let new = new_pool(name, Path::new("/disk"));
        Self::run(engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap())
    }

    fn run(pool: Pool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (syncing, stopped) = (pool.clone(), Arc::clone(&stop));
        let writing = std::thread::spawn(move || {
            let _ = syncing.background().run_txg_sync(Duration::from_millis(100), &stopped);
        });
        while !pool.background().has_sync_thread() {
            std::thread::yield_now();
        }
        Self { pool, stop, txg_thread: Some(writing), mounts: Vec::new() }
    }

    fn mount(&mut self, dataset: &str, dir: &Path, without_rings: bool) {
        let now = || Time { seconds: 1_700_000_000, nanoseconds: 7 };
        let live = PoolFileSystem::open(&self.pool, dataset, now).unwrap();
        let options = MountOptions { no_io_uring: without_rings, ..MountOptions::default() };
        self.mounts.push(
            fuse::mount_filesystem(&live, vfs::DoorId::new_unique(), dir, &options).unwrap().0,
        );
    }

    fn export(mut self) {
        for mut mounted in self.mounts.drain(..) {
            assert!(mounted.unmount());
            assert!(matches!(mounted.wait_for_unmount(Duration::from_secs(20)), Some(Ok(()))));
        }
        self.stop.store(true, Ordering::Release);
        self.pool.sync().unwrap();
        self.txg_thread.take().unwrap().join().unwrap();
        self.pool.export().unwrap();
    }
}

fn new_pool(name: &str, drive: &Path) -> NewPool {
    let drives = vec![drive.to_owned()];
    let vdevs = vec![NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data }];
    let (name, properties) = (name.to_owned(), Vec::new());
    NewPool { name, vdevs, ashift: None, properties, force: false }
}

fn status_value(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// Waits until idle threads have ended, as far as they do; returns how many there were last.
fn wait_for_idle_threads(most: u64) -> u64 {
    let started = Instant::now();
    loop {
        let threads = status_value("Threads");
        if threads <= most || started.elapsed() > Duration::from_mins(1) {
            return threads;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Threads of a process with a pool, however many mounts there are.
const MAX_THREADS: u64 = 12;

fn mount_many(dir: &Path, mounts: u64) {
    for without_rings in [true, false] {
        let storm = DiskArray::new(&[1 << 30]);
        let mut pool = MountedPool::new("many", &storm);
        pool.mount("many", &dir.join("mnt"), without_rings);
        for number in 0..mounts {
            let name = format!("many/n{number}");
            let properties = Vec::new();
            pool.pool.datasets().create_filesystem(&NewDataset { name, properties }).unwrap();
        }
        let before = status_value("VmRSS");
        for number in 0..mounts {
            let (name, dir) = (format!("many/n{number}"), dir.join(format!("n{number}")));
            pool.mount(&name, &dir, without_rings);
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        }
        let grown = status_value("VmRSS").saturating_sub(before);
        let threads = wait_for_idle_threads(MAX_THREADS);
        assert!(threads <= MAX_THREADS, "{mounts} mounts have {threads} threads");
        // this process has another allocator than the program
        let most = 16 * 1024 + 512 * mounts;
        assert!(grown < most, "{mounts} mounts take {grown} KiB");
        pool.export();
    }
}

#[test]
fn mounts_take_no_threads_and_little_memory() {
    run_in_child("mounts_take_no_threads_and_little_memory", |dir| mount_many(dir, 60));
}

#[test]
#[ignore = "it takes a minute"]
fn a_thousand_mounts_take_no_threads() {
    run_in_child("a_thousand_mounts_take_no_threads", |dir| mount_many(dir, 1000));
}

/// More than the requests of one mount that are handled at a time.
const BLOCKED_REQUESTS: usize = 40;

#[test]
fn a_suspended_pool_keeps_no_other_waiting() {
    run_in_child("a_suspended_pool_keeps_no_other_waiting", |dir| {
        for without_rings in [false, true] {
            let (bad, good) = (DiskArray::new(&[128 << 20]), DiskArray::new(&[128 << 20]));
            let (mut stuck, mut other) =
                (MountedPool::new("stuck", &bad), MountedPool::new("other", &good));
            stuck.mount("stuck", &dir.join("stuck"), without_rings);
            other.mount("other", &dir.join("other"), without_rings);
            for number in 0..BLOCKED_REQUESTS {
                fs::create_dir(dir.join(format!("stuck/d{number}"))).unwrap();
            }
            stuck.pool.sync().unwrap();
            bad.disks()[0].add_fault(Fault::Write(0..128 << 20));
            std::thread::scope(|scope| {
                let writers: Vec<_> = (0..BLOCKED_REQUESTS)
                    .map(|number| {
                        let file = dir.join(format!("stuck/d{number}/file"));
                        scope.spawn(move || {
                            fs::write(&file, b"x")?;
                            File::open(&file)?.sync_all()
                        })
                    })
                    .collect();
                while !stuck.pool.is_suspended() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                for number in 0..100 {
                    let file = dir.join(format!("other/f{number}"));
                    fs::write(&file, b"goes on").unwrap();
                    assert_eq!(fs::read(&file).unwrap(), b"goes on");
                }
                assert!(writers.iter().all(|writer| !writer.is_finished()));
                bad.disks()[0].clear_faults();
                stuck.pool.clear_errors(None).unwrap();
                for writer in writers {
                    writer.join().unwrap().unwrap();
                }
            });
            stuck.export();
            other.export();
        }
    });
}

#[test]
fn pool_inside_own_mount_keeps_working() {
    run_in_child("pool_inside_own_mount_keeps_working", |dir| {
        for without_rings in [false, true] {
            let storm = DiskArray::new(&[512 << 20]);
            let mut outer = MountedPool::new("outer", &storm);
            outer.mount("outer", &dir.join("outer"), without_rings);
            let drive = dir.join("outer/drive");
            File::create(&drive).unwrap().set_len(128 << 20).unwrap();
            let held = engine::pool::create(&new_pool("inner", &drive), &environment()).unwrap();
            let mut inner = MountedPool::run(held);
            inner.mount("inner", &dir.join("inner"), without_rings);
            std::thread::scope(|scope| {
                for thread in 0..20_u8 {
                    scope.spawn(move || {
                        let path = dir.join(format!("inner/f{thread}"));
                        fs::write(&path, vec![thread; 1 << 20]).unwrap();
                        File::open(&path).unwrap().sync_all().unwrap();
                        assert!(fs::read(&path).unwrap() == vec![thread; 1 << 20]);
                    });
                }
            });
            inner.export();
            outer.export();
        }
    });
}

/// Bytes that are allocated for good: the least within some time, as threads that become idle free their buffers. Ends
/// as soon as there are at most `limit`.
fn settled_bytes(limit: usize) -> usize {
    let mut least = usize::MAX;
    for _ in 0..100 {
        engine::pool::free_buffers();
        least = least.min(CountingAllocator::allocated());
        if least <= limit {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    least
}

/// File systems of the memory test, which are mounted and have a file each, in two parts.
const FIRST: std::ops::Range<u64> = 0..20;
const MORE: std::ops::Range<u64> = 20..70;
/// Snapshots that the test takes of each.
const SNAPSHOTS: u64 = 10;
/// The most bytes that may stay when the pool is exported.
const MAX_BYTES_AFTER_EXPORT: usize = 5 << 19;
/// The most bytes that a mounted file system may take in the server.
const MAX_MOUNT_BYTES: usize = 64 << 10;
/// The most bytes that a snapshot may take.
const MAX_SNAPSHOT_BYTES: usize = 512;

fn mount_and_write(pool: &mut MountedPool, dir: &Path, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let (name, dir) = (format!("many/n{number}"), dir.join(format!("n{number}")));
        let properties = Vec::new();
        pool.pool
            .datasets()
            .create_filesystem(&NewDataset { name: name.clone(), properties })
            .unwrap();
        pool.mount(&name, &dir, true);
        fs::write(dir.join("file"), b"letter").unwrap();
    }
    pool.pool.sync().unwrap();
}

#[test]
fn datasets_and_snapshots_take_little_memory() {
    run_in_child("datasets_and_snapshots_take_little_memory", |dir| {
        let base = settled_bytes(0);
        let drive = dir.join("drive");
        File::create(&drive).unwrap().set_len(1 << 30).unwrap();
        // so small that it is full before anything is measured
        let cache = engine::pool::MemoryBudget::with_bytes(256 << 10);
        let environment = engine::pool::Environment { cache, ..environment() };
        let created = engine::pool::create(&new_pool("many", &drive), &environment).unwrap();
        let mut pool = MountedPool::run(created);
        mount_and_write(&mut pool, dir, FIRST);
        let mounts = usize::try_from(MORE.end - MORE.start).unwrap();
        let snapshots = mounts * usize::try_from(SNAPSHOTS).unwrap();
        let before = settled_bytes(0);
        mount_and_write(&mut pool, dir, MORE);
        let mounted = settled_bytes(before + mounts * MAX_MOUNT_BYTES);
        let each_mount = mounted.saturating_sub(before) / mounts;
        assert!(each_mount <= MAX_MOUNT_BYTES, "{each_mount} bytes a mount");
        let mounted = settled_bytes(0);
        for number in 0..SNAPSHOTS {
            let names: Vec<_> = MORE.map(|each| format!("many/n{each}@s{number}")).collect();
            pool.pool.snapshots().create(&names).unwrap();
        }
        pool.pool.sync().unwrap();
        let with_snapshots = settled_bytes(mounted + snapshots * MAX_SNAPSHOT_BYTES);
        let each_snapshot = with_snapshots.saturating_sub(mounted) / snapshots;
        assert!(each_snapshot <= MAX_SNAPSHOT_BYTES, "{each_snapshot} bytes a snapshot");
        println!("a mount takes {each_mount} bytes, a snapshot {each_snapshot}");
        pool.export();
        // threads and tables of the process stay
        let most = base + MAX_BYTES_AFTER_EXPORT;
        let exported = settled_bytes(most);
        assert!(exported <= most, "{exported} bytes after the export, {base} before the pool");
    });
}
