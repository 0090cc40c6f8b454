//! A pool in memory with a volume, and a target with it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Device;
use engine::pool::Pool;
use iscsi::{Discovery, Server, ServerOptions, Target};
use lun::{LunOptions, OpenUnit, Reservations, VolumeGuids, VolumeLun};
use sim::{DiskArray, Fault};

use crate::initiator::Initiator;
use crate::volume_pool::{VOLUME, create_pool, environment};

/// The name of the target.
pub(crate) const TARGET: &str = "iqn.2026-01.org.example:disk";

/// A pool in memory with a volume, and a server with a target that has it as LUN 0.
pub(crate) struct ServedPool {
    pub(crate) server: Server,
    pub(crate) unit: OpenUnit,
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

pub(crate) fn open_unit(pool: &Pool, reservations: Reservations) -> OpenUnit {
    let unit = VolumeLun::open(pool, VOLUME, LunOptions::default(), reservations).expect("a unit");
    let guids = VolumeGuids { pool: pool.guid(), volume: unit.guid() };
    OpenUnit { lun: Arc::new(unit), guids, volume: VOLUME.to_owned() }
}

pub(crate) fn target(unit: &OpenUnit) -> Target {
    Target {
        name: TARGET.to_owned(),
        alias: "a disk".to_owned(),
        networks: vec!["127.0.0.0/8".parse().expect("a network")],
        initiators: Vec::new(),
        chap: None,
        units: BTreeMap::from([(0, unit.clone())]),
    }
}

/// A server with open discovery, which reports failed logins to nobody.
pub(crate) fn start_server(options: &ServerOptions, targets: Vec<Target>) -> iscsi::Result<Server> {
    Server::start(options, targets, Discovery::Open, Arc::new(|_| {}))
}

impl ServedPool {
    pub(crate) fn start() -> Self {
        Self::start_with(&options())
    }

    pub(crate) fn start_with(options: &ServerOptions) -> Self {
        let (storm, pool) = create_pool();
        let unit = open_unit(&pool, Reservations::default());
        let server = start_server(options, vec![target(&unit)]).expect("a server");
        Self { server, unit, pool, storm }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// A session that has taken its first unit attention.
    pub(crate) fn initiator(&self) -> Initiator {
        self.initiator_with(1, &[])
    }

    pub(crate) fn initiator_with(&self, isid: u8, keys: &[(&str, &str)]) -> Initiator {
        let mut initiator = Initiator::connect_as(self.address(), isid).log_in(TARGET, keys);
        assert_eq!(initiator.attentions(), [(0x29, 0x00)], "power on");
        initiator
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
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_mins(1), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
