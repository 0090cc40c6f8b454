//! A pool to measure: raidz2 on six files.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::pool::{
    Environment, MemoryBudget, NewPool, NewVdev, Pool, VdevLayout, VdevRole, create,
};
use posix::Time;
use vfs::PoolFileSystem;

/// Files that a pool is made of, and how many of them are parity.
pub(crate) const DEVICE_COUNT: usize = 6;
pub(crate) const PARITY_COUNT: usize = 2;

/// The file system that is measured.
pub(crate) const DATASET: &str = "tank";

pub(crate) fn thread_count() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn environment() -> Environment {
    Environment {
        random: Arc::new(|bytes| {
            let source = File::open("/dev/urandom");
            let filled = source.and_then(|mut source| source.read_exact(bytes));
            assert!(filled.is_ok(), "the system gives random bytes");
        }),
        now: Arc::new(|| (now().as_secs(), now().subsec_nanos())),
        workers: thread_count(),
        max_dirty: 512 << 20,
        cache: MemoryBudget::default(),
        host: (0x1234, "bench".to_owned()),
    }
}

/// Creates files of this many MiB whose pages are all allocated: the first touch of memory is slow.
pub(crate) fn create_warm_files(
    folder: &Path,
    name: &str,
    mib: u64,
) -> Result<Vec<PathBuf>, String> {
    let piece = vec![0x5a; 1 << 20];
    let make = |index: usize| {
        let path = folder.join(format!("{name}{index}.img"));
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = File::create(&path).map_err(failed)?;
        for at in 0..mib {
            file.write_all_at(&piece, at << 20).map_err(failed)?;
        }
        Ok(path)
    };
    (0..DEVICE_COUNT).map(make).collect()
}

/// Creates the pool in a folder; each file has this many MiB.
pub(crate) fn create_pool(folder: &Path, mib: u64) -> Result<Pool, String> {
    let drives = create_warm_files(folder, "d", mib)?;
    let new = NewPool {
        name: DATASET.to_owned(),
        vdevs: vec![NewVdev { layout: VdevLayout::Raidz(2), drives, role: VdevRole::Data }],
        ashift: None,
        properties: Vec::new(),
        force: true,
    };
    create(&new, &environment()).map_err(|error| error.to_string())
}

/// Does something while a thread writes out what waits; then writes all out.
pub(crate) fn with_txg_sync<T>(
    pool: &Pool,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| pool.background().run_txg_sync(Duration::from_secs(5), &stop));
        let at_end = StopOnDrop(&stop);
        let done = work();
        drop(at_end);
        pool.sync().map_err(|error| error.to_string())?;
        match writing.join() {
            Ok(Ok(())) => done,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the thread that writes has panicked".to_owned()),
        }
    })
}

/// Stops the work when it is dropped, also after a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Mounts a new pool until standard input ends.
pub(crate) fn mount_until_stdin_closes(words: &[String]) -> Result<(), String> {
    let [folder, dir, mib] = words else {
        return Err("usage: bench hold FOLDER MOUNT MIB".to_owned());
    };
    let mib = mib.parse().map_err(|error| format!("{mib}: {error}"))?;
    let held = create_pool(Path::new(folder), mib)?;
    with_txg_sync(&held, || {
        let clock = || Time {
            seconds: i64::try_from(now().as_secs()).unwrap_or(0),
            nanoseconds: now().subsec_nanos(),
        };
        let fs = PoolFileSystem::open(&held, DATASET, clock).map_err(|error| error.to_string())?;
        let options = fuse::MountOptions::default();
        let (mut mounted, _) =
            fuse::mount_filesystem(&fs, vfs::DoorId::new_unique(), Path::new(dir), &options)
                .map_err(|error| error.to_string())?;
        println!("mounted");
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        mounted.unmount();
        let _ = mounted.wait_for_unmount(Duration::from_mins(1));
        Ok(())
    })?;
    held.export().map_err(|error| error.to_string())
}

/// The peak and the present memory of a process, in MiB.
pub(crate) fn process_memory(process: &str) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? >> 10)
    };
    Some((field("VmHWM:")?, field("VmRSS:")?))
}
