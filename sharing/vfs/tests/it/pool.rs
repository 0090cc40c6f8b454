//! Pools in memory for tests of changes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use engine::pool::{Environment, MemoryBudget, NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use posix::access::OpenMode;
use posix::{Credentials, Ino, Time, WriteOffset};
use vfs::{Context, DoorId, FileOffset, FileSystem as _, PoolFileSystem};

const CONTEXT: Context<'static> = Context::new(&Credentials::ROOT, DoorId::DAEMON);

/// Random numbers that differ from one environment to the next, as those of the system do.
static SEED: AtomicU64 = AtomicU64::new(0x9e37_79b9);

pub(crate) fn environment() -> Environment {
    Environment {
        random: Arc::new(move |bytes| {
            for byte in bytes {
                let next = SEED.load(Ordering::Relaxed).wrapping_mul(0x5851_f42d_4c95_7f2d);
                SEED.store(next.wrapping_add(0x1405), Ordering::Relaxed);
                *byte = next.to_be_bytes()[0];
            }
        }),
        now: Arc::new(|| (1_700_000_000, 0)),
        workers: 2,
        max_dirty: 64 << 20,
        cache: MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

/// A pool named tank on a drive in memory.
pub(crate) struct TestPool {
    drive: Arc<dyn device::Device>,
    pub(crate) pool: Pool,
    clock: Arc<AtomicI64>,
}

impl TestPool {
    pub(crate) fn create() -> Self {
        let drive: Arc<dyn device::Device> =
            Arc::new(device::MemoryDevice::zeroed("drive", 128 << 20));
        let drives = vec![PathBuf::from("drive")];
        let vdevs = vec![NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data }];
        let (name, properties) = ("tank".to_owned(), Vec::new());
        let new = NewPool { name, vdevs, ashift: None, properties, force: false };
        let pool = engine::pool::create_on_devices(&new, &[Arc::clone(&drive)], &environment());
        let clock = Arc::new(AtomicI64::new(1_700_000_000));
        Self { drive, pool: pool.expect("a pool"), clock }
    }

    /// A file system whose clock does not advance until [`TestPool::set_clock`] sets it.
    pub(crate) fn open(&self, name: &str) -> PoolFileSystem {
        let clock = Arc::clone(&self.clock);
        let now = move || Time { seconds: clock.load(Ordering::Relaxed), nanoseconds: 7 };
        PoolFileSystem::open(&self.pool, name, now).expect("a file system")
    }

    /// Moves the clock of all file systems to a second since 1970.
    pub(crate) fn set_clock(&self, second: i64) {
        self.clock.store(second, Ordering::Relaxed);
    }

    /// The pool exported and imported again.
    pub(crate) fn reimport(self) -> Self {
        self.pool.export().expect("an export");
        let found =
            engine::pool::import_devices(&[Arc::clone(&self.drive)], "tank", &environment());
        Self { pool: found.expect("the pool again"), ..self }
    }
}

/// Writes to a file from its beginning.
pub(crate) fn write(fs: &PoolFileSystem, ino: Ino, bytes: &[u8]) {
    let file = fs.open(&CONTEXT, ino, OpenMode::READ_WRITE).expect("an open file");
    fs.write(&CONTEXT, &file, WriteOffset::At(0), bytes).expect("a write");
}

/// Reads the first 100 bytes of a file.
pub(crate) fn read(fs: &PoolFileSystem, ino: Ino) -> Vec<u8> {
    let file = &fs.open(&CONTEXT, ino, OpenMode::READ).expect("an open file");
    let mut bytes = vec![0; 100];
    let count = fs.read(&CONTEXT, FileOffset { file, offset: 0 }, &mut bytes).expect("a read");
    bytes.truncate(count);
    bytes
}
