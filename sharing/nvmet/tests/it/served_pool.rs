//! A pool in memory with a volume, and a subsystem with it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Device;
use engine::pool::Pool;
use lun::{LunOptions, OpenUnit, Reservations, VolumeGuids, VolumeLun};
use nvmet::{Server, ServerOptions, Subsystem};
use sim::{DiskArray, Fault};

use crate::host::{Host, SUBSYSTEM};
use crate::volume_pool::{VOLUME, create_pool, environment};

/// A pool in memory with a volume, and a server with a subsystem that has it as namespace 1.
pub(crate) struct ServedPool {
    pub(crate) server: Server,
    pub(crate) namespace: OpenUnit,
    pub(crate) pool: Pool,
    storm: DiskArray,
}

pub(crate) fn options() -> ServerOptions {
    ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        failed_login_pause: Duration::from_millis(10),
        stop_timeout: Duration::from_secs(20),
        ..ServerOptions::default()
    }
}

pub(crate) fn open_namespace(pool: &Pool, reservations: Reservations) -> OpenUnit {
    let unit = VolumeLun::open(pool, VOLUME, LunOptions::default(), reservations).expect("a unit");
    let guids = VolumeGuids { pool: pool.guid(), volume: unit.guid() };
    OpenUnit { lun: Arc::new(unit), guids, volume: VOLUME.to_owned() }
}

pub(crate) fn subsystem(namespace: &OpenUnit) -> Subsystem {
    Subsystem {
        name: SUBSYSTEM.to_owned(),
        networks: vec!["127.0.0.0/8".parse().expect("a network")],
        hosts: Vec::new(),
        authentication: None,
        namespaces: BTreeMap::from([(1, namespace.clone())]),
    }
}

pub(crate) fn start_server(options: &ServerOptions, subsystems: Vec<Subsystem>) -> Server {
    Server::start(options, subsystems, Arc::new(|_| {})).expect("a server")
}

impl ServedPool {
    pub(crate) fn start() -> Self {
        Self::start_with(&options())
    }

    pub(crate) fn start_with(options: &ServerOptions) -> Self {
        let (storm, pool) = create_pool();
        let namespace = open_namespace(&pool, Reservations::default());
        let server = start_server(options, vec![subsystem(&namespace)]);
        Self { server, namespace, pool, storm }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// A host with an admin queue and an I/O queue.
    pub(crate) fn host(&self) -> Host {
        Host::connect(self.address(), 1)
    }

    /// Makes the drive vanish, or come back.
    pub(crate) fn fail_drive(&self, is_gone: bool) {
        for disk in self.storm.disks() {
            if is_gone { disk.add_fault(Fault::Removed) } else { disk.clear_faults() }
        }
    }

    /// The pool as it is found after a power cut now, when the drive has lost all that was not flushed.
    pub(crate) fn import_after_power_cut(&self) -> Pool {
        let journal = self.storm.journal();
        let drives = journal.cut_power(journal.len(), 0);
        let drives: Vec<Arc<dyn Device>> =
            drives.into_iter().map(|drive| Arc::new(drive) as Arc<dyn Device>).collect();
        engine::pool::import_devices(&drives, "tank", &environment()).expect("a pool")
    }
}

/// Waits until a condition holds; a test that waits in vain fails.
pub(crate) fn wait_until(event: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_mins(1), "{event} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
