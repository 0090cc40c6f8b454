//! The state of a server, for the status of services.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The state of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerStatus {
    /// The addresses that it listens on.
    pub listening: Vec<SocketAddr>,
    /// The exports, by path.
    pub exports: Vec<ExportStatus>,
    /// The open connections, the longest connected first.
    pub connections: Vec<ConnectionStatus>,
    /// Those of them that have no thread, since their clients are silent.
    pub idle_connections: usize,
    /// The NFSv4 clients.
    pub clients: Vec<ClientStatus>,
    /// The clients of NFSv3 that have locks or wait for some.
    pub lock_clients: Vec<LockClientStatus>,
    /// How clients learn the ports of the server's programs.
    pub portmapper: PortmapperStatus,
    /// The time that clients still have to reclaim their opens and locks after a restart; none: it is over.
    pub grace: Option<Duration>,
    /// The waits for the intent log since the start of the server.
    pub log_wait: LogWaitStatus,
    /// Sums over all clients since the start of the server.
    pub totals: Counters,
}

/// One connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionStatus {
    /// The client's address.
    pub address: SocketAddr,
    /// The time since it connected.
    pub connected: Duration,
    /// The version of the protocol that its last request had; none: it has sent none.
    pub version: Option<u32>,
    /// The paths of the exports that it has used.
    pub exports: Vec<String>,
    /// Requests that are being carried out.
    pub in_flight: u64,
    /// Sums since it connected.
    pub counters: Counters,
}

/// One export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportStatus {
    /// The path that clients mount.
    pub path: String,
    /// Files that NFSv4 clients have open, and files that clients of NFSv3 have locked.
    pub opens: usize,
}

/// One NFSv4 client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientStatus {
    /// The name that the client gives itself, as far as it is text.
    pub name: String,
    /// The address of its last request.
    pub address: SocketAddr,
    /// The time since its last request.
    pub silent: Duration,
    /// Sessions.
    pub sessions: usize,
    /// Open files.
    pub opens: usize,
    /// Owners of locks in files.
    pub lock_owners: usize,
}

/// One client of NFSv3 with locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockClientStatus {
    /// The name that the client gives itself, as far as it is text.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Files with locks.
    pub files: usize,
    /// Locks that it waits for.
    pub waits: usize,
}

/// How clients learn the ports of the server's programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortmapperStatus {
    /// They do not.
    Off,
    /// The server answers at these addresses.
    Answers(Vec<SocketAddr>),
    /// The system's rpcbind answers.
    Registered,
    /// They do not, though they should.
    Missing {
        /// The reason.
        why: String,
    },
}

/// The waits of clients for the intent log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogWaitStatus {
    /// Requests that wait now.
    pub waiting: u64,
    /// Waits that have ended.
    pub waits: u64,
    /// The time that they took together.
    pub total: Duration,
    /// The longest wait.
    pub longest: Duration,
}

/// Sums of requests. A rate is the difference of two by the time between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes that clients wrote.
    pub written_bytes: u64,
}

/// Counters that several threads add to.
#[derive(Default)]
pub(crate) struct SharedCounters {
    requests: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl SharedCounters {
    pub(crate) fn add(&self, more: &Counters) {
        self.requests.fetch_add(more.requests, Relaxed);
        self.read_bytes.fetch_add(more.read_bytes, Relaxed);
        self.written_bytes.fetch_add(more.written_bytes, Relaxed);
    }

    pub(crate) fn load(&self) -> Counters {
        Counters {
            requests: self.requests.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
        }
    }
}
