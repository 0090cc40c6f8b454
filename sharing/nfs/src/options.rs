//! Addresses and limits of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::wire::portmap;
use crate::{Error, Result};

/// Addresses and limits of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerOptions {
    /// The addresses that the server listens on. The port of NFS is 2049; port 0 is a free one.
    pub listen: Vec<SocketAddr>,
    /// The key of file handles and the identity of the server. It must be the same after a restart, or every client
    /// gets ESTALE.
    pub secret: Secret,
    /// A file with the clients that have opens or locks, so that they get them back after a restart; none: clients
    /// lose locks at a restart.
    pub client_list: Option<PathBuf>,
    /// A file with the clients of NFSv3 that have locks, so that they are notified of a restart; none: they lose locks at
    /// a restart.
    pub lock_client_list: Option<PathBuf>,
    /// How clients learn the ports of the server's programs.
    pub portmapper: Portmapper,
    /// The port of the portmappers of clients: 111, except in tests.
    pub client_portmapper: u16,
    /// The name of this machine, by which clients of NFSv3 know it.
    pub host_name: String,
    /// Connections at the same time. Further ones are closed at once.
    pub max_connections: usize,
    /// Threads of one connection: requests that run in parallel.
    pub threads_per_connection: usize,
    /// Bytes of data of one READ or WRITE.
    pub max_io_bytes: usize,
    /// Bytes of all requests and responses that are in memory. One connection takes at most a quarter, or one request.
    pub max_buffered_bytes: usize,
    /// NFSv4 clients at the same time.
    pub max_clients: usize,
    /// Sessions of one client.
    pub max_sessions_per_client: usize,
    /// Slots of a session: requests of it at the same time.
    pub max_slots: usize,
    /// Opens and lock owners of one client.
    pub max_states_per_client: usize,
    /// The time after which the state of a silent client is freed, and the time that clients have to reclaim their
    /// state after a restart.
    pub lease: Duration,
    /// The time that a client has for each MiB of a request or response once it has begun. A connection that takes
    /// longer is closed. Between requests a client may wait for as long as it likes.
    pub stall_timeout: Duration,
    /// The time that the server waits for requests to end when it stops.
    pub stop_timeout: Duration,
}

/// How clients learn the ports of the server's programs. NFSv4 needs no portmapper; locks of NFSv3 do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Portmapper {
    /// They do not.
    #[default]
    Off,
    /// From the server itself, which listens on port 111 of its addresses over TCP and UDP. If another program does so, it
    /// is taken for rpcbind, and the server registers there.
    Automatic,
    /// From the server itself at these addresses.
    Listen(Vec<SocketAddr>),
}

/// 32 random bytes that the caller stores.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A secret of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A secret that cannot be guessed.
    pub fn from_text(text: &str) -> Self {
        Self(blake3::derive_key("Poolhouse NFS 2026 secret", text.as_bytes()))
    }

    /// A key for one purpose, from which the secret cannot be computed.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, &self.0)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Bytes of a request beside its data: headers, handles, names, and the operations of a COMPOUND.
const HEADER_BYTES: usize = 64 << 10;

impl ServerOptions {
    /// Options with the default limits, which listen nowhere yet.
    pub fn new(secret: Secret) -> Self {
        Self {
            listen: Vec::new(),
            secret,
            client_list: None,
            lock_client_list: None,
            portmapper: Portmapper::Off,
            client_portmapper: portmap::PORT,
            host_name: "localhost".to_owned(),
            max_connections: 1024,
            threads_per_connection: 16,
            max_io_bytes: 1 << 20,
            max_buffered_bytes: 256 << 20,
            max_clients: 1024,
            max_sessions_per_client: 16,
            max_slots: 64,
            max_states_per_client: 65_536,
            lease: Duration::from_secs(90),
            stall_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(5),
        }
    }

    /// Bytes of the largest record of a client.
    pub(crate) fn max_record_bytes(&self) -> usize {
        self.max_io_bytes + HEADER_BYTES
    }

    pub(crate) fn check(&self) -> Result<()> {
        let exchange = 2 * self.max_record_bytes();
        let lease = usize::try_from(self.lease.as_secs()).expect("a 64-bit system");
        let limits = [
            ("max_connections", self.max_connections, 1, 1 << 16),
            ("threads_per_connection", self.threads_per_connection, 1, 256),
            ("max_io_bytes", self.max_io_bytes, 8 << 10, 16 << 20),
            ("max_buffered_bytes", self.max_buffered_bytes, exchange, usize::MAX),
            ("max_clients", self.max_clients, 1, 1 << 20),
            ("max_sessions_per_client", self.max_sessions_per_client, 1, 1 << 10),
            ("max_slots", self.max_slots, 1, 1 << 10),
            ("max_states_per_client", self.max_states_per_client, 1, 1 << 24),
            ("lease", lease, 0, 24 * 60 * 60),
        ];
        for (limit, found, least, most) in limits {
            if !(least..=most).contains(&found) {
                return Err(Error::Limit { limit, found, least, most });
            }
        }
        Ok(())
    }
}
