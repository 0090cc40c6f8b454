//! The state of a server, for the status of services.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The state of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerStatus {
    /// The addresses that it listens on.
    pub listening: Vec<SocketAddr>,
    /// The names of the exports, sorted.
    pub exports: Vec<String>,
    /// The connected clients, the longest connected first.
    pub clients: Vec<ClientStatus>,
    /// Sums over all clients since the start of the server.
    pub totals: Counters,
}

/// One connected client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientStatus {
    /// The client's address.
    pub address: SocketAddr,
    /// The name of its export; none during the handshake.
    pub export: Option<String>,
    /// The time since it connected.
    pub connected: Duration,
    /// Requests that are being carried out.
    pub in_flight: u64,
    /// Sums since it connected.
    pub counters: Counters,
}

/// Sums of requests. A rate is the difference of two ([`Counters::since`]) by the time between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes that clients wrote, without zeros and freed ranges.
    pub written_bytes: u64,
}

impl Counters {
    /// The sums since an earlier state. None: that state is of another client or server, or it is the later one.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            requests: self.requests.checked_sub(earlier.requests)?,
            errors: self.errors.checked_sub(earlier.errors)?,
            read_bytes: self.read_bytes.checked_sub(earlier.read_bytes)?,
            written_bytes: self.written_bytes.checked_sub(earlier.written_bytes)?,
        })
    }
}

/// Counters that several threads add to.
#[derive(Default)]
pub(crate) struct SharedCounters {
    requests: AtomicU64,
    errors: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl SharedCounters {
    pub(crate) fn add(&self, more: &Counters) {
        self.requests.fetch_add(more.requests, Relaxed);
        self.errors.fetch_add(more.errors, Relaxed);
        self.read_bytes.fetch_add(more.read_bytes, Relaxed);
        self.written_bytes.fetch_add(more.written_bytes, Relaxed);
    }

    pub(crate) fn load(&self) -> Counters {
        Counters {
            requests: self.requests.load(Relaxed),
            errors: self.errors.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
        }
    }
}
