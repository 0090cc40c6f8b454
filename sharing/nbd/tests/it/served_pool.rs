//! A pool in memory with a volume, and a server of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use device::Device;
use engine::pool::Pool;
use ipnet::IpNet;
use lun::{LunOptions, Reservations, VolumeLun};
use nbd::{Encryption, Export, Server, ServerOptions};
use sim::{DiskArray, Fault};

use crate::client::Client;
use crate::volume_pool::{VOLUME, create_pool, environment};

/// A pool in memory with a volume, and a server that exports it as "disk".
pub(crate) struct ServedPool {
    pub(crate) server: Server,
    pub(crate) unit: VolumeLun,
    pub(crate) pool: Pool,
    storm: DiskArray,
}

pub(crate) fn options() -> ServerOptions {
    ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        stop_timeout: Duration::from_secs(20),
        ..ServerOptions::default()
    }
}

pub(crate) fn open_unit(pool: &Pool, options: LunOptions) -> VolumeLun {
    VolumeLun::open(pool, VOLUME, options, Reservations::default()).expect("a unit")
}

pub(crate) fn loopback() -> Vec<IpNet> {
    vec!["127.0.0.0/8".parse().expect("a network")]
}

pub(crate) fn export(name: &str, unit: &VolumeLun) -> Export {
    let description = format!("volume {name}");
    Export {
        name: name.to_owned(),
        description,
        networks: loopback(),
        unit: Arc::new(unit.clone()),
    }
}

impl ServedPool {
    pub(crate) fn start() -> Self {
        Self::start_with(&options(), LunOptions::default())
    }

    pub(crate) fn start_with(options: &ServerOptions, unit: LunOptions) -> Self {
        Self::start_encrypted(options, unit, None)
    }

    pub(crate) fn start_encrypted(
        options: &ServerOptions,
        unit: LunOptions,
        encryption: Option<Encryption>,
    ) -> Self {
        let (storm, pool) = create_pool();
        let unit = open_unit(&pool, unit);
        let server =
            Server::start(options, vec![export("disk", &unit)], encryption).expect("a server");
        Self { server, unit, pool, storm }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
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

    /// A client in the transmission of the export "disk", with structured replies and block status.
    pub(crate) fn client(&self) -> Client {
        let mut client = Client::connect(self.address());
        client.use_structured_replies();
        client.select_block_status("disk");
        client.go("disk").expect("an export");
        client
    }

    /// A client as it was before structured replies.
    pub(crate) fn simple_client(&self) -> Client {
        let mut client = Client::connect(self.address());
        client.go("disk").expect("an export");
        client
    }
}
