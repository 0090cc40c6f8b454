//! The requests that commits of the intent log make to each drive: each of them costs a slow drive
//! its latency.

use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use device::{Device, MemoryDevice};
use engine::pool::{Environment, NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use posix::WriteOffset;
use units::ObjectId;

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{credentials, environment, read_file, write_file};

const DRIVES: usize = 4;

/// The requests of the drives since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requests {
    writes: usize,
    flushes: usize,
}

/// A drive that counts its requests.
#[derive(Debug)]
struct CountingDevice {
    drive: MemoryDevice,
    requests: Arc<Mutex<Requests>>,
    /// A flush waits while a test holds it.
    gate: Arc<RwLock<()>>,
}

impl CountingDevice {
    fn count_write(&self) {
        self.requests.lock().unwrap().writes += 1;
    }
}

impl Device for CountingDevice {
    fn size(&self) -> u64 {
        self.drive.size()
    }

    fn name(&self) -> &str {
        self.drive.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), device::Error> {
        self.drive.read_at(offset, into)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), device::Error> {
        self.count_write();
        self.drive.write_at(offset, from)
    }

    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), device::Error> {
        self.count_write();
        self.drive.write_parts_at(offset, parts)
    }

    fn flush(&self) -> Result<(), device::Error> {
        self.requests.lock().unwrap().flushes += 1;
        drop(self.gate.read().unwrap());
        Ok(())
    }

    fn may_block(&self) -> bool {
        true
    }
}

/// A raidz1 of four drives.
struct CountedPool {
    pool: Pool,
    /// Of each drive.
    requests: Vec<Arc<Mutex<Requests>>>,
    gate: Arc<RwLock<()>>,
}

fn counted_pool() -> CountedPool {
    let requests: Vec<Arc<Mutex<Requests>>> = (0..DRIVES).map(|_| Arc::default()).collect();
    let gate = Arc::<RwLock<()>>::default();
    let drive = |(index, requests): (usize, &Arc<Mutex<Requests>>)| -> Arc<dyn Device> {
        let drive = MemoryDevice::zeroed(format!("drive{index}"), 256 << 20);
        let (requests, gate) = (Arc::clone(requests), Arc::clone(&gate));
        Arc::new(CountingDevice { drive, requests, gate })
    };
    let drives: Vec<_> = requests.iter().enumerate().map(drive).collect();
    let names = (0..DRIVES).map(|index| format!("drive{index}").into()).collect();
    let vdev = NewVdev { layout: VdevLayout::Raidz(1), drives: names, role: VdevRole::Data };
    let new = NewPool {
        name: "tank".to_owned(),
        vdevs: vec![vdev],
        ashift: Some(12),
        properties: Vec::new(),
        force: false,
    };
    let world = Environment { workers: 4, ..environment() };
    let pool = engine::pool::create_on_devices(&new, &drives, &world).unwrap();
    let counted = CountedPool { pool, requests, gate };
    // the first commit makes the chain of log blocks, with a txg
    counted.pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    write_file(&counted.pool, "tank", "first", b"first");
    counted.commit("first");
    counted
}

impl CountedPool {
    fn object(&self, name: &str) -> u64 {
        let fs = self.pool.datasets().filesystem("tank").unwrap();
        fs.reader().find(name.as_bytes()).unwrap().unwrap().ino()
    }

    /// Commits a file; returns the requests to the drive that had the most.
    fn commit(&self, name: &str) -> Requests {
        let file = self.object(name);
        self.requests.iter().for_each(|drive| *drive.lock().unwrap() = Requests::default());
        self.pool.datasets().filesystem("tank").unwrap().fsync(Some(file)).unwrap();
        let all = self.requests.iter().map(|drive| *drive.lock().unwrap());
        all.max_by_key(|requests| requests.writes + requests.flushes).unwrap()
    }
}

/// Neither is the data copied into the log, nor does the commit wait for a txg.
#[test]
fn large_commit_writes_data_once_in_place() {
    let pool = counted_pool();
    // data in pieces of 256 KiB, so that each drive gets 88 KiB at a time, and the log's blocks
    for (length, most) in [(1 << 20, 4 + 2), (4 << 20, 16 + 2), (16 << 20, 64 + 2)] {
        let name = format!("file{length}");
        write_file(&pool.pool, "tank", &name, &noise_bytes(length, length));
        let before = pool.pool.txg();
        let Requests { writes, flushes } = pool.commit(&name);
        assert!(writes <= most, "{writes} writes to a drive for {length} bytes");
        // one of the data, and one of the log block that refers to it
        assert_eq!(flushes, 2, "{length} bytes");
        assert_eq!(pool.pool.txg(), before, "{length} bytes");
        assert!(read_file(&pool.pool, "tank", &name) == noise_bytes(length, length));
    }
    pool.pool.export().unwrap();
}

#[test]
fn waiting_commits_share_one_log_write() {
    const WAITING: usize = 8;
    /// Another thread may be late on a busy machine.
    const ATTEMPTS: usize = 50;
    let pool = counted_pool();
    for file in 0..=WAITING {
        write_file(&pool.pool, "tank", &format!("w{file}"), b"");
    }
    pool.pool.sync().unwrap();
    let fs = pool.pool.datasets().filesystem("tank").unwrap();
    let write = |file: usize| {
        let object = pool.object(&format!("w{file}"));
        let at = WriteOffset::At(0);
        fs.write(&credentials(), ObjectId::new(object), at, &[7; 4096]).unwrap();
        fs.fsync(Some(object)).unwrap();
    };
    let are_shared = |_| {
        write(0);
        pool.requests.iter().for_each(|drive| *drive.lock().unwrap() = Requests::default());
        std::thread::scope(|scope| {
            let closed = pool.gate.write().unwrap();
            for file in 0..=WAITING {
                let write = &write;
                scope.spawn(move || write(file));
            }
            std::thread::sleep(Duration::from_millis(50));
            drop(closed);
        });
        let flushes = pool.requests.iter().map(|drive| drive.lock().unwrap().flushes);
        // the first commit, and that of all others, which may take two log blocks
        flushes.max().unwrap() <= 1 + 2
    };
    assert!((0..ATTEMPTS).any(are_shared), "each commit writes the log alone");
    pool.pool.export().unwrap();
}
