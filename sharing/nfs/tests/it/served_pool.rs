//! A pool in memory with two file systems, and a server of them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use device::Device;
use engine::pool::{
    Environment, MemoryBudget, NewDataset, NewPool, NewVdev, Pool, VdevLayout, VdevRole,
};
use nfs::{ClientRule, Export, Secret, Server, ServerOptions, Squash};
use posix::Time;
use sim::DiskArray;
use vfs::{DoorId, DynFileSystem, PoolFileSystem};

/// Random numbers that differ from one environment to the next, as those of the system do.
static SEED: AtomicU64 = AtomicU64::new(0x9e37_79b9);

fn environment() -> Environment {
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

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seconds = i64::try_from(since.as_secs()).unwrap();
    Time { seconds, nanoseconds: since.subsec_nanos() }
}

/// A pool named tank with the file systems tank and tank/child, and a server that exports both.
pub(crate) struct ServedPool {
    pub(crate) server: Server,
    pub(crate) pool: Pool,
    pub(crate) options: ServerOptions,
    pub(crate) exports: Vec<Export>,
    pub(crate) disks: DiskArray,
}

pub(crate) fn options() -> ServerOptions {
    ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        stop_timeout: Duration::from_secs(20),
        ..ServerOptions::new(Secret::new([7; 32]))
    }
}

/// The rule of clients on this machine, whose root is root.
pub(crate) fn local_rule() -> ClientRule {
    ClientRule { squash: Squash::Nobody, ..ClientRule::new("127.0.0.0/8".parse().unwrap()) }
}

pub(crate) fn export(pool: &Pool, dataset: &str) -> Export {
    let filesystem: Arc<DynFileSystem> =
        Arc::new(PoolFileSystem::open(pool, dataset, now).unwrap());
    let (path, door) = (format!("/{dataset}"), DoorId::new_unique());
    Export { path, filesystem, door, rules: vec![local_rule()] }
}

fn exports(pool: &Pool) -> Vec<Export> {
    ["tank", "tank/child"].map(|dataset| export(pool, dataset)).to_vec()
}

impl ServedPool {
    pub(crate) fn start() -> Self {
        Self::start_with(options())
    }

    pub(crate) fn start_with(options: ServerOptions) -> Self {
        let disks = DiskArray::new(&[128 << 20]);
        let drives = vec![PathBuf::from("/disk")];
        let vdevs = vec![NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data }];
        let properties = vec![("acltype".to_owned(), "nfsv4".to_owned())];
        let name = "tank".to_owned();
        let new = NewPool { name, vdevs, ashift: None, properties, force: false };
        let pool = engine::pool::create_on_devices(&new, &disks.devices(), &environment()).unwrap();
        let child = NewDataset { name: "tank/child".to_owned(), properties: Vec::new() };
        pool.datasets().create_filesystem(&child).unwrap();
        let exports = exports(&pool);
        let server = Server::start(&options, exports.clone()).unwrap();
        Self { server, pool, options, exports, disks }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// Stops the server, imports the pool again, and starts a server on the same address.
    pub(crate) fn restart(self) -> Self {
        let address = self.address();
        assert_eq!(self.server.stop(), 0);
        let Self { server, pool, exports, disks, options } = self;
        drop((server, exports));
        pool.export().unwrap();
        let pool = engine::pool::import_devices(&disks.devices(), "tank", &environment()).unwrap();
        let exports = self::exports(&pool);
        let options = ServerOptions { listen: vec![address], ..options };
        let server = Server::start(&options, exports.clone()).unwrap();
        Self { server, pool, options, exports, disks }
    }

    /// A server of the pool as it is found after a power cut now, when the drive has lost all that was not flushed.
    pub(crate) fn restart_after_power_cut(&self) -> Self {
        let journal = self.disks.journal();
        let drives = journal.cut_power(journal.len(), 0);
        let drives: Vec<Arc<dyn Device>> =
            drives.into_iter().map(|drive| Arc::new(drive) as Arc<dyn Device>).collect();
        let pool = engine::pool::import_devices(&drives, "tank", &environment()).unwrap();
        let (exports, options) = (exports(&pool), options());
        let server = Server::start(&options, exports.clone()).unwrap();
        // the disks of the first pool are not those of this one
        Self { server, pool, options, exports, disks: DiskArray::new(&[1 << 20]) }
    }
}

/// Waits until a condition holds; a test that waits in vain fails.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_mins(1), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
